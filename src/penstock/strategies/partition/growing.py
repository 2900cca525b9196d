"""Groups grown one after the other, each from the instance that its members talk to most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from penstock.common.arrays import FloatArray, IntArray, group_counts, group_sums
from penstock.common.parameters import Checked
from penstock.model import InstanceGraph
from penstock.strategies.partition import register
from penstock.strategies.partition.class_state import FEW_CLASSES, class_rates


@register
@dataclass(frozen=True)
class Growing(Checked):
    """Grow groups greedily: always add what exchanges the most tuples per unit of weight.

    The greedy graph growing of multilevel partitioners (Karypis and Kumar, SIAM J. Sci. Comput.
    1998) on classes of interchangeable instances: every step weighs each class once, whatever the
    number of its instances.
    """

    name: ClassVar[str] = "growing"
    summary: ClassVar[str] = "greedy growth from the best connected instance, group by group"
    origin: ClassVar[str] = "Karypis and Kumar 1998, greedy graph growing"

    def partition(
        self,
        graph: InstanceGraph,
        weights: FloatArray,
        shares: FloatArray,
        rng: np.random.Generator,
    ) -> IntArray:
        """Fill the groups in descending order of their shares."""
        count = len(shares)
        class_of = graph.classes
        classes = int(class_of.max()) + 1
        left = group_counts(class_of, classes)
        weight = group_sums(class_of, weights, classes) / np.maximum(left, 1)
        floor = max(float(weight.max()), 1e-12) * 1e-6
        rates = class_rates(graph)
        # Of many classes, each talks to a few.
        sums = sp.csr_array(rates) if classes > FEW_CLASSES else rates
        table = np.zeros((classes, count), dtype=np.int64)
        quota = shares * float(weights.sum())
        order = np.argsort(-shares, kind="stable")
        for position, group in enumerate(order.tolist()):
            after = count - position - 1
            if after == 0:
                table[:, group] = left
                break
            table[:, group] = self._grow(
                rates, sums @ left, weight, left, float(quota[group]), after, floor, rng
            )
            left = left - table[:, group]
        return _distribute(class_of, table)

    @staticmethod
    def _grow(
        rates: FloatArray,
        total: FloatArray,
        weight: FloatArray,
        left: IntArray,
        quota: float,
        groups_after: int,
        floor: float,
        rng: np.random.Generator,
    ) -> IntArray:
        """Count the instances of each class in one group; leave one for every later group."""
        taken = np.zeros_like(left)
        # A little noise decides between equals, so that another seed gives another start.
        noise = 1.0 + 1e-3 * rng.random(len(left))
        pull = total * noise
        filled = 0.0
        while left.sum() - taken.sum() > groups_after:
            open_ = (left > taken) & ((filled + 0.5 * weight <= quota) | (taken.sum() == 0))
            if not open_.any():
                break
            score = np.where(open_, pull / np.maximum(weight, floor), -np.inf)
            chosen = int(np.argmax(score))
            if taken.sum() == 0:
                pull = np.zeros(len(left))
            taken[chosen] += 1
            filled += float(weight[chosen])
            pull = pull + rates[chosen] * noise
        return taken


def _distribute(class_of: IntArray, table: IntArray) -> IntArray:
    """Name the instances: those of a class in ascending order to ascending groups."""
    groups = np.empty(len(class_of), dtype=np.int64)
    columns = np.arange(table.shape[1])
    for what in range(len(table)):
        groups[class_of == what] = np.repeat(columns, table[what])
    return groups
