"""The nodes of a simulation: there, on their way, slow, or lost and not yet missed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.common.arrays import FloatArray
from penstock.control.runtime import ActionFailed
from penstock.model import Cluster, InvalidValue, Node, NotAllowed
from penstock.runtimes.sim.costs import CostProfile
from penstock.runtimes.sim.faults import SimulatedFault, SimulatedFaultKind


class SimulatedNodes:
    """Nodes and what becomes of them.

    Parameters
    ----------
    cluster : Cluster
        Nodes at the start. Those that come later are like the first of them.
    costs : CostProfile
    """

    def __init__(self, cluster: Cluster, costs: CostProfile) -> None:
        self.there = cluster
        self._costs = costs
        self._template = cluster.nodes[0]
        self._coming: list[tuple[float, Node]] = []
        self._lost: list[tuple[float, Node]] = []
        self._slow: dict[str, float] = {}
        self._made = 0

    @property
    def seen(self) -> Cluster:
        """Nodes as far as anybody knows: one that was lost is seen until that is noticed."""
        if not self._lost:
            return self.there
        return Cluster((*self.there.nodes, *(node for _, node in self._lost)))

    @property
    def speed(self) -> FloatArray:
        """Speed of each node, as a part of its own."""
        return np.array([self._slow.get(name, 1.0) for name in self.there.names])

    @property
    def next_s(self) -> list[float]:
        """Moments at which something will change by itself."""
        return [at_s for at_s, _ in (*self._coming, *self._lost)]

    def request(self, total: int, now_s: float) -> None:
        """Have nodes come until there are so many."""
        for _ in range(total - len(self.there) - len(self._coming)):
            self._coming.append((now_s + self._costs.arrival_s, self._new()))

    def release(self, names: tuple[str, ...]) -> None:
        """Give up nodes.

        Raises
        ------
        ActionFailed
            When one is not there, or none would be left.
        """
        for name in names:
            if name not in self.there.index:
                raise ActionFailed(f"node {name!r} cannot be released: it is not there")
        left = tuple(node for node in self.there.nodes if node.name not in names)
        if not left:
            raise ActionFailed("the last node cannot be released")
        self.there = Cluster(left)

    def pass_time(self, now_s: float) -> bool:
        """Let nodes arrive and losses be noticed; whether there are other nodes now."""
        self._lost = [(at_s, node) for at_s, node in self._lost if at_s > now_s + 1e-9]
        due = tuple(node for at_s, node in self._coming if at_s <= now_s + 1e-9)
        if not due:
            return False
        self._coming = [(at_s, node) for at_s, node in self._coming if at_s > now_s + 1e-9]
        self.there = Cluster((*self.there.nodes, *due))
        return True

    def strike(self, fault: SimulatedFault, name: str, now_s: float) -> None:
        """Let a fault happen.

        Parameters
        ----------
        fault : SimulatedFault
        name : str
            The node that it hits, unless it adds some.
        now_s : float
        """
        if fault.kind is SimulatedFaultKind.ADD_NODE:
            new = tuple(self._new() for _ in range(fault.count))
            self.there = Cluster((*self.there.nodes, *new))
            return
        if name not in self.there.index:
            raise InvalidValue("node", f"fault {fault}", "a node that is still there", name)
        if fault.kind is SimulatedFaultKind.KILL_NODE:
            if len(self.there) == 1:
                raise NotAllowed(f"fault {fault} would kill {name}, the last node; simulate more")
            self._lost.append(
                (now_s + self._costs.detect_s, self.there.nodes[self.there.index[name]])
            )
            self.there = Cluster(tuple(n for n in self.there.nodes if n.name != name))
        elif fault.kind is SimulatedFaultKind.SLOW_NODE:
            self._slow[name] = fault.factor
        else:
            self._slow.pop(name, None)

    def _new(self) -> Node:
        known = {*self.seen.names, *(node.name for _, node in self._coming)}
        while f"new-{self._made}" in known:
            self._made += 1
        self._made += 1
        return replace(self._template, name=f"new-{self._made - 1}")
