"""The contract suites over the whole registry: a part is tested once it is registered."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock.strategies import strategies
from penstock.strategies.partition import partitioners
from penstock.strategies.place import placers
from penstock.strategies.route import routers
from penstock.strategies.scale import scalers
from penstock.strategies.trigger import triggers
from penstock.testing import PARTITIONER_CHECKS, PLACER_CHECKS, STRATEGY_CHECKS

#: A training or a search that is cut short: the contract holds for every setting, and how good a
#: plan is, is no part of it. `test_ms.py` and `test_baselines.py` go to the end.
BRIEFLY: dict[str, dict[str, Any]] = {
    "ms": {"epochs": 20},
    "graph-network": {"epochs": 20},
    "optimal": {"steps": 2000},
}


@pytest.mark.parametrize("check", STRATEGY_CHECKS)
@pytest.mark.parametrize("name", strategies.names())
def test_strategy(name: str, check: str) -> None:
    STRATEGY_CHECKS[check](strategies.make(name, **BRIEFLY.get(name, {})))


@pytest.mark.parametrize("check", PARTITIONER_CHECKS)
@pytest.mark.parametrize("name", partitioners.names())
def test_partitioner(name: str, check: str) -> None:
    PARTITIONER_CHECKS[check](partitioners.make(name, **BRIEFLY.get(name, {})))


@pytest.mark.parametrize("check", PLACER_CHECKS)
@pytest.mark.parametrize("name", placers.names())
def test_placer(name: str, check: str) -> None:
    PLACER_CHECKS[check](placers.make(name))


def test_names_have_one_style() -> None:
    for registry in (strategies, partitioners, placers, routers, scalers, triggers):
        for name in registry.names():
            assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name), f"{registry.kind} {name!r}"
