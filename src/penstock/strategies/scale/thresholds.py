"""Few groups, none too empty and none too full (Ra Alg. 2, eq. 21)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from penstock.common.arrays import FloatArray, IntArray
from penstock.common.parameters import Checked, param
from penstock.model import Cluster, InstanceGraph, LoadWeights, Node, Reason
from penstock.model.load import ROUNDING, fraction
from penstock.strategies.api import Request
from penstock.strategies.loads import capacity_shares
from penstock.strategies.partition.class_state import ClassState
from penstock.strategies.scale import Scaled, register


@register
@dataclass(frozen=True)
class Thresholds(Checked):
    """Ra-Stream's resource scaling: merge or fill what is under, relieve what is over.

    Groups are looked at in ascending order of load. One under `under` is merged with the largest
    group that fits with it under `over`, found by binary search; a merged group that is still under
    is looked at again. Where none fits, tasks are moved into it one by one until it is no longer
    under, as far as others can give them. One over `over` gives tasks away, each to the fullest
    group that can take it, or to a new group while there are nodes left for one. The task that
    moves is the one whose loss costs its group the least internal traffic. What fits nowhere stays,
    and is said.

    The load of a group is that on the average node. By default its busiest resource counts: of the
    weighted figure (Ra eq. 6) a group that needs no I/O can reach 0.85 at the most, so that a node
    could be over its memory long before the figure is over its threshold.
    """

    name: ClassVar[str] = "thresholds"
    summary: ClassVar[str] = "groups merged, filled and relieved until each is within a band"
    origin: ClassVar[str] = "Ra-Stream, Alg. 2, eq. 21"

    under: float = param(
        0.60, "Load below which a group is merged or filled.", least=0, most=1, unit="of a node"
    )
    over: float = param(
        0.75, "Load above which a group gives tasks away.", least=0, most=1, unit="of a node"
    )
    load: str = param(
        "busiest",
        "Load of a group: its busiest resource, or eq. 6.",
        choices=("busiest", "weighted"),
    )

    def scale(self, request: Request, graph: InstanceGraph, groups: IntArray, count: int) -> Scaled:
        """Return fewer, fuller groups."""
        state = _Groups(graph, request.cluster, groups, count, self.load == "weighted")
        merged = moved = 0
        stuck: list[int] = []
        waiting = state.by_load(state.filled())
        finished: list[int] = []
        while waiting:
            target = waiting.pop(0)
            load = state.load(target)
            if load < self.under - ROUNDING and waiting:
                partner = self._partner(state, target, waiting)
                if partner is not None:
                    waiting.remove(partner)
                    state.merge(partner, target)
                    merged += 1
                    waiting = state.by_load([*waiting, target])
                    continue
                moved += self._fill(state, target, waiting)
                waiting = state.by_load([g for g in waiting if state.size(g)])
            elif load > self.over + ROUNDING:
                moved += self._relieve(state, target, [*waiting, *finished], finished)
                waiting = state.by_load(waiting)
            finished.append(target)
            if not self.within(state.load(target)):
                stuck.append(target)
        names, final = np.unique(state.groups, return_inverse=True)
        reasons = [self._summary(count, len(names), merged, moved)]
        if stuck:
            loads = ", ".join(f"{state.load(g):.2f}" for g in stuck[:5])
            text = f"nothing fits: {len(stuck)} of {len(names)} groups stay outside the band"
            text = f"{text}, at {loads}"
            reasons.append(Reason(text, {"stuck": len(stuck)}))
        return Scaled(graph, final.astype(np.int64), len(names), tuple(reasons))

    def within(self, load: float) -> bool:
        """Whether a group needs no adjustment (Ra eq. 21), the thresholds included."""
        return self.under - ROUNDING <= load <= self.over + ROUNDING

    def _partner(self, state: _Groups, target: int, waiting: list[int]) -> int | None:
        """Find the largest group that fits with the target: binary search in ascending loads.

        What fits by the sum of the two loads fits, because a merged group's busiest resource is no
        busier than that.
        """
        loads = [state.load(g) for g in waiting]
        place = bisect_right(loads, self.over + ROUNDING - state.load(target))
        for candidate in reversed(waiting[:place]):
            if state.has_room(target, state.size(candidate)):
                return candidate
        return None

    def _fill(self, state: _Groups, target: int, waiting: list[int]) -> int:
        """Move tasks into the target until it is not under; the lightest overloaded group gives.

        Without an overloaded one the lightest gives: it is the next to be merged or emptied. A
        group within the band gives only what leaves it there.
        """
        moved = 0
        while state.load(target) < self.under - ROUNDING:
            donors = state.by_load([g for g in waiting if state.size(g)])
            place = bisect_right([state.load(g) for g in donors], self.over + ROUNDING)
            for donor in (*donors[place:], *donors[:place]):
                least = self.under if self.within(state.load(donor)) else 0.0
                what = state.least_harm(donor, target, least, self.over)
                if what is not None:
                    state.move(what, donor, target)
                    moved += 1
                    break
            else:
                break
        return moved

    def _relieve(self, state: _Groups, target: int, others: list[int], finished: list[int]) -> int:
        """Move tasks away from the target until it is not over."""
        moved = 0
        while state.load(target) > self.over + ROUNDING and state.size(target) > 1:
            receivers = state.by_load(others)
            for what in state.tasks(target):
                receiver = self._receiver(state, what, receivers)
                if receiver is None and state.empty and state.alone(what) <= self.over + ROUNDING:
                    receiver = state.empty.pop()
                    others.append(receiver)
                    finished.append(receiver)
                if receiver is not None:
                    state.move(what, target, receiver)
                    moved += 1
                    break
            else:
                break
        return moved

    def _receiver(self, state: _Groups, what: int, receivers: list[int]) -> int | None:
        """Find the fullest group that can take a task: binary search, then the others exactly.

        Those that the sum of loads rules out may still take it, when it needs what they have.
        """
        loads = [state.load(g) for g in receivers]
        place = bisect_right(loads, self.over + ROUNDING - state.alone(what))
        for receiver in reversed(receivers[:place]):
            if state.has_room(receiver):
                return receiver
        taking = state.taking(receivers[place:], what, self.over)
        return taking[-1] if taking else None

    def _summary(self, before: int, after: int, merged: int, moved: int) -> Reason:
        return Reason(
            f"{before} groups became {after} within loads of {self.under:g} to {self.over:g}: "
            f"{merged} merges, {moved} tasks moved",
            {"before": before, "groups": after, "merges": merged, "moved": moved},
        )


class _Groups:
    """Groups as nodes of one kind, the average of the cluster, with room for some more."""

    def __init__(
        self, graph: InstanceGraph, cluster: Cluster, groups: IntArray, count: int, weighted: bool
    ) -> None:
        usable = np.flatnonzero(capacity_shares(graph, cluster) > 0)
        node = average_node(cluster, usable)
        nodes = [replace(node, name=f"group-{i}") for i in range(max(len(usable), count))]
        self.state = ClassState(graph, Cluster(tuple(nodes)), groups, 1.0)
        self.groups = groups.copy()
        self.weighted = LoadWeights() if weighted else None
        self.room = node.slots
        self.loads = self.figure(self.state.load)
        self.each = self.figure(self.state.demand)
        self.sizes = self.state.counts.sum(axis=0)
        free = max(0, len(usable) - int((self.sizes > 0).sum()))
        #: Groups that could be opened: as many as there are nodes left.
        self.empty = np.flatnonzero(self.sizes == 0)[:free].tolist()

    def figure(self, demand: npt.NDArray[Any]) -> FloatArray:
        """Load of each column of demands."""
        unit = np.broadcast_to(self.state.capacity[:3, :1], demand[:3].shape)
        shares = fraction(demand[:3], unit)
        if self.weighted is not None:
            return self.weighted.combine(*shares)
        return np.asarray(shares.max(axis=0), dtype=np.float64)

    def load(self, group: int) -> float:
        return float(self.loads[group])

    def alone(self, what: int) -> float:
        """Load of one task of a class."""
        return float(self.each[what])

    def size(self, group: int) -> int:
        return int(self.sizes[group])

    def filled(self) -> list[int]:
        return [int(g) for g in np.flatnonzero(self.sizes)]

    def by_load(self, groups: list[int]) -> list[int]:
        return sorted(groups, key=lambda g: (self.load(g), g))

    def has_room(self, group: int, instances: int = 1) -> bool:
        return self.size(group) + instances <= self.room

    def tasks(self, group: int) -> list[int]:
        """Classes in a group, those first whose loss costs it the least internal traffic."""
        present = np.flatnonzero((self.state.counts[:, group] > 0) & (self.each > 0))
        harm = self.state.pull[present, group] - self.state.own[present]
        return [int(what) for what in present[np.argsort(harm, kind="stable")]]

    def taking(self, groups: list[int], what: int, most: float) -> list[int]:
        """Those of the groups that have room for one more task of a class."""
        after = self.figure(self.state.load[:, groups] + self.state.demand[:, what, None])
        fits = (after <= most + ROUNDING) & (self.sizes[groups] < self.room)
        return [group for group, fine in zip(groups, fits.tolist(), strict=True) if fine]

    def least_harm(self, donor: int, target: int, least: float, most: float) -> int | None:
        """Class of the task that the donor misses least, can give and the target can take."""
        for what in self.tasks(donor):
            left = self.state.load[:, donor] - self.state.demand[:, what]
            gives = float(self.figure(left[:, None])[0]) >= least - ROUNDING
            if gives and self.taking([target], what, most):
                return what
        return None

    def move(self, what: int, origin: int, target: int) -> None:
        member = np.flatnonzero((self.groups == origin) & (self.state.class_of == what))[0]
        self.groups[member] = target
        self.state.move(what, origin, target)
        pair = [origin, target]
        self.loads[pair] = self.figure(self.state.load[:, pair])
        self.sizes[origin] -= 1
        self.sizes[target] += 1
        if not self.size(origin):
            self.empty.append(origin)

    def merge(self, origin: int, target: int) -> None:
        self.groups[self.groups == origin] = target
        for table in (self.state.counts, self.state.pull, self.state.load):
            table[:, target] += table[:, origin]
            table[:, origin] = 0
        pair = [origin, target]
        self.loads[pair] = self.figure(self.state.load[:, pair])
        self.sizes[target] += self.sizes[origin]
        self.sizes[origin] = 0
        self.empty.append(origin)


def average_node(cluster: Cluster, usable: IntArray) -> Node:
    """Return the node that a group is measured by before it has one of its own."""
    return Node(
        "average",
        cpu_cores=float(cluster.cpu_cores[usable].mean()),
        mem_mb=float(cluster.mem_mb[usable].mean()),
        io_mb_s=float(cluster.io_mb_s[usable].mean()),
        processes=1,
        slots=max(1, int((cluster.processes * cluster.slots)[usable].mean())),
    )
