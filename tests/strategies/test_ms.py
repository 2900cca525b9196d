"""Ms-Stream: its formulas by hand, its parts, and the strategy as a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.common.arrays import frozen_ints, group_sums
from penstock.model import (
    Cluster,
    Edge,
    Grouping,
    Keep,
    Kind,
    Measurements,
    Node,
    Operator,
    Plan,
    Reason,
    Topology,
    Utilisation,
    expand,
)
from penstock.model.load import lin, lit
from penstock.model.sizing import sized_for
from penstock.strategies import Request, make_plan, strategies
from penstock.strategies.loads import exact_limit
from penstock.strategies.ms import MsStream, partition_loads
from penstock.strategies.partition.bundles import Bundles, bundle
from penstock.strategies.partition.embedding import Adam, Network, Rates
from penstock.strategies.partition.graph_network import GraphNetwork, Loss, features
from penstock.strategies.partition.likeliest import likeliest
from penstock.strategies.place.padding import Padding
from penstock.strategies.route.two_tier import TwoTier
from penstock.strategies.trigger.node_imbalance import NodeImbalance
from penstock.testing.scenarios import every_grouping, mixed_cluster, wordcount


def diamond() -> Topology:
    """a -> b, a -> c, b -> d, c -> d with rates 12, 12, 12 and 24, and e apart from all."""
    return Topology(
        "diamond",
        (
            Operator("a", Kind.SOURCE, rate_per_s=12),
            Operator("b"),
            Operator("c", selectivity=2),
            Operator("d"),
        ),
        (Edge("a", "b"), Edge("a", "c"), Edge("b", "d"), Edge("c", "d")),
    )


# LIT and LIN.


def test_lit_by_hand() -> None:
    """Eq. 10: the busiest above the mean, or the idlest below it, whichever is further."""
    assert lit(np.array([10.0, 20.0, 60.0])) == pytest.approx(1.0)
    assert lit(np.array([0.0, 30.0, 30.0])) == pytest.approx(1.0)
    assert lit(np.array([5.0, 5.0])) == 0.0


def test_lin_by_hand() -> None:
    """Eq. 38: three nodes, the sum 1.2; 3 * 0.6 / 1.2 - 1 = 0.5, 1 - 3 * 0.1 / 1.2 = 0.75."""
    assert lin(np.array([0.1, 0.5, 0.6])) == pytest.approx(0.75)
    assert lin(np.array([0.3, 0.3, 0.6])) == pytest.approx(0.5)


# The loss.


def test_degrees_and_rates_of_the_diamond() -> None:
    bundles = bundle(expand(diamond()), 100)
    rates = bundles.spread(np.eye(4))
    expected = [[0, 12, 12, 0], [12, 0, 0, 12], [12, 0, 0, 24], [0, 12, 24, 0]]
    order = np.argsort(bundles.of)
    assert rates[np.ix_(bundles.of, bundles.of)].tolist() == expected
    assert bundles.degree[bundles.of].tolist() == [24, 24, 36, 36]
    assert bundles.size[order].tolist() == [1, 1, 1, 1]


def terms_of(
    bundles: Bundles, load: np.ndarray, shares: np.ndarray, chances: np.ndarray
) -> list[float]:
    terms, _ = Loss(Rates.of(bundles), bundles, load, shares).of(chances.astype(np.float32))
    return list(terms)


def test_loss_by_hand() -> None:
    """Eq. 31-34 on the diamond, split surely into {a, b} and {c, d}.

    The cut is 12 (a-c) + 12 (b-d) = 24. Volumes: 24 + 24 = 48 and 36 + 36 = 72, so the normalised
    cut is 24/48 + 24/72 = 5/6. Counts are even: 0. Loads 1, 2, 3, 6 have the mean 3: in its units
    1 and 3 against 2 each, so 1 + 1 = 2.
    """
    bundles = bundle(expand(diamond()), 100)
    load = np.array([1.0, 2.0, 3.0, 6.0])[np.argsort(bundles.of)]
    sure = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])[np.argsort(bundles.of)]
    half = np.array([0.5, 0.5])
    cut, counts, loads = terms_of(bundles, load, half, sure)
    assert cut == pytest.approx(5 / 6)
    assert counts == pytest.approx(0.0)
    assert loads == pytest.approx(2.0)
    # With shares of 1/4 and 3/4 of the 4 tasks: (2 - 1)^2 + (2 - 3)^2, and loads 1 and 3 fit.
    _, counts, loads = terms_of(bundles, load, np.array([0.25, 0.75]), sure)
    assert counts == pytest.approx(2.0)
    assert loads == pytest.approx(0.0)


def test_loss_is_the_dense_formula() -> None:
    """Eq. 31 with matrices, at probabilities in between: sum of (Y / Gamma)(1 - Y)^T * E."""
    bundles = bundle(expand(diamond()), 100)
    rng = np.random.default_rng(3)
    chances = rng.dirichlet(np.ones(3), size=4)
    rates, degree = bundles.spread(np.eye(4)), bundles.degree
    volume = chances.T @ degree
    dense = ((chances / volume) @ (1 - chances).T * rates).sum()
    counts = ((chances.sum(axis=0) - 4 / 3) ** 2).sum()
    load = np.array([1.0, 2.0, 3.0, 6.0])
    loads = ((chances.T @ (load / load.mean()) - 4 / 3) ** 2).sum()
    found = terms_of(bundles, load, np.full(3, 1 / 3), chances)
    assert found == pytest.approx([dense, counts, loads], rel=1e-5)


def test_isolated_tasks_have_no_volume() -> None:
    """Gamma is 0 for a group of isolated tasks: no division by it, also in the gradient."""
    apart = Topology("apart", tuple(Operator(f"in-{i}", Kind.SOURCE) for i in range(4)))
    bundles = bundle(expand(apart), 100)
    loss = Loss(Rates.of(bundles), bundles, np.ones(4), np.full(2, 0.5))
    (cut, _, _), pull = loss.of(np.full((4, 2), 0.5, dtype=np.float32))
    assert cut == 0.0
    assert np.isfinite(pull).all()


# The network.


def test_rates_are_those_of_the_bundles() -> None:
    """Derived and measured rates, and bundles of several instances with rates inside them."""
    measured = Measurements(rates={("a", "b"): np.array([[5.0], [1.0]])})
    topology = Topology(
        "mixed",
        (Operator("a", Kind.SOURCE, 2), Operator("b"), Operator("c", parallelism=9)),
        (Edge("a", "b"), Edge("b", "c"), Edge("a", "c")),
    )
    for graph in (expand(topology, measured), expand(wordcount(20))):
        bundles = bundle(graph, 8)
        values = np.random.default_rng(0).random((len(bundles), 3))
        found = Rates.of(bundles).spread(values.astype(np.float32))
        assert found == pytest.approx(bundles.spread(values), rel=1e-4)


def in_double(network: Network) -> Network:
    """Make the same network in double precision, in which differences are exact enough."""

    def wide(values: Any) -> Any:
        return values.astype(np.float64)

    rates = network.rates
    return replace(
        network,
        rates=Rates(wide(rates.left), wide(rates.right), wide(rates.pairs), wide(rates.degree)),
        edge=wide(network.edge),
        task=wide(network.task),
        root=wide(network.root),
        parameters=[wide(values) for values in network.parameters],
    )


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_gradients_are_those_of_differences(layers: int) -> None:
    """Along random directions in each parameter, the loss changes as its gradient says."""
    bundles = bundle(expand(wordcount(6)), 100)
    load, shares = np.arange(1.0, 1.0 + len(bundles)), np.array([0.5, 0.3, 0.2])
    rng = np.random.default_rng(1)
    rates = Rates.of(bundles)
    edge, task = features(bundles, load, rng)
    network = in_double(Network.of(rates, edge, task, 3, layers, 8, rng))
    loss = Loss(network.rates, bundles, load, shares)

    def total() -> float:
        terms, _ = loss.of(network.forward().chances)
        return loss.total(*terms)

    passed = network.forward()
    gradients = network.backward(passed, loss.of(passed.chances)[1])
    assert len(gradients) == len(network.parameters) == 2 * layers + 2
    for values, gradient in zip(network.parameters, gradients, strict=True):
        way = rng.standard_normal(values.shape)
        step = 1e-6 / np.abs(way).max()
        values += step * way
        above = total()
        values -= 2 * step * way
        below = total()
        values += step * way
        slope = float((gradient * way).sum())
        assert (above - below) / (2 * step) == pytest.approx(slope, rel=1e-3, abs=1e-5)


def test_adam_by_hand() -> None:
    """Corrected for their start, both means are the gradient's own: a first step is the rate."""
    values = np.array([1.0, -1.0, 5.0], dtype=np.float32)
    optimiser = Adam(0.1, [values])
    optimiser.step([np.array([2.0, -0.5, 0.0], dtype=np.float32)])
    assert values == pytest.approx([0.9, -0.9, 5.0])
    # Means 0.1*2*0.9 + 0.1*1 = 0.28, over 1 - 0.81; squares 0.001*(4*0.999 + 1), over 0.001999.
    optimiser.step([np.array([1.0, 0.0, 0.0], dtype=np.float32)])
    mean, square = 0.28 / 0.19, 0.004996 / 0.001999
    assert values[0] == pytest.approx(0.9 - 0.1 * mean / square**0.5, rel=1e-5)


