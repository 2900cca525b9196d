"""Which state partition is to run where, and what Spark must be told for it. Pure.

Spark prefers to run a state partition on the executor that its coordinator knows it on. A task that
starts reports itself there, so that what is reported while the stage runs is soon forgotten: report
between batches, compare with the tasks of the next one, and repeat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np

from penstock.model import Plan, Reason, Spot, diff
from penstock.runtimes.attached.progress import TaskRun
from penstock.runtimes.attached.topology import QueryGraph
from penstock.runtimes.spark.jvm import Executor

#: A stage's name and the number of one of its state partitions.
Partition = tuple[str, int]


def locations(
    plan: Plan, graph: QueryGraph, executor_at: Mapping[str, str]
) -> dict[Partition, str]:
    """Executor that each state partition is to run on.

    Parameters
    ----------
    executor_at : mapping of str to str
        Id of the executor at each spot that is there; partitions of other spots are left out.
    """
    return {
        (stage.name, number): executor_at[str(spot)]
        for stage in graph.stateful
        for number, spot in enumerate(plan.placement[stage.name])
        if str(spot) in executor_at
    }


def ran_on(graph: QueryGraph, tasks: Mapping[str, Mapping[int, TaskRun]]) -> dict[Partition, str]:
    """Executor that each state partition ran on."""
    return {
        (stage.name, number): task.executor
        for stage in graph.stateful
        for number, task in tasks.get(stage.name, {}).items()
    }


def misplaced(
    wanted: Mapping[Partition, str], ran: Mapping[Partition, str]
) -> dict[Partition, str]:
    """Where the partitions are to go that ran elsewhere."""
    return {one: to for one, to in wanted.items() if one in ran and ran[one] != to}


def report_lines(
    graph: QueryGraph, moves: Mapping[Partition, str], executors: Collection[Executor]
) -> str:
    """Spell what the coordinator is told: every store of every partition that goes elsewhere."""
    return "\n".join(_lines(graph, moves, {executor.id: executor for executor in executors}))


def _lines(
    graph: QueryGraph, moves: Mapping[Partition, str], known: Mapping[str, Executor]
) -> Iterator[str]:
    for stage in graph.stateful:
        for number in range(stage.partitions):
            executor = known.get(moves.get((stage.name, number), ""))
            if executor is None:
                continue
            for operator in stage.operators:
                for store in operator.stores:
                    fields = (operator.checkpoint, operator.run, operator.id, number, store)
                    yield "\t".join(map(str, (*fields, executor.host, executor.id)))


def portion(
    running: Plan,
    target: Plan,
    cost_ms: Mapping[Partition, float],
    budget_ms: float,
) -> Plan:
    """Cut a plan to moves whose state is loaded within a budget; the target itself if all are.

    What one executor loads comes one after the other, what several load comes at once. The first
    move to an executor is always made, or a large state would never move.

    Parameters
    ----------
    cost_ms : mapping of (str, int) to float
        Time that the new executor takes to load each partition.
    """
    spent: dict[Spot, float] = {}
    left: set[Partition] = set()
    for move in diff(running, target).moves:
        one = (move.operator, move.index)
        if move.target is None or move.origin is None:
            continue
        before = spent.get(move.target, 0.0)
        cost = cost_ms.get(one, 0.0)
        if before and before + cost > budget_ms:
            left.add(one)
        else:
            spent[move.target] = before + cost
    if not left:
        return target
    return _without(running, target, left)


def _without(running: Plan, target: Plan, left: set[Partition]) -> Plan:
    """Keep some partitions of a plan where they are for now."""
    names = (*target.nodes, *(name for name in running.nodes if name not in target.nodes))
    position = {name: at for at, name in enumerate(names)}
    spots = [
        running.placement[name][number] if (name, number) in left else spot
        for name, own in target.placement.items()
        for number, spot in enumerate(own)
    ]
    reason = Reason(f"{len(left)} state partitions follow in a later batch", {"left": len(left)})
    return replace(
        target,
        nodes=names,
        node_of=np.array([position[spot.node] for spot in spots]),
        process_of=np.array([spot.process for spot in spots]),
        reasons=(*target.reasons, reason),
        active=tuple(dict.fromkeys((*target.active, *(spot.node for spot in spots)))),
    )
