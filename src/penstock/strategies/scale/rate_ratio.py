"""Parallelism in the ratio of time over CPU, grown and shrunk with the source rate (Sra eq. 22-26).

Per tuple, an operator takes a time `T` and keeps `C` cores busy while it does. `T` is counted for
each tuple of the source, because it is the source's stream that every operator must keep up with:
an operator that gets ten tuples for one has ten times the time to account for. The time is CPU time
plus the time that the tuple's bytes take on the disk of an average node; `C` is the part of it that
is CPU time. An operator that only computes has `C` = 1, and its degree follows its CPU time. Once a
plan runs, both are measured where the engine tells them apart: the time in which the operator's
instances run, and the part of it in which a processor works.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_sums
from penstock.common.parameters import Checked, param
from penstock.model import Cluster, Grouping, InstanceGraph, Kind, Reason, Topology, expand
from penstock.strategies.api import Request, cost_of_running
from penstock.strategies.scale import Scaled, register

#: An operator that waits for its disk is not counted as keeping less of a core busy than this.
LEAST_CORES = 0.05

#: Groupings under which another instance does not take over part of the stream, or the sender
#: addresses instances by number.
UNSHARED = frozenset({Grouping.ALL, Grouping.GLOBAL, Grouping.DIRECT, Grouping.CUSTOM})


@register
@dataclass(frozen=True)
class RateRatio(Checked):
    """Sra-Stream's parallelism.

    Without a running plan the degrees are set in their ratio (eq. 22) and multiplied by
    ``max(1, ceil(cores / sum of degrees))`` (eq. 26). With one they follow the rate: each time it
    has risen by the fraction `a` they grow by ``1 + a`` (eq. 24), each time it has fallen by it
    they shrink by ``1 - a`` (eq. 25), and never below 1. The rate before is the one that the
    running plan was made for. Degrees that differ from those that the measured ratio asks for
    (eq. 22) by the factor `1 + drift` are set anew, whatever the rate did.
    """

    name: ClassVar[str] = "rate-ratio"
    summary: ClassVar[str] = "degrees in the ratio of time over CPU, following the source rate"
    origin: ClassVar[str] = "Sra-Stream, eq. 22-26"

    a: float = param(
        0.25, "Change of the source rate that counts.", least=0.01, most=0.99, unit="of the rate"
    )

    drift: float = param(
        1.0,
        "How far a degree may be from the measured ratio, as a part of it (ours).",
        least=0,
        most=1000,
    )
    per_core: float = param(
        2.0, "Instances for each core that growth may lead to (ours).", least=0, most=1000
    )

    def scale(self, request: Request, graph: InstanceGraph, groups: IntArray, count: int) -> Scaled:
        """Change the parallelism; new instances join the group with the least CPU."""
        running = request.running
        if running is None:
            degrees, reason = self._at_first(graph, request.cluster)
        elif (off := self.off(request)) is not None:
            degrees, reason = off
        else:
            degrees, reason = self._following(request, graph)
        return rescaled(request, graph, groups, count, degrees, reason)

    def _at_first(self, graph: InstanceGraph, cluster: Cluster) -> tuple[Mapping[str, int], Reason]:
        topology = graph.topology
        blank = [
            o.name
            for o in topology.operators
            if o.kind is not Kind.SOURCE and o.cpu_us_per_tuple <= 0
        ]
        if blank:
            text = f"the declared parallelism stays: {blank[0]!r} declares no CPU time per tuple"
            return {}, Reason(text, {"undeclared": len(blank)})
        cores = float(cluster.cpu_cores.sum())
        ratio = time_over_cpu(graph, cluster)
        # A source that declares no time cannot be weighed against the others.
        bound = fixed(topology) | {o.name for o in topology.sources if ratio[o.name] <= 0}
        degrees, k = submitted(
            {n: r for n, r in ratio.items() if n not in bound},
            {n: topology[n].parallelism for n in bound},
            topology,
            cores,
        )
        figures: dict[str, float] = {"k": k, "cores": cores, "instances": sum(degrees.values())}
        return degrees, Reason(
            f"parallelism in the ratio of time over CPU, times {k} for {cores:g} cores", figures
        )

    def off(self, request: Request) -> tuple[Mapping[str, int], Reason] | None:
        """Degrees by measured time over CPU (eq. 22), if one in use is far from its own."""
        running = request.running
        if running is None:
            return None
        topology = request.topology.with_parallelism(running.parallelism)
        ratio = measured_time_over_cpu(topology, request)
        if ratio is None:
            return None
        bound = fixed(topology) | {o.name for o in topology.sources}
        cores = float(request.cluster.cpu_cores.sum())
        kept = {n: topology[n].parallelism for n in bound}
        degrees, k = submitted(
            {n: r for n, r in ratio.items() if n not in bound}, kept, topology, cores
        )
        apart = {
            name: max(wanted / topology[name].parallelism, topology[name].parallelism / wanted)
            for name, wanted in degrees.items()
        }
        worst = max(apart, key=lambda name: apart[name])
        if apart[worst] < 1.0 + self.drift + 1e-9:
            return None
        text = (
            f"measured time over CPU asks for {degrees[worst]} instances of {worst!r}, "
            f"it has {topology[worst].parallelism}"
        )
        return degrees, Reason(text, {"k": k, "cores": cores, "instances": sum(degrees.values())})

    def _following(
        self, request: Request, graph: InstanceGraph
    ) -> tuple[Mapping[str, int], Reason]:
        change = rate_change(request)
        wanted = steps = self.steps(change)
        bound = fixed(graph.topology)
        current = dict(graph.topology.parallelism)
        most = max(self.per_core * float(request.cluster.cpu_cores.sum()), sum(current.values()))
        degrees = current
        while steps:
            degrees = {
                name: degree if name in bound else self.followed(degree, steps)
                for name, degree in current.items()
            }
            if steps < 0 or sum(degrees.values()) <= most:
                break
            steps -= 1
            degrees = current
        figures = {"rate_change": change, "steps": steps, "wanted_steps": wanted, "a": self.a}
        if degrees == current:
            return {}, Reason(f"the rate changed by {change:+.0%}: the parallelism stays", figures)
        text = f"the rate changed by {change:+.0%}: parallelism times {self.factor(steps):.2f}"
        return degrees, Reason(text, figures)

    def steps(self, change: float) -> int:
        """How often the rate has changed by the fraction `a`; negative when it fell.

        Examples
        --------
        >>> RateRatio(a=0.5).steps(1.0), RateRatio(a=0.5).steps(0.5), RateRatio(a=0.5).steps(-0.8)
        (1, 0, -2)
        """
        if change > self.a:
            return max(1, math.floor(math.log1p(change) / math.log1p(self.a) + 1e-9))
        if change < -self.a:
            left = max(1.0 + change, 1e-6)
            return -max(1, math.floor(math.log(left) / math.log1p(-self.a) + 1e-9))
        return 0

    def factor(self, steps: int) -> float:
        """Factor of the degrees after so many steps (eq. 24 upwards, eq. 25 downwards)."""
        return float((1.0 + self.a) ** steps if steps >= 0 else (1.0 - self.a) ** -steps)

    def followed(self, degree: int, steps: int) -> int:
        """Degree after so many steps: rounded up when it grows, down when it shrinks, at least 1.

        Examples
        --------
        >>> RateRatio(a=0.25).followed(4, 1), RateRatio(a=0.25).followed(4, -1)
        (5, 3)
        """
        exact = degree * self.factor(steps)
        rounded = math.ceil(exact - 1e-9) if steps > 0 else math.floor(exact + 1e-9)
        return max(1, rounded)


def submitted(
    ratio: Mapping[str, float], bound: Mapping[str, int], topology: Topology, cores: float
) -> tuple[dict[str, int], int]:
    """Degrees at submission, and the `k` that scaled them (Sra eq. 22 and 26).

    The sources keep their declared degree before it is scaled, and the others follow from it by
    their ratio. Eq. 26 only ever scales up; where the ratio alone asks for more instances than
    there are cores, it is scaled down to them.

    Parameters
    ----------
    ratio : mapping of str to float
        Time over CPU of the operators that are scaled.
    bound : mapping of str to int
        Operators that keep their parallelism.
    topology : Topology
    cores : float
        Cores of the cluster.
    """
    sources = [o for o in topology.sources if o.name in ratio and ratio[o.name] > 0]
    anchor = (
        sum(o.parallelism for o in sources) / sum(ratio[o.name] for o in sources)
        if sources
        else 1.0 / max(min((r for r in ratio.values() if r > 0), default=1.0), 1e-12)
    )
    base = {name: max(1.0, r * anchor) for name, r in ratio.items()}
    total = sum(base.values()) + sum(bound.values())
    if total > cores:
        shrink = max(cores - sum(bound.values()), 0.0) / max(sum(base.values()), 1e-12)
        base = {name: max(1.0, d * shrink) for name, d in base.items()}
    k = max(1, math.ceil(cores / total - 1e-9))
    degrees = {
        name: bound[name] if name in bound else max(1, round(k * base[name]))
        for name in topology.parallelism
    }
    return degrees, k


def time_over_cpu(graph: InstanceGraph, cluster: Cluster) -> dict[str, float]:
    """`T / C` of each operator, in microseconds (Sra eq. 22)."""
    topology = graph.topology
    received = group_sums(graph.operator_of, graph.rate_in, len(topology.operators))
    emitted = sum(float(received[topology.index[o.name]]) for o in topology.sources)
    disk_mb_s = max(float(cluster.io_mb_s.mean()), 1e-9)
    ratios: dict[str, float] = {}
    for i, operator in enumerate(topology.operators):
        visits = float(received[i]) / emitted if emitted > 0 else 1.0
        wait_us = operator.io_bytes_per_tuple / disk_mb_s
        spent_us = operator.cpu_us_per_tuple + wait_us
        busy = operator.cpu_us_per_tuple / spent_us if spent_us > 0 else 1.0
        ratios[operator.name] = visits * spent_us / max(busy, LEAST_CORES)
    return ratios


def measured_time_over_cpu(topology: Topology, request: Request) -> dict[str, float] | None:
    """`T / C` of each operator but sources, in microseconds, as measured; None if one was not."""
    seen = request.measurements
    emitted = sum(seen.source_rates.values()) if seen is not None else 0.0
    if seen is None or emitted <= 0:
        return None
    ratios: dict[str, float] = {}
    for operator in topology.operators:
        if operator.kind is Kind.SOURCE:
            continue
        time, busy = seen.cpu_cores.get(operator.name), seen.busy.get(operator.name)
        if time is None or busy is None or len(time) != operator.parallelism or time.sum() <= 0:
            return None
        ratios[operator.name] = float(time.sum()) / emitted * 1e6 / max(busy, LEAST_CORES)
    return ratios or None


def fixed(topology: Topology) -> frozenset[str]:
    """Operators that another instance would not help, by the grouping of their input."""
    return frozenset(e.target for e in topology.edges if e.grouping in UNSHARED)


def rate_change(request: Request) -> float:
    """Change of the rate since the running plan was made, as a fraction of the rate then (eq. 23).

    Every tuple counts, on every edge: with the same operators their sum follows the sources. The
    paper subtracts in the wrong order and compares a fall with its sign; here a rise is positive,
    and whoever asks compares sizes. 0 when either rate is not known.
    """
    now, running = cost_of_running(request), request.running
    if now is None or running is None or running.after.total_per_s <= 0:
        return 0.0
    return now.total_per_s / running.after.total_per_s - 1.0


def rescaled(
    request: Request,
    graph: InstanceGraph,
    groups: IntArray,
    count: int,
    degrees: Mapping[str, int],
    reason: Reason,
) -> Scaled:
    """Expand the graph with other degrees; instances that stay keep their group.

    Instances are dropped from the end of an operator, and new ones join, one by one, the group with
    the least CPU for the average node of a group.
    """
    topology = graph.topology.with_parallelism(degrees)
    if topology.parallelism == graph.topology.parallelism:
        return Scaled(graph, groups, count, (reason,))
    wider = expand(topology, request.measurements)
    kept = np.full(len(wider), -1, dtype=np.int64)
    for name in topology.parallelism:
        old, new = graph.span(name), wider.span(name)
        same = min(old.stop - old.start, new.stop - new.start)
        kept[new.start : new.start + same] = groups[old.start : old.start + same]
    there = kept >= 0
    load: FloatArray = group_sums(kept[there], wider.cpu_cores[there], count)
    scale = request.cluster.cpu_cores if count == len(request.cluster) else np.ones(count)
    for instance in np.flatnonzero(~there).tolist():
        after = (load + wider.cpu_cores[instance]) / np.maximum(scale, 1e-9)
        group = int(np.argmin(after))
        kept[instance] = group
        load[group] += wider.cpu_cores[instance]
    return Scaled(wider, kept, count, (reason,))
