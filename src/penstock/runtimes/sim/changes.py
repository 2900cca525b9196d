"""What stands still, and for how long, when one plan follows another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.model import Cluster, Plan, Topology
from penstock.model.arrays import FloatArray, IntArray
from penstock.runtimes.sim.costs import CostProfile
from penstock.runtimes.sim.recovery import move_seconds, recovery_seconds


@dataclass(frozen=True, eq=False)
class Change:
    """Pauses of the new plan's instances.

    Parameters
    ----------
    pause_s : array
        Of each instance; 0 for those that go on.
    kept : array of int
        Number of each instance in the plan before; -1 for a new one.
    moved : int
        Instances that moved, came or went.
    state_bytes : int
        State that was carried.
    """

    pause_s: FloatArray
    kept: IntArray
    moved: int
    state_bytes: int

    def carried(self, values: FloatArray) -> FloatArray:
        """Values of the plan before, for the instances of the new one; 0 for new ones."""
        return np.where(self.kept >= 0, values[np.maximum(self.kept, 0)], 0.0)


def change_of(
    topology: Topology, before: Plan, after: Plan, cluster: Cluster, costs: CostProfile
) -> Change:
    """Compare two plans on the nodes that are there.

    An instance that changes its node takes its state along, one whose node was lost has it rebuilt,
    one that only changes its process restarts. Where an operator's parallelism changes, each of its
    instances exchanges the part of the state that is dealt anew. A router partition that changes
    its instance takes its part of the state between the two nodes.
    """
    kept = _kept(before, after)
    old_node = before.node_of_in(cluster)
    new_node = after.node_of_in(cluster)
    was = np.where(kept >= 0, old_node[np.maximum(kept, 0)], -2)
    same_process = np.where(
        kept >= 0, before.process_of[np.maximum(kept, 0)] == after.process_of, False
    )
    state = np.concatenate(
        [np.full(n, topology[name].state_mb / n) for name, n in after.parallelism.items()]
    )
    bandwidth = cluster.bandwidth_mb_s
    pause = np.zeros(len(new_node))
    moved = (was >= 0) & (was != new_node)
    lost, fresh = was == -1, was == -2
    restarted = (was >= 0) & (was == new_node) & ~same_process
    if moved.any():
        pause[moved] = move_seconds(state[moved], was[moved], new_node[moved], bandwidth, costs)
    if lost.any():
        pause[lost] = recovery_seconds(state[lost], new_node[lost], bandwidth, costs)
    pause[restarted | fresh] = costs.restart_s
    carried_mb = float(state[moved | lost].sum())
    start = 0
    for name, count in after.parallelism.items():
        span = slice(start, start + count)
        start += count
        dealt_mb = _dealt_mb(topology, name, before, after)
        if dealt_mb is None:
            continue
        speed = np.maximum(bandwidth[new_node[span]], 1e-9)
        pause[span] = np.maximum(pause[span], np.where(dealt_mb > 0, dealt_mb / speed, 0.0))
        carried_mb += float(dealt_mb.sum()) / 2.0
    gone = sum(max(0, n - after.parallelism.get(name, 0)) for name, n in before.parallelism.items())
    count = int((moved | lost | restarted | fresh).sum()) + gone
    return Change(pause, kept, count, round(carried_mb * 1e6))


def _kept(before: Plan, after: Plan) -> IntArray:
    starts: dict[str, int] = {}
    at = 0
    for name, count in before.parallelism.items():
        starts[name] = at
        at += count
    rows: list[IntArray] = []
    for name, count in after.parallelism.items():
        number = np.arange(count)
        old = before.parallelism.get(name, 0)
        rows.append(np.where(number < old, starts.get(name, 0) + number, -1))
    return np.concatenate(rows)


def _dealt_mb(topology: Topology, name: str, before: Plan, after: Plan) -> FloatArray | None:
    """State that each instance of an operator sends or receives because keys are dealt anew."""
    state_mb = topology[name].state_mb
    old, new = before.parallelism.get(name, 0), after.parallelism[name]
    if not state_mb:
        return None
    if old != new:
        # A table moves the least that it can: the share of those that came or went.
        part = abs(new - old) / max(new, old, 1)
        return np.full(new, state_mb * part * 2.0 / new)
    first, second = before.routing.get(name), after.routing.get(name)
    if first is None or second is None or first.partitions == second.partitions:
        return None
    a, b = np.array(first.partitions), np.array(second.partitions)
    if len(a) != len(b):
        return np.full(new, state_mb * 2.0 / new)
    moved = a != b
    each = state_mb / len(a)
    return np.asarray(
        (np.bincount(a[moved], minlength=new) + np.bincount(b[moved], minlength=new)) * each,
        dtype=np.float64,
    )
