"""The driver of a pipeline: batches in order, each planned, run, committed; on any backend."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.model import InvalidValue, Plan, RoutingTable
from penstock.pipeline.carry import Backend
from penstock.pipeline.frames import RUN, SINK, STATS, Frame, decode, decode_json
from penstock.pipeline.held import Held, Instance, held_by, table_for
from penstock.pipeline.journal import Journal
from penstock.pipeline.layout import Layout
from penstock.pipeline.ledger import Ledger
from penstock.pipeline.mover import Mover
from penstock.pipeline.portions import portion
from penstock.pipeline.results import (
    BatchResult,
    Carried,
    InstanceStats,
    Ranges,
    raise_error,
    stats_of,
)
from penstock.pipeline.wave import ON_ERROR, Wave
from penstock.pipeline.windowed import advanced_watermarks
from penstock.state.fragments import Piece
from penstock.state.home import Keeping
from penstock.state.runs import StateLost
from penstock.state.spread import Tolerance
from penstock.strategies.route.keys import HASHING

__all__ = ["Backend", "BatchResult", "Carried", "Driver", "InstanceStats", "Ranges"]


@dataclass(eq=False)
class Driver:
    """Runs the batches of one pipeline in order.

    Parameters
    ----------
    layout : Layout
    backend : Backend
    root : Path or str
        Folder, or address, of the journal.
    plan : Plan
        The plan of the next batch; `adopt` changes it.
    on_error : str
        ``stop`` or ``skip``.
    keeping : Keeping, optional
        How state is kept; by default in a shared folder under `root`.
    """

    layout: Layout
    backend: Backend
    root: Path | str
    plan: Plan
    on_error: str = "stop"
    keeping: Keeping | None = None

    def __post_init__(self) -> None:
        if self.on_error not in ON_ERROR:
            raise InvalidValue("on_error", "a run", "one of " + ", ".join(ON_ERROR), self.on_error)
        keeping = self.keeping or Keeping()
        if keeping.in_checkpoint and not keeping.shared:
            keeping = replace(keeping, shared=f"{self.root}/state")
        self.journal = Journal(f"{self.root}/journal")
        self.token = uuid.uuid4().hex
        self.number = self.journal.last_number()
        done = self.journal.committed(self.journal.last_commit()) or {}
        self.batch = int(done.get("batch", -1))
        if done and done.get("hashing") != HASHING:
            raise InvalidValue(
                "checkpoint",
                "a run",
                f"of a release that hashes keys as this one does ({HASHING})",
                done.get("hashing", 1),
            )
        self.watermarks: dict[str, int | None] = dict(done.get("watermarks", {}))
        self.passed: dict[str, int | None] = dict(done.get("passed", {}))
        held = held_by(self.layout, done.get("state", {}))
        self.ledger = Ledger(self.layout.pipeline.name, self.backend, keeping, held)
        self._mover = Mover(self.ledger, self.backend)
        saved = any(not held.empty for held in self.held.values())
        if saved and not keeping.in_checkpoint:
            raise StateLost(
                f"{self.root} is of a run whose state was kept by its executors alone, and they "
                "are gone; start anew in another folder, or keep state in a checkpoint, too"
            )
        for step in self.layout.sinks():
            assert step.sink is not None
            step.sink.recover(self.batch)
        self.adopt(self.plan)

    # ---- what comes next

    @property
    def next_batch(self) -> int:
        """Number of the next batch."""
        return self.batch + 1

    def pending(self) -> Ranges | None:
        """Ranges of a batch that was begun and not committed; it must be run first."""
        for number in range(self.number, self.journal.last_commit(), -1):
            entry = self.journal.begun(number)
            if entry is not None and "ranges" in entry:
                return _ranges(entry["ranges"])
        done = self.journal.committed(self.journal.last_commit()) or {}
        return _ranges(done["pending"]) if done.get("pending") else None

    def position(self) -> dict[str, int]:
        """Position that every source has reached in committed batches."""
        done = self.journal.committed(self.journal.last_commit())
        return {} if done is None else {k: int(v) for k, v in done["positions"].items()}

    @property
    def held(self) -> Mapping[str, Held]:
        """State of the stateful vertices, as committed."""
        return self.ledger.held

    def losses(self) -> int:
        """Count the nodes that may be lost, if there are enough of them; 0 if none keeps state."""
        return self.ledger.losses()

    def survives(self) -> Tolerance | None:
        """Say what losses of nodes the state survives now; None without any by peers."""
        return self.ledger.survives(self.plan)

    def promise(self) -> str:
        """Say in words what the state survives now; empty before there is any."""
        return self.ledger.promise(self.plan)

    # ---- batches

    def wave(self, ranges: Ranges, number: int, *, backup: bool = False) -> Wave:
        """Describe the next batch to its tasks; `backup`: peers get what changed in any case."""
        direct = backup or self._mover.handover.overdue
        kept = self.ledger.kept(self.plan, backup=direct)
        held = self.ledger.held
        return Wave(
            batch_id=self.next_batch,
            version=number,
            layers=self.layout.layers,
            parallelism=dict(self.plan.parallelism),
            routing=dict(self.plan.routing),
            ranges=dict(ranges),
            homes={name: tuple(map(str, spots)) for name, spots in self.plan.placement.items()},
            keeping=self.ledger.keeping_under(self.plan),
            bases={n: tuple(i.version for i in h.instances) for n, h in held.items()},
            floors={
                n: tuple(self.ledger.floor(n, i) for i in range(len(h.instances)))
                for n, h in held.items()
            },
            backed={n: tuple(i.backed for i in h.instances) for n, h in held.items()},
            keepers=kept.keepers,
            hold=kept.hold,
            spreads=kept.spreads,
            whole=kept.whole,
            coming=self._mover.ahead.coming,
            watermarks=dict(self.watermarks),
            passed=dict(self.passed),
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
        cuts = {name: [list(cut) for cut in cuts] for name, cuts in ranges.items()}
        number = self._begin({"ranges": cuts})
        wave = self.wave(ranges, number)
        frames = [Frame.unpack(bytes(data)) for data in self.backend.run(self.layout, wave)]
        raise_error(frames)
        stats = tuple(stats_of(decode_json(f.body)) for f in frames if f.kind == STATS)
        written = self._sinks(wave.batch_id, frames, stats)
        positions = self.position()
        positions.update({name: cuts[-1][1] for name, cuts in ranges.items() if cuts})
        self._note_saved(wave, frames, stats)
        following = advanced_watermarks(
            self.layout.pipeline.steps, self.watermarks, [one.event_times for one in stats]
        )
        done = {
            "batch": wave.batch_id,
            "hashing": HASHING,
            "positions": positions,
            "state": {name: held.to_dict() for name, held in self.held.items()},
            "watermarks": following,
            "passed": self.watermarks,
        }
        self.journal.commit(number, {**done, **(extra or {})})
        self.passed, self.watermarks = self.watermarks, following
        self.batch = wave.batch_id
        self._hand_over()
        return BatchResult(wave.batch_id, wave, ranges, stats, written)

    def _note_saved(
        self, wave: Wave, frames: Iterable[Frame], stats: Iterable[InstanceStats]
    ) -> None:
        """Take note of what instances saved, and hold what they sent of it."""
        names = list(wave.bases)
        sent = {
            (names[f.wire], f.sender): Piece.unpack(f.body).content for f in frames if f.kind == RUN
        }
        saved = {(one.vertex, one.instance): one.saved for one in stats if one.saved is not None}
        for key, values in saved.items():
            block = self.ledger.note_saved(wave, *key, values)
            if block is not None and block.held:
                self._mover.handover.hold(block, bytes(sent[key]))
        self._mover.handover.note(saved.values())

    def _hand_over(self) -> None:
        """Give what the driver holds to peers when that is due and no state is on the move."""
        handover = self._mover.handover
        if handover.due() and not self._mover.ahead.coming:
            handover.begin(self.wave({}, self.number, backup=True))

    def _begin(self, entry: dict[str, Any]) -> int:
        """Take the next number, which no other attempt will have."""
        self.number += 1
        self.journal.begin(self.number, entry)
        return self.number

    # ---- plans

    def prepare(self, plan: Plan) -> bool:
        """Copy the state that a plan moves ahead, beside the batches, and say whether that is done.

        Call it between batches until it is, and `adopt` the plan then, or whenever it has taken too
        long. Another plan takes its place, and one that moves nothing ends it.
        """
        if not (self.ledger.keeping.by_peers and plan.pinned):
            self._mover.ahead.end()
            return True
        return not self._mover.handover.running and self._mover.prepare(plan)

    def not_given(self) -> str:
        """Say, once, why peers did not take what the driver holds; empty if they did."""
        handover = self._mover.handover
        why, handover.failure = handover.failure, ""
        return why

    def close(self) -> None:
        """End what is done beside the batches."""
        self._mover.ahead.end()
        self._mover.handover.end()

    def portion(self, plan: Plan) -> Plan:
        """Return the plan, or one on the way to it, if it deals more state than a pause is to take.

        At once is dealt what has no table in the plan, since that is made of the one in force, and
        state that no peers keep, whose size is not known.
        """
        self._check(plan)
        tables = {
            name: (held.table, plan.routing[name])
            for name, held in self.held.items()
            if not held.empty
            and held.table is not None
            and name in plan.routing
            and table_for(name, held, plan) is plan.routing[name]
        }
        sizes = {
            name: [self.ledger.size_bytes(name, i) for i in range(len(self.held[name].instances))]
            for name in tables
        }
        return portion(plan, self.plan, tables, sizes)

    def _check(self, plan: Plan) -> None:
        names = {vertex.name for vertex in self.layout.vertices}
        if set(plan.parallelism) != names:
            raise InvalidValue("plan", "a run", f"for {sorted(names)}", sorted(plan.parallelism))

    def adopt(self, plan: Plan) -> Carried:
        """Use another plan from the next batch on, after carrying the state that it moves.

        Raises
        ------
        StateLost
            When state cannot be carried or put together. The plan before it stays in charge.
        """
        started = time.perf_counter()
        brought = self._mover.ahead.end()
        self._mover.handover.end()
        self._check(plan)
        tables = {name: table_for(name, held, plan) for name, held in self.held.items()}
        routing = {**plan.routing, **{n: t for n, t in tables.items() if t is not None}}
        plan = replace(plan, routing=routing)
        took = Carried()
        if self.ledger.keeping.by_peers and plan.pinned:
            took = self._mover.carry(plan, brought)
        changed = {
            name: table
            for name, table in tables.items()
            if table is not None
            and (table, plan.parallelism[name])
            != (self.held[name].table, len(self.held[name].instances))
        }
        if any(not self.held[name].empty for name in changed):
            took = self._deal(plan, changed, took)
        for name, held in self.held.items():
            held.table = tables[name]
            count = plan.parallelism[name]
            held.instances += [Instance() for _ in range(count - len(held.instances))]
            for index in range(count, len(held.instances)):
                self.ledger.catalog.forget(self.ledger.topology, name, index)
            del held.instances[count:]
        self.plan = plan
        if took.dealt:
            self._commit_state()
        return replace(took, seconds=time.perf_counter() - started)

    def retire(self, nodes: Iterable[str]) -> Carried:
        """Have nodes keep nothing from now on; what they kept is given to others at once."""
        started, size = time.perf_counter(), 0
        self._mover.handover.end()
        self.ledger.retiring |= set(nodes)
        number = self._begin({"retired": sorted(self.ledger.retiring)})
        wave = replace(self.wave({}, number), tidy=False)
        if wave.whole and wave.keepers:
            size = self._mover.spread_anew(wave)
            self._commit_state()
        return Carried(time.perf_counter() - started, size)

    def _deal(self, plan: Plan, tables: Mapping[str, RoutingTable], took: Carried) -> Carried:
        """Move router partitions between instances."""
        dealt = self._mover.parties(plan, tables)
        if not dealt.givers:
            return took
        number = self._begin({"dealt": sorted(tables)})
        before, shape = self.plan, {name: list(h.instances) for name, h in self.held.items()}
        self.plan = plan
        try:
            for name in tables:
                # Instances that are new are spread and saved like the others.
                held, count = self.held[name], plan.parallelism[name]
                held.instances += [Instance() for _ in range(count - len(held.instances))]
            wave = replace(self.wave({}, number, backup=True), tidy=False)
            size = self._mover.deal(wave, dealt)
        except BaseException:
            self.plan = before
            for name, instances in shape.items():
                self.held[name].instances = instances
            raise
        size += took.state_bytes
        return replace(took, state_bytes=size, dealt=len(dealt.takers))

    def _commit_state(self) -> None:
        """Write down versions that were made between batches: what they replace soon goes."""
        pending = self.pending()
        done = self.journal.committed(self.journal.last_commit()) or {}
        done["hashing"] = HASHING
        done["state"] = {name: held.to_dict() for name, held in self.held.items()}
        done["pending"] = None if pending is None else {n: list(c) for n, c in pending.items()}
        self.journal.commit(self.number, done)

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


def _ranges(cuts: Mapping[str, Any]) -> Ranges:
    return {name: tuple((a, b) for a, b in found) for name, found in cuts.items()}
