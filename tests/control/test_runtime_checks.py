"""The fake runtime keeps the contract, and runtimes that break it are caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.control.scene import WORDS, first_plan, small_nodes

from penstock.control.runtime import Applied, Observation
from penstock.model import Cluster, Plan
from penstock.testing import RUNTIME_CHECKS, ContractBroken, Driven, FakeRuntime


def made(kind: type[FakeRuntime] = FakeRuntime, **options: Any) -> Callable[..., Any]:
    @contextmanager
    def maker() -> Iterator[Driven]:
        cluster = small_nodes(3)
        runtime = kind(WORDS, first_plan("even", cluster), cluster, lambda _: 2000.0, **options)
        yield Driven(runtime, runtime.run)

    return maker


Maker = Callable[[], AbstractContextManager[Driven]]


@pytest.mark.parametrize("check", RUNTIME_CHECKS.values(), ids=RUNTIME_CHECKS)
@pytest.mark.parametrize("elastic", [True, False])
def test_the_fake_runtime_keeps_the_contract(check: Callable[[Maker], None], elastic: bool) -> None:
    check(made(elastic=elastic))


class Busybody(FakeRuntime):
    def observe(self) -> Observation:
        self.run()
        return super().observe()


class Careless(FakeRuntime):
    def apply(self, plan: Plan) -> Applied:
        self.plan = plan
        return Applied()


class Deaf(FakeRuntime):
    def apply(self, plan: Plan) -> Applied:
        return Applied()


class Eager(FakeRuntime):
    def prepare(self, plan: Plan) -> bool:
        self.apply(plan)
        return True


class Blind(FakeRuntime):
    def observe(self) -> Observation:
        return replace(super().observe(), measurements=None)


class Hasty(FakeRuntime):
    def release_nodes(self, names: tuple[str, ...]) -> None:
        self.cluster = Cluster(self.cluster.nodes[2:])


class Costly(FakeRuntime):
    def apply(self, plan: Plan) -> Applied:
        return replace(super().apply(plan), state_bytes=1)


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (Busybody, "observing is passive"),
        (Careless, "an impossible plan is refused"),
        (Deaf, "an instance moves"),
        (Eager, "preparing is passive"),
        (Blind, "measurements fit the plan"),
        (Hasty, "nodes come and go"),
        (Costly, "same plan again"),
    ],
)
def test_a_broken_runtime_is_caught(kind: type[FakeRuntime], check: str) -> None:
    with pytest.raises(ContractBroken):
        RUNTIME_CHECKS[check](made(kind))
