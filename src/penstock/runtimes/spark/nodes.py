"""Executors as nodes of the model, and places of the model as executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.model import Cluster, Node
from penstock.runtimes.spark.jvm import Executor

#: Instances that one executor may hold: a plan decides by load, not by a count.
SLOTS = 10_000


def stand_apart(executors: Sequence[Executor]) -> bool:
    """Whether each executor stands for a node: that is what an embedded cluster is for.

    Asked once, at the start: a cluster that shrinks to one executor is still that cluster.
    """
    return len(executors) > 1 and len({executor.host for executor in executors}) == 1


def by_node(executors: Sequence[Executor], apart: bool) -> Mapping[str, tuple[Executor, ...]]:
    """Group executors by node: by host, or each by itself where they stand `apart`."""
    if apart:
        return {f"executor-{executor.id}": (executor,) for executor in executors}
    found: dict[str, list[Executor]] = {}
    for executor in executors:
        found.setdefault(executor.host, []).append(executor)
    return {host: tuple(here) for host, here in found.items()}


def cluster_of(executors: Sequence[Executor], apart: bool) -> Cluster:
    """Describe the executors to a planner."""
    return Cluster(
        tuple(
            Node(
                name,
                cpu_cores=float(sum(executor.cores for executor in here)),
                mem_mb=sum(executor.memory_bytes for executor in here) / 1e6,
                processes=len(here),
                slots=SLOTS,
            )
            for name, here in by_node(executors, apart).items()
        )
    )


def executor_ids(executors: Sequence[Executor], apart: bool) -> Mapping[str, str]:
    """Id of the executor at each spot, as `str(Spot)` spells it."""
    return {
        f"{name}/{process}": executor.id
        for name, here in by_node(executors, apart).items()
        for process, executor in enumerate(here)
    }