# Bundles.


def test_bundles_keep_rates_and_sizes() -> None:
    graph = expand(wordcount(20))
    whole, tied = bundle(graph, 1000), bundle(graph, 12)
    assert len(whole) == len(graph)
    assert len(tied) < 20
    assert tied.size.sum() == len(graph)
    # What groups of bundles exchange is what their instances exchange.
    groups = np.arange(len(tied)) % 3
    one_hot = np.eye(3)[groups]
    between = one_hot.T @ (tied.spread(one_hot) + tied.loop[:, None] * one_hot)
    directed = graph.between(groups[tied.of], 3)
    assert between == pytest.approx(directed + directed.T)


def test_measured_rates_are_kept_pair_by_pair() -> None:
    rates = np.array([[5.0, 0.0], [1.0, 2.0]])
    topology = Topology(
        "pair",
        (Operator("a", Kind.SOURCE, 2), Operator("b", parallelism=2)),
        (Edge("a", "b"),),
    )
    bundles = bundle(expand(topology, Measurements(rates={("a", "b"): rates})), 100)
    found = bundles.spread(np.eye(4))[np.ix_(bundles.of, bundles.of)]
    assert found[:2, 2:].tolist() == rates.tolist()
    assert found[2:, :2].tolist() == rates.T.tolist()


