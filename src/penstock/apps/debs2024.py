"""DEBS 2024 Grand Challenge: telemetry of drives, statistics and alerts (Ra fig. 8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock import functions as F
from penstock.apps.api import App, Instances, rate_of, register
from penstock.apps.backblaze import REQUIRED, SCHEMA, Drives
from penstock.apps.drive_readings import (
    ALERTS,
    EVENTS,
    STORAGE,
    detect,
    events,
    is_valid,
    statistics,
    temperature,
    valid,
)
from penstock.common.parameters import param
from penstock.model import Grouping
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.sources.files import reader_for
from penstock.pipeline.sources.generator import Content
from penstock.pipeline.sources.readers import Reader
from penstock.pipeline.steps import Hints, Link, Sink

#: What is added up for a model and window.
SUMS = ("readings", "failures", "events", "temperature")

_DAY = timedelta(days=1)
_EPOCH = date(1970, 1, 1)


@register
@dataclass(frozen=True)
class Debs2024(App):
    """Watch drives: statistics of models over sliding windows, and alerts for single drives.

    ``drives -> filter -> detect -> anomaly -> alerts`` and ``filter, detect -> aggregate ->
    storage``, so that the stream from `filter` to `aggregate` skips the layer of `detect`.

    * `filter` drops readings without date, serial number, model, hours of operation or a capacity,
      and those whose failure is not 0 or 1.
    * `detect` finds the readings with an event: a failure, reallocated, pending or uncorrectable
      sectors, reported errors, timeouts, or 45 degrees and more.
    * `aggregate` counts by model and window of `window_days`, one for every `slide_days`, by the
      date of the reading. ``storage`` gets ``(model, window_start, readings, failures, events,
      failures_per_year, mean_temperature)``.
    * `anomaly` gathers the events of a drive. ``alerts`` gets drives that failed, or that had at
      least `kinds` kinds of events, as ``(serial_number, model, failed, kinds, events, first_day,
      last_day)``.

    A reading costs about 1 microsecond to make, 0.7 to filter and count in its windows, and 0.5 to
    detect. Readings of a model and day, and events of a drive, are added up before they are sent;
    what arrives costs some microseconds a row. State grows with the days and the drives.
    """

    name: ClassVar[str] = "debs2024"
    summary: ClassVar[str] = "drives -> filter -> detect -> anomaly, aggregate: statistics, alerts"
    keys: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "storage": ("model", "window_start"),
        "alerts": ("serial_number", "model"),
    }

    window_days: int = param(30, "Length of a window.", least=1, unit="days")
    slide_days: int = param(1, "Distance between windows.", least=1, unit="days")
    kinds: int = param(2, "Kinds of events that make an alert.", least=1, most=7)
    drives: int = param(2_000, "Drives in generated data.", least=1)

    def content(self, zipf: float) -> Content:
        """Backblaze's columns, the models skewed."""
        return Drives(self.drives, zipf=zipf)

    def reader(self, path: str | Path) -> Reader:
        """Read Backblaze's daily CSV files, or Parquet with the same columns."""
        return reader_for(path, SCHEMA, REQUIRED)

    def build(self, source: Any, out: Mapping[str, Sink], many: Instances) -> Pipeline:
        """Build the pipeline with its two sinks; see `App.build`."""
        readings = (
            Pipeline(self.name)
            .source(
                "drives",
                source,
                parallelism=many.of("drives"),
                hints=Hints(rate_per_s=rate_of(source), cpu_us_per_tuple=1.0, tuple_bytes=120.0),
            )
            .map(
                "filter",
                valid,
                parallelism=many.stateless("filter"),
                chain=many.chain,
                hints=Hints(cpu_us_per_tuple=0.5, selectivity=0.98, tuple_bytes=100.0),
            )
        )
        stored = self._with_statistics(readings, many).sink("storage", out["storage"])
        return self._with_alerts(stored, many).sink("alerts", out["alerts"])

    def _with_statistics(self, readings: Pipeline, many: Instances) -> Pipeline:
        """Add ``filter, detect -> aggregate -> statistics``."""
        by_model = ("model", "window_start")
        return (
            readings.map(
                "windows",
                self.windows,
                hints=Hints(cpu_us_per_tuple=0.2, selectivity=0.1, tuple_bytes=50.0),
            )
            .map(
                "detect",
                detect,
                after="filter",
                parallelism=many.stateless("detect"),
                chain=many.chain,
                hints=Hints(cpu_us_per_tuple=0.5, selectivity=0.1, tuple_bytes=90.0),
            )
            .map(
                "event-windows",
                self.event_windows,
                hints=Hints(cpu_us_per_tuple=0.2, tuple_bytes=50.0),
            )
            .aggregate(
                "aggregate",
                by=by_model,
                reduce={name: F.sum(name) for name in SUMS},
                after=[
                    Link("windows", Grouping.FIELDS, by_model),
                    Link("event-windows", Grouping.FIELDS, by_model),
                ],
                parallelism=many.of("aggregate"),
                hints=Hints(cpu_us_per_tuple=3.0, tuple_bytes=50.0),
            )
            .map(
                "statistics",
                statistics,
                hints=Hints(cpu_us_per_tuple=0.2, tuple_bytes=60.0),
            )
        )

    def _with_alerts(self, stored: Pipeline, many: Instances) -> Pipeline:
        """Add ``detect -> anomaly -> alert``."""
        return stored.aggregate(
            "anomaly",
            by=("serial_number", "model"),
            reduce={
                **{name: F.max(name) for name in EVENTS},
                "events": F.count(),
                "first_day": F.min("date"),
                "last_day": F.max("date"),
            },
            after="detect",
            parallelism=many.of("anomaly"),
            hints=Hints(cpu_us_per_tuple=5.0, tuple_bytes=110.0),
        ).map(
            "alert",
            self.alert,
            hints=Hints(cpu_us_per_tuple=0.2, selectivity=0.5, tuple_bytes=60.0),
        )

    # ---- functions of the steps

    def windows(self, batch: pa.RecordBatch) -> pa.Table | None:
        """Count readings in all windows that they are in."""
        days = pa.Table.from_batches([batch]).group_by(["model", "date"], use_threads=False)
        made = days.aggregate([([], "count_all"), ("failed", "sum"), ("temperature", "sum")])
        zero = pa.array(np.zeros(made.num_rows, dtype=np.int64))
        return self._slide(
            made.column("model"),
            made.column("date"),
            readings=made.column("count_all"),
            failures=made.column("failed_sum"),
            events=zero,
            temperature=made.column("temperature_sum"),
        )

    def event_windows(self, batch: pa.RecordBatch) -> pa.Table | None:
        """Count events in all windows that they are in."""
        days = pa.Table.from_batches([batch]).group_by(["model", "date"], use_threads=False)
        made = days.aggregate([([], "count_all")])
        zero = pa.array(np.zeros(made.num_rows, dtype=np.int64))
        return self._slide(
            made.column("model"),
            made.column("date"),
            readings=zero,
            failures=zero,
            events=made.column("count_all"),
            temperature=zero,
        )

    def _slide(self, model: Any, day: Any, **counts: Any) -> pa.Table:
        """Repeat each row for all windows that its day is in."""
        days = np.asarray(day.cast(pa.int32())).astype(np.int64)
        # Windows start at multiples of the slide; the latest that holds the day, then earlier ones.
        latest = days // self.slide_days
        starts = (latest[:, None] - np.arange(-(-self.window_days // self.slide_days))) * (
            self.slide_days
        )
        row, which = np.nonzero(starts > days[:, None] - self.window_days)
        start = pa.array(starts[row, which].astype(np.int32)).cast(pa.date32())
        take = pa.array(row)
        return pa.table(
            {
                "model": model.take(take),
                "window_start": start,
                **{name: column.take(take) for name, column in counts.items()},
            }
        )

    def alert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Keep the drives that failed or had several kinds of events."""
        flags = [np.asarray(batch.column(name)) for name in EVENTS]
        kinds = np.sum(flags, axis=0, dtype=np.int64)
        named = pa.record_batch(
            {
                "serial_number": batch.column("serial_number"),
                "model": batch.column("model"),
                "failed": pa.array(flags[0] > 0),
                "kinds": pa.array(kinds),
                **{name: batch.column(name) for name in ("events", "first_day", "last_day")},
            }
        )
        return named.filter(pa.array((flags[0] > 0) | (kinds >= self.kinds)))

    # ---- checking

    def expected(self, table: pa.Table) -> dict[str, pa.Table]:
        """Go through the readings one by one."""
        sums: dict[tuple[str, date], list[int]] = {}
        drives: dict[tuple[str, str], dict[str, Any]] = {}
        for row in table.to_pylist():
            if not is_valid(row):
                continue
            happened = events(row)
            start = row["date"] - (row["date"] - _EPOCH).days % self.slide_days * _DAY
            while start > row["date"] - self.window_days * _DAY:
                mine = sums.setdefault((row["model"], start), [0, 0, 0, 0])
                mine[0] += 1
                mine[1] += row["failure"]
                mine[2] += bool(happened)
                mine[3] += temperature(row)
                start -= self.slide_days * _DAY
            if happened:
                key = (row["serial_number"], row["model"])
                drive = drives.setdefault(key, {"seen": set(), "days": []})
                drive["seen"] |= happened
                drive["days"].append(row["date"])
        storage = [
            {
                "model": model,
                "window_start": start,
                "readings": readings,
                "failures": failures,
                "events": events,
                "failures_per_year": failures * 365.0 / readings,
                "mean_temperature": heat / readings,
            }
            for (model, start), (readings, failures, events, heat) in sorted(sums.items())
        ]
        alerts = [
            {
                "serial_number": serial,
                "model": model,
                "failed": "failed" in drive["seen"],
                "kinds": len(drive["seen"]),
                "events": len(drive["days"]),
                "first_day": min(drive["days"]),
                "last_day": max(drive["days"]),
            }
            for (serial, model), drive in sorted(drives.items())
            if "failed" in drive["seen"] or len(drive["seen"]) >= self.kinds
        ]
        return {
            "storage": pa.Table.from_pylist(storage, STORAGE),
            "alerts": pa.Table.from_pylist(alerts, ALERTS),
        }
