"""Reads runs from a metrics store for the page; what was read once is kept."""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.common.errors import InvalidValue, PenstockError
from penstock.control.events import NOTE, Event
from penstock.control.explain import explain
from penstock.report.summary import summarise
from penstock.store.prometheus import RunState, render
from penstock.store.records import (
    DECISION,
    BatchRecord,
    EventRecord,
    PlanRecord,
    RunRecord,
    RunRecords,
    RunStatus,
)
from penstock.store.store import MetricsStore
from penstock.store.totals import Totals
from penstock.web.frame import STATE_WINDOW, WINDOW, Detail, frame_of
from penstock.web.series import MOST_POINTS, Columns, series_of

#: Batches that are kept of a run before all are read anew: the store rolls up what is old.
MOST_KEPT = 20_000

#: Runs whose batches are kept.
MOST_RUNS = 4

#: Key of a run's configuration: its topology.
TOPOLOGY = "topology"

#: Key of a run's configuration: whether its time is virtual.
VIRTUAL = "virtual_time"


@dataclass
class _Kept:
    """What was read of a run so far."""

    batches: list[BatchRecord] = field(default_factory=list)
    plans: tuple[PlanRecord, ...] = ()
    plans_at: int = -1
    told: dict[int, tuple[EventRecord, dict[str, Any]]] = field(default_factory=dict)


