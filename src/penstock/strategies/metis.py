"""METIS as a scheduler: one part for each node, as large as the node's share of the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.parameters import Checked, param
from penstock.model import Keep, Plan, Reason
from penstock.strategies.api import Request, register
from penstock.strategies.loads import capacity_shares, dominant
from penstock.strategies.partition.metis import Metis
from penstock.strategies.place import Placed
from penstock.strategies.place.processes import gather_pairs
from penstock.strategies.place.spread import use_all
from penstock.strategies.replan import finish


@register
@dataclass(frozen=True)
class MetisPerNode(Checked):
    """Cut the instance graph into as many parts as there are nodes.

    G. Karypis, V. Kumar, "A fast and high quality multilevel scheme for partitioning irregular
    graphs", SIAM J. Sci. Comput. 20(1), 1998. An instance weighs its largest share of any resource
    of the cluster, and a node gets its share of the capacity. METIS balances that one weight within
    its tolerance and knows no hard limit; what it breaks is reported. Nodes that lack a resource
    in demand get no part.
    """

    name: ClassVar[str] = "metis"
    summary: ClassVar[str] = "least cut at balanced load, one part for each node, by METIS"
    origin: ClassVar[str] = "Karypis and Kumar, SIAM J. Sci. Comput. 1998, METIS 5 via PyMetis"

    cuts: int = param(1, "Partitionings that METIS tries, of which the best counts.", least=1)
    iterations: int = param(10, "Refinement iterations at each level.", least=1)
    scheme: str = param(
        "advised",
        "As METIS advises by the number of parts, or recursive bisection always.",
        choices=("advised", "bisection"),
    )

    def plan(self, request: Request) -> Plan | Keep:
        """Partition, one part for each usable node."""
        graph, cluster = request.graph, request.cluster
        shares = capacity_shares(graph, cluster)
        usable = np.flatnonzero(shares > 0)
        metis = Metis(cuts=self.cuts, iterations=self.iterations, scheme=self.scheme)
        groups = metis.partition(graph, dominant(graph, cluster), shares[usable], request.rng)
        node_of = usable[groups]
        if request.exact_nodes:
            node_of = use_all(graph, cluster, node_of)
        total, cut = graph.total_rate, graph.cut(node_of, len(cluster))
        reason = Reason(
            f"METIS cut {len(graph)} instances into {len(usable)} parts: "
            f"{cut:g} of {total:g} tuples/s cross nodes",
            {
                "instances": len(graph),
                "parts": len(usable),
                "across_per_s": cut,
                "total_per_s": total,
            },
        )
        process_of = gather_pairs(graph, cluster, node_of)
        return finish(request, self.name, Placed(node_of, process_of, (reason,)))
