"""SP-Ant: heavy pairs packed onto one node, an ant colony for the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.common.parameters import Checked, param
from penstock.model import Keep, Plan, Reason
from penstock.strategies.api import Request, register
from penstock.strategies.place import Placed
from penstock.strategies.place.ant_colony import Colony
from penstock.strategies.place.breadth_first import task_order
from penstock.strategies.place.heavy_pairs import pack_pairs
from penstock.strategies.place.processes import gather_pairs
from penstock.strategies.place.spread import use_all
from penstock.strategies.replan import finish


@register
@dataclass(frozen=True)
class SpAnt(Checked):
    """Pack the pairs that talk most onto the same node, then let ants place the others.

    M. Farrokh, H. Hadian, M. Sharifi, A. Jafari, "SP-ant: An ant colony optimization based operator
    scheduler for high performance distributed stream processing on heterogeneous clusters", Expert
    Systems with Applications 191, 2022, with the constants of the authors' code (alpha 2, beta 1,
    evaporation 0.05, half of a node for packing).

    An ant places one instance after the other, each on a node drawn with a probability of scent to
    the power `alpha` times sight to the power `beta`. The sight of a node is its speed times the
    part of the instance's traffic that is there already. Only nodes with room are drawn from, as
    long as there are any.

    The authors run each ant's placement and measure the response time, 6 ants 5 times over; here
    the cost is estimated from cut and load, so more ants go more often. The iterations are cut
    down on large cases, by size and never by the clock.
    """

    name: ClassVar[str] = "sp-ant"
    summary: ClassVar[str] = "bin packing of heavy pairs, ant colony for the rest"
    origin: ClassVar[str] = "Farrokh et al., SP-Ant, Expert Systems with Applications 2022"

    ants: int = param(10, "Ants in each iteration.", least=1)
    iterations: int = param(30, "Most iterations; large cases get fewer.", least=1)
    alpha: float = param(2.0, "Exponent of the scent.", least=0)
    beta: float = param(1.0, "Exponent of the sight.", least=0)
    evaporation: float = param(0.05, "Part of the scent lost each time.", least=0, most=1)
    heavy: float = param(0.5, "Part of the pairs that are packed as heavy.", least=0, most=1)
    packed: float = param(0.5, "Part of a node that packing may fill.", least=0, most=1)

    def plan(self, request: Request) -> Plan | Keep:
        """Pack, then send the ants."""
        graph, cluster = request.graph, request.cluster
        fixed, pairs = pack_pairs(graph, cluster, heavy=self.heavy, packed=self.packed)
        colony = Colony(
            graph,
            cluster,
            fixed,
            task_order(graph),
            ants=self.ants,
            alpha=self.alpha,
            beta=self.beta,
        )
        trail = colony.forage(self.iterations, self.evaporation, request.rng)
        node_of = use_all(graph, cluster, trail.node_of) if request.exact_nodes else trail.node_of
        settled = int((fixed >= 0).sum())
        reasons = (
            Reason(
                f"{pairs} of the heaviest pairs packed onto one node each: {settled} of "
                f"{len(graph)} instances",
                {"pairs": pairs, "packed": settled, "instances": len(graph)},
            ),
            Reason(
                f"{self.ants} ants placed the other {len(graph) - settled} in "
                f"{trail.iterations} iterations: cost {trail.first_cost:.4g} after the first, "
                f"{trail.cost:.4g} at the end",
                {
                    "ants": self.ants,
                    "iterations": trail.iterations,
                    "first_cost": trail.first_cost,
                    "cost": trail.cost,
                },
            ),
        )
        process_of = gather_pairs(graph, cluster, node_of)
        return finish(request, self.name, Placed(node_of, process_of, reasons))
