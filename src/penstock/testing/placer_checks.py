"""The contract of a placer, as checks that can be run one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from penstock.common.arrays import frozen_ints
from penstock.model import Cluster, InstanceGraph, Node, Plan, expand
from penstock.strategies import Request, strategies
from penstock.strategies.place import Placed, Placer
from penstock.testing.broken import require, require_described
from penstock.testing.oracle import broken_limits
from penstock.testing.scenarios import SCENARIOS, every_grouping, mixed_cluster, wordcount

Check = Callable[[Placer], None]


def check_placer(placer: Placer) -> None:
    """Run every check of `PLACER_CHECKS`.

    Raises
    ------
    ContractBroken
        On the first promise that is not kept.
    """
    for check in PLACER_CHECKS.values():
        check(placer)


def check_describes_itself(placer: Placer) -> None:
    """Check that it has a name, a summary and an origin."""
    require(isinstance(placer, Placer), f"{placer!r} lacks a member of the protocol")
    require_described(placer)


def check_same_seed_same_places(placer: Placer) -> None:
    """Check that equal arguments with equal seeds give equal placements."""
    graph, cluster = expand(every_grouping()), mixed_cluster()
    one, two = (_place(placer, graph, 4, cluster, seed=7) for _ in range(2))
    same = (one.node_of == two.node_of).all() and (one.process_of == two.process_of).all()
    require(same, "two placements from one seed differ")


def check_roomy_cluster(placer: Placer) -> None:
    """Check that no limit is broken where every node could hold everything."""
    graph = expand(every_grouping())
    cluster = Cluster.of(4, cpu_cores=64, mem_mb=65_536, processes=2, slots=64)
    for count in (1, 3, 4, 9):
        placed = _place(placer, graph, count, cluster)
        broken = broken_limits(graph, cluster, placed.node_of, placed.process_of)
        require(not broken, f"there is room for everything, and yet: {sorted(broken)}")


def check_more_groups_than_nodes(placer: Placer) -> None:
    """Check that groups share nodes where they must."""
    _place(placer, expand(wordcount(5)), 7, Cluster.of(2, processes=2))


def check_fewer_groups_than_nodes(placer: Placer) -> None:
    """Check that nodes may stay empty."""
    _place(placer, expand(wordcount(5)), 2, Cluster.of(9))


def check_empty_groups(placer: Placer) -> None:
    """Check that groups without instances do no harm."""
    graph = expand(wordcount(2))
    groups = np.where(np.arange(len(graph)) % 2, 1, 4)
    _place(placer, graph, 6, Cluster.of(3), groups=groups)


def check_running_plan(placer: Placer) -> None:
    """Check that a running plan is only a hint: its nodes and instances may be others."""
    graph, cluster = expand(wordcount(3)), mixed_cluster()
    fewer = Cluster(cluster.nodes[1:])
    renamed = Cluster(tuple(replace(n, name=f"new-{n.name}") for n in cluster.nodes))
    running = _even(Request(wordcount(3), cluster))
    for now in (cluster, fewer, renamed):
        _place(placer, graph, 3, now, running)
    _place(placer, graph, 3, cluster, _even(Request(wordcount(1), cluster)))


def check_nowhere_to_go(placer: Placer) -> None:
    """Check that instances are placed even where nothing fits."""
    nothing = Cluster(tuple(Node(n, cpu_cores=0, mem_mb=0, io_mb_s=0, slots=1) for n in "ab"))
    _place(placer, expand(wordcount(4)), 3, nothing)


def check_generated_requests(placer: Placer) -> None:
    """Check that hypothesis finds no groups that are not placed."""
    from hypothesis import given
    from hypothesis import strategies as st

    from penstock.testing.generate import FEW, requests

    @FEW
    @given(requests(cyclic=None), st.integers(1, 6))
    def run(request: Request, count: int) -> None:
        _place(placer, request.graph, count, request.cluster)

    run()


def _survives(name: str) -> Check:
    def check(placer: Placer) -> None:
        request = SCENARIOS[name](0)
        for count in (1, 3):
            _place(placer, request.graph, count, request.cluster)

    return check


def _even(request: Request) -> Plan:
    plan: Plan = strategies.make("even").plan(request)
    return plan


def _place(
    placer: Placer,
    graph: InstanceGraph,
    count: int,
    cluster: Cluster,
    running: Plan | None = None,
    *,
    groups: np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None = None,
    seed: int = 0,
) -> Placed:
    """Ask for a placement and check what must hold of any."""
    repartitioned = frozen_ints(np.arange(len(graph)) % count if groups is None else groups)
    placed = placer.place(
        graph, repartitioned, count, cluster, running, np.random.default_rng(seed)
    )
    for name in ("node_of", "process_of"):
        array = getattr(placed, name)
        require(
            isinstance(array, np.ndarray)
            and array.shape == (len(graph),)
            and np.issubdtype(array.dtype, np.integer),
            f"{name} must be {len(graph)} integers, is {array!r}",
        )
    held: Counter[tuple[int, int]] = Counter()
    for instance in range(len(graph)):
        node, process = int(placed.node_of[instance]), int(placed.process_of[instance])
        require(0 <= node < len(cluster), f"{graph.label(instance)} is on node {node}")
        processes = cluster.nodes[node].processes
        where = f"{graph.label(instance)} is on process {process} of {processes}"
        require(0 <= process < processes, where)
        held[node, process] += 1
    for node, spec in enumerate(cluster.nodes):
        filled = [held[node, process] for process in range(spec.processes)]
        require(
            sum(filled) > spec.slots * spec.processes or max(filled) <= spec.slots,
            f"node {spec.name!r} has room, but its processes hold {filled} of {spec.slots} each",
        )
    require(
        placed.reasons and all(r.text.strip() for r in placed.reasons), "a placement needs reasons"
    )
    return placed


#: Every check by its name.
PLACER_CHECKS: Mapping[str, Check] = {
    "describes itself": check_describes_itself,
    "same seed, same places": check_same_seed_same_places,
    "a roomy cluster": check_roomy_cluster,
    "more groups than nodes": check_more_groups_than_nodes,
    "fewer groups than nodes": check_fewer_groups_than_nodes,
    "empty groups": check_empty_groups,
    "a running plan": check_running_plan,
    "nowhere to go": check_nowhere_to_go,
    **{f"survives {name}": _survives(name) for name in SCENARIOS},
    "generated requests": check_generated_requests,
}
