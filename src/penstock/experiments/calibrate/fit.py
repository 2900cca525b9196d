"""From measured batches to the cost profile that explains them best. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from penstock.model import Cluster, InvalidValue, Plan, TierCosts, Topology
from penstock.runtimes.sim.batches import BatchTimes
from penstock.runtimes.sim.costs import CostProfile
from penstock.runtimes.sim.keys import KeySpace
from penstock.runtimes.sim.wiring import wire


@dataclass(frozen=True, eq=False)
class Trial:
    """Batches of several sizes under one placement.

    Parameters
    ----------
    plan : Plan
    rows : sequence of int
        Source tuples of each batch.
    seconds : sequence of float
        Time that each took.
    instances : mapping of str to sequence of (int, int, float)
        For each operator, tuples in, tuples out and seconds of its instances in all batches.
    """

    plan: Plan
    rows: Sequence[int]
    seconds: Sequence[float]
    instances: Mapping[str, Sequence[tuple[int, int, float]]]


def measured(topology: Topology, trials: Sequence[Trial]) -> Topology:
    """Return the topology with the selectivities that were seen."""
    operators = []
    for operator in topology.operators:
        seen = [one for trial in trials for one in trial.instances.get(operator.name, ())]
        into, out = sum(one[0] for one in seen), sum(one[1] for one in seen)
        ends = not any(edge.source == operator.name for edge in topology.edges)
        known = into > 0 and not ends
        operators.append(replace(operator, selectivity=out / into) if known else operator)
    return replace(topology, operators=tuple(operators))


def fit(
    topology: Topology,
    cluster: Cluster,
    trials: Sequence[Trial],
    keys: KeySpace,
    batch_s: float,
) -> CostProfile:
    """Find the profile with which batches of the simulator last as long as those that were run.

    An operator's tuple costs what its instances' time grows by with each. What a batch of no tuples
    takes is that of the batch, and that of its tasks, as the placements differ in them. What
    batches take beyond that is put down to the hops, within a node and across nodes, as all
    placements together tell it.

    Parameters
    ----------
    topology : Topology
        With the selectivities that were seen; see `measured`.
    cluster : Cluster
    trials : sequence of Trial
        At least two placements, each with batches of at least two sizes.
    keys : KeySpace
    batch_s : float
        Batch interval that the profile is for.
    """
    for trial in trials:
        if len(set(trial.rows)) < 2:
            raise InvalidValue("rows", "a trial", "of at least two sizes", sorted(set(trial.rows)))
    each_us = {}
    for operator in topology.operators:
        seen = [one for trial in trials for one in trial.instances.get(operator.name, ())]
        each_us[operator.name] = max(0.0, _slope([(n, s) for n, _, s in seen])[0] * 1e6)
    bare = CostProfile.bare(cpu_us_per_tuple=each_us, batch_s=batch_s, task_ms=1.0)
    parts = {o.name: 1.0 / len(topology.sources) for o in topology.sources}

    def model(trial: Trial, costs: CostProfile) -> BatchTimes:
        wiring = wire(topology, trial.plan, cluster, keys, costs, parts)
        return BatchTimes.of(wiring, cluster, costs)

    lines = [_slope(list(zip(t.rows, t.seconds, strict=True))) for t in trials]
    free = [model(trial, bare) for trial in trials]
    # What a microsecond at each end adds to a tuple, for all hops and for those across nodes more:
    # the model is linear in it.
    hops = (TierCosts(1.0, 1.0, 1.0), TierCosts(0.0, 0.0, 1.0))
    adds = [
        [model(trial, replace(bare, hop_cpu_us=hop)).per_tuple_s - base.per_tuple_s for hop in hops]
        for trial, base in zip(trials, free, strict=True)
    ]
    left = [slope - base.per_tuple_s for (slope, _), base in zip(lines, free, strict=True)]
    (every, more), _ = nnls(np.array(adds) * 1e6, np.maximum(left, 0.0) * 1e6)
    # What batches of no tuples take: the same for all, and for each round of tasks.
    starts = np.array([[1.0, base.fixed_s * 1e3] for base in free])
    (batch_ms, task_ms), _ = nnls(starts, np.array([start * 1e3 for _, start in lines]))
    return CostProfile(
        cpu_us_per_tuple=each_us,
        hop_cpu_us=TierCosts(float(every), float(every), float(every + more)),
        hop_us=TierCosts(0.0, 0.0, 0.0),
        batch_s=batch_s,
        batch_ms=float(batch_ms),
        task_ms=float(task_ms),
        restart_s=0.0,
    )


def _slope(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slope and start of the line through the medians of equal x, which one bad batch cannot turn.

    Examples
    --------
    >>> slope, start = _slope([(0, 1.0), (10, 3.0), (10, 3.0), (10, 90.0)])
    >>> round(slope, 3), round(start, 3)
    (0.2, 1.0)
    """
    found: dict[float, list[float]] = {}
    for x, y in points:
        found.setdefault(float(x), []).append(float(y))
    if len(found) > 8:
        # Many sizes, as instances see them: by bins of their order.
        ordered = sorted(points)
        bins = np.array_split(np.array(ordered, dtype=np.float64), 8)
        pairs = [(float(np.mean(b[:, 0])), float(np.median(b[:, 1]))) for b in bins if len(b)]
    else:
        pairs = [(x, float(np.median(ys))) for x, ys in found.items()]
    if len({x for x, _ in pairs}) < 2:
        return 0.0, float(np.median([y for _, y in pairs])) if pairs else 0.0
    slope, start = np.polyfit([x for x, _ in pairs], [y for _, y in pairs], 1)
    return float(slope), max(0.0, float(start))
