"""Executors as nodes of the model, and places of the model as executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.model import Cluster, Node
from penstock.runtimes.spark.jvm import Executor

#: Instances that one executor may hold: a plan decides by load, not by a count.
SLOTS = 10_000


def by_node(executors: Sequence[Executor]) -> Mapping[str, tuple[Executor, ...]]:
    """Group executors by node.

    A node is a host. Where all executors are on one host, each stands for a node of its own: that
    is what an embedded cluster is for.
    """
    hosts = {executor.host for executor in executors}
    if len(hosts) == 1 and len(executors) > 1:
        return {f"executor-{executor.id}": (executor,) for executor in executors}
    found: dict[str, list[Executor]] = {}
    for executor in executors:
        found.setdefault(executor.host, []).append(executor)
    return {host: tuple(here) for host, here in found.items()}


def cluster_of(executors: Sequence[Executor]) -> Cluster:
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
            for name, here in by_node(executors).items()
        )
    )


def executor_ids(executors: Sequence[Executor]) -> Mapping[str, str]:
    """Id of the executor at each spot, as `str(Spot)` spells it."""
    return {
        f"{name}/{process}": executor.id
        for name, here in by_node(executors).items()
        for process, executor in enumerate(here)
    }
