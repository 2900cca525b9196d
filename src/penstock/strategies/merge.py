"""A merge operator behind a stateful one whose result needs all its instances (Sra fig. 14)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.model import Edge, Grouping, InvalidValue, Kind, Operator, Topology


def with_merge(
    topology: Topology,
    operators: Iterable[str],
    *,
    suffix: str = "-merge",
    cpu_us_per_tuple: float = 0.0,
    mem_mb: float = 0.0,
) -> Topology:
    """Return the topology with a merge operator behind each of the named stateful operators.

    Each instance of a stateful operator sees part of the stream. Where the result needs all of it,
    as a top-N does and a count by key does not, one more operator with a single instance gathers
    what they emit, and what read from the operator reads from it. Which operators need that is for
    the user to say. An operator with one instance needs no merging and is left as it is.

    Examples
    --------
    >>> top = Topology("top", (Operator("in", Kind.SOURCE), Operator("rank", Kind.STATEFUL, 3),
    ...     Operator("out")), (Edge("in", "rank", Grouping.FIELDS), Edge("rank", "out")))
    >>> [(e.source, e.target, e.grouping.value) for e in with_merge(top, ["rank"]).edges]
    [('in', 'rank', 'fields'), ('rank', 'rank-merge', 'global'), ('rank-merge', 'out', 'shuffle')]

    Parameters
    ----------
    topology : Topology
    operators : iterable of str
        Stateful operators whose results are to be merged.
    suffix : str
        Added to the operator's name to name the merge operator.
    cpu_us_per_tuple : float
        CPU time of the merge operator for a tuple, in microseconds.
    mem_mb : float
        Memory of the merge operator, in MB.

    Raises
    ------
    InvalidValue
        When a named operator does not exist or is not stateful, or the new name is taken.
    """
    for name in dict.fromkeys(operators):
        owner = f"topology {topology.name!r}"
        if name not in topology.index:
            raise InvalidValue("operators", owner, "names of its own operators", name)
        operator = topology[name]
        if operator.kind is not Kind.STATEFUL:
            raise InvalidValue("operators", owner, "names of stateful operators", name)
        if operator.parallelism == 1:
            continue
        merge = Operator(
            name + suffix,
            Kind.STATEFUL,
            cpu_us_per_tuple=cpu_us_per_tuple,
            mem_mb=mem_mb,
            tuple_bytes=operator.tuple_bytes,
        )
        edges: list[Edge] = []
        gather = Edge(name, merge.name, Grouping.GLOBAL)
        for edge in topology.edges:
            # A loop stays with the instances: what they tell each other is not their result.
            if edge.source == name and edge.target != name:
                if gather not in edges:
                    edges.append(gather)
                edge = replace(edge, source=merge.name)
            edges.append(edge)
        if gather not in edges:
            edges.append(gather)
        behind = topology.index[name] + 1
        parts = (*topology.operators[:behind], merge, *topology.operators[behind:])
        topology = replace(topology, operators=parts, edges=tuple(edges))
    return topology
