"""The order in which R-Storm places tasks: those that talk to each other one after the other."""

from __future__ import annotations

from collections import deque

import numpy as np

from penstock.common.arrays import IntArray
from penstock.model import InstanceGraph, Topology


def task_order(graph: InstanceGraph) -> IntArray:
    """Instances in the order in which they are placed: one of each operator in turn.

    Examples
    --------
    >>> from penstock.model import Edge, Kind, Operator, expand
    >>> pair = Topology("t", (Operator("a", Kind.SOURCE, 2), Operator("b", parallelism=3)),
    ...                 (Edge("a", "b"),))
    >>> task_order(expand(pair)).tolist()
    [0, 2, 1, 3, 4]
    """
    position = np.empty(len(graph.topology.operators), dtype=np.int64)
    for i, name in enumerate(breadth_first(graph.topology)):
        position[graph.topology.index[name]] = i
    turn = np.arange(len(graph)) - graph.first[graph.operator_of]
    return np.lexsort((position[graph.operator_of], turn)).astype(np.int64)


def breadth_first(topology: Topology) -> tuple[str, ...]:
    """Operators breadth first from the sources, along edges both ways; the unreached come last."""
    near: dict[str, list[str]] = {operator.name: [] for operator in topology.operators}
    for edge in topology.edges:
        near[edge.source].append(edge.target)
    for edge in topology.edges:
        near[edge.target].append(edge.source)
    seen: dict[str, None] = {}
    for root in [o.name for o in topology.sources] + [o.name for o in topology.operators]:
        if root in seen:
            continue
        seen[root] = None
        queue = deque([root])
        while queue:
            for name in near[queue.popleft()]:
                if name not in seen:
                    seen[name] = None
                    queue.append(name)
    return tuple(seen)
