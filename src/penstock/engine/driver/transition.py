"""The change from one plan to the next, with the state that it moves."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.engine.backend import NO_SENDERS, Backend, StateSenders
from penstock.engine.batch import BatchSpec
from penstock.engine.driver.progress import Progress
from penstock.engine.job_graph import JobGraph
from penstock.engine.migration.inband import InbandMigration, Repartitioning
from penstock.engine.migration.increments import increment
from penstock.engine.migration.migrator import Migrator
from penstock.engine.migration.plan_change import PlanChange, tables_to_change
from penstock.engine.migration.transfer import StateMove
from penstock.engine.results import BatchResult, MigrationResult, Ranges
from penstock.engine.state.handles import InstanceState
from penstock.engine.state.registry import StateRegistry
from penstock.model import NotAllowed, Plan, RoutingTable
from penstock.state.versions import StateLost


class PlanTransition:
    """The plan of the next batch, and how another plan takes its place.

    1. `precopy` may copy most of the state that the new plan moves while batches run.
    2. `adopt` makes the new plan that of the next batch. State is restored or migrated then, while
       no batch runs, or it migrates with the next batch (`InbandMigration`).
    3. The new plan is in force when all its state is where it has to be: at the end of `adopt`, or
       when the batch that the state migrates with is committed. Until then the executors of the
       plan before have all that they had, and whatever fails leaves that plan in force.

    Parameters
    ----------
    job_graph : JobGraph
    backend : Backend
    registry : StateRegistry
    progress : Progress
    plan : Plan
        The first plan; `adopt` has yet to be called with it.
    on_error : str
        As in `BatchSpec`.

    Attributes
    ----------
    plan : Plan
        The plan of the next batch.
    inband : InbandMigration or None
        The state that migrates with the next batch.
    failed : tuple of (int, str)
        The last batch that state could not migrate with, and why; -1 if there was none.
    """

    def __init__(
        self,
        job_graph: JobGraph,
        backend: Backend,
        registry: StateRegistry,
        progress: Progress,
        plan: Plan,
        on_error: str,
    ) -> None:
        self.job_graph, self.backend = job_graph, backend
        self.registry, self.progress = registry, progress
        self.migrator = Migrator(registry, backend)
        self.plan, self.on_error = plan, on_error
        self.inband: InbandMigration | None = None
        self.failed = (-1, "")
        self._token = uuid.uuid4().hex

    @property
    def plan_in_force(self) -> Plan:
        """The plan that says where state is: the one before, while state migrates with a batch."""
        return self.plan if self.inband is None else self.inband.before

    # ---- what tasks need to know

    def spec(self, ranges: Ranges, number: int, *, synchronous: bool = False) -> BatchSpec:
        """Describe the next batch to its tasks.

        Parameters
        ----------
        ranges : mapping
            What it reads.
        number : int
            Of the attempt.
        synchronous : bool
            Whether backup nodes store what changes with the batch in any case.
        """
        inband, registry, progress = self.inband, self.registry, self.progress
        # What is repartitioned may be more than the driver can have in memory.
        repartitions = inband is not None and bool(inband.repartitioning.senders)
        overdue = registry.state_config.by_peers and self.migrator.async_backup.overdue
        backup = registry.assign_backup(
            self.plan, synchronous=synchronous or repartitions or overdue
        )
        handles = registry.handles
        return BatchSpec(
            batch_id=progress.next_batch,
            version=number,
            layers=self.job_graph.layers,
            parallelism=dict(self.plan.parallelism),
            routing=dict(self.plan.routing),
            ranges=dict(ranges),
            locations=dict(self.plan.locations),
            state_config=registry.state_config_under(self.plan),
            bases={n: tuple(i.version for i in h.instances) for n, h in handles.items()},
            backed_up={n: tuple(i.backed_up for i in h.instances) for n, h in handles.items()},
            backup_segments={
                n: tuple(registry.backup_segments(n, i) for i in range(len(h.instances)))
                for n, h in handles.items()
                if backup.backup_nodes
            },
            backup_nodes=backup.backup_nodes,
            async_backup=backup.async_backup,
            fragment_placements=backup.fragment_placements,
            snapshots=backup.snapshots,
            precopying=self.migrator.precopy.instances,
            incoming={} if inband is None else inband.incoming,
            row_senders={} if inband is None else inband.row_senders,
            shares=dict(progress.shares),
            watermarks=dict(progress.watermarks),
            previous_watermarks=dict(progress.previous_watermarks),
            clock_us=progress.clock_us,
            previous_clock_us=progress.previous_clock_us,
            # Until the batch is committed, the executors before must have all that they had.
            clean_up=inband is None,
            on_error=self.on_error,
            epoch=progress.commit_log.epoch,
            token=self._token,
        )

    def senders(self, spec: BatchSpec) -> StateSenders:
        """Return the stages that send state with the next batch."""
        return NO_SENDERS if self.inband is None else self.inband.senders(spec)

    # ---- before a change

    def precopy(self, plan: Plan) -> bool:
        """Pre-copy the state that a plan moves, and say whether that is done.

        Call it between batches until it is, then `adopt` the plan; or `adopt` it earlier. A call
        with another plan ends the copies for the one before.
        """
        if self.inband is not None or not (self.registry.state_config.by_peers and plan.pinned):
            self.migrator.precopy.end()
            return True
        return not self.migrator.async_backup.running and self.migrator.advance_precopy(plan)

    def next_increment(self, plan: Plan) -> Plan:
        """Return the plan, or a plan on the way to it if it repartitions too much state at once.

        A vertex for which the plan has no table of its own, or whose state has no backup, so that
        its size is not known, is repartitioned at once.
        """
        self._check(plan)
        self.migrate_now()
        handles = self.registry.handles
        tables = tables_to_change(handles, plan)
        sizes = {
            name: [self.registry.size_bytes(name, i) for i in range(len(handles[name].instances))]
            for name in tables
        }
        return increment(plan, self.plan, tables, sizes)

    def _check(self, plan: Plan) -> None:
        names = {vertex.name for vertex in self.job_graph.vertices}
        if set(plan.parallelism) != names:
            raise NotAllowed(
                f"the plan is for the operators {', '.join(sorted(plan.parallelism))}, and the run "
                f"has {', '.join(sorted(names))}; make a plan for the topology of the run"
            )

    # ---- a change

    def adopt(self, plan: Plan, *, inband: bool = False) -> MigrationResult:
        """Use another plan from the next batch on, with the state that it moves.

        Parameters
        ----------
        plan : Plan
        inband : bool
            Whether state migrates with the next batch, as far as its executor is alive, and not
            before it. The plan is in force once that batch is committed.

        Raises
        ------
        StateLost
            When state cannot be migrated or restored. The plan before stays in force.
        """
        started = time.perf_counter()
        self._check(plan)
        self._cancel_inband()
        precopied = self.migrator.precopy.end()
        self.migrator.async_backup.end()
        change = PlanChange.of(self.registry.handles, plan, precopied)
        begin = self._begin_inband if inband and plan.pinned is self.plan.pinned else self._migrate
        return replace(begin(change), seconds=time.perf_counter() - started)

    def migrate_now(self) -> MigrationResult:
        """Migrate the state that waits for the next batch at once, if there is such state."""
        return MigrationResult() if self.inband is None else self.adopt(self.plan)

    def _cancel_inband(self) -> None:
        """Let no state migrate with the next batch."""
        if self.inband is not None:
            self.plan, self.inband = self.inband.before, None
            for name, handle in self.registry.handles.items():
                del handle.instances[self.plan.parallelism[name] :]

    def _begin_inband(self, change: PlanChange) -> MigrationResult:
        """Let state migrate with the next batch; only what was lost is restored before it."""
        plan, moves, restored = change.plan, list[StateMove](), MigrationResult()
        if self.registry.state_config.by_peers and plan.pinned:
            moves, lost = self.migrator.moves(plan)
            if not {move.executor for move in moves} <= self.backend.alive():
                # It cannot migrate to an executor that is gone: fail now and not with the batch.
                return self._migrate(change)
            restored = self.migrator.restore(lost)
        repartitioning = self.migrator.participants(plan, change.repartitioned)
        if not moves and not repartitioning.senders:
            self._put_in_force(plan, change.tables)
            return restored
        self.inband = InbandMigration(
            self.plan, change.tables, tuple(moves), repartitioning, change.precopied
        )
        self.plan = plan
        self._add_instances(plan)
        return replace(
            self.inband.estimate(self.registry),
            state_bytes=restored.state_bytes,
            restored=restored.restored,
        )

    def _migrate(self, change: PlanChange) -> MigrationResult:
        """Migrate state now, while no batch runs."""
        plan, result = change.plan, MigrationResult()
        handles = self.registry.handles.values()
        executors = [(one, one.executor) for handle in handles for one in handle.instances]
        try:
            if self.registry.state_config.by_peers and plan.pinned:
                result = self.migrator.migrate(plan, change.precopied)
            repartitioning = self.migrator.participants(plan, change.repartitioned)
            if repartitioning.senders:
                size = self._repartition(plan, repartitioning)
                result = replace(
                    result,
                    state_bytes=result.state_bytes + size,
                    repartitioned=len(repartitioning.receivers),
                )
        except BaseException:
            # The executors before that are alive have all that they had.
            alive = self.backend.alive()
            for instance, executor in executors:
                instance.executor = executor if executor in alive else instance.executor
            raise
        self._put_in_force(plan, change.tables)
        if result.repartitioned:
            self.progress.commit_state(self.registry.handles)
        return result

    def _repartition(self, plan: Plan, repartitioning: Repartitioning) -> int:
        """Repartition state now, and return the bytes that were sent."""
        vertices = sorted({one.vertex for one in repartitioning.receivers})
        number = self.progress.begin({"repartitioned": vertices})
        handles = self.registry.handles
        before, instances = self.plan, {name: list(h.instances) for name, h in handles.items()}
        self.plan = plan
        try:
            self._add_instances(plan)
            spec = replace(self.spec({}, number, synchronous=True), clean_up=False)
            return self.migrator.repartition(spec, repartitioning)
        except BaseException:
            self.plan = before
            for name, found in instances.items():
                handles[name].instances = found
            raise

    def _add_instances(self, plan: Plan) -> None:
        """Add the instances that are new in a plan to the registry, without any state."""
        for name, handle in self.registry.handles.items():
            new = plan.parallelism[name] - len(handle.instances)
            handle.instances += [InstanceState() for _ in range(new)]

    def _put_in_force(self, plan: Plan, tables: Mapping[str, RoutingTable | None]) -> None:
        """Put a plan in force whose state is where it has to be."""
        self._add_instances(plan)
        registry = self.registry
        for name, handle in registry.handles.items():
            handle.table = tables[name]
            count = plan.parallelism[name]
            for index in range(count, len(handle.instances)):
                registry.catalog.forget(registry.topology, name, index)
            del handle.instances[count:]
        self.plan = plan

    # ---- state that migrates with a batch

    def finish_inband(self, batch: BatchResult) -> MigrationResult | None:
        """Put the plan in force whose state migrated with a batch; None if no state did.

        Call it right before the batch is committed, and `committed` right after.
        """
        if self.inband is None:
            return None
        self.inband.finish()
        self._put_in_force(self.plan, self.inband.tables)
        return self.inband.result(batch)

    def committed(self) -> None:
        """Note that a batch is committed."""
        self.inband = None

    def migrate_instead(self, why: str) -> MigrationResult:
        """Migrate state between batches that was not received with one, or go back to the plan.

        Parameters
        ----------
        why : str
            Why it was not received.
        """
        try:
            return replace(self.migrate_now(), not_precopied=why)
        except StateLost as error:
            # Some of the state may have been restored on other executors meanwhile.
            self.adopt(self.plan)
            self.failed = (self.progress.next_batch, str(error))
            return MigrationResult(failed=str(error))

    # ---- nodes that go

    def retire(self, nodes: Iterable[str]) -> MigrationResult:
        """Let nodes store no fragments any more, and back up again what they stored."""
        started, size = time.perf_counter(), self.migrate_now().state_bytes
        self.migrator.async_backup.end()
        self.registry.retiring |= set(nodes)
        number = self.progress.begin({"retired": sorted(self.registry.retiring)})
        spec = replace(self.spec({}, number), clean_up=False)
        if spec.snapshots and spec.backup_nodes:
            size += self.migrator.back_up_again(spec)
            self.progress.commit_state(self.registry.handles)
        return MigrationResult(time.perf_counter() - started, size)
