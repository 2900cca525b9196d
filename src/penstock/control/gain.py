"""What a change is expected to gain, and whether it did. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.common.arrays import group_sums
from penstock.control.evaluate import Assessment
from penstock.model import Cost, Diff, Measurements, Plan, RoutingTable
from penstock.model.load import lit
from penstock.strategies.route.skew import loads_of

#: A gain has come when at least this part of it was measured.
ENOUGH = 0.5

#: Gains at rates that differ by more than this part cannot be compared.
COMPARABLE = 0.25

#: A relief is expected when the load of the busiest node is to fall by this part.
RELIEF = 0.05


@dataclass(frozen=True)
class Expectation:
    """The one figure that a change is made for, before and as predicted.

    Parameters
    ----------
    figure : str
        ``nodes``, ``load`` (of the busiest node), ``lit``, ``lin`` or ``communication_us`` (of a
        source tuple).
    operator : str
        Whose ``lit``.
    rate_per_s : float
        Source rate at which it was predicted.
    """

    figure: str
    before: float
    predicted: float
    operator: str = ""
    rate_per_s: float = 0.0


@dataclass(frozen=True)
class Gained:
    """What a change really gained.

    Parameters
    ----------
    came : bool or None
        None when it cannot be told.
    real : float or None
        The figure that was expected, as it is now.
    part : float or None
        Of the predicted gain.
    """

    text: str
    came: bool | None = None
    real: float | None = None
    part: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"text": self.text, "came": self.came, "real": self.real, "part": self.part}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Gained:
        """Read back what `to_dict` wrote."""
        return cls(**values)


def expect(
    assessment: Assessment, running: Plan, target: Plan, after: Cost, change: Diff
) -> Expectation | None:
    """Name the figure that a change is made for; None when there is nothing to compare with."""
    before, rate = assessment.cost, assessment.rate_per_s
    if before is None:
        return None
    load, nodes = before.max_node_load, before.nodes_used
    if load > 0 and after.max_node_load < load * (1 - RELIEF) and after.nodes_used >= nodes:
        return Expectation("load", load, after.max_node_load, rate_per_s=rate)
    if after.nodes_used < nodes:
        return Expectation("nodes", nodes, after.nodes_used, rate_per_s=rate)
    routed = {p.operator for p in change.partitions} | set(change.split_changed)
    demand = assessment.demand
    if routed and demand is not None:
        found = [
            Expectation("lit", *pair, operator=name, rate_per_s=rate)
            for name in sorted(routed)
            if (pair := _balance_of(name, running, target, demand)) is not None
        ]
        if found:
            return max(found, key=lambda e: e.before - e.predicted)
    cheaper = before.communication_us_per_s - after.communication_us_per_s
    if after.lin < before.lin * (1 - RELIEF) and cheaper < RELIEF * before.communication_us_per_s:
        return Expectation("lin", before.lin, after.lin, rate_per_s=rate)
    if rate > 0 and cheaper > 0:
        pair = (before.communication_us_per_s / rate, after.communication_us_per_s / rate)
        return Expectation("communication_us", *pair, rate_per_s=rate)
    return None


def judge(expected: Expectation | None, now: Assessment) -> Gained:
    """Compare what was expected with what is measured now."""
    if expected is None:
        return Gained("nothing was predicted that could be compared")
    if now.cost is None:
        return Gained("not enough was measured to compare")
    then = expected.rate_per_s
    if then > 0 and abs(now.rate_per_s / then - 1.0) > COMPARABLE:
        text = f"the rate is now {now.rate_per_s:.4g}/s instead of {then:.4g}/s: no comparison"
        return Gained(text)
    real = _real(expected, now)
    if real is None:
        return Gained("what was predicted was not measured again")
    if expected.figure == "nodes" and now.cost.max_node_load > 1.0:
        text = f"the nodes that are left are overloaded, at {now.cost.max_node_load:.2f}"
        return Gained(text, False, real, None)
    wanted = expected.before - expected.predicted
    part = (expected.before - real) / wanted if wanted > 0 else None
    came = None if part is None else part >= ENOUGH
    text = (
        f"{_words(expected)} went from {expected.before:.3g} to {real:.3g}, "
        f"predicted {expected.predicted:.3g}"
    )
    return Gained(text, came, real, part)


def _real(expected: Expectation, now: Assessment) -> float | None:
    assert now.cost is not None
    if expected.figure == "nodes":
        return float(now.cost.nodes_used)
    if expected.figure == "lit":
        return now.lit.get(expected.operator)
    if expected.figure == "lin":
        return now.cost.lin
    if expected.figure == "communication_us":
        rate = now.rate_per_s
        return now.cost.communication_us_per_s / rate if rate > 0 else None
    # A load goes with the rate.
    rate = now.rate_per_s or expected.rate_per_s
    return now.cost.max_node_load * (expected.rate_per_s / rate if rate > 0 else 1.0)


def _words(expected: Expectation) -> str:
    return {
        "nodes": "nodes in use",
        "load": "the load of the busiest node",
        "lit": f"the imbalance (LIT) of {expected.operator}",
        "lin": "the imbalance of the nodes (LIN)",
        "communication_us": "communication in us a source tuple",
    }[expected.figure]


def _balance_of(
    operator: str, running: Plan, target: Plan, demand: Measurements
) -> tuple[float, float] | None:
    """LIT of an operator under the old table and under the new one, by the measured partitions."""
    rates = demand.partition_rates.get(operator)
    old, new = running.routing.get(operator), target.routing.get(operator)
    if rates is None or old is None or new is None:
        return None
    if not len(rates) == len(old.partitions) == len(new.partitions):
        return None
    hot = demand.hot_keys.get(operator, {})
    count = running.parallelism[operator], target.parallelism[operator]
    return _lit_of(old, rates, hot, count[0]), _lit_of(new, rates, hot, count[1])


def _lit_of(
    table: RoutingTable, rates: np.ndarray[Any, Any], hot: Mapping[int, float], count: int
) -> float:
    own, shared = loads_of(table, rates, hot, count)
    return lit(shared + group_sums(np.asarray(table.partitions), own, count))
