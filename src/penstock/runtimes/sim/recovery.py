"""How long state is under way when an instance moves, or when its node is lost."""

from __future__ import annotations

import numpy as np

from penstock.model.arrays import FloatArray, IntArray, group_sums
from penstock.runtimes.sim.costs import CostProfile


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


def recovery_seconds(
    state_mb: FloatArray, target: IntArray, bandwidth_mb_s: FloatArray, costs: CostProfile
) -> FloatArray:
    """Pause of each instance whose node was lost, in seconds, after the loss was noticed.

    Its fragments are pulled from ``fragments`` peers at once (Sl section 6): each sends its part,
    the new node receives the whole, and decodes it. With a single place, a checkpoint, all lost
    state comes over one link.
    """
    speed = np.maximum(bandwidth_mb_s, 1e-9)
    received = group_sums(target, state_mb, len(speed)) / speed
    link = float(np.median(speed))
    one_place = costs.fragments <= 1
    sent = np.full_like(state_mb, state_mb.sum()) if one_place else state_mb / costs.fragments
    way = np.where(state_mb > 0, np.maximum(received[target], sent / link), 0.0)
    decode = 0.0 if one_place else state_mb / costs.decode_mb_s
    return np.asarray(way + decode + costs.restart_s, dtype=np.float64)