# From probabilities to groups.


def test_the_likeliest_group() -> None:
    graph = expand(diamond())
    chances = np.array([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.3, 0.7]])
    groups = likeliest(graph, chances, np.ones(4), np.array([0.5, 0.5]))
    assert groups.tolist() == [0, 0, 1, 1]


def test_what_adds_least_to_the_cut_moves() -> None:
    """All four want group 0. It holds up to 2.04 + 1, and group 1 is to get at least 0.7 of 2.

    To fill the empty group, a or b leaves with the least to lose (24), and a comes first. Then b
    is drawn after it: 12 gained against 12 lost, where c would gain 12 and lose 24.
    """
    sure = np.tile([1.0, 0.0], (4, 1))
    groups = likeliest(expand(diamond()), sure, np.ones(4), np.array([0.5, 0.5]))
    assert groups.tolist() == [1, 1, 0, 0]


def test_no_group_is_left_empty() -> None:
    sure = np.tile([1.0, 0.0, 0.0, 0.0], (4, 1))
    weights = np.array([1.0, 0, 0, 0])
    groups = likeliest(expand(diamond()), sure, weights, np.full(4, 0.25))
    assert sorted(groups.tolist()) == [0, 1, 2, 3]


def streams(count: int) -> Topology:
    """Make streams of three operators each, with nothing between them."""
    return Topology(
        "streams",
        tuple(
            Operator(f"s{s}-{i}", Kind.SOURCE if i == 0 else Kind.STATELESS, 4)
            for s in range(count)
            for i in range(3)
        ),
        tuple(Edge(f"s{s}-{i}", f"s{s}-{i + 1}") for s in range(count) for i in range(2)),
    )


