"""The outline of a topology that a run keeps with its configuration: operators, edges, layers."""

from __future__ import annotations

from typing import Any

from penstock.model import Topology


def outline(topology: Topology) -> dict[str, Any]:
    """Say what a topology consists of, as JSON holds it.

    Examples
    --------
    >>> from penstock.model import Edge, Kind, Operator
    >>> pair = Topology("pair", (Operator("read", Kind.SOURCE), Operator("work")),
    ...     (Edge("read", "work"),))
    >>> outline(pair)["edges"]
    [{'source': 'read', 'target': 'work', 'grouping': 'shuffle'}]
    """
    layer = {name: at for at, names in enumerate(topology.layers) for name in names}
    return {
        "operators": [
            {"name": o.name, "kind": o.kind.value, "layer": layer.get(o.name, 0)}
            for o in topology.operators
        ],
        "edges": [
            {"source": e.source, "target": e.target, "grouping": e.grouping.value}
            for e in topology.edges
        ],
    }