class RunReader:
    """Views of the runs in one metrics store; any thread may ask.

    Parameters
    ----------
    place : str or Path
        As in `MetricsStore.open`. A file that is not there yet is waited for: until then there is
        no run.
    """

    def __init__(self, place: str | Path) -> None:
        self._place = place
        self._file = None if "://" in str(place) else Path(place)
        self._opened: MetricsStore | None = None
        self._opened_file: tuple[int, int] | None = None
        self._lock = threading.RLock()
        self._kept: dict[str, _Kept] = {}

    def close(self) -> None:
        """Close the store."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    # ---- what is asked for

    def warm(self) -> None:
        """Read the latest run, so that who opens the page does not wait for that."""
        with self._lock:
            store = self._store()
            latest = store.latest_run() if store is not None else None
            if latest is not None:
                self._read(latest.id)

    def runs(self) -> list[dict[str, Any]]:
        """List the runs, the newest first."""
        with self._lock:
            store = self._store()
            return [] if store is None else [brief(run) for run in store.runs()]

    def run(self, run: str) -> dict[str, Any]:
        """Tell what a run is, and what it did as a whole."""
        with self._lock:
            record, kept = self._run(run), self._read(run)
            events = self._events(run)
            records = RunRecords(record, events=events)
            summary = summarise(records, Totals.of(kept.batches))
            config = {k: v for k, v in record.config.items() if k != TOPOLOGY}
            return {
                **brief(record),
                "config": config,
                "summary": summary,
                "first_batch": kept.batches[0].batch if kept.batches else None,
                "last_batch": kept.batches[-1].batch if kept.batches else None,
                "plans": [p.from_batch for p in kept.plans],
            }

    def series(self, run: str, points: int = MOST_POINTS, since: int | None = None) -> Columns:
        """Give a run over time; with `since`, the batches after that one, each by itself."""
        with self._lock:
            record, batches = self._run(run), self._read(run).batches
            first = 0
            if since is not None:
                first = bisect_left(batches, since + 1, key=lambda b: b.batch)
                points = max(points, len(batches) - first)
            before = batches[first - 1] if first else None
            return series_of(batches[first:], record.started_at_s, points, before)

    def frame(
        self, run: str, *, batch: int | None = None, t: float | None = None
    ) -> dict[str, Any]:
        """Give a run at a batch, or at a time; by default at the last batch."""
        with self._lock:
            record, kept = self._run(run), self._read(run)
            if not kept.batches:
                raise NoBatch(run)
            at = len(kept.batches) - 1
            if batch is not None:
                at = min(at, bisect_left(kept.batches, batch, key=lambda b: b.batch))
            elif t is not None:
                moment = record.started_at_s + t - 1e-3
                at = min(at, bisect_left(kept.batches, moment, key=lambda b: b.ended_at_s))
            detail = self._detail(run, kept.batches, at)
            outline = record.config.get(TOPOLOGY, {})
            return frame_of(detail, kept.plans, outline, record.started_at_s)

    def events(self, run: str) -> list[dict[str, Any]]:
        """Tell what happened, decisions with their explanations."""
        with self._lock:
            record = self._run(run)
            known = self._kept[run].told if run in self._kept else {}
            events = self._events(run)
            for event in events:
                if event.number not in known or known[event.number][0] != event:
                    known[event.number] = event, told(event, record.started_at_s)
            return [known[event.number][1] for event in events]

    def status(self, run: str) -> str:
        """Say how far a run is."""
        with self._lock:
            return self._run(run).status.value

    def metrics(self) -> str:
        """Write the latest run, and all that are still going on, as Prometheus text."""
        with self._lock:
            store = self._store()
            runs = () if store is None else store.runs()
            shown = [r for r in runs[1:] if r.status is RunStatus.RUNNING][: MOST_RUNS - 1]
            return render([self._state(run) for run in (*runs[:1], *shown)])

    # ---- inside

    def _store(self) -> MetricsStore | None:
        there = self._file_there()
        if self._opened is not None and self._file is not None and there != self._opened_file:
            # The file was deleted, or another is in its place: what was read is of the one before.
            self._opened.close()
            self._opened = None
            self._kept.clear()
        if self._opened is None:
            if self._file is not None and there is None:
                return None
            self._opened = MetricsStore.open(self._place, read_only=True)
            self._opened_file = there
        return self._opened

    def _file_there(self) -> tuple[int, int] | None:
        """Say which file the store is; None where there is none, or a server."""
        if self._file is None:
            return None
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _known(self) -> MetricsStore:
        store = self._store()
        if store is None:
            raise PenstockError(f"metrics store {self._place} is not there yet")
        return store

    def _run(self, run: str) -> RunRecord:
        return self._known().run(run)

    def _events(self, run: str) -> tuple[EventRecord, ...]:
        return self._known().events(run)

    def _read(self, run: str) -> _Kept:
        """Bring what is kept of a run up to date."""
        store = self._known()
        kept = self._kept.pop(run, None) or _Kept()
        if len(kept.batches) > MOST_KEPT:
            kept = _Kept()
        since = kept.batches[-1].batch + 1 if kept.batches else 0
        kept.batches += store.batches(run, since=since)
        newest = store.newest_plan(run)
        if newest != kept.plans_at:
            kept.plans, kept.plans_at = store.plans(run), newest
        self._kept[run] = kept
        while len(self._kept) > MOST_RUNS:
            del self._kept[next(iter(self._kept))]
        return kept

    def _detail(self, run: str, batches: list[BatchRecord], at: int) -> Detail:
        store = self._known()
        first = max(0, at - WINDOW + 1)
        window = batches[first : at + 1]
        since, before = window[0].batch, window[-1].batch + 1
        return Detail(
            window,
            batches[first - 1] if first else None,
            store.instances(run, since=since, before=before),
            store.edges(run, since=since, before=before),
            store.nodes(run, since=since, before=before),
            store.operators(run, since=max(0, before - STATE_WINDOW), before=before),
        )

    def _state(self, run: RunRecord) -> RunState:
        kept = self._read(run.id)
        latest = kept.batches[-1] if kept.batches else None
        instances = self._known().instances(run.id, since=latest.batch) if latest else ()
        decisions = sum(event.kind == DECISION for event in self._events(run.id))
        return RunState(run, Totals.of(kept.batches), latest, instances, decisions)


class NoBatch(PenstockError):
    """A run has no batch that could be shown."""

    def __init__(self, run: str) -> None:
        super().__init__(f"run {run!r} has no batch yet")


def brief(run: RunRecord) -> dict[str, Any]:
    """Tell what a run is, in a few fields."""
    return {
        "id": run.id,
        "topology": run.topology,
        "strategy": run.strategy,
        "status": run.status.value,
        "started_at_s": run.started_at_s,
        "ended_at_s": run.ended_at_s,
        "rows_lost": run.rows_lost,
        "rows_duplicated": run.rows_duplicated,
        "virtual_time": bool(run.config.get(VIRTUAL, False)),
    }


def told(record: EventRecord, origin_s: float) -> dict[str, Any]:
    """Tell an event; a decision with what `penstock explain` says of it."""
    found: dict[str, Any] = {
        "number": record.number,
        "kind": record.kind,
        "t": round(max(0.0, record.at_s - origin_s), 3),
        "batch": record.batch,
        "text": record.text,
        "status": None,
        "explanation": None,
        "decision": None,
    }
    if record.kind in (DECISION, NOTE):
        try:
            event = Event.of_record(record)
        except InvalidValue as error:
            return {**found, "explanation": str(error)}
        found["status"] = event.status.value
        found["explanation"] = explain(event, record.number)
        found["decision"] = _figures(event)
    return found


def _figures(event: Event) -> dict[str, Any]:
    """Give the figures of a decision that a page draws."""
    before, after = event.before, event.predicted
    return {
        "reasons": [reason.text for reason in event.reasons],
        "measured": dict(event.measured),
        "nodes_before": event.nodes_before,
        "nodes_after": event.nodes_after,
        "moves": list(event.moves),
        "moved": event.moved,
        "partitions": event.partitions,
        "woken": list(event.woken),
        "released": list(event.released),
        "before": before and {"max_node_load": before.max_node_load, "cut_share": before.cut_share},
        "predicted": after and {"max_node_load": after.max_node_load, "cut_share": after.cut_share},
        "gained": event.gained and {"came": event.gained.came, "text": event.gained.text},
    }
