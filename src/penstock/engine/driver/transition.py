"""The plan of the next batch, and the state that lies by it: what there is, and how both change."""

from __future__ import annotations

import time
import uuid
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.common.key_hashing import HASHING
from penstock.engine.backend import Backend
from penstock.engine.batch import ON_ERROR, Wave
from penstock.engine.driver.commit_log import Journal
from penstock.engine.job_graph import Layout
from penstock.engine.migration.inband import Dealt, Ride
from penstock.engine.migration.increments import portion
from penstock.engine.migration.migrator import Mover
from penstock.engine.migration.precopy import Brought, Moved
from penstock.engine.results import Carried, Ranges
from penstock.engine.state.handles import Held, Instance, held_by, table_for
from penstock.engine.state.registry import Ledger
from penstock.engine.task.hot_keys import reduction
from penstock.model import InvalidValue, Plan, RoutingTable
from penstock.state.backup.placement import Tolerance
from penstock.state.store import Keeping
from penstock.state.versions import StateLost


@dataclass(eq=False)
class Planned:
    """One pipeline between two batches.

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
        #: By step: what was made of split keys; their homes get it with the next batch.
        self.shares = {n: b64decode(body) for n, body in done.get("shares", {}).items()}
        steps = {step.name: step.keyed for step in self.layout.pipeline.steps}
        for name in self.shares:
            reduction(steps.get(name))
        held = held_by(self.layout, done.get("state", {}))
        self.ledger = Ledger(self.layout.pipeline.name, self.backend, keeping, held)
        self._mover = Mover(self.ledger, self.backend)
        self._ride: Ride | None = None
        #: The last batch that was begun, and that state could not be moved with, and why.
        self.attempted, self.not_moved = -1, (-1, "")
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
        return self.ledger.survives(self._in_charge)

    def promise(self) -> str:
        """Say in words what the state survives now; empty before there is any."""
        return self.ledger.promise(self._in_charge)

    @property
    def _in_charge(self) -> Plan:
        """The plan that says where state is: the one before, until state has come with a batch."""
        return self.plan if self._ride is None else self._ride.before

    # ---- what tasks need to know

    def wave(self, ranges: Ranges, number: int, *, backup: bool = False) -> Wave:
        """Describe the next batch to its tasks; `backup`: peers get what changed in any case."""
        ride = self._ride
        # What is dealt anew may be more than the driver is to hold.
        dealing = ride is not None and bool(ride.dealt.givers)
        direct = backup or dealing or self._mover.handover.overdue
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
            needed={
                n: tuple(self.ledger.needed(n, i) for i in range(len(h.instances)))
                for n, h in held.items()
                if kept.keepers
            },
            backed={n: tuple(i.backed for i in h.instances) for n, h in held.items()},
            keepers=kept.keepers,
            hold=kept.hold,
            spreads=kept.spreads,
            whole=kept.whole,
            coming=self._mover.ahead.coming,
            arriving={} if ride is None else ride.arriving,
            givers={} if ride is None else ride.givers,
            shares=dict(self.shares),
            watermarks=dict(self.watermarks),
            passed=dict(self.passed),
            # Until the batch is committed, the old homes must have all that they had.
            tidy=ride is None,
            on_error=self.on_error,
            token=self.token,
        )

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
        if self._ride is not None or not (self.ledger.keeping.by_peers and plan.pinned):
            self._mover.ahead.end()
            return True
        return not self._mover.handover.running and self._mover.prepare(plan)

    def portion(self, plan: Plan) -> Plan:
        """Return the plan, or one on the way to it, if it deals more state than a pause is to take.

        At once is dealt what has no table in the plan, since that is made of the one in force, and
        state that no peers keep, whose size is not known.
        """
        self._check(plan)
        self.settle()
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

    def adopt(self, plan: Plan, *, ride: bool = False) -> Carried:
        """Use another plan from the next batch on, with the state that it moves.

        Parameters
        ----------
        plan : Plan
        ride : bool
            State comes with the next batch, as far as it is where it should be, and not before it.
            The plan is then in charge once that batch is committed.

        Raises
        ------
        StateLost
            When state cannot be carried or put together. The plan before it stays in charge.
        """
        started = time.perf_counter()
        self._check(plan)
        self._alight()
        brought = self._mover.ahead.end()
        self._mover.handover.end()
        tables = {name: table_for(name, held, plan) for name, held in self.held.items()}
        routing = {**plan.routing, **{n: t for n, t in tables.items() if t is not None}}
        plan = replace(plan, routing=routing)
        changed = {
            name: table
            for name, table in tables.items()
            if table is not None
            and not self.held[name].empty
            and (table, plan.parallelism[name])
            != (self.held[name].table, len(self.held[name].instances))
        }
        if ride and plan.pinned is self.plan.pinned:
            took = self._board(plan, tables, changed, brought)
        else:
            took = self._carry(plan, tables, changed, brought)
        return replace(took, seconds=time.perf_counter() - started)

    def settle(self) -> Carried:
        """Carry the state of a plan that waits for a batch, if there is such a plan, right now."""
        return Carried() if self._ride is None else self.adopt(self.plan)

    def _alight(self) -> None:
        """Have nothing come with the next batch."""
        if self._ride is not None:
            self.plan, self._ride = self._ride.before, None
            for name, held in self.held.items():
                del held.instances[self.plan.parallelism[name] :]

    def _board(
        self,
        plan: Plan,
        tables: Mapping[str, RoutingTable | None],
        changed: Mapping[str, RoutingTable],
        brought: Brought,
    ) -> Carried:
        """Have state come with the next batch; only what was lost is put together before it."""
        moved, back = list[Moved](), Carried()
        if self.ledger.keeping.by_peers and plan.pinned:
            moved, lost = self._mover.wanted(plan)
            if not {target for *_, target in moved} <= self.backend.alive():
                # To a place that is not there it cannot be carried either, which is told at once.
                return self._carry(plan, tables, changed, brought)
            back = self._mover.bring_back(lost)
        dealt = self._mover.parties(plan, changed)
        if not moved and not dealt.givers:
            self._take_effect(plan, tables)
            return back
        self._ride = Ride(self.plan, tables, tuple(moved), dealt, brought)
        self.plan = plan
        self._make_room(plan)
        told = self._ride.told(self.ledger)
        return replace(told, state_bytes=back.state_bytes, rebuilt=back.rebuilt)

    def _carry(
        self,
        plan: Plan,
        tables: Mapping[str, RoutingTable | None],
        changed: Mapping[str, RoutingTable],
        brought: Brought,
    ) -> Carried:
        """Carry state now, while the stream stands still."""
        took = Carried()
        places = [(one, one.place) for held in self.held.values() for one in held.instances]
        try:
            if self.ledger.keeping.by_peers and plan.pinned:
                took = self._mover.carry(plan, brought)
            dealt = self._mover.parties(plan, changed)
            if dealt.givers:
                took = self._deal(plan, dealt, took)
        except BaseException:
            # The old homes that are there have all that they had, and are in charge.
            alive = self.backend.alive()
            for instance, place in places:
                instance.place = place if place in alive else instance.place
            raise
        self._take_effect(plan, tables)
        if took.dealt:
            self._commit_state()
        return took

    def _make_room(self, plan: Plan) -> None:
        """Know of the instances that are new in a plan: they are spread and saved like others."""
        for name, held in self.held.items():
            held.instances += [
                Instance() for _ in range(plan.parallelism[name] - len(held.instances))
            ]

    def _take_effect(self, plan: Plan, tables: Mapping[str, RoutingTable | None]) -> None:
        """Put a plan in charge whose state is where it should be."""
        self._make_room(plan)
        for name, held in self.held.items():
            held.table = tables[name]
            count = plan.parallelism[name]
            for index in range(count, len(held.instances)):
                self.ledger.catalog.forget(self.ledger.topology, name, index)
            del held.instances[count:]
        self.plan = plan

    def retire(self, nodes: Iterable[str]) -> Carried:
        """Have nodes keep nothing from now on; what they kept is given to others at once."""
        started, size = time.perf_counter(), self.settle().state_bytes
        self._mover.handover.end()
        self.ledger.retiring |= set(nodes)
        number = self._begin({"retired": sorted(self.ledger.retiring)})
        wave = replace(self.wave({}, number), tidy=False)
        if wave.whole and wave.keepers:
            size += self._mover.spread_anew(wave)
            self._commit_state()
        return Carried(time.perf_counter() - started, size)

    def _deal(self, plan: Plan, dealt: Dealt, took: Carried) -> Carried:
        """Move router partitions between instances."""
        number = self._begin({"dealt": sorted({party.vertex for party, _ in dealt.takers})})
        before, shape = self.plan, {name: list(h.instances) for name, h in self.held.items()}
        self.plan = plan
        try:
            self._make_room(plan)
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


def _ranges(cuts: Mapping[str, Any]) -> Ranges:
    return {name: tuple((a, b) for a, b in found) for name, found in cuts.items()}
