"""Storm's default: instances go to the slots in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.parameters import Checked
from penstock.model import Keep, Plan, Reason
from penstock.strategies.api import Request, register
from penstock.strategies.place import Placed
from penstock.strategies.replan import finish


@register
@dataclass(frozen=True)
class Even(Checked):
    """Place instances round robin over all worker slots, nodes in turn.

    Apache Storm's `EvenScheduler`: slots are sorted so that the first slot of every node comes
    before the second of any, and executors go to them in order. It sees neither load nor
    traffic.
    """

    name: ClassVar[str] = "even"
    summary: ClassVar[str] = "round robin over all slots, blind to load and traffic"
    origin: ClassVar[str] = "Apache Storm, EvenScheduler"

    def plan(self, request: Request) -> Plan | Keep:
        """Place the instances in turn."""
        cluster = request.cluster
        node = np.repeat(np.arange(len(cluster)), cluster.processes)
        process = np.arange(len(node)) - cluster.first_process[node]
        turn = np.lexsort((node, process))
        slot = turn[np.arange(len(request.graph)) % len(turn)]
        reason = Reason(
            f"{len(request.graph)} instances placed in turn over {len(turn)} processes "
            f"of {len(cluster)} nodes",
            {"instances": len(request.graph), "processes": len(turn), "nodes": len(cluster)},
        )
        return finish(request, self.name, Placed(node[slot], process[slot], (reason,)))