def test_two_streams_fall_apart() -> None:
    """Two streams with nothing between them: the cut of two groups is 0."""
    graph = expand(streams(2))
    groups = GraphNetwork().partition(
        graph, np.ones(len(graph)), np.full(2, 0.5), np.random.default_rng(0)
    )
    assert graph.cut(groups, 2) == pytest.approx(0.0, abs=1e-6)


def test_training_helps() -> None:
    graph = expand(streams(8))
    shares, load = np.full(4, 0.25), np.ones(len(graph))
    one, many = (
        [
            graph.cut(network.partition(graph, load, shares, np.random.default_rng(seed)), 4)
            for seed in range(5)
        ]
        for network in (GraphNetwork(epochs=1), GraphNetwork())
    )
    assert np.median(many) == pytest.approx(0.0, abs=1e-6)
    assert np.median(one) > 0


# Padding.


def groups_of(cpus: list[float]) -> tuple[Any, np.ndarray]:
    """One operator a group, each with its demand of CPU and as much of memory."""
    operators = tuple(
        Operator(f"o{i}", Kind.SOURCE, cpu_pct=100 * cpu, mem_mb=1000 * cpu)
        for i, cpu in enumerate(cpus)
    )
    return expand(Topology("t", operators)), np.arange(len(cpus))


def pad(
    cpus: list[float], cluster: Cluster, running: Plan | None = None, threshold: float = 0.8
) -> list[int]:
    graph, groups = groups_of(cpus)
    placer = Padding(threshold=threshold)
    placed = placer.place(graph, groups, len(groups), cluster, running, np.random.default_rng(0))
    return [int(node) for node in placed.node_of]


def equal_nodes(count: int) -> Cluster:
    return Cluster.of(count, cpu_cores=10, mem_mb=10_000)


def on_nodes(cluster: Cluster, node_of: list[int]) -> Plan:
    request = Request(
        Topology("t", tuple(Operator(f"o{i}", Kind.SOURCE) for i in range(len(node_of)))), cluster
    )
    where = np.array(node_of)
    return make_plan(request, "any", where, np.zeros_like(where), [Reason("put there")])


def test_one_group_a_node_heaviest_first() -> None:
    assert sorted(pad([3.0, 6.0, 1.0], equal_nodes(3))) == [0, 1, 2]
    assert pad([3.0, 6.0, 1.0], equal_nodes(3)) == [1, 0, 2]


def test_nodes_awake_come_first() -> None:
    """Nodes 2 and 3 run something: they take the two heaviest groups, and one node is woken."""
    cluster = equal_nodes(4)
    running = on_nodes(cluster, [3, 2, 2])
    placed = pad([3.0, 6.0, 1.0], cluster, running)
    assert placed[1] == 2  # It runs there now.
    assert placed[0] == 3
    assert placed[2] in (0, 1)


def test_above_the_threshold_a_node_is_woken() -> None:
    """The only node awake is small: 6 of 7 cores are above 0.8 of it, 5 are not."""
    cluster = Cluster((Node("small", 7, 7000), Node("large", 10, 10_000)))
    running = on_nodes(cluster, [0])
    assert pad([6.0], cluster, running) == [1]
    assert pad([5.0], cluster, running) == [0]
    assert pad([6.0], cluster, running, threshold=0.9) == [0]


def test_more_groups_than_nodes_share_the_lightest() -> None:
    """4, 3 and 2 on two nodes: 4 | 3, then 2 joins the 3."""
    assert pad([2.0, 4.0, 3.0], equal_nodes(2)) == [1, 0, 1]


def test_what_fits_nowhere_is_placed_all_the_same() -> None:
    assert pad([20.0, 30.0], equal_nodes(2)) == [1, 0]


# The trigger.


def loaded(cpus: list[float], strategy: str = "other") -> Request:
    cluster = equal_nodes(len(cpus))
    graph, _ = groups_of(cpus)
    request = Request(graph.topology, cluster)
    where = np.arange(len(cpus))
    running = make_plan(request, strategy, where, np.zeros_like(where), [Reason("put there")])
    return replace(request, running=running)


