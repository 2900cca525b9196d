"""The driver of a pipeline: batches in order, each planned, run, committed; on any backend."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from penstock.model import InvalidValue, Kind, Plan, RoutingTable
from penstock.pipeline.execute import StepFailed
from penstock.pipeline.frames import ERROR, SINK, STATS, Frame, decode, decode_json
from penstock.pipeline.journal import Journal
from penstock.pipeline.layout import Layout
from penstock.pipeline.wave import ON_ERROR, Wave
from penstock.state.log import Epoch, StateLog

Ranges = Mapping[str, tuple[tuple[int, int], ...]]


class Backend(Protocol):
    """Something that runs all tasks of a wave and returns the frames for the driver."""

    def run(self, layout: Layout, wave: Wave) -> Iterable[bytes]:
        """Run the batch; raise if any task could not be run."""
        ...


@dataclass(frozen=True, eq=False)
class InstanceStats:
    """What one instance did in one batch."""

    vertex: str
    instance: int
    rows_in: int
    sent: Mapping[int, Mapping[int, int]]
    sinks: Mapping[str, int]
    partitions: Mapping[str, list[int]]
    skipped: int
    sample: Any
    stamps: Mapping[int, int]
    cpu_s: float
    wall_s: float
    rss_bytes: int

    @property
    def rows_out(self) -> int:
        """Rows sent on all wires and to all sinks."""
        sent = sum(sum(targets.values()) for targets in self.sent.values())
        return sent + sum(self.sinks.values())


@dataclass(frozen=True, eq=False)
class BatchResult:
    """What a committed batch did."""

    batch_id: int
    wave: Wave
    ranges: Ranges
    stats: tuple[InstanceStats, ...]
    rows_to_sinks: Mapping[str, int]

    @property
    def rows_in(self) -> int:
        """Rows that the sources read."""
        first = set(self.wave.layers[0])
        return sum(s.rows_in for s in self.stats if s.vertex in first)

    @property
    def skipped(self) -> int:
        """Rows that were left out because a function failed on them."""
        return sum(s.skipped for s in self.stats)


@dataclass(eq=False)
class Driver:
    """Runs the batches of one pipeline in order.

    Parameters
    ----------
    layout : Layout
    backend : Backend
    root : Path
        Folder of the journal and of the state; workers must be able to reach it.
    plan : Plan
        The plan of the next batch; `replace_plan` changes it.
    on_error : str
        ``stop`` or ``skip``.
    """

    layout: Layout
    backend: Backend
    root: Path
    plan: Plan
    on_error: str = "stop"
    epochs: dict[str, tuple[Epoch, ...]] = field(default_factory=dict)
    version: int = -1

    def __post_init__(self) -> None:
        if self.on_error not in ON_ERROR:
            raise InvalidValue("on_error", "a run", "one of " + ", ".join(ON_ERROR), self.on_error)
        self.journal = Journal(self.root / "journal")
        self.token = uuid.uuid4().hex
        self.version = self.journal.last_commit()
        done = self.journal.committed(self.version)
        if done is not None:
            self.epochs = {
                vertex: tuple(_epoch(e) for e in epochs)
                for vertex, epochs in done["epochs"].items()
            }
        for step in self.layout.sinks():
            assert step.sink is not None
            step.sink.recover(self.version)
        self.replace_plan(self.plan)

    def replace_plan(self, plan: Plan) -> None:
        """Use another plan from the next batch on.

        An operator with state whose instances or routing change begins a new epoch.
        """
        names = {vertex.name for vertex in self.layout.vertices}
        if set(plan.parallelism) != names:
            raise InvalidValue("plan", "a run", f"for {sorted(names)}", sorted(plan.parallelism))
        for vertex in self.layout.vertices:
            if vertex.kind is not Kind.STATEFUL:
                continue
            count, table = plan.parallelism[vertex.name], plan.routing.get(vertex.name)
            if table is not None and table.split:
                raise InvalidValue(
                    "routing",
                    f"operator {vertex.name!r}",
                    "without split keys, whose parts nothing merges yet",
                    dict(table.split),
                )
            known = self.epochs.get(vertex.name)
            if known is None:
                self.epochs[vertex.name] = (Epoch(0, count, -1, table),)
                continue
            now = known[-1]
            if (now.instances, now.table) == (count, table):
                continue
            if now.since == self.version:
                # Nothing was saved in that epoch yet: it is changed in place.
                following = dataclasses.replace(now, instances=count, table=table)
                self.epochs[vertex.name] = (*known[:-1], following)
            else:
                following = Epoch(now.number + 1, count, self.version, table)
                self.epochs[vertex.name] = (now, following)
        self.plan = plan

    @property
    def next_batch(self) -> int:
        """Number of the next batch."""
        return self.version + 1

    def pending(self) -> Ranges | None:
        """Ranges of a batch that was begun and not committed; it must be run first."""
        entry = self.journal.begun(self.next_batch)
        if entry is None:
            return None
        return {name: tuple((a, b) for a, b in cuts) for name, cuts in entry["ranges"].items()}

    def position(self) -> dict[str, int]:
        """Position that every source has reached in committed batches."""
        done = self.journal.committed(self.version)
        return {} if done is None else {k: int(v) for k, v in done["positions"].items()}

    def wave(self, ranges: Ranges) -> Wave:
        """Describe the next batch to its tasks."""
        homes = {name: tuple(map(str, spots)) for name, spots in self.plan.placement.items()}
        return Wave(
            batch_id=self.next_batch,
            version=self.version,
            layers=self.layout.layers,
            parallelism=dict(self.plan.parallelism),
            routing=dict(self.plan.routing),
            epochs=dict(self.epochs),
            ranges=dict(ranges),
            homes=homes,
            state_root=str(self.root / "state"),
            on_error=self.on_error,
            token=self.token,
        )

    def run_batch(self, ranges: Ranges, extra: dict[str, Any] | None = None) -> BatchResult:
        """Run and commit the next batch.

        Parameters
        ----------
        ranges : mapping
            Positions of each source that belong to it.
        extra : dict, optional
            More to write down with the commit.

        Raises
        ------
        StepFailed
            When a function failed and `on_error` is ``stop``. Nothing of the batch remains.
        """
        wave = self.wave(ranges)
        entry = {"ranges": {name: [list(cut) for cut in cuts] for name, cuts in ranges.items()}}
        self.journal.begin(wave.batch_id, entry)
        frames = [Frame.unpack(bytes(data)) for data in self.backend.run(self.layout, wave)]
        for frame in frames:
            if frame.kind == ERROR:
                raise StepFailed(**decode_json(frame.body))
        stats = tuple(_stats(decode_json(f.body)) for f in frames if f.kind == STATS)
        written = self._sinks(wave.batch_id, frames, stats)
        positions = self.position()
        positions.update({name: cuts[-1][1] for name, cuts in ranges.items() if cuts})
        epochs = {v: [dataclasses.asdict(e) for e in known] for v, known in self.epochs.items()}
        self.journal.commit(
            wave.batch_id, {"positions": positions, "epochs": epochs, **(extra or {})}
        )
        self.version = wave.batch_id
        for vertex, known in self.epochs.items():
            if len(known) > 1:
                # The new epoch has a version of its own now: nothing is read from older ones.
                StateLog(wave.state_root).forget_epochs(vertex, known[-1].number)
                self.epochs[vertex] = known[-1:]
        return BatchResult(wave.batch_id, wave, ranges, stats, written)

    def _sinks(
        self, batch_id: int, frames: list[Frame], stats: tuple[InstanceStats, ...]
    ) -> dict[str, int]:
        rows: dict[str, list[pa.Table]] = {}
        for frame in frames:
            if frame.kind == SINK:
                name = self.layout.pipeline.steps[frame.wire].name
                rows.setdefault(name, []).append(decode(frame.body))
        written = {}
        for step in self.layout.sinks():
            tables = rows.get(step.name)
            table = pa.concat_tables(tables, promote_options="permissive") if tables else None
            assert step.sink is not None
            step.sink.commit(batch_id, table)
            written[step.name] = sum(s.sinks.get(step.name, 0) for s in stats)
        return written


def _stats(values: dict[str, Any]) -> InstanceStats:
    values["sent"] = {
        int(wire): {int(target): rows for target, rows in targets.items()}
        for wire, targets in values["sent"].items()
    }
    values["stamps"] = {int(step): count for step, count in values["stamps"].items()}
    return InstanceStats(**values)


def _epoch(values: dict[str, Any]) -> Epoch:
    table = values["table"]
    if table is not None:
        split = {int(key): tuple(to) for key, to in table["split"].items()}
        table = RoutingTable(tuple(table["partitions"]), split)
    return Epoch(values["number"], values["instances"], values["since"], table)
