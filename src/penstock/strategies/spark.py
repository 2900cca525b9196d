"""What Spark does when nobody asks it for anything: no preference at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import IntArray
from penstock.common.parameters import Checked
from penstock.model import Cluster, Keep, Plan, Reason
from penstock.strategies.api import Request, register
from penstock.strategies.place import Placed
from penstock.strategies.place.spread import use_all
from penstock.strategies.replan import finish


@register
@dataclass(frozen=True)
class Spark(Checked):
    """Leave the placement to the engine, and foretell where it would run the tasks.

    `TaskSchedulerImpl.resourceOffers` of Apache Spark: the tasks of a stage, in their order, are
    offered to the executors in a random order, one task an executor and round, as long as an
    executor has a free core; what is left waits for cores to come free, which is counted as a new
    offer in a new random order. A stage is a layer of the topology, and starts with all cores free.

    The plan is a forecast for its costs, not an order: it is not pinned, and every batch of a real
    run is scheduled anew.
    """

    name: ClassVar[str] = "spark"
    summary: ClassVar[str] = "no preference: what the engine does unasked"
    origin: ClassVar[str] = "Apache Spark, TaskSchedulerImpl.resourceOffers"

    def plan(self, request: Request) -> Plan | Keep:
        """Offer each stage to executors as Spark would."""
        graph, cluster = request.graph, request.cluster
        owner = np.repeat(np.arange(len(cluster)), cluster.processes)
        cores = executor_cores(cluster)
        executor = np.empty(len(graph), dtype=np.int64)
        waves = 0
        for layer in graph.topology.layers:
            spans = [graph.span(name) for name in layer]
            tasks = np.concatenate([np.arange(span.start, span.stop) for span in spans])
            offered, rounds = _offer(len(tasks), cores, request.rng)
            executor[tasks] = offered
            waves = max(waves, rounds)
        node_of = owner[executor]
        process_of = executor - cluster.first_process[node_of]
        if request.exact_nodes:
            spread = use_all(graph, cluster, node_of)
            process_of = np.where(spread == node_of, process_of, 0)
            node_of = spread
        reason = Reason(
            f"{len(graph)} tasks of {len(graph.topology.layers)} stages offered in random order "
            f"to {len(cores)} executors with {int(cores.sum())} cores; nothing is pinned",
            {
                "instances": len(graph),
                "stages": len(graph.topology.layers),
                "executors": len(cores),
                "cores": int(cores.sum()),
                "waves": waves,
            },
        )
        placed = Placed(node_of, process_of, (reason,))
        return finish(request, self.name, placed, pinned=False)


def executor_cores(cluster: Cluster) -> IntArray:
    """Task slots of each executor: its node's cores, shared by the node's executors.

    An executor of a node with cores has at least one; when no node has any, all have one, because
    a task must run somewhere.

    Examples
    --------
    >>> executor_cores(Cluster.of(2, cpu_cores=4, processes=2)).tolist()
    [2, 2, 2, 2]
    """
    owner = np.repeat(np.arange(len(cluster)), cluster.processes)
    whole = np.floor(cluster.cpu_cores / cluster.processes)
    cores = np.where(cluster.cpu_cores > 0, np.maximum(whole, 1), 0).astype(np.int64)[owner]
    return cores if cores.any() else np.ones(len(owner), dtype=np.int64)


def _offer(tasks: int, cores: IntArray, rng: np.random.Generator) -> tuple[IntArray, int]:
    """Executor of each task of a stage, and how many times offers were made."""
    waves = -(-tasks // int(cores.sum()))
    offers: list[IntArray] = []
    for _ in range(waves):
        shuffled = rng.permutation(len(cores))
        executor = np.repeat(shuffled, cores[shuffled])
        held = cores[shuffled]
        turn = np.arange(len(executor)) - np.repeat(np.cumsum(held) - held, held)
        offers.append(executor[np.argsort(turn, kind="stable")])
    return np.concatenate(offers)[:tasks], waves