def test_trigger_on_both_sides_of_eta() -> None:
    """Loads 7, 5, 3 of 10: the mean is 5, LIN = max(7/5 - 1, 1 - 3/5) = 0.4."""
    assert not NodeImbalance().check(loaded([7.0, 5.0, 3.0])).fires
    above = NodeImbalance().check(loaded([7.1, 5.0, 2.9]))
    assert above.fires
    assert above.reasons[0].figures["lin"] == pytest.approx(0.42)
    assert NodeImbalance(eta=0.39).check(loaded([7.0, 5.0, 3.0])).fires


def test_trigger_believes_measured_loads() -> None:
    request = loaded([5.0, 5.0])
    names = request.cluster.names
    uneven = {names[0]: Utilisation(0.9, 0.9, 0.0), names[1]: Utilisation(0.1, 0.1, 0.0)}
    measured = replace(request, measurements=Measurements(nodes=uneven))
    assert NodeImbalance().check(measured).fires
    half = replace(request, measurements=Measurements(nodes={names[0]: uneven[names[0]]}))
    assert not NodeImbalance().check(half).fires


def test_trigger_knows_what_ms_could_not_balance() -> None:
    """LIN 0.6 as planned is no reason for the planner that planned it, and one for another's."""
    assert NodeImbalance().check(loaded([8.0, 2.0])).fires
    own = loaded([8.0, 2.0], "ms")
    assert not NodeImbalance().check(own).fires
    grown = groups_of([9.0, 1.0])[0].topology
    assert NodeImbalance().check(replace(own, topology=grown)).fires


def counting(rate: float, shares: tuple[float, ...]) -> Topology:
    return Topology(
        "counting",
        (
            Operator("in", Kind.SOURCE, 2, rate_per_s=rate, cpu_us_per_tuple=10, mem_mb=100),
            Operator("count", Kind.STATEFUL, len(shares), 10, mem_mb=100, state_mb=40),
        ),
        (Edge("in", "count", Grouping.FIELDS, shares),),
    )


def test_trigger_on_both_sides_of_chi() -> None:
    """Loads 500, 250, 250: LIT = 3/2 - 1 = 0.5. What was only declared counts for nothing."""
    cluster = Cluster.of(1)
    request = Request(counting(1000, (0.5, 0.25, 0.25)), cluster)
    where = np.zeros(5, dtype=np.int64)
    running = make_plan(request, "other", where, where, [Reason("put there")])
    declared = replace(request, running=running)
    assert not NodeImbalance(chi=0.1).check(declared).fires
    loads = Measurements(tuples_per_s={"count": np.array([500.0, 250.0, 250.0])})
    request = replace(declared, measurements=loads)
    assert not NodeImbalance(chi=0.51).check(request).fires
    verdict = NodeImbalance(chi=0.49).check(request)
    assert verdict.fires
    assert verdict.reasons[1].figures["lit"] == pytest.approx(0.5)


def test_trigger_fires_without_a_plan_and_on_broken_limits() -> None:
    request = loaded([5.0, 5.0])
    assert NodeImbalance().check(replace(request, running=None)).fires
    tight = Cluster(tuple(replace(node, cpu_cores=4.0) for node in request.cluster.nodes))
    broken = NodeImbalance().check(replace(request, cluster=tight))
    assert broken.fires
    assert "breaks a limit" in broken.reasons[0].text
    gone = Cluster(request.cluster.nodes[:1])
    assert NodeImbalance().check(replace(request, cluster=gone)).fires


# The strategy.


def small() -> MsStream:
    return MsStream(epochs=60)


def test_first_plan_has_tables() -> None:
    request = Request(counting(1000, (0.5, 0.25, 0.25)), Cluster.of(3))
    plan = small().plan(request)
    assert isinstance(plan, Plan)
    assert plan.feasible
    assert set(plan.routing) == {"count"}
    assert plan.routing["count"] == TwoTier(64).table(3)


