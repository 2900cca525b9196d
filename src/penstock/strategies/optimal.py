"""The best placement there is, for cases small enough to prove it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import IntArray
from penstock.common.parameters import Checked, param
from penstock.model import InstanceGraph, Keep, Plan, Reason, Refused
from penstock.strategies.api import Request, register
from penstock.strategies.loads import exact_limit
from penstock.strategies.place import Placed
from penstock.strategies.place.assignment_problem import Problem
from penstock.strategies.place.branch_and_bound import Found, search
from penstock.strategies.place.longest_first import longest_first
from penstock.strategies.place.processes import gather_pairs
from penstock.strategies.place.spread import use_all
from penstock.strategies.replan import finish


@register
@dataclass(frozen=True)
class Optimal(Checked):
    """Fewest tuples across nodes, proved; then fewest nodes; then the lowest largest load.

    Branch and bound (A. H. Land, A. G. Doig, "An automatic method of solving discrete programming
    problems", Econometrica 28(3), 1960) over the node of each instance, within the hard limits of
    CPU, memory, I/O and slots. When every node is to be used, each is, and none is loaded above
    what `exact_limit` allows.

    It refuses what is larger than `instances` and `nodes`, and what it cannot prove within `steps`
    search steps, which is a matter of the case and not of the clock: equal requests get equal
    answers on any machine. Ties that it cannot search to the end keep the cut that is proved, and
    the plan says so. When nothing is feasible, the plan is the most balanced one (longest
    processing time first), reported infeasible. Edges that prefer the sender's own process are
    exact only where a node has one process, and refused elsewhere.
    """

    name: ClassVar[str] = "optimal"
    summary: ClassVar[str] = "proved least cut within all limits; small cases only"
    origin: ClassVar[str] = "exact: branch and bound, Land and Doig, Econometrica 1960"

    instances: int = param(64, "Largest number of instances.", least=1, most=256)
    nodes: int = param(16, "Largest number of nodes.", least=1)
    steps: int = param(50_000, "Search steps before it gives up.", least=1)

    def plan(self, request: Request) -> Plan | Keep:
        """Search, or refuse."""
        graph, cluster = request.graph, request.cluster
        self._refuse(request, graph)
        limit = exact_limit(request) if request.exact_nodes else 1.0
        problem = Problem.of(graph, cluster, limit, use_every_node=request.exact_nodes)
        found = search(problem, self.steps)
        if found.node_of is None and not found.proved:
            raise Refused(
                f"strategy 'optimal' could not settle {len(graph)} instances on {len(cluster)} "
                f"nodes within {self.steps} steps; allow more steps, or ask 'metis' or 'sp-ant'"
            )
        if found.node_of is None:
            return self._infeasible(request, found)
        if not found.proved:
            raise Refused(
                f"strategy 'optimal' found {found.cut:g} tuples/s across nodes but could not prove "
                f"that none is better within {self.steps} steps ({len(graph)} instances on "
                f"{len(cluster)} nodes); allow more steps, or ask 'metis' or 'sp-ant'"
            )
        reasons = [
            Reason(
                f"{found.cut:g} of {graph.total_rate:g} tuples/s cross nodes, and no feasible "
                f"placement has fewer: proved in {found.steps} steps",
                {
                    "across_per_s": found.cut,
                    "total_per_s": graph.total_rate,
                    "steps": found.steps,
                    "largest_load_allowed": limit,
                },
            )
        ]
        if not found.ties_settled:
            reasons.append(
                Reason(
                    f"among equal cuts, fewer nodes or a lower load were not ruled out within "
                    f"{self.steps} steps",
                    {"steps": self.steps},
                )
            )
        process_of = gather_pairs(graph, cluster, found.node_of)
        return finish(request, self.name, Placed(found.node_of, process_of, tuple(reasons)))

    def _refuse(self, request: Request, graph: InstanceGraph) -> None:
        for what, size, allowed in (
            ("instances", len(graph), self.instances),
            ("nodes", len(request.cluster), self.nodes),
        ):
            if size > allowed:
                raise Refused(
                    f"strategy 'optimal' takes up to {allowed} {what}, got {size}; "
                    f"ask 'metis' or 'sp-ant' instead"
                )
        local = any(flow.is_local and flow.matrix is None for flow in graph.flows)
        if local and int(request.cluster.processes.max()) > 1:
            raise Refused(
                "strategy 'optimal' takes 'local-or-shuffle' edges only with one process a node, "
                f"got {int(request.cluster.processes.max())}; ask 'metis' or 'sp-ant' instead"
            )

    def _infeasible(self, request: Request, found: Found) -> Plan | Keep:
        graph, cluster = request.graph, request.cluster
        node_of: IntArray = longest_first(graph, cluster)
        if request.exact_nodes:
            node_of = use_all(graph, cluster, node_of)
        reason = Reason(
            f"no placement keeps all limits (searched {found.steps} steps): placed for balance, "
            f"heaviest instance first, on {len(np.unique(node_of))} nodes",
            {"steps": found.steps, "nodes": len(np.unique(node_of))},
        )
        process_of = gather_pairs(graph, cluster, node_of)
        return finish(request, self.name, Placed(node_of, process_of, (reason,)))
