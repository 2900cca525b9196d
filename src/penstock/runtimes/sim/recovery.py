"""How long state is under way when an instance moves, or when its node is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_sums
from penstock.runtimes.sim.costs import CostProfile


@dataclass(frozen=True)
class Fetch:
    """State that comes to a new node.

    Parameters
    ----------
    state_mb : float
    target : int
        Number of the node that it comes to.
    sent_mb : mapping of int to float or None
        What each other node sends of it; None: a checkpoint has it.
    """

    state_mb: float
    target: int
    sent_mb: Mapping[int, float] | None


def move_seconds(
    state_mb: FloatArray,
    origin: IntArray,
    target: IntArray,
    bandwidth_mb_s: FloatArray,
    costs: CostProfile,
) -> FloatArray:
    """Pause of each instance that moves between two living nodes, in seconds.

    All moves of a change start together and share the links of their nodes evenly, so that each
    takes as long as the busier of its two ends needs for all that it sends or receives.
    """
    count = len(bandwidth_mb_s)
    speed = np.maximum(bandwidth_mb_s, 1e-9)
    sent = group_sums(origin, state_mb, count) / speed
    received = group_sums(target, state_mb, count) / speed
    way = np.where(state_mb > 0, np.maximum(sent[origin], received[target]), 0.0)
    return np.asarray(way + costs.restart_s, dtype=np.float64)


def fetch_seconds(
    fetched: Sequence[Fetch], bandwidth_mb_s: FloatArray, costs: CostProfile
) -> FloatArray:
    """Pause of each instance whose state is fetched, in seconds, after that was decided.

    Fragments come from their backup nodes at once (Sl section 6), and links are shared as by moves:
    the slowest of an instance's senders, with all that it sends to anybody, and all that the new
    node receives count. Then they are decoded. All that a checkpoint has comes over one link.
    """
    speed = np.maximum(bandwidth_mb_s, 1e-9)
    sent, received, shared_mb = np.zeros(len(speed)), np.zeros(len(speed)), 0.0
    for one in fetched:
        if one.sent_mb is None:
            received[one.target] += one.state_mb
            shared_mb += one.state_mb
            continue
        for node, size_mb in one.sent_mb.items():
            sent[node] += size_mb
            received[one.target] += size_mb
    sent, received = sent / speed, received / speed
    shared_s = shared_mb / float(np.median(speed))
    pauses = np.full(len(fetched), costs.restart_s)
    for i, one in enumerate(fetched):
        if one.state_mb <= 0:
            continue
        if one.sent_mb is None:
            pauses[i] += max(float(received[one.target]), shared_s)
        else:
            slowest = max((float(sent[node]) for node in one.sent_mb), default=0.0)
            come = float(received[one.target]) if one.sent_mb else 0.0
            pauses[i] += max(come, slowest) + one.state_mb / costs.decode_mb_s
    return pauses
