"""Fires on stragglers: nodes (Ms eq. 38) or instances of a stateful operator (eq. 10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import FloatArray, IntArray
from penstock.common.parameters import Checked, param
from penstock.model import (
    Cluster,
    InstanceGraph,
    LoadWeights,
    NodeUse,
    Plan,
    Reason,
    violations,
)
from penstock.model.load import ROUNDING, lin, lit
from penstock.strategies.api import Request, cost_of_running
from penstock.strategies.trigger import Verdict, register

#: Strategy whose plans are as balanced as this trigger can ask for.
OWN = "ms"


@register
@dataclass(frozen=True)
class NodeImbalance(Checked):
    """Fire when LIN is above `eta`, or the measured LIT of a stateful operator above `chi`.

    LIN is taken over the nodes in use: one that sleeps carries nothing by intent. Their loads are
    the measured ones where all of them were measured, and otherwise what the instances need.

    Ours: it also fires when the running plan no longer stands or breaks a limit, which can happen
    to all nodes evenly. And a plan of Ms-Stream's own that had to leave the nodes out of balance,
    since instances are not divisible, is only given up when LIN has grown by `margin`: otherwise
    the same search would be made in every round, and in vain.
    """

    name: ClassVar[str] = "node-imbalance"
    summary: ClassVar[str] = "a node or an instance lags behind the others"
    origin: ClassVar[str] = "Ms-Stream, eq. 10 and 38"

    eta: float = param(0.4, "Largest LIN that is left alone.", least=0)
    chi: float = param(1.0, "Largest LIT that is left alone.", least=0)
    margin: float = param(
        0.25,
        "How far LIN must be above what it was planned with, if that was above `eta` (ours).",
        least=0,
    )

    def check(self, request: Request, proposal: Plan | None = None) -> Verdict:
        """Look at the nodes and at the stateful operators."""
        if request.running is None:
            return Verdict(True, (Reason("no plan is running"),))
        nodes, instances = self.nodes_lag(request), self.instances_lag(request)
        return Verdict(nodes.fires or instances.fires, (*nodes.reasons, *instances.reasons))

    def nodes_lag(self, request: Request) -> Verdict:
        """Say whether the placement is to be made anew (eq. 38)."""
        running = request.running
        if running is None or not _stands(request, running):
            text = "no plan is running, or it no longer stands: a node or an operator has changed"
            return Verdict(True, (Reason(text),))
        graph, node_of = request.graph, running.node_of_in(request.cluster)
        broken = violations(graph, request.cluster, node_of, running.process_of)
        if len(broken) > len(running.infeasible):
            return Verdict(True, (Reason(f"the running plan breaks a limit: {broken[0]}"),))
        loads, how = _loads(request, node_of)
        imbalance = lin(loads)
        planned = running.after.lin if running.strategy == OWN else 0.0
        allowed = max(self.eta, planned * (1 + self.margin) if planned > self.eta else 0.0)
        figures = {
            "lin": imbalance,
            "eta": self.eta,
            "planned": planned,
            "highest": float(loads.max()),
            "lowest": float(loads.min()),
            "nodes": len(loads),
        }
        fires = imbalance > allowed * (1 + ROUNDING)
        side = "above" if fires else "within"
        text = f"LIN {imbalance:.3g} of the {how} loads is {side} {allowed:.3g}"
        return Verdict(fires, (Reason(text, figures),))

    def instances_lag(self, request: Request) -> Verdict:
        """Say whether the keys of a stateful operator are to be repartitioned (eq. 10)."""
        found = imbalances(request)
        if not found:
            text = "no stateful operator has measured instances to compare"
            return Verdict(False, (Reason(text),))
        worst = max(found, key=lambda name: found[name])
        fires = found[worst] > self.chi * (1 + ROUNDING)
        side = "above" if fires else "within"
        text = f"LIT {found[worst]:.3g} of operator {worst!r} is {side} {self.chi:g}"
        return Verdict(fires, (Reason(text, {"lit": found[worst], "chi": self.chi}),))


def node_loads(graph: InstanceGraph, cluster: Cluster, node_of: IntArray) -> FloatArray:
    """Return the load figure of each node in use by what its instances need."""
    used = np.unique(node_of)
    return LoadWeights().combine(*NodeUse.of(graph, cluster, node_of).fractions(cluster))[used]


def imbalances(request: Request) -> Mapping[str, float]:
    """LIT of each stateful operator with several instances, as far as it was measured.

    Declared shares say nothing of the table that is in use, so that nothing is judged by them.
    """
    found: dict[str, float] = {}
    for operator in request.topology.operators:
        loads = instance_loads(request, operator.name)
        if operator.routed and operator.parallelism > 1 and loads is not None:
            found[operator.name] = lit(loads)
    return found


def instance_loads(request: Request, operator: str) -> FloatArray | None:
    """Tuples per second that each instance was seen to process; None when nobody looked."""
    measured = request.measurements.tuples_per_s if request.measurements else {}
    seen = measured.get(operator)
    count = request.topology[operator].parallelism
    return seen if seen is not None and len(seen) == count else None


def _stands(request: Request, running: Plan) -> bool:
    same = dict(running.parallelism) == dict(request.topology.parallelism)
    return same and cost_of_running(request) is not None


def _loads(request: Request, node_of: IntArray) -> tuple[FloatArray, str]:
    """Return the loads of the nodes in use, and whether they were measured."""
    measured = request.measurements.nodes if request.measurements else {}
    seen = [measured.get(request.cluster.names[i]) for i in np.unique(node_of).tolist()]
    rows = [
        (u.cpu, u.mem, u.io or 0.0) for u in seen if u and u.cpu is not None and u.mem is not None
    ]
    if len(rows) < len(seen):
        return node_loads(request.graph, request.cluster, node_of), "expected"
    cpu, mem, io = np.array(rows, dtype=np.float64).T
    return LoadWeights().combine(cpu, mem, io), "measured"
