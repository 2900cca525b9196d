"""What any runtime must do for the loop, whatever it runs on.

A check takes a *maker*: a context manager that gives a `Driven`, a fresh runtime with a way to let
batches pass. Batches may really run, so the checks use few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np

from penstock.control.runtime import SPARE, ActionFailed, Applied, Runtime
from penstock.model import Plan, diff
from penstock.testing.broken import require

#: Batches after which something must have been measured.
WARM = 10


@dataclass(frozen=True)
class Driven:
    """A runtime and what lets it work.

    Parameters
    ----------
    runtime : Runtime
        At least two nodes, an instance on each of two of them, a rate that they carry.
    advance : callable
        Let so many batches be committed.
    node_wait : int
        Batches after which nodes that were asked for are there.
    """

    runtime: Runtime
    advance: Callable[[int], None]
    node_wait: int = 10


Maker = Callable[[], AbstractContextManager[Driven]]
Check = Callable[[Maker], None]


def check_runtime(maker: Maker) -> None:
    """Run every check."""
    for check in RUNTIME_CHECKS.values():
        check(maker)


def check_plan_fits(maker: Maker) -> None:
    """Check that the plan is of the topology, and on nodes that are there."""
    with maker() as driven:
        driven.advance(1)
        runtime, cluster = driven.runtime, driven.runtime.observe().cluster
        plan = runtime.plan
        require(plan.topology == runtime.topology.name, "the plan must be of the topology")
        operators = list(runtime.topology.parallelism)
        require(list(plan.parallelism) == operators, "the plan must have the topology's operators")
        missing = _used(plan) - set(cluster.names)
        require(not missing, f"the plan must stand on nodes that are there, not on {missing}")
        bad = [name for name in cluster.names if name.startswith(SPARE)]
        require(not bad, f"a live node must not be called {SPARE}...")


def check_observing_is_passive(maker: Maker) -> None:
    """Check that looking changes nothing."""
    with maker() as driven:
        driven.advance(WARM)
        before = driven.runtime.plan
        first, second = driven.runtime.observe(), driven.runtime.observe()
        require(first.batch == second.batch, "looking must not run a batch")
        require(first.cluster == second.cluster, "looking must not change the nodes")
        require(driven.runtime.plan == before, "looking must not change the plan")


def check_batches_are_seen(maker: Maker) -> None:
    """Check that batches, time and tuples go on."""
    with maker() as driven:
        driven.advance(1)
        first = driven.runtime.observe()
        driven.advance(WARM)
        later = driven.runtime.observe()
        require(later.batch >= first.batch + WARM, "committed batches must be counted")
        require(later.now_s > first.now_s, "stream time must go on")
        require(later.throughput_per_s > 0, "tuples that were processed must be counted")
        require(later.arriving_per_s > 0, "tuples that come must be counted")
        require(later.batch_ms > 0, "the time of a batch must be measured")
        require(set(later.latency_ms) == {"p50", "p95", "p99"}, "latency must be measured")


def check_measurements_fit_the_plan(maker: Maker) -> None:
    """Check that what was measured is of the instances that run."""
    with maker() as driven:
        driven.advance(WARM)
        seen, plan = driven.runtime.observe().measurements, driven.runtime.plan
        require(seen is not None, f"something must be measured after {WARM} batches")
        assert seen is not None
        sources = {o.name for o in driven.runtime.topology.sources}
        require(set(seen.source_rates) == sources, "the rate of every source must be measured")
        for what in (seen.tuples_per_s, seen.cpu_cores):
            for name, values in what.items():
                count = plan.parallelism.get(name)
                require(len(values) == count, f"{name!r} must have a value for each instance")


def check_same_plan_again(maker: Maker) -> None:
    """Check that applying the plan that runs is harmless, and free."""
    with maker() as driven:
        driven.advance(2)
        plan = driven.runtime.plan
        took = driven.runtime.apply(plan)
        require(isinstance(took, Applied), "applying must say what it took")
        require(took.state_bytes + took.inband_bytes == 0, "nothing moves, so no state must")
        driven.advance(2)
        require(diff(plan, driven.runtime.plan).empty, "the same plan must be in force")


def check_instance_moves(maker: Maker) -> None:
    """Check that a plan is in force from the next batch on, and the stream goes on under it."""
    with maker() as driven:
        driven.advance(2)
        plan, before = _moved(driven), driven.runtime.observe().batch
        driven.runtime.apply(plan)
        require(diff(driven.runtime.plan, plan).empty, "the plan must be the one that was given")
        driven.advance(WARM)
        later = driven.runtime.observe()
        require(later.batch > before, "batches must go on under the new plan")
        require(later.measurements is not None, "the new plan must be measured")
        require(diff(driven.runtime.plan, plan).empty, "the plan must stay")


def check_preparing_is_passive(maker: Maker) -> None:
    """Check that a plan may be prepared, which changes nothing, and applied or dropped then."""
    with maker() as driven:
        driven.advance(2)
        runtime, before, plan = driven.runtime, driven.runtime.plan, _moved(driven)
        for _ in range(WARM):
            if runtime.prepare(plan):
                break
            driven.advance(1)
        require(diff(runtime.plan, before).empty, "preparing a plan must not put it in force")
        require(runtime.prepare(before), "a plan that moves nothing must be ready at once")
        runtime.prepare(plan)
        driven.advance(1)
        require(diff(runtime.plan, before).empty, "preparing a plan must not put it in force")
        runtime.apply(plan)
        driven.advance(2)
        require(diff(runtime.plan, plan).empty, "a plan that was prepared must be applied")


def check_impossible_plan_is_refused(maker: Maker) -> None:
    """Check that a plan on a node that is not there fails, and the old one stays in force."""
    with maker() as driven:
        driven.advance(2)
        before = driven.runtime.plan
        names = tuple(f"{SPARE}{i}" for i in range(len(before.nodes)))
        try:
            driven.runtime.apply(replace(before, nodes=names, active=()))
        except ActionFailed:
            pass
        else:
            require(False, "a plan on nodes that are not there must raise ActionFailed")
        require(diff(before, driven.runtime.plan).empty, "the plan before must stay in force")
        driven.advance(2)


def check_nodes_come_and_go(maker: Maker) -> None:
    """Check that a node comes when asked for and goes when released, or that this is refused."""
    with maker() as driven:
        driven.advance(2)
        runtime, plan = driven.runtime, driven.runtime.plan
        before = runtime.observe().cluster.names
        try:
            runtime.request_nodes(len(before) + 1)
        except ActionFailed as error:
            require(str(error), "a refusal must say why")
            require(runtime.observe().cluster.names == before, "a refusal must change nothing")
            return
        driven.advance(driven.node_wait)
        after = runtime.observe().cluster.names
        new = [name for name in after if name not in before]
        require(len(new) == 1, f"one node must have come, {len(new)} did")
        require(diff(plan, runtime.plan).empty, "the plan must not follow by itself")
        try:
            runtime.release_nodes(tuple(new))
        except ActionFailed as error:
            require(str(error), "a refusal must say why")
            return
        driven.advance(driven.node_wait)
        require(new[0] not in runtime.observe().cluster.names, "a released node must be gone")
        require(set(before) <= set(runtime.observe().cluster.names), "the others must stay")


def _used(plan: Plan) -> set[str]:
    return {spot.node for spots in plan.placement.values() for spot in spots}


def _moved(driven: Driven) -> Plan:
    """Exchange two instances of different nodes, so that no node gets more than it had."""
    plan = driven.runtime.plan
    spots = list(zip(plan.node_of.tolist(), plan.process_of.tolist(), strict=True))
    other = next((i for i, s in enumerate(spots) if s[0] != spots[0][0]), None)
    require(other is not None, "the runtime under test must use two nodes")
    assert other is not None
    order = np.arange(len(spots))
    order[[0, other]] = order[[other, 0]]
    return replace(plan, node_of=plan.node_of[order], process_of=plan.process_of[order])


#: Every check by its name.
RUNTIME_CHECKS: Mapping[str, Check] = {
    "plan fits": check_plan_fits,
    "observing is passive": check_observing_is_passive,
    "batches are seen": check_batches_are_seen,
    "measurements fit the plan": check_measurements_fit_the_plan,
    "same plan again": check_same_plan_again,
    "an instance moves": check_instance_moves,
    "preparing is passive": check_preparing_is_passive,
    "an impossible plan is refused": check_impossible_plan_is_refused,
    "nodes come and go": check_nodes_come_and_go,
}