def test_keep_when_nothing_changed() -> None:
    for topology, cluster in ((wordcount(4), mixed_cluster()), (every_grouping(), Cluster.of(4))):
        plan = small().plan(Request(topology, cluster))
        assert isinstance(plan, Plan)
        for seed in (1, 2):
            rng = np.random.default_rng(seed)
            again = small().plan(Request(topology, cluster, running=plan, rng=rng))
            assert isinstance(again, Keep)


def test_lagging_keys_move_partitions_and_no_instance() -> None:
    topology, cluster = counting(1000, (0.25,) * 4), Cluster.of(2)
    plan = small().plan(Request(topology, cluster))
    assert isinstance(plan, Plan)
    table = plan.routing["count"]
    loads = np.ones(len(table.partitions))
    loads[np.array(table.partitions) == 1] = 12.0
    carried = group_sums(frozen_ints(table.partitions), loads, 4)
    measured = Measurements(tuples_per_s={"count": carried}, partition_rates={"count": loads})
    request = Request(topology, cluster, measured, running=plan)
    assert lit(carried) > 1.0
    after = small().plan(request)
    assert isinstance(after, Plan)
    assert (after.node_of == plan.node_of).all()
    new = group_sums(frozen_ints(after.routing["count"].partitions), loads, 4)
    assert lit(new) <= 1.0
    moved = np.flatnonzero(np.array(after.routing["count"].partitions) != table.partitions)
    assert set(np.array(table.partitions)[moved]) == {1}


def test_partition_loads_fall_back_to_the_instances() -> None:
    table = TwoTier(2).table(3)
    request = Request(counting(1000, (0.5, 0.25, 0.25)), Cluster.of(1))
    assert partition_loads(request, "count", table) is None
    instances = Measurements(tuples_per_s={"count": np.array([500.0, 250.0, 250.0])})
    loads = partition_loads(replace(request, measurements=instances), "count", table)
    assert loads is not None
    assert loads.tolist() == [250, 125, 125, 250, 125, 125]
    partitions = Measurements(partition_rates={"count": np.arange(6.0)})
    loads = partition_loads(replace(request, measurements=partitions), "count", table)
    assert loads is not None
    assert loads.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_change_of_parallelism_moves_few_partitions() -> None:
    cluster = Cluster.of(2)
    plan = small().plan(Request(counting(1000, (0.25,) * 4), cluster))
    assert isinstance(plan, Plan)
    after = small().plan(Request(counting(1000, (0.2,) * 5), cluster, running=plan))
    assert isinstance(after, Plan)
    old, new = plan.routing["count"].partitions, after.routing["count"].partitions
    assert len(old) == len(new)
    assert sum(a != b for a, b in zip(old, new, strict=True)) == len(old) // 5


def test_as_many_groups_as_the_load_asks_for() -> None:
    """20 instances of 0.5 cores on nodes of 4: 10 cores at a mean of 0.8/1.4 of 4 are 5 nodes."""
    topology = Topology("t", (Operator("a", Kind.SOURCE, 20, cpu_pct=50),))
    plan = small().plan(Request(topology, Cluster.of(9)))
    assert isinstance(plan, Plan)
    assert plan.after.nodes_used == 5
    assert plan.after.max_node_load <= 0.8
    fixed = MsStream(epochs=60, groups=7).plan(Request(topology, Cluster.of(9)))
    assert isinstance(fixed, Plan)
    assert fixed.after.nodes_used == 7


def test_exact_nodes_at_metis_balance() -> None:
    graph = expand(wordcount(20))
    request = Request(wordcount(20), sized_for(graph, 6), exact_nodes=True)
    plan = small().plan(request)
    assert isinstance(plan, Plan)
    assert plan.after.nodes_used == 6
    assert plan.feasible
    assert plan.after.max_node_load <= exact_limit(request) * (1 + 1e-9)
    metis = strategies.make("metis").plan(request)
    assert plan.after.across_per_s <= 1.3 * metis.after.across_per_s


def test_arrow_is_imported_late() -> None:
    """Reading the registry must not cost the import of Arrow."""
    import subprocess
    import sys

    code = (
        "import sys; from penstock.strategies import strategies; strategies.names(); "
        "print('pyarrow' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False"]
