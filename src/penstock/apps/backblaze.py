"""Backblaze drive statistics: made up, or from the daily CSV files that Backblaze publishes.

A file has one row for each drive and day: date, serial_number, model, capacity_bytes, failure, and
a ``smart_<number>_raw`` column for every attribute that any drive reports, most of them empty.
Which ones there are differs between years; those that are missing are read as null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model import InvalidValue
from penstock.pipeline.sources.draws import Draws, uniform_of
from penstock.pipeline.sources.zipf import Zipf

#: Columns that a file must have.
REQUIRED = ("date", "serial_number", "model", "capacity_bytes", "failure")

#: Attributes that are read: reallocated sectors, hours, reported uncorrectable errors, command
#: timeouts, temperature, pending sectors, uncorrectable sectors.
SMART = tuple(f"smart_{number}_raw" for number in (5, 9, 187, 188, 194, 197, 198))

#: Raw values have up to 64 bits without a sign, and some files hold them as decimals.
SCHEMA = pa.schema(
    [
        ("date", pa.date32()),
        ("serial_number", pa.string()),
        ("model", pa.string()),
        ("capacity_bytes", pa.int64()),
        ("failure", pa.int64()),
        *((name, pa.float64()) for name in SMART),
    ]
)

#: Generated days begin on 1 January 2024, in days since 1970.
BEGIN_DAY = 19_723

#: Parts of generated rows: drives that will fail, rows without SMART, rows with a wrong capacity.
SICK, SILENT, WRONG = 0.05, 0.01, 0.005


@dataclass(frozen=True)
class Drives:
    """Content of a generator: every drive once a day, day after day.

    Some drives are sick: their defects grow over weeks until they fail and are replaced. Some rows
    have no SMART values, and some a capacity of -1, as in the published files.

    Parameters
    ----------
    drives : int
        Drives in use at a time.
    models : int
    zipf : float
        Skew of the models, 0.0 to 2.0.
    """

    drives: int = 2_000
    models: int = 30
    zipf: float = 1.0

    def __post_init__(self) -> None:
        for name in ("drives", "models"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidValue(name, "Drives", "a whole number of at least 1", value)
        Zipf(self.models, self.zipf)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the published files that are used."""
        return SCHEMA

    def columns(self, draws: Draws) -> Mapping[str, Any]:
        """Work out the drives of the positions and their values on the day."""

        def of(what: str, values: Any) -> Any:
            return uniform_of(draws.seed, what, values)

        day, slot = np.divmod(draws.positions, self.drives)
        # A sick drive lives for 30 to 180 days, with a first day of its own.
        sick = of("sick", slot) < SICK
        span = np.where(sick, 30 + (of("span", slot) * 150).astype(np.int64), 10_000)
        life, age = np.divmod(day + (of("phase", slot) * span).astype(np.int64), span)
        last = sick & (age == span - 1)
        defects = np.where(sick, np.maximum(age - span // 2, 0), 0)
        drive = life * self.drives + slot
        model = Zipf(self.models, self.zipf).ranks(of("model", slot))
        terabytes = 4 + 2 * (of("capacity", model) * 8).astype(np.int64)
        wrong = draws.uniform("wrong") < WRONG
        silent = draws.uniform("silent") < SILENT
        heat = 24 + 12 * of("heat", slot) + 4 * draws.uniform("temperature") + 10 * sick
        smart = {
            5: defects * (1 + (of("growth", drive) * 8).astype(np.int64)),
            9: 24 * (age + (of("hours", drive) * 1000).astype(np.int64)),
            187: defects // 7,
            188: (draws.uniform("timeout") < 0.01).astype(np.int64),
            194: heat.astype(np.int64),
            197: defects // 2,
            198: defects // 5,
        }
        return {
            "date": pa.array((BEGIN_DAY + day).astype(np.int32)).cast(pa.date32()),
            "serial_number": _named("Z", 9, drive),
            "model": _named("PS", 4, model),
            "capacity_bytes": np.where(wrong, -1, terabytes * 10**12),
            "failure": last.astype(np.int64),
            **{
                f"smart_{number}_raw": pa.array(values.astype(np.float64), mask=silent)
                for number, values in smart.items()
            },
        }


def _named(prefix: str, digits: int, numbers: Any) -> pa.Array:
    """Names made of a prefix and a number with leading zeros."""
    text = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), digits, "0")
    return pc.binary_join_element_wise(prefix, text, "")
