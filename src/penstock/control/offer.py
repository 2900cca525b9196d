"""The nodes that a strategy may plan with: those that are there, and those that could be had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from penstock.control.evaluate import Assessment
from penstock.control.runtime import SPARE
from penstock.model import Cluster, Cost, Node, Plan

#: Load that the other nodes may reach for a slow one to be left out.
WITHOUT_SLOW = 0.8


def known_nodes(assessment: Assessment, spare: int) -> Cluster:
    """Live nodes with what others leave them, and so many spare ones like the median of them."""
    live = assessment.cluster
    if spare <= 0:
        return live
    typical = median_node(assessment.observation.cluster)
    more = (replace(typical, name=f"{SPARE}{n}") for n in range(spare))
    return Cluster((*live.nodes, *more))


def offered(assessment: Assessment, known: Cluster, most: int) -> Cluster:
    """Return what a strategy is offered: at most `most` nodes, slow ones only when needed.

    Nodes of the running plan come before idle ones when there are more than `most`.
    """
    keep = [node for node in known.nodes if node.name not in assessment.slow]
    if assessment.slow and not _enough(assessment, keep):
        keep = list(known.nodes)
    idle = set(assessment.idle)
    order = sorted(keep, key=lambda node: node.name in idle or is_spare(node.name))[:most]
    chosen = {node.name for node in order}
    return Cluster(tuple(node for node in keep if node.name in chosen))


def is_spare(name: str) -> bool:
    """Whether a node is not there yet."""
    return name.startswith(SPARE)


def spares_of(plan: Plan) -> tuple[str, ...]:
    """Spare nodes that a plan needs, in order."""
    return tuple(name for name in plan.active if is_spare(name))


def median_node(cluster: Cluster) -> Node:
    """Return the middle one of the nodes by CPU and memory."""
    order = sorted(cluster.nodes, key=lambda n: (n.cpu_cores, n.mem_mb, n.name))
    return order[(len(order) - 1) // 2]


def renamed(plan: Plan, names: Mapping[str, str]) -> Plan:
    """Call nodes of a plan by other names, in its figures too; two may exchange theirs."""

    def name_of(name: str) -> str:
        return names.get(name, name)

    return replace(
        plan,
        nodes=tuple(name_of(n) for n in plan.nodes),
        active=tuple(name_of(n) for n in plan.active),
        after=_renamed_cost(plan.after, names),
    )


def without_unused_spares(plan: Plan) -> Plan:
    """Drop the spare nodes that a plan does not need from the nodes it was made for."""
    needed = set(plan.active)
    kept = [i for i, name in enumerate(plan.nodes) if name in needed or not is_spare(name)]
    position = np.full(len(plan.nodes), -1, dtype=np.int64)
    position[kept] = np.arange(len(kept))
    names = tuple(plan.nodes[i] for i in kept)
    return replace(plan, nodes=names, node_of=position[plan.node_of])


def prefer_live(plan: Plan, cluster: Cluster) -> Plan:
    """Let idle live nodes stand in for spare ones of no other shape: they cost no waiting."""
    idle = [n for n in cluster.nodes if not is_spare(n.name) and n.name not in plan.active]
    names: dict[str, str] = {}
    for spare in spares_of(plan):
        node = cluster.nodes[cluster.index[spare]]
        match = next((n for n in idle if _holds(n, node)), None)
        if match is not None:
            idle.remove(match)
            names |= {spare: match.name, match.name: spare}
    return renamed(plan, names) if names else plan


def _holds(node: Node, other: Node) -> bool:
    return (
        node.cpu_cores >= other.cpu_cores
        and node.mem_mb >= other.mem_mb
        and node.io_mb_s >= other.io_mb_s
        and node.processes == other.processes
        and node.slots >= other.slots
    )


def _renamed_cost(cost: Cost, names: Mapping[str, str]) -> Cost:
    def process(key: str) -> str:
        node, _, number = key.rpartition("/")
        return f"{names.get(node, node)}/{number}"

    return replace(
        cost,
        node_load={names.get(n, n): load for n, load in cost.node_load.items()},
        process_load={process(p): load for p, load in cost.process_load.items()},
    )


def _enough(assessment: Assessment, nodes: list[Node]) -> bool:
    """Whether the nodes have CPU for the demand, by the sum of it."""
    if not nodes:
        return False
    cost, live = assessment.cost, assessment.cluster
    if cost is None:
        return True
    needed = sum(
        load * live.nodes[live.index[name]].cpu_cores for name, load in cost.node_load.items()
    )
    return needed <= WITHOUT_SLOW * sum(node.cpu_cores for node in nodes)
