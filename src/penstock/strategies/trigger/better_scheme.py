"""Plan anew when the new scheme costs clearly less than the running one (Sl section 5.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import FloatArray
from penstock.common.parameters import Checked, param
from penstock.model import Cluster, InstanceGraph, Plan, Reason, violations
from penstock.strategies.api import Request, cost_of_running
from penstock.strategies.partition.quantum_swarm import fitness
from penstock.strategies.trigger import Verdict, register


@register
@dataclass(frozen=True)
class BetterScheme(Checked):
    """Fire when ``cost of the new scheme / cost of the old < xi``.

    The cost is the fitness of the partition (Sl eq. 15) with the nodes as groups. Sl prints
    old / new, which fits a fitness that is to grow; ours is to fall.

    Since this ratio does not change when all rates double, two cases are added: a running plan
    that breaks limits gives way to one that breaks fewer, and a plan that needs less than `xi`
    times the nodes is better too.
    """

    name: ClassVar[str] = "better-scheme"
    summary: ClassVar[str] = "the new scheme costs less than xi times the running one"
    origin: ClassVar[str] = "Sl-Stream section 5.3, Alg. 3"

    xi: float = param(0.7, "New cost over old cost below which to plan anew.", least=0, most=1)
    rho: float = param(1.0, "Weight of the imbalance in the cost (eq. 15).", least=0)
    alpha: float = param(0.5, "Weight of CPU in the load; memory has the rest.", least=0, most=1)

    def check(self, request: Request, proposal: Plan | None = None) -> Verdict:
        """Compare the proposal with the running plan; see `Trigger.check`."""
        running = request.running
        if running is None:
            return Verdict(True, (Reason("nothing runs yet"),))
        before = cost_of_running(request)
        if before is None or dict(running.parallelism) != dict(request.topology.parallelism):
            return Verdict(True, (Reason("the running plan does not fit topology and cluster"),))
        if proposal is None:
            return Verdict(True, (Reason("a new scheme has to be made to be compared"),))
        graph, cluster = request.graph, request.cluster
        current = running.node_of_in(cluster)
        broken = len(violations(graph, cluster, current, running.process_of))
        schemes = np.stack([current, proposal.node_of])
        weights = cpu_and_memory(graph, cluster, self.alpha)
        old, new = fitness(graph, weights, schemes, len(cluster), self.rho).tolist()
        figures = {
            "cost_before": old,
            "cost_after": new,
            "xi": self.xi,
            "limits_broken_before": broken,
            "limits_broken_after": len(proposal.infeasible),
            "nodes_before": before.nodes_used,
            "nodes_after": proposal.after.nodes_used,
        }
        if len(proposal.infeasible) < broken:
            text = f"the running plan breaks {broken} limits, the new {len(proposal.infeasible)}"
            return Verdict(True, (Reason(text, figures),))
        if len(proposal.infeasible) == broken and new < self.xi * old:
            text = f"the new scheme costs {new:.4g}, less than {self.xi:g} times {old:.4g}"
            return Verdict(True, (Reason(text, figures),))
        if len(proposal.infeasible) == broken and (
            proposal.after.nodes_used < self.xi * before.nodes_used
        ):
            text = f"{proposal.after.nodes_used} nodes do instead of {before.nodes_used}"
            return Verdict(True, (Reason(text, figures),))
        text = f"the new scheme costs {new:.4g}, not less than {self.xi:g} times {old:.4g}"
        return Verdict(False, (Reason(text, figures),))


def cpu_and_memory(graph: InstanceGraph, cluster: Cluster, alpha: float) -> FloatArray:
    """One load figure for each instance, ``alpha * CPU + (1 - alpha) * memory`` (Sl eq. 5).

    Both as shares of what the cluster has. Equal loads when no instance needs either.
    """
    cpu = graph.cpu_cores / max(float(cluster.cpu_cores.sum()), 1e-12)
    memory = graph.mem_mb / max(float(cluster.mem_mb.sum()), 1e-12)
    load = alpha * cpu + (1.0 - alpha) * memory
    if load.sum() <= 0:
        return np.full(len(graph), 1.0 / len(graph))
    return np.asarray(load, dtype=np.float64)
