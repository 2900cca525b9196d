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
from penstock.engine.batch import ON_ERROR, BatchSpec
from penstock.engine.driver.commit_log import FOLDER, CommitLog
from penstock.engine.driver.restore_point import restore_point
from penstock.engine.job_graph import JobGraph
from penstock.engine.migration.inband import InbandMigration, Repartitioning
from penstock.engine.migration.increments import portion
from penstock.engine.migration.migrator import Migrator
from penstock.engine.migration.precopy import Moved, PreCopied
from penstock.engine.results import MigrationResult, Ranges
from penstock.engine.state.handles import InstanceState, StateHandle, held_by, table_for
from penstock.engine.state.registry import StateRegistry
from penstock.engine.task.hot_keys import reduction
from penstock.model import InvalidValue, Plan, RoutingTable
from penstock.state.backup.placement import Tolerance
from penstock.state.config import StateConfig
from penstock.state.versions import StateLost


@dataclass(eq=False)
class Planned:
    """One pipeline between two batches.

    Parameters
    ----------
    job_graph : JobGraph
    backend : Backend
    root : Path or str
        Folder, or address, of the checkpoint.
    plan : Plan
        The plan of the next batch; `adopt` changes it.
    on_error : str
        ``stop`` or ``skip``.
    state_config : StateConfig, optional
        How state is kept; by default in a shared folder under `root`.
    """

    job_graph: JobGraph
    backend: Backend
    root: Path | str
    plan: Plan
    on_error: str = "stop"
    state_config: StateConfig | None = None

    def __post_init__(self) -> None:
        if self.on_error not in ON_ERROR:
            raise InvalidValue("on_error", "a run", "one of " + ", ".join(ON_ERROR), self.on_error)
        state_config = self.state_config or StateConfig()
        if state_config.in_checkpoint and not state_config.shared:
            state_config = replace(state_config, shared=f"{self.root}/state")
        self.commit_log = CommitLog(f"{self.root}/{FOLDER}", sync=state_config.sync)
        self.commit_log.take_epoch()
        self.token = uuid.uuid4().hex
        done = restore_point(self.commit_log, state_config)
        self.number = self.commit_log.last_number()
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
        steps = {step.name: step.keyed for step in self.job_graph.pipeline.steps}
        for name in self.shares:
            reduction(steps.get(name))
        held = held_by(self.job_graph, done.get("state", {}))
        self.registry = StateRegistry(
            self.job_graph.pipeline.name, self.backend, state_config, held
        )
        self._migrator = Migrator(self.registry, self.backend)
        self._inband: InbandMigration | None = None
        #: The last batch that was begun, and that state could not be moved with, and why.
        self.attempted, self.failed_migration = -1, (-1, "")
        saved = any(not held.empty for held in self.handles.values())
        if saved and not state_config.in_checkpoint:
            raise StateLost(
                f"{self.root} is of a run whose state was kept by its executors alone, and they "
                "are gone; start anew in another folder, or keep state in a checkpoint, too"
            )
        for step in self.job_graph.sinks():
            assert step.sink is not None
            step.sink.start(self.commit_log.identity())
            step.sink.recover(self.batch)
        self.adopt(self.plan)

    # ---- what comes next

    @property
    def next_batch(self) -> int:
        """Number of the next batch."""
        return self.batch + 1

    def pending(self) -> Ranges | None:
        """Ranges of a batch that was begun and not committed; it must be run first."""
        for number in range(self.number, self.commit_log.last_commit(), -1):
            entry = self.commit_log.begun(number)
            if entry is not None and "ranges" in entry:
                return _ranges(entry["ranges"])
        done = self.commit_log.committed(self.commit_log.last_commit()) or {}
        return _ranges(done["pending"]) if done.get("pending") else None

    def position(self) -> dict[str, int]:
        """Position that every source has reached in committed batches."""
        done = self.commit_log.committed(self.commit_log.last_commit())
        return {} if done is None else {k: int(v) for k, v in done["positions"].items()}

    @property
    def handles(self) -> Mapping[str, StateHandle]:
        """State of the stateful vertices, as committed."""
        return self.registry.handles

    def losses(self) -> int:
        """Count the nodes that may be lost, if there are enough of them; 0 if none keeps state."""
        return self.registry.losses()

    def survives(self) -> Tolerance | None:
        """Say what losses of nodes the state survives now; None without any by peers."""
        return self.registry.survives(self._in_charge)

    def promise(self) -> str:
        """Say in words what the state survives now; empty before there is any."""
        return self.registry.promise(self._in_charge)

    @property
    def _in_charge(self) -> Plan:
        """The plan that says where state is: the one before, until state has come with a batch."""
        return self.plan if self._inband is None else self._inband.before

    # ---- what tasks need to know

    def spec(self, ranges: Ranges, number: int, *, backup: bool = False) -> BatchSpec:
        """Describe the next batch to its tasks; `backup`: peers get what changed in any case."""
        inband = self._inband
        # What is dealt anew may be more than the driver is to hold.
        repartitioning = inband is not None and bool(inband.repartitioned.givers)
        direct = backup or repartitioning or self._migrator.async_backup.overdue
        kept = self.registry.kept(self.plan, backup=direct)
        held = self.registry.handles
        return BatchSpec(
            batch_id=self.next_batch,
            version=number,
            layers=self.job_graph.layers,
            parallelism=dict(self.plan.parallelism),
            routing=dict(self.plan.routing),
            ranges=dict(ranges),
            locations={name: tuple(map(str, spots)) for name, spots in self.plan.placement.items()},
            state_config=self.registry.state_config_under(self.plan),
            bases={n: tuple(i.version for i in h.instances) for n, h in held.items()},
            needed={
                n: tuple(self.registry.needed(n, i) for i in range(len(h.instances)))
                for n, h in held.items()
                if kept.backup_nodes
            },
            backed={n: tuple(i.backed for i in h.instances) for n, h in held.items()},
            backup_nodes=kept.backup_nodes,
            hold=kept.hold,
            fragment_placements=kept.fragment_placements,
            whole=kept.whole,
            coming=self._migrator.ahead.coming,
            incoming={} if inband is None else inband.incoming,
            givers={} if inband is None else inband.givers,
            shares=dict(self.shares),
            watermarks=dict(self.watermarks),
            passed=dict(self.passed),
            # Until the batch is committed, the old homes must have all that they had.
            tidy=inband is None,
            on_error=self.on_error,
            epoch=self.commit_log.epoch,
            token=self.token,
        )

    def _begin(self, entry: dict[str, Any]) -> int:
        """Take the next number, which no other attempt will have."""
        self.number = self.commit_log.begin(self.number + 1, entry)
        return self.number

    # ---- plans

    def precopy(self, plan: Plan) -> bool:
        """Copy the state that a plan moves ahead, beside the batches, and say whether that is done.

        Call it between batches until it is, and `adopt` the plan then, or whenever it has taken too
        long. Another plan takes its place, and one that moves nothing ends it.
        """
        if self._inband is not None or not (self.registry.state_config.by_peers and plan.pinned):
            self._migrator.ahead.end()
            return True
        return not self._migrator.async_backup.running and self._migrator.prepare(plan)

    def next_increment(self, plan: Plan) -> Plan:
        """Return the plan, or one on the way to it, if it deals more state than a pause is to take.

        At once is dealt what has no table in the plan, since that is made of the one in force, and
        state that no peers keep, whose size is not known.
        """
        self._check(plan)
        self.settle()
        tables = {
            name: (held.table, plan.routing[name])
            for name, held in self.handles.items()
            if not held.empty
            and held.table is not None
            and name in plan.routing
            and table_for(name, held, plan) is plan.routing[name]
        }
        sizes = {
            name: [
                self.registry.size_bytes(name, i) for i in range(len(self.handles[name].instances))
            ]
            for name in tables
        }
        return portion(plan, self.plan, tables, sizes)

    def _check(self, plan: Plan) -> None:
        names = {vertex.name for vertex in self.job_graph.vertices}
        if set(plan.parallelism) != names:
            raise InvalidValue("plan", "a run", f"for {sorted(names)}", sorted(plan.parallelism))

    def adopt(self, plan: Plan, *, inband: bool = False) -> MigrationResult:
        """Use another plan from the next batch on, with the state that it moves.

        Parameters
        ----------
        plan : Plan
        inband : bool
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
        precopied = self._migrator.ahead.end()
        self._migrator.async_backup.end()
        tables = {name: table_for(name, held, plan) for name, held in self.handles.items()}
        routing = {**plan.routing, **{n: t for n, t in tables.items() if t is not None}}
        plan = replace(plan, routing=routing)
        changed = {
            name: table
            for name, table in tables.items()
            if table is not None
            and not self.handles[name].empty
            and (table, plan.parallelism[name])
            != (self.handles[name].table, len(self.handles[name].instances))
        }
        if inband and plan.pinned is self.plan.pinned:
            took = self._board(plan, tables, changed, precopied)
        else:
            took = self._carry(plan, tables, changed, precopied)
        return replace(took, seconds=time.perf_counter() - started)

    def settle(self) -> MigrationResult:
        """Carry the state of a plan that waits for a batch, if there is such a plan, right now."""
        return MigrationResult() if self._inband is None else self.adopt(self.plan)

    def _alight(self) -> None:
        """Have nothing come with the next batch."""
        if self._inband is not None:
            self.plan, self._inband = self._inband.before, None
            for name, held in self.handles.items():
                del held.instances[self.plan.parallelism[name] :]

    def _board(
        self,
        plan: Plan,
        tables: Mapping[str, RoutingTable | None],
        changed: Mapping[str, RoutingTable],
        precopied: PreCopied,
    ) -> MigrationResult:
        """Have state come with the next batch; only what was lost is put together before it."""
        moved, back = list[Moved](), MigrationResult()
        if self.registry.state_config.by_peers and plan.pinned:
            moved, lost = self._migrator.wanted(plan)
            if not {target for *_, target in moved} <= self.backend.alive():
                # To a place that is not there it cannot be carried either, which is told at once.
                return self._carry(plan, tables, changed, precopied)
            back = self._migrator.bring_back(lost)
        repartitioned = self._migrator.participants(plan, changed)
        if not moved and not repartitioned.givers:
            self._take_effect(plan, tables)
            return back
        self._inband = InbandMigration(self.plan, tables, tuple(moved), repartitioned, precopied)
        self.plan = plan
        self._make_room(plan)
        told = self._inband.told(self.registry)
        return replace(told, state_bytes=back.state_bytes, restored=back.restored)

    def _carry(
        self,
        plan: Plan,
        tables: Mapping[str, RoutingTable | None],
        changed: Mapping[str, RoutingTable],
        precopied: PreCopied,
    ) -> MigrationResult:
        """Carry state now, while the stream stands still."""
        took = MigrationResult()
        places = [(one, one.executor) for held in self.handles.values() for one in held.instances]
        try:
            if self.registry.state_config.by_peers and plan.pinned:
                took = self._migrator.carry(plan, precopied)
            repartitioned = self._migrator.participants(plan, changed)
            if repartitioned.givers:
                took = self._deal(plan, repartitioned, took)
        except BaseException:
            # The old homes that are there have all that they had, and are in charge.
            alive = self.backend.alive()
            for instance, place in places:
                instance.executor = place if place in alive else instance.executor
            raise
        self._take_effect(plan, tables)
        if took.repartitioned:
            self._commit_state()
        return took

    def _make_room(self, plan: Plan) -> None:
        """Know of the instances that are new in a plan: they are spread and saved like others."""
        for name, held in self.handles.items():
            held.instances += [
                InstanceState() for _ in range(plan.parallelism[name] - len(held.instances))
            ]

    def _take_effect(self, plan: Plan, tables: Mapping[str, RoutingTable | None]) -> None:
        """Put a plan in charge whose state is where it should be."""
        self._make_room(plan)
        for name, held in self.handles.items():
            held.table = tables[name]
            count = plan.parallelism[name]
            for index in range(count, len(held.instances)):
                self.registry.catalog.forget(self.registry.topology, name, index)
            del held.instances[count:]
        self.plan = plan

    def retire(self, nodes: Iterable[str]) -> MigrationResult:
        """Have nodes keep nothing from now on; what they kept is given to others at once."""
        started, size = time.perf_counter(), self.settle().state_bytes
        self._migrator.async_backup.end()
        self.registry.retiring |= set(nodes)
        number = self._begin({"retired": sorted(self.registry.retiring)})
        spec = replace(self.spec({}, number), tidy=False)
        if spec.whole and spec.backup_nodes:
            size += self._migrator.spread_anew(spec)
            self._commit_state()
        return MigrationResult(time.perf_counter() - started, size)

    def _deal(
        self, plan: Plan, repartitioned: Repartitioning, took: MigrationResult
    ) -> MigrationResult:
        """Move router partitions between instances."""
        number = self._begin(
            {"dealt": sorted({participant.vertex for participant, _ in repartitioned.takers})}
        )
        before, shape = self.plan, {name: list(h.instances) for name, h in self.handles.items()}
        self.plan = plan
        try:
            self._make_room(plan)
            spec = replace(self.spec({}, number, backup=True), tidy=False)
            size = self._migrator.deal(spec, repartitioned)
        except BaseException:
            self.plan = before
            for name, instances in shape.items():
                self.handles[name].instances = instances
            raise
        size += took.state_bytes
        return replace(took, state_bytes=size, repartitioned=len(repartitioned.takers))

    def _commit_state(self) -> None:
        """Write down versions that were made between batches: what they replace soon goes."""
        pending = self.pending()
        done = self.commit_log.committed(self.commit_log.last_commit()) or {}
        done["hashing"] = HASHING
        done["state"] = {name: held.to_dict() for name, held in self.handles.items()}
        done["pending"] = None if pending is None else {n: list(c) for n, c in pending.items()}
        self.commit_log.commit(self.number, done)


def _ranges(cuts: Mapping[str, Any]) -> Ranges:
    return {name: tuple((a, b) for a, b in found) for name, found in cuts.items()}
