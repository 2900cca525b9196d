"""A run on Spark as the control loop sees it: what was measured, and what can be done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.control.runtime import ActionFailed, Applied, Observation
from penstock.model import Kind, Plan, Topology
from penstock.runtimes.spark.errors import ExecutorLost
from penstock.state.versions import StateLost

if TYPE_CHECKING:
    from penstock.runtimes.spark.execution import Execution


class SparkRuntime:
    """Offers `penstock.control.runtime.Runtime` for one run.

    Parameters
    ----------
    execution : Execution
    tell_released : callable, optional
        Told the executors that were released; other runs use the same ones.

    Attributes
    ----------
    at_once : bool
        Whether a plan is applied whole, because what is in force cannot run: executors were lost.
    failure : Exception or None
        What the last `apply` failed with.
    """

    def __init__(
        self, execution: Execution, tell_released: Callable[[list[str]], None] | None = None
    ) -> None:
        self._run = execution
        self._tell_released = tell_released
        self.at_once = False
        self.failure: Exception | None = None

    @property
    def topology(self) -> Topology:
        """What is planned."""
        return self._run.topology

    @property
    def plan(self) -> Plan:
        """The plan of the next batch."""
        return self._run.plan

    def observe(self) -> Observation:
        """Say what was measured since the plan last changed."""
        run = self._run
        window = run.window
        cluster = run.executors.look()
        processed, incoming = window.rates()
        sources = [v.name for v in run.job_graph.vertices if v.kind is Kind.SOURCE]
        return Observation(
            now_s=run.elapsed_s,
            batch=run.driver.batch,
            cluster=cluster,
            measurements=window.measurements(sources, cluster),
            batch_ms=window.batch_ms,
            throughput_per_s=processed,
            arriving_per_s=incoming,
            queue_length=sum(source_queue.waiting for source_queue in run.queues.values()),
            latency_ms=window.latency_ms(),
            remote_share=window.remote_share(),
        )

    def request_nodes(self, total: int) -> None:
        """Ask Spark for executors until there are so many nodes."""
        self._run.executors.request(total)

    def vacate_nodes(self, names: tuple[str, ...], *, undo: bool = False) -> None:
        """Spread what the nodes keep over the others."""
        run = self._run
        if undo:
            run.driver.registry.retiring -= set(names)
            return
        used = {spot.node for spots in run.plan.placement.values() for spot in spots}
        if used & set(names):
            raise ActionFailed(f"instances still run on {', '.join(sorted(used & set(names)))}")
        try:
            run.driver.retire(names)
        except (ExecutorLost, StateLost) as error:
            run.driver.registry.retiring -= set(names)
            raise ActionFailed(f"what {', '.join(names)} keep could not be moved: {error}") from (
                error
            )

    def release_nodes(self, names: tuple[str, ...]) -> None:
        """Vacate the nodes, and give up their executors."""
        self.vacate_nodes(names)
        try:
            ids = self._run.executors.release(names)
        except ActionFailed:
            self.vacate_nodes(names, undo=True)
            raise
        if self._tell_released is not None:
            self._tell_released(ids)

    def prepare(self, plan: Plan) -> bool:
        """Copy state ahead of a plan, beside the batches."""
        return self._run.driver.precopy(plan)

    def apply(self, plan: Plan) -> Applied:
        """Use a plan from the next batch on, or the next portion of it."""
        driver = self._run.driver
        batch, why = driver.transition.failed
        if batch == driver.batch and not self.at_once:
            raise ActionFailed(f"the step before could not be made: {why}")
        try:
            part = plan if self.at_once else driver.next_increment(plan)
            took = self._run.change(part)
        except (ExecutorLost, StateLost) as error:
            self.failure = error
            raise ActionFailed(str(error)) from error
        return Applied(
            took.seconds,
            took.state_bytes,
            took.precopied_bytes,
            took.inband_bytes,
            part is not plan,
        )
