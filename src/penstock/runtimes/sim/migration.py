"""What stands still, and for how long, when one plan follows another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.common.arrays import FloatArray, IntArray
from penstock.model import Cluster, Plan, Topology
from penstock.runtimes.sim.backup import Fragments, node_of
from penstock.runtimes.sim.costs import CostProfile
from penstock.runtimes.sim.recovery import Fetch, fetch_seconds, move_seconds
from penstock.state.backup.recovery import Recovery, Unrecoverable
from penstock.state.versions import StateLost


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
        State that was migrated.
    """

    pause_s: FloatArray
    kept: IntArray
    moved: int
    state_bytes: int

    def migrated(self, values: FloatArray) -> FloatArray:
        """Values of the plan before, for the instances of the new one; 0 for new ones."""
        return np.where(self.kept >= 0, values[np.maximum(self.kept, 0)], 0.0)


def change_of(
    topology: Topology,
    before: Plan,
    after: Plan,
    cluster: Cluster,
    costs: CostProfile,
    fragments: Fragments,
) -> Change:
    """Compare two plans on the nodes that are there.

    An instance that changes its node takes its state along, or reads it from the checkpoint where
    there is only that. One whose node was lost has it restored from the fragments that are left, or
    from the checkpoint where there is one. One that only changes its process restarts. Where an
    operator's parallelism changes, each of its instances exchanges the part of the state that is
    repartitioned. A router partition that changes its instance takes its part of the state between
    the two nodes.

    Raises
    ------
    StateLost
        When too few fragments are left, and there is no checkpoint; as in the engine.
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
    came = _restored(topology, before, after, cluster, fragments)
    if not fragments.state_config.by_peers:
        came += [
            (int(i), Fetch(float(state[i]), int(new_node[i]), None)) for i in np.flatnonzero(moved)
        ]
    restarted = (was >= 0) & (was == new_node) & ~same_process
    if fragments.state_config.by_peers and moved.any():
        pause[moved] = move_seconds(state[moved], was[moved], new_node[moved], bandwidth, costs)
    pause[restarted | fresh | lost] = costs.restart_s
    np.maximum.at(
        pause, [i for i, _ in came], fetch_seconds([f for _, f in came], bandwidth, costs)
    )
    carried_mb = sum(fetch.state_mb for _, fetch in came)
    if fragments.state_config.by_peers:
        carried_mb += float(state[moved].sum())
    start = 0
    for name, count in after.parallelism.items():
        span = slice(start, start + count)
        start += count
        repartitioned_mb = _repartitioned_mb(topology, name, before, after)
        if repartitioned_mb is None:
            continue
        speed = np.maximum(bandwidth[new_node[span]], 1e-9)
        pause[span] = np.maximum(
            pause[span], np.where(repartitioned_mb > 0, repartitioned_mb / speed, 0.0)
        )
        carried_mb += float(repartitioned_mb.sum()) / 2.0
    gone = sum(max(0, n - after.parallelism.get(name, 0)) for name, n in before.parallelism.items())
    count = int((moved | lost | restarted | fresh).sum()) + gone
    return Change(pause, kept, count, round(carried_mb * 1e6))


def _restored(
    topology: Topology, before: Plan, after: Plan, cluster: Cluster, fragments: Fragments
) -> list[tuple[int, Fetch]]:
    """State whose node was lost: the instance of the new plan that it comes to, and its way.

    That of an instance which the new plan does not have comes to the last one that it has, to be
    repartitioned from there.
    """
    found: list[tuple[int, Fetch]] = []
    if (before.node_of_in(cluster) >= 0).all():
        return found
    state_config, targets = fragments.state_config, after.placement
    why: list[str] = []
    first, at = {}, 0
    for name, count in after.parallelism.items():
        first[name] = at
        at += count
    for name, spots in before.placement.items():
        state_mb = topology[name].state_mb / len(spots)
        for index, spot in enumerate(spots):
            if spot.node in cluster.index or state_mb <= 0:
                continue
            last = min(index, after.parallelism[name] - 1)
            target = targets[name][last].node
            sent: dict[int, float] | None = None
            if state_config.by_peers:
                try:
                    plan = fragments.recovery(name, index, cluster.names, target)
                    sent = _sent_mb(plan, state_mb, cluster)
                except Unrecoverable as error:
                    why.append(f"{name}[{index}]: {error}")
            fetch = Fetch(state_mb, cluster.index[target], sent)
            found.append((first[name] + last, fetch))
    if why and not state_config.in_checkpoint:
        told = "; ".join(why)
        raise StateLost(f"state cannot be put together from what peers have: {told}")
    return found


def _sent_mb(plan: Recovery, state_mb: float, cluster: Cluster) -> dict[int, float]:
    """Say what each node sends; what lies on the new node already is not sent."""
    return {
        cluster.index[node_of(backup_node)]: sum(state_mb / pull.segment.r for pull in pulls)
        for backup_node, pulls in plan.by_sender().items()
        if backup_node != plan.target
    }


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


def _repartitioned_mb(
    topology: Topology, name: str, before: Plan, after: Plan
) -> FloatArray | None:
    """State that each instance of an operator sends or receives because keys are repartitioned."""
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
