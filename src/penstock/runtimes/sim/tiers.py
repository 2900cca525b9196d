"""How many of an edge's tuples stay in a process, stay in a node, and cross nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_counts, group_sums
from penstock.model import TierCosts

_STAYS = np.array([1.0, 0.0, 0.0])


@dataclass(frozen=True, eq=False)
class Ends:
    """Where the instances at the two ends of an edge are."""

    from_process: IntArray
    to_process: IntArray
    from_node: IntArray
    to_node: IntArray


@dataclass(frozen=True, eq=False)
class Mix:
    """Parts by tier, three columns: of what each sender sends, of what each target gets."""

    sent: FloatArray
    arrived: FloatArray


def cost_us(parts: FloatArray, tiers: TierCosts) -> FloatArray:
    """Cost of tuples in these parts, in microseconds."""
    costs = np.array([tiers.in_process_us, tiers.in_node_us, tiers.across_us])
    return np.asarray(parts @ costs, dtype=np.float64)


def repartitioned(emitted: FloatArray, share: FloatArray, ends: Ends) -> Mix:
    """Tiers of an edge whose senders all distribute alike."""
    kept, own = _inside(ends.from_process, ends.to_process, emitted, share)
    near, from_node = _inside(ends.from_node, ends.to_node, emitted, share)
    whole = float(share.sum())
    sent = np.stack((kept, near - kept, whole - near), axis=1)
    arrived = np.stack((own, from_node - own, 1.0 - from_node), axis=1)
    return Mix(np.maximum(sent, 0.0), np.maximum(arrived, 0.0))


def kept_local(emitted: FloatArray, share: FloatArray, ends: Ends) -> tuple[FloatArray, Mix]:
    """Shares and tiers of an edge whose senders prefer targets of their own process."""
    processes = int(max(ends.from_process.max(), ends.to_process.max())) + 1
    held = group_counts(ends.to_process, processes)
    stays = held[ends.from_process] > 0
    kept = group_sums(ends.from_process, np.where(stays, emitted, 0.0), processes)
    rest = np.where(stays, 0.0, emitted)
    own = kept[ends.to_process] / held[ends.to_process]
    got = own + float(rest.sum()) * share
    far = repartitioned(rest, share, ends)
    part = np.divide(own, got, out=np.zeros_like(own), where=got > 0)[:, None]
    mix = Mix(np.where(stays[:, None], _STAYS, far.sent), part * _STAYS + (1 - part) * far.arrived)
    return np.asarray(got / max(float(emitted.sum()), 1e-300)), mix


def _inside(
    senders: IntArray, targets: IntArray, emitted: FloatArray, share: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Part of a sender's tuples that stays in its group, and of a target's that is from it."""
    groups = int(max(senders.max(), targets.max())) + 1
    total = float(emitted.sum())
    kept = group_sums(targets, share, groups)[senders]
    own = group_sums(senders, emitted, groups)[targets] / (total if total > 0 else 1.0)
    return kept, own
