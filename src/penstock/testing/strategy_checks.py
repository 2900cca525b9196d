"""The contract of a strategy, as checks that can be run one by one."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.model import (
    Cluster,
    Edge,
    Keep,
    Kind,
    NodeUse,
    Operator,
    Plan,
    Reason,
    Refused,
    Topology,
)
from penstock.strategies import Request, Strategy, make_plan
from penstock.testing.broken import require, require_described
from penstock.testing.oracle import broken_limits, traffic_by_tier
from penstock.testing.plan_checks import check_plan, graph_of
from penstock.testing.scenarios import (
    PLAIN,
    SCENARIOS,
    Scenario,
    every_grouping,
    mixed_cluster,
    wordcount,
)

Check = Callable[[Strategy], None]

#: Load from which a strategy may pay with traffic for relief; no strategy here has a lower limit.
BUSY = 0.65


def check_strategy(strategy: Strategy) -> None:
    """Run every check of `STRATEGY_CHECKS`.

    A strategy may refuse a request with a sentence, but not all of them.

    Raises
    ------
    ContractBroken
        On the first promise that is not kept.
    """
    for check in STRATEGY_CHECKS.values():
        check(strategy)


def check_describes_itself(strategy: Strategy) -> None:
    """Check that it is a frozen dataclass with a name, a summary and an origin."""
    require(isinstance(strategy, Strategy), f"{strategy!r} lacks a member of the protocol")
    require_described(strategy)
    require(dataclasses.is_dataclass(strategy), f"{strategy!r} must be a dataclass")
    require(type(strategy).__dataclass_params__.frozen, f"{strategy!r} must be frozen")  # type: ignore[attr-defined]


def check_plans_something(strategy: Strategy) -> None:
    """Check that it takes at least one of the scenarios."""
    taken = any(_ask(strategy, make(0)) is not None for make in SCENARIOS.values())
    require(taken, f"{strategy.name} refuses every scenario")


def check_same_seed_same_plan(strategy: Strategy) -> None:
    """Check that equal requests with equal seeds give equal plans."""
    for name, make in PLAIN.items():
        one, two = _ask(strategy, make(7)), _ask(strategy, make(7))
        require(one == two, f"{name}: two plans from one seed differ")


def check_other_seeds_are_valid(strategy: Strategy) -> None:
    """Check that another seed gives as valid a plan, be it the same or not."""
    for make in PLAIN.values():
        for seed in (1, 2, 3):
            _valid(strategy, make(seed))


def check_uses_only_its_generator(strategy: Strategy) -> None:
    """Check that no global random numbers are drawn."""
    # The state of the old global generator is read to see that nobody advances it.
    numbers = str(np.random.get_state())  # noqa: NPY002
    state = random.getstate()
    _ask(strategy, PLAIN["wordcount"](0))
    require(str(np.random.get_state()) == numbers, "numpy.random's global state changed")  # noqa: NPY002
    require(random.getstate() == state, "the random module's global state changed")


def check_leaves_the_request_alone(strategy: Strategy) -> None:
    """Check that nothing of the request changes but the state of its generator."""
    for name, make in PLAIN.items():
        request = make(0)
        first = _ask(strategy, request)
        if not isinstance(first, Plan):
            continue
        request = replace(make(1), running=first)
        before = _contents(request)
        _ask(strategy, request)
        require(_contents(request) == before, f"{name}: the request was changed")


def check_uses_every_node_when_asked(strategy: Strategy) -> None:
    """Check that ``exact_nodes`` leaves no node out when there are enough instances."""
    for topology, cluster in (
        (wordcount(1), Cluster.of(2)),
        (wordcount(1), Cluster.of(3)),
        (wordcount(4), Cluster.of(4, processes=2)),
        (every_grouping(), mixed_cluster()),
    ):
        plan = _valid(strategy, Request(topology, cluster, exact_nodes=True))
        if isinstance(plan, Plan):
            _require_every_node(plan)


def check_replan_is_not_worse(strategy: Strategy) -> None:
    """Check that, asked again at the same rates, it keeps its plan or gives one no worse."""
    for make in PLAIN.values():
        running = _valid(strategy, make(0))
        if isinstance(running, Plan):
            _replan_not_worse(strategy, replace(make(1), running=running))


def check_replan_of_another_plan(strategy: Strategy) -> None:
    """Check that plans of others, packed or spread, are only replaced by one no worse."""
    for make in PLAIN.values():
        request = make(0)
        count, nodes = len(request.graph), len(request.cluster)
        zeros = np.zeros(count, dtype=np.int64)
        for node_of in (zeros, np.arange(count) % nodes):
            running = make_plan(request, "another", node_of, zeros, [Reason("put there")])
            _replan_not_worse(strategy, replace(make(1), running=running))


def check_replan_at_other_rates(strategy: Strategy) -> None:
    """Check that a running plan made at other rates is kept or replaced by a valid one."""
    running = _valid(strategy, Request(wordcount(rate_per_s=100), mixed_cluster()))
    if isinstance(running, Plan):
        for rate in (0.0, 10.0, 10_000.0):
            _valid(strategy, Request(wordcount(rate_per_s=rate), mixed_cluster(), running=running))


def check_replan_after_nodes_vanished(strategy: Strategy) -> None:
    """Check that a plan on nodes or processes that are gone is replaced, not kept."""
    request = Request(wordcount(3), Cluster.of(3, processes=2, slots=2))
    running = _valid(strategy, request)
    if not isinstance(running, Plan):
        return
    lost = running.nodes[int(running.node_of[0])]
    left = Cluster(tuple(node for node in request.cluster.nodes if node.name != lost))
    _require_replaced(strategy, replace(request, cluster=left, running=running))
    renamed = Cluster(tuple(replace(n, name=f"new-{n.name}") for n in request.cluster.nodes))
    _require_replaced(strategy, replace(request, cluster=renamed, running=running))
    shrunk = Cluster(tuple(replace(n, processes=1) for n in request.cluster.nodes))
    if running.process_of.max() > 0:
        _require_replaced(strategy, replace(request, cluster=shrunk, running=running))


def check_replan_with_other_parallelism(strategy: Strategy) -> None:
    """Check running plans with more or fewer instances than the topology asks for."""
    for old, new in ((2, 4), (4, 1)):
        running = _valid(strategy, Request(wordcount(old), mixed_cluster()))
        if isinstance(running, Plan):
            _valid(strategy, Request(wordcount(new), mixed_cluster(), running=running))


def check_replan_with_other_operators(strategy: Strategy) -> None:
    """Check that the plan of an earlier version of the topology is replaced, not kept."""
    earlier = Topology(
        "wordcount",
        (Operator("lines", Kind.SOURCE), Operator("old", parallelism=2)),
        (Edge("lines", "old"),),
    )
    running = _valid(strategy, Request(earlier, mixed_cluster()))
    if isinstance(running, Plan):
        _require_replaced(strategy, Request(wordcount(), mixed_cluster(), running=running))


def check_generated_requests(strategy: Strategy) -> None:
    """Check that hypothesis finds no plan that is invalid, unrepeatable or gets worse."""
    from hypothesis import given

    from penstock.testing.generate import FEW, again, requests

    @FEW
    @given(requests(exact_nodes=None))
    def run(request: Request) -> None:
        plan = _valid(strategy, again(request, 1))
        if not isinstance(plan, Plan):
            return
        require(plan == _ask(strategy, again(request, 1)), "two plans from one seed differ")
        if request.exact_nodes and len(request.graph) >= len(request.cluster):
            _require_every_node(plan)
        _replan_not_worse(strategy, replace(again(request, 2), running=plan))

    run()


def _survives(make: Scenario) -> Check:
    def check(strategy: Strategy) -> None:
        _valid(strategy, make(0))

    return check


def _ask(strategy: Strategy, request: Request) -> Plan | Keep | None:
    """Return the answer, or None when the strategy refuses politely."""
    try:
        answer = strategy.plan(request)
    except Refused as refusal:
        require(str(refusal).strip(), f"{strategy.name} refuses without a word")
        return None
    require(isinstance(answer, Plan | Keep), f"an answer must be Plan or Keep, is {answer!r}")
    return answer


def _valid(strategy: Strategy, request: Request) -> Plan | Keep | None:
    """Return the answer after checking it."""
    answer = _ask(strategy, request)
    if isinstance(answer, Keep):
        require(request.running is not None, "there is no running plan to keep")
        require(all(r.text.strip() for r in answer.reasons), "a reason must not be empty")
    elif answer is not None:
        require(
            answer.strategy == strategy.name,
            f"the plan names {answer.strategy!r} as its strategy, not {strategy.name!r}",
        )
        check_plan(answer, request)
    return answer


def _require_replaced(strategy: Strategy, request: Request) -> None:
    answer = _valid(strategy, request)
    require(not isinstance(answer, Keep), "a plan that cannot go on running must not be kept")


def _require_every_node(plan: Plan) -> None:
    instances, used = len(plan.node_of), len(set(plan.node_of.tolist()))
    if instances >= len(plan.nodes):
        require(
            used == len(plan.nodes),
            f"exact_nodes: {instances} instances must use all {len(plan.nodes)} nodes, use {used}",
        )


def _replan_not_worse(strategy: Strategy, request: Request) -> None:
    running = request.running
    following = _valid(strategy, request)
    if running is None or not isinstance(following, Plan):
        return
    if dict(running.parallelism) != dict(following.parallelism):
        return  # A change of scale is not for the sake of the traffic.
    old, new = _figures(running, request), _figures(following, request)
    cheaper = new["communication"] <= old["communication"] * (1 + 1e-6) + 1e-6
    # Traffic is a fair price for taking load off a node that a strategy may call too busy.
    relieved = BUSY < old["load"] > new["load"] and new["violations"] <= old["violations"]
    fewer = new["nodes"] < old["nodes"] or new["violations"] < old["violations"]
    require(
        cheaper or fewer or relieved,
        f"the new plan must be no worse than the running one: {old} became {new}",
    )


def _figures(plan: Plan, request: Request) -> dict[str, float]:
    graph = graph_of(plan, request)
    _, in_node, across = traffic_by_tier(graph, plan.node_of, plan.process_of)
    broken = broken_limits(graph, request.cluster, plan.node_of, plan.process_of)
    # The default costs of the tiers: 0, 20 and 100 microseconds.
    return {
        "communication": 20.0 * in_node + 100.0 * across,
        "nodes": len(set(plan.node_of.tolist())),
        "violations": len(broken),
        "load": float(
            NodeUse.of(graph, request.cluster, plan.node_of).busiest(request.cluster).max()
        ),
    }


def _contents(request: Request) -> tuple[Any, ...]:
    seen = request.measurements
    measured = seen and {
        name: {key: np.asarray(value).tolist() for key, value in getattr(seen, name).items()}
        for name in ("source_rates", "rates", "tuples_per_s", "cpu_cores")
    }
    running = request.running and request.running.to_dict()
    flags = (request.now_s, request.exact_nodes)
    return (request.topology, request.cluster, measured, running, flags)


#: Every check by its name.
STRATEGY_CHECKS: Mapping[str, Check] = {
    "describes itself": check_describes_itself,
    "plans something": check_plans_something,
    **{f"survives {name}": _survives(make) for name, make in SCENARIOS.items()},
    "same seed, same plan": check_same_seed_same_plan,
    "other seeds are valid": check_other_seeds_are_valid,
    "uses only its generator": check_uses_only_its_generator,
    "leaves the request alone": check_leaves_the_request_alone,
    "uses every node when asked": check_uses_every_node_when_asked,
    "re-plan is not worse": check_replan_is_not_worse,
    "re-plan of another plan": check_replan_of_another_plan,
    "re-plan at other rates": check_replan_at_other_rates,
    "re-plan after nodes vanished": check_replan_after_nodes_vanished,
    "re-plan with other parallelism": check_replan_with_other_parallelism,
    "re-plan with other operators": check_replan_with_other_operators,
    "generated requests": check_generated_requests,
}
