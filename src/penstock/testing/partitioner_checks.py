"""The contract of a partitioner, as checks that can be run one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, frozen_floats
from penstock.model import Edge, InstanceGraph, Kind, Operator, Topology, expand
from penstock.strategies.partition import Partitioner
from penstock.testing.broken import require, require_described
from penstock.testing.scenarios import every_grouping, wordcount

Check = Callable[[Partitioner], None]

#: A group may exceed its share of the weight by this fraction, and by one instance.
SLACK = 0.6


def check_partitioner(partitioner: Partitioner) -> None:
    """Run every check of `PARTITIONER_CHECKS`.

    Raises
    ------
    ContractBroken
        On the first promise that is not kept.
    """
    for check in PARTITIONER_CHECKS.values():
        check(partitioner)


def check_describes_itself(partitioner: Partitioner) -> None:
    """Check that it has a name, a summary and an origin."""
    require(isinstance(partitioner, Partitioner), f"{partitioner!r} lacks a member")
    require_described(partitioner)


def check_same_seed_same_groups(partitioner: Partitioner) -> None:
    """Check that equal arguments with equal seeds give equal groups."""
    graph = expand(every_grouping())
    one, two = (_split(partitioner, graph, equal(3), seed=7) for _ in range(2))
    require((one == two).all(), "two partitions from one seed differ")


def check_one_group(partitioner: Partitioner) -> None:
    """Check that one group holds everything."""
    _split(partitioner, expand(wordcount(3)), equal(1))


def check_as_many_groups_as_instances(partitioner: Partitioner) -> None:
    """Check that every instance is then alone."""
    graph = expand(wordcount(3))
    _split(partitioner, graph, equal(len(graph)))


def check_more_groups_than_instances(partitioner: Partitioner) -> None:
    """Check that some groups stay empty, and no more happens."""
    graph = expand(wordcount(1))
    _split(partitioner, graph, equal(len(graph) + 4))


def check_zero_weights(partitioner: Partitioner) -> None:
    """Check that groups are filled where there is no load to balance."""
    graph = expand(wordcount(4))
    _split(partitioner, graph, equal(3), np.zeros(len(graph)))


def check_no_traffic(partitioner: Partitioner) -> None:
    """Check zero rates and no edges at all: only the weights are left to go by."""
    _split(partitioner, expand(wordcount(4, rate_per_s=0.0)), equal(3))
    sources = tuple(Operator(f"in-{i}", Kind.SOURCE, 3) for i in range(3))
    _split(partitioner, expand(Topology("apart", sources)), equal(4))


def check_disconnected(partitioner: Partitioner) -> None:
    """Check several streams with nothing between them."""
    _split(partitioner, expand(streams(3)), equal(2))
    _split(partitioner, expand(streams(3)), equal(5))


def check_loops(partitioner: Partitioner) -> None:
    """Check loops and parallel edges."""
    operators = (Operator("in", Kind.SOURCE, 2), Operator("a", parallelism=4))
    edges = (Edge("in", "a"), Edge("in", "a"), Edge("a", "a"))
    _split(partitioner, expand(Topology("loop", operators, edges, relaxed=True)), equal(3))


def check_unequal_shares(partitioner: Partitioner) -> None:
    """Check that groups get the unlike weights that they are to get."""
    _split(partitioner, expand(streams(4, parallelism=6)), np.array([0.6, 0.3, 0.1]))


def check_unequal_weights(partitioner: Partitioner) -> None:
    """Check that heavy instances are spread."""
    graph = expand(every_grouping())
    weights = 1.0 + 9.0 * (np.arange(len(graph)) % 5 == 0)
    _split(partitioner, graph, equal(4), weights)
    one_heavy = np.ones(len(graph))
    one_heavy[0] = 100.0
    _split(partitioner, graph, equal(4), one_heavy)


def check_larger_graph(partitioner: Partitioner) -> None:
    """Check two hundred instances in ten groups."""
    _split(partitioner, expand(streams(5, parallelism=20)), equal(10))


def check_generated_graphs(partitioner: Partitioner) -> None:
    """Check that hypothesis finds no graph whose groups are invalid."""
    from hypothesis import given
    from hypothesis import strategies as st

    from penstock.testing.generate import FEW, requests

    @FEW
    @given(requests(cyclic=None), st.lists(st.integers(1, 4), min_size=1, max_size=6))
    def run(request: object, parts: list[int]) -> None:
        graph = request.graph  # type: ignore[attr-defined]
        shares = np.array(parts, dtype=np.float64) / sum(parts)
        _split(partitioner, graph, shares, graph.cpu_cores)

    run()


def equal(count: int) -> FloatArray:
    """Return equal shares."""
    return frozen_floats(np.full(count, 1.0 / count))


def streams(count: int, parallelism: int = 3) -> Topology:
    """Make several source -> sink streams side by side."""
    operators: list[Operator] = []
    for i in range(count):
        operators += [
            Operator(f"in-{i}", Kind.SOURCE, parallelism, rate_per_s=100.0 * (i + 1)),
            Operator(f"out-{i}", parallelism=parallelism),
        ]
    return Topology(
        "streams", tuple(operators), tuple(Edge(f"in-{i}", f"out-{i}") for i in range(count))
    )


def _split(
    partitioner: Partitioner,
    graph: InstanceGraph,
    shares: FloatArray,
    weights: FloatArray | None = None,
    seed: int = 0,
) -> IntArray:
    """Ask for a partition and check what must hold of any."""
    weights = frozen_floats(np.ones(len(graph)) if weights is None else weights)
    shares = frozen_floats(shares)
    groups = partitioner.partition(graph, weights, shares, np.random.default_rng(seed))
    require(
        isinstance(groups, np.ndarray) and groups.shape == (len(graph),),
        f"groups must be an array of {len(graph)}, are {groups!r}",
    )
    require(np.issubdtype(groups.dtype, np.integer), f"groups must be integers, are {groups.dtype}")
    held = [0] * len(shares)
    load = [0.0] * len(shares)
    for group, weight in zip(groups.tolist(), weights.tolist(), strict=True):
        require(0 <= group < len(shares), f"group {group} is not among {len(shares)}")
        held[group] += 1
        load[group] += weight
    require(
        len(graph) < len(shares) or min(held) > 0,
        f"{len(graph)} instances must fill {len(shares)} groups, fill them with {held}",
    )
    total, largest = sum(load), float(weights.max())
    for group, share in enumerate(shares.tolist()):
        most = share * total * (1 + SLACK) + largest
        require(
            load[group] <= most * (1 + 1e-9),
            f"group {group} holds a weight of {load[group]:g}, its share is {share * total:g} "
            f"and the largest instance weighs {largest:g}: at most {most:g}",
        )
    return groups


#: Every check by its name.
PARTITIONER_CHECKS: Mapping[str, Check] = {
    "describes itself": check_describes_itself,
    "same seed, same groups": check_same_seed_same_groups,
    "one group": check_one_group,
    "as many groups as instances": check_as_many_groups_as_instances,
    "more groups than instances": check_more_groups_than_instances,
    "zero weights": check_zero_weights,
    "no traffic": check_no_traffic,
    "disconnected": check_disconnected,
    "loops": check_loops,
    "unequal shares": check_unequal_shares,
    "unequal weights": check_unequal_weights,
    "a larger graph": check_larger_graph,
    "generated graphs": check_generated_graphs,
}
