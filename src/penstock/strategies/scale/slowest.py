"""One more instance for the operator that a tuple waits in longest (Sra Alg. 2, steps 8-12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_sums
from penstock.common.parameters import Checked, param
from penstock.model import Cluster, InstanceGraph, Reason
from penstock.model.cost import SATURATED
from penstock.model.load import fraction
from penstock.strategies.api import Request
from penstock.strategies.scale import Scaled, register
from penstock.strategies.scale.rate_ratio import fixed, rescaled


@register
@dataclass(frozen=True)
class Slowest(Checked):
    """Give the slowest operator another instance, on the node with the most CPU to spare.

    Works on a placement: group `i` is node `i`. The stream is split anew among the instances by the
    edge's grouping.
    """

    name: ClassVar[str] = "slowest"
    summary: ClassVar[str] = "one more instance for the operator with the highest latency"
    origin: ClassVar[str] = "Sra-Stream, Alg. 2"

    instances: int = param(1, "Instances added.", least=0, most=1000)

    def scale(self, request: Request, graph: InstanceGraph, groups: IntArray, count: int) -> Scaled:
        """Add instances to the operator with the highest latency."""
        bound = fixed(graph.topology)
        times = {
            name: waited
            for name, waited in operator_us(graph, request.cluster, groups).items()
            if name not in bound
        }
        if not times or not self.instances or max(times.values()) <= 0:
            reason = Reason("no operator would gain from another instance")
            return Scaled(graph, groups, count, (reason,))
        name = max(times, key=lambda n: times[n])
        degree = graph.topology[name].parallelism + self.instances
        text = f"{name!r} takes {times[name]:.0f} us a tuple, the most: it gets {degree} instances"
        reason = Reason(text, {"latency_us": times[name], "instances": degree})
        return rescaled(request, graph, groups, count, {name: degree}, reason)


def instance_us(graph: InstanceGraph, cluster: Cluster, node_of: IntArray) -> FloatArray:
    """Time of a tuple in each instance, in microseconds: its CPU time, stretched by the node's use.

    As in `penstock.model.cost.estimate_latency_ms`.
    """
    use = fraction(group_sums(node_of, graph.cpu_cores, len(cluster)), cluster.cpu_cores)
    stretch = 1.0 / (1.0 - np.minimum(use, SATURATED))
    rates = graph.rate_in
    service = np.divide(graph.cpu_cores * 1e6, rates, out=np.zeros_like(rates), where=rates > 0)
    return np.asarray(service * stretch[node_of], dtype=np.float64)


def operator_us(graph: InstanceGraph, cluster: Cluster, node_of: IntArray) -> dict[str, float]:
    """Time of a tuple in each operator: the mean over its instances, by their rates."""
    each = instance_us(graph, cluster, node_of)
    count = len(graph.topology.operators)
    rate = group_sums(graph.operator_of, graph.rate_in, count)
    total = group_sums(graph.operator_of, each * graph.rate_in, count)
    mean = np.divide(total, rate, out=np.zeros(count), where=rate > 0)
    return {o.name: float(t) for o, t in zip(graph.topology.operators, mean, strict=True)}
