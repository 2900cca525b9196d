"""The suites must catch what they promise to catch: each broken part here fails its check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np
import pytest
from hypothesis import Phase, settings

from penstock.common.arrays import FloatArray, IntArray
from penstock.model import Cluster, InstanceGraph, Keep, Plan, Reason, Refused
from penstock.strategies import Request, make_plan, strategies
from penstock.strategies.place import Placed
from penstock.testing import (
    PARTITIONER_CHECKS,
    PLACER_CHECKS,
    STRATEGY_CHECKS,
    ContractBroken,
    check_partitioner,
    check_placer,
    check_strategy,
)

Answer = Callable[[Request], Any]


@pytest.fixture(autouse=True)
def _any_failure_will_do() -> Iterator[None]:
    """Shrinking a failure to its smallest form takes long, and here nobody reads it."""
    before = settings.get_current_profile_name()
    settings.register_profile(
        "unshrunk",
        settings.get_profile(before),
        phases=[Phase.explicit, Phase.generate],
        derandomize=True,
    )
    settings.load_profile("unshrunk")
    yield
    settings.load_profile(before)


@dataclass(frozen=True)
class Scripted:
    """A strategy that answers as it is told."""

    name: ClassVar[str] = "scripted"
    summary: ClassVar[str] = "for tests"
    origin: ClassVar[str] = "here"
    answer: Answer

    def plan(self, request: Request) -> Any:
        return self.answer(request)


def dealt(request: Request) -> Plan:
    n, m = len(request.graph), len(request.cluster)
    zeros = np.zeros(n, dtype=np.int64)
    return make_plan(request, "scripted", np.arange(n) % m, zeros, [Reason("dealt")])


def kept_when_it_can_be(request: Request) -> Plan | Keep:
    plan = dealt(request)
    if plan.before is None or request.running is None:
        return plan
    return Keep((Reason("good enough"),))


def refusing(request: Request) -> Plan:
    raise Refused("no")


def refusing_without_a_word(request: Request) -> Plan:
    raise Refused("")


def unseeded(request: Request) -> Plan:
    rng = np.random.default_rng()
    n = len(request.graph)
    node_of = rng.integers(0, len(request.cluster), n)
    zeros = np.zeros(n, dtype=np.int64)
    return make_plan(request, "scripted", node_of, zeros, [Reason("thrown")])


def global_numbers(request: Request) -> Plan:
    np.random.random()  # noqa: NPY002
    return dealt(request)


def worse_each_time(request: Request) -> Plan:
    plan = dealt(request)
    if request.running is not None:
        return plan
    zeros = np.zeros(len(request.graph), dtype=np.int64)
    return make_plan(request, "scripted", zeros, zeros, [Reason("packed")])


def packed(request: Request) -> Plan:
    zeros = np.zeros(len(request.graph), dtype=np.int64)
    return make_plan(request, "scripted", zeros, zeros, [Reason("packed")])


def always_kept(request: Request) -> Plan | Keep:
    return dealt(request) if request.running is None else Keep((Reason("why not"),))


def changed(**changes: Any) -> Answer:
    return lambda request: replace(dealt(request), **changes)


@pytest.mark.parametrize(
    ("answer", "check"),
    [
        (refusing, "plans something"),
        (refusing_without_a_word, "survives wordcount"),
        (lambda request: None, "survives wordcount"),
        (lambda request: Keep((Reason("nothing runs"),)), "survives wordcount"),
        (changed(strategy="other"), "survives wordcount"),
        (changed(infeasible=()), "survives more instances than slots"),
        (changed(infeasible=()), "survives an instance that fits nowhere"),
        (changed(infeasible=()), "survives a node without memory"),
        (changed(infeasible=()), "survives a node without CPU"),
        (changed(reasons=(Reason(" "),)), "survives wordcount"),
        (changed(reasons=(Reason("x", {"k": float("nan")}),)), "survives wordcount"),
        (changed(reasons=(Reason("x", {"k": cast("float", np.int64(1))}),)), "survives wordcount"),
        (changed(topology="other"), "survives wordcount"),
        (changed(active=("node-0",)), "survives wordcount"),
        (changed(process_of=np.array([0, 0, 0, 0, 2])), "survives wordcount"),
        (
            lambda request: replace(dealt(request), after=packed(request).after),
            "survives wordcount",
        ),
        (
            lambda request: replace(dealt(request), nodes=dealt(request).nodes[::-1]),
            "survives wordcount",
        ),
        (unseeded, "same seed, same plan"),
        (global_numbers, "uses only its generator"),
        (packed, "uses every node when asked"),
        (worse_each_time, "re-plan is not worse"),
        (dealt, "re-plan of another plan"),
        (always_kept, "re-plan after nodes vanished"),
        (always_kept, "re-plan with other operators"),
        (changed(infeasible=()), "generated requests"),
    ],
)
def test_a_broken_strategy_is_caught(answer: Answer, check: str) -> None:
    with pytest.raises((ContractBroken, ValueError, TypeError)):
        STRATEGY_CHECKS[check](Scripted(answer))


def test_a_strategy_that_changes_its_request_is_caught() -> None:
    def changes(request: Request) -> Plan:
        object.__setattr__(request, "cluster", Cluster.of(2, processes=2))
        return dealt(request)

    with pytest.raises(ContractBroken, match="the request was changed"):
        STRATEGY_CHECKS["leaves the request alone"](Scripted(changes))


def test_a_strategy_that_is_not_frozen_is_caught() -> None:
    class Loose:
        name: ClassVar[str] = "loose"
        summary: ClassVar[str] = "for tests"
        origin: ClassVar[str] = "here"

        def plan(self, request: Request) -> Plan:
            return dealt(request)

    with pytest.raises(ContractBroken, match="must be a dataclass"):
        STRATEGY_CHECKS["describes itself"](Loose())


def test_good_strategies_pass_as_a_whole() -> None:
    check_strategy(Scripted(kept_when_it_can_be))
    check_strategy(strategies.make("even"))


def test_refusing_some_requests_is_fine() -> None:
    def small_only(request: Request) -> Plan | Keep:
        if len(request.graph) > 5:
            raise Refused("more than 5 instances: ask for fewer")
        return kept_when_it_can_be(request)

    check_strategy(Scripted(small_only))


Split = Callable[[InstanceGraph, FloatArray, FloatArray, np.random.Generator], Any]


@dataclass(frozen=True)
class Splitting:
    """A partitioner that answers as it is told."""

    name: ClassVar[str] = "splitting"
    summary: ClassVar[str] = "for tests"
    origin: ClassVar[str] = "here"
    answer: Split

    def partition(
        self,
        graph: InstanceGraph,
        weights: FloatArray,
        shares: FloatArray,
        rng: np.random.Generator,
    ) -> Any:
        return self.answer(graph, weights, shares, rng)


def greedy(
    graph: InstanceGraph, weights: FloatArray, shares: FloatArray, rng: np.random.Generator
) -> IntArray:
    """Heaviest first, to the group that lacks most; every group gets one of the lightest."""
    groups = np.zeros(len(graph), dtype=np.int64)
    order = np.argsort(weights, kind="stable")
    lightest, rest = order[: len(shares)], order[len(shares) :][::-1]
    groups[lightest] = np.arange(len(lightest))
    held = np.bincount(groups[lightest], weights=weights[lightest], minlength=len(shares))
    for i in rest:
        groups[i] = int(np.argmax(shares * weights.sum() - held))
        held[groups[i]] += weights[i]
    return groups


def test_a_good_partitioner_passes() -> None:
    check_partitioner(Splitting(greedy))


@pytest.mark.parametrize(
    ("answer", "check"),
    [
        (lambda g, w, s, r: np.zeros(len(g), dtype=np.int64), "as many groups as instances"),
        (lambda g, w, s, r: np.arange(len(g)), "one group"),
        (lambda g, w, s, r: np.zeros(len(g)), "one group"),
        (lambda g, w, s, r: np.zeros(3, dtype=np.int64), "one group"),
        (lambda g, w, s, r: [0] * len(g), "one group"),
        (
            lambda g, w, s, r: np.random.default_rng().permutation(greedy(g, w, s, r)),
            "same seed, same groups",
        ),
        (
            lambda g, w, s, r: np.maximum(0, np.arange(len(g)) - len(g) + len(s)),
            "a larger graph",
        ),
        (lambda g, w, s, r: np.arange(len(g)) % len(s), "unequal shares"),
        (lambda g, w, s, r: np.zeros(len(g), dtype=np.int64), "generated graphs"),
    ],
)
def test_a_broken_partitioner_is_caught(answer: Split, check: str) -> None:
    with pytest.raises(ContractBroken):
        PARTITIONER_CHECKS[check](Splitting(answer))


@dataclass(frozen=True)
class Placing:
    """A placer that puts a group on the node of its number, and changes what it is told to."""

    name: ClassVar[str] = "placing"
    summary: ClassVar[str] = "for tests"
    origin: ClassVar[str] = "here"
    first_process: bool = False
    node_shift: int = 0
    silent: bool = False
    seeded: bool = True

    def place(
        self,
        graph: InstanceGraph,
        groups: IntArray,
        count: int,
        cluster: Cluster,
        running: Plan | None,
        rng: np.random.Generator,
    ) -> Placed:
        node_of = groups % len(cluster) + self.node_shift
        if not self.seeded:
            node_of = np.random.default_rng().permutation(node_of)
        process_of = np.zeros(len(graph), dtype=np.int64)
        if not self.first_process and not self.node_shift:
            for node in range(len(cluster)):
                members = np.flatnonzero(node_of == node)
                process_of[members] = np.arange(len(members)) % cluster.processes[node]
        return Placed(node_of, process_of, () if self.silent else (Reason("by number"),))


def test_a_good_placer_passes() -> None:
    check_placer(Placing())


@pytest.mark.parametrize(
    ("placer", "check"),
    [
        (Placing(first_process=True), "survives more instances than slots"),
        (Placing(first_process=True), "generated requests"),
        (Placing(node_shift=1), "survives wordcount"),
        (Placing(silent=True), "empty groups"),
        (Placing(seeded=False), "same seed, same places"),
    ],
)
def test_a_broken_placer_is_caught(placer: Placing, check: str) -> None:
    with pytest.raises(ContractBroken):
        PLACER_CHECKS[check](placer)
