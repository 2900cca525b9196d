"""Executors as nodes of the model, and places of the model as executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.model import Cluster, Node
from penstock.runtimes.spark.jvm import Executor

#: Instances that one executor may hold: a plan decides by load, not by a count.
SLOTS = 10_000


def executors_a_node(executors: Sequence[Executor], processes: int) -> int:
    """Say how many executors stand for a node, or 0 where a node is a host.

    All on one host stand for nodes: that is what an embedded cluster is for. Asked once, at the
    start: a cluster that shrinks to one executor is still that cluster.
    """
    embedded = len(executors) > 1 and len({executor.host for executor in executors}) == 1
    return processes if embedded else 0


def by_node(executors: Sequence[Executor], per_node: int) -> Mapping[str, tuple[Executor, ...]]:
    """Group executors by node: so many with numbers that follow each other, or those of a host.

    An executor that replaces a lost one has a new number, and so stands for another node.

    Examples
    --------
    >>> two = [Executor(str(i), "here", 1, 0) for i in (2, 3, 5)]
    >>> {name: [e.id for e in here] for name, here in by_node(two, 2).items()}
    {'node-1': ['2', '3'], 'node-2': ['5']}
    """
    found: dict[str, list[Executor]] = {}
    for executor in sorted(executors, key=lambda e: (len(e.id), e.id)) if per_node else executors:
        name = executor.host
        if per_node == 1:
            name = f"executor-{executor.id}"
        elif per_node:
            name = f"node-{int(executor.id) // per_node}"
        found.setdefault(name, []).append(executor)
    return {name: tuple(here) for name, here in found.items()}


def cluster_of(executors: Sequence[Executor], per_node: int) -> Cluster:
    """Describe the executors to a planner."""
    return Cluster(
        tuple(
            Node(
                name,
                cpu_cores=float(sum(executor.cores for executor in here)),
                mem_mb=sum(executor.memory_bytes for executor in here) / 1e6,
                processes=len(here),
                slots=SLOTS,
                own_cores=True,
            )
            for name, here in by_node(executors, per_node).items()
        )
    )


def executor_ids(executors: Sequence[Executor], per_node: int) -> Mapping[str, str]:
    """Id of the executor at each spot, as `str(Spot)` spells it."""
    return {
        f"{name}/{process}": executor.id
        for name, here in by_node(executors, per_node).items()
        for process, executor in enumerate(here)
    }
