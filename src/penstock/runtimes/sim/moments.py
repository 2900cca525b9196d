"""What a simulation saw: a moment each interval, and the figures of a whole run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.common.arrays import FloatArray

#: Percentiles that are kept.
PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, eq=False)
class Moment:
    """One interval of virtual time.

    Parameters
    ----------
    at_s : float
        Its end.
    seconds : float
    arriving_per_s, throughput_per_s, output_per_s : float
        Source tuples that came and that were processed; tuples that left at the end.
    latency_ms : array
        Drawn from the tuples of the interval.
    queued : float
        Tuples in all queues at its end.
    dropped : float
        Tuples dropped in it.
    nodes : int
        Nodes that held instances.
    cpu_use : float
        CPU use of those nodes, on average.
    remote_share : float
        Part of the tuples that crossed nodes.
    lin, lit : float
        Imbalance of nodes (Ms eq. 38), and of the worst stateful operator's instances (eq. 10).
    moved : int
        Instances moved in it.
    halted : int
        Instances that stood still at its end.
    """

    at_s: float
    seconds: float
    arriving_per_s: float
    throughput_per_s: float
    output_per_s: float
    latency_ms: FloatArray
    queued: float
    dropped: float
    nodes: int
    cpu_use: float
    remote_share: float
    lin: float
    lit: float
    moved: int
    halted: int

    @property
    def percentiles_ms(self) -> tuple[float, ...]:
        """The `PERCENTILES` of its latency."""
        return tuple(float(v) for v in np.percentile(self.latency_ms, PERCENTILES))


def summarise(moments: Sequence[Moment], since_s: float = 0.0) -> dict[str, Any]:
    """Reduce moments to the figures of a run, as plain values.

    Parameters
    ----------
    moments : sequence of Moment
    since_s : float
        Moments that end before are left out, as warming up.
    """
    kept = [m for m in moments if m.at_s > since_s]
    if not kept:
        return {"seconds": 0.0}
    seconds = np.array([m.seconds for m in kept])
    total = float(seconds.sum())

    def mean(name: str) -> float:
        return float(np.dot([getattr(m, name) for m in kept], seconds) / total)

    return {
        "seconds": total,
        "arriving_per_s": mean("arriving_per_s"),
        "throughput_per_s": mean("throughput_per_s"),
        "output_per_s": mean("output_per_s"),
        "latency_ms": latency_of(kept),
        "queued": kept[-1].queued,
        "dropped": float(sum(m.dropped for m in kept)),
        "nodes": mean("nodes"),
        "most_nodes": max(m.nodes for m in kept),
        "node_seconds": float(np.dot([m.nodes for m in kept], seconds)),
        "cpu_use": mean("cpu_use"),
        "remote_share": mean("remote_share"),
        "lin": mean("lin"),
        "lit": mean("lit"),
        "moves": sum(m.moved for m in kept),
        "seconds_without_output": float(
            sum(m.seconds for m in kept if m.output_per_s <= 0 and m.arriving_per_s > 0)
        ),
    }


def latency_of(moments: Sequence[Moment]) -> dict[str, float] | None:
    """Mean and percentiles over all tuples of some moments; None when none was processed."""
    flowing = [m for m in moments if m.throughput_per_s > 0]
    if not flowing:
        return None
    drawn = np.concatenate([m.latency_ms for m in flowing])
    weight = np.concatenate(
        [
            np.full(len(m.latency_ms), m.throughput_per_s * m.seconds / len(m.latency_ms))
            for m in flowing
        ]
    )
    order = np.argsort(drawn, kind="stable")
    ends = np.cumsum(weight[order])
    at = np.searchsorted(ends, np.array(PERCENTILES) / 100.0 * ends[-1])
    found = drawn[order][np.minimum(at, len(order) - 1)]
    figures = {f"p{p}": float(v) for p, v in zip(PERCENTILES, found, strict=True)}
    return {"mean": float(np.average(drawn, weights=weight)), **figures}
