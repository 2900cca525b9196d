"""What the simulator shows of itself: measurements as Spark's monitor would take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_sums
from penstock.model import Cluster, Grouping, Kind, Measurements, Utilisation, trimmed_mean
from penstock.model.load import fraction
from penstock.model.measurements import trimmed_mean_arrays

if TYPE_CHECKING:
    from penstock.runtimes.sim.runtime import SimRuntime

#: Edges with more pairs of instances than this are not measured pair by pair.
MOST_PAIRS = 10_000


@dataclass(frozen=True, eq=False)
class SimulatedWindow:
    """One interval: what came to each operator from outside, and how busy the nodes were.

    Of a node's CPU it tells what others take, as they do of a slow one.
    """

    seconds: float
    nodes: tuple[str, ...]
    offered_per_s: FloatArray
    taken: FloatArray
    mem: FloatArray
    io: FloatArray
    latency_ms: FloatArray


def measured(windows: Sequence[SimulatedWindow], runtime: SimRuntime) -> Measurements:
    """Reduce a window to measurements.

    Rates are those that the stream offers, also where not all of it can be processed, and CPU is
    what these rates need: planning by what an overloaded node gets done would never relieve it.
    """
    wiring = runtime.fluid.wiring
    topology = wiring.topology
    offered = trimmed_mean_arrays([w.offered_per_s for w in windows])
    total = float(offered.sum())
    rate = total * wiring.flow[wiring.operator_of] * wiring.weight
    cores = wiring.reserve_cores + rate * wiring.service_s
    totals = np.array([w.offered_per_s.sum() for w in windows])
    spread = float(totals.std() / totals.mean()) if totals.mean() > 0 else None
    spans = {o.name: wiring.span(i) for i, o in enumerate(topology.operators)}
    partitions: dict[str, FloatArray] = {}
    hot: dict[str, dict[int, float]] = {}
    keys = runtime.keys
    for name, table in runtime.plan.routing.items():
        through = float(rate[spans[name]].sum())
        partitions[name] = keys.partition_shares(len(table.partitions)) * through
        found = keys.hot(topology[name].parallelism)
        hot[name] = {key: part * through for key, part in found.items()}
    return Measurements(
        source_rates={
            o.name: float(offered[i])
            for i, o in enumerate(topology.operators)
            if o.kind is Kind.SOURCE
        },
        rates=_pairs(runtime, rate),
        tuples_per_s={name: rate[span] for name, span in spans.items()},
        cpu_cores={name: cores[span] for name, span in spans.items()},
        nodes=_use(windows, runtime.fluid.cluster, wiring.node_of, cores),
        partition_rates=partitions,
        hot_keys=hot,
        latency_ms=trimmed_mean([float(w.latency_ms.mean()) for w in windows]),
        rate_cv=spread,
    )


def _use(
    windows: Sequence[SimulatedWindow], cluster: Cluster, node_of: IntArray, cores: FloatArray
) -> dict[str, Utilisation]:
    """Use of the nodes that are there: what the rates need, and what others take."""
    there = node_of >= 0
    own = fraction(group_sums(node_of[there], cores[there], len(cluster)), cluster.cpu_cores)
    found: dict[str, Utilisation] = {}
    for n, name in enumerate(cluster.names):
        seen = [(w, w.nodes.index(name)) for w in windows if name in w.nodes]
        if seen:
            taken, mem, io = (
                trimmed_mean([float(getattr(w, kind)[i]) for w, i in seen])
                for kind in ("taken", "mem", "io")
            )
            found[name] = Utilisation(float(own[n]) + (taken or 0.0), mem, io)
    return found


def _pairs(runtime: SimRuntime, rate: FloatArray) -> dict[tuple[str, str], FloatArray]:
    """Rates between instances of the edges whose targets get unequal parts."""
    wiring = runtime.fluid.wiring
    found: dict[tuple[str, str], FloatArray] = {}
    for e, edge in enumerate(wiring.topology.edges):
        uneven = edge.grouping in (Grouping.FIELDS, Grouping.PARTIAL_KEY) and np.ptp(
            wiring.shares[e]
        ) > 1e-9 / len(wiring.shares[e])
        sender = wiring.span(wiring.topology.index[edge.source])
        if not uneven or len(wiring.shares[e]) * (sender.stop - sender.start) > MOST_PAIRS:
            continue
        out = rate[sender] * wiring.topology[edge.source].selectivity
        pair = np.outer(out, wiring.shares[e])
        key = (edge.source, edge.target)
        found[key] = found[key] + pair if key in found else pair
    return found
