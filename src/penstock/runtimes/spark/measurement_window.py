"""The last batches as the control loop sees them: rates, what instances cost, slow nodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from penstock.common.arrays import FloatArray
from penstock.engine.messages import TaskStats
from penstock.model import Cluster, Measurements, Sample
from penstock.runtimes.spark.instance_use import busy_share, node_use, resources
from penstock.runtimes.spark.monitor import Observed
from penstock.store.histogram import Histogram
from penstock.store.records import InstanceRecord

#: Batches that a measurement looks back on, and those that it takes at the least.
LENGTH, LEAST = 20, 3

#: Batches over which the tuples that come are counted: fewer, so that a step shows at once.
RECENT = 5

#: A node whose instances take so many times as long as elsewhere is a slow one, if that shows in
#: each of so many parts of the window, of so many batches each: a hiccup is over before. What is
#: plain to see needs no long look.
STRAGGLES, PARTS = ((1.6, 2), (3.0, 1)), 3

#: Tuples and milliseconds from which a node's time for a tuple of an operator is believed.
ENOUGH_TUPLES, ENOUGH_MS = 50, 20.0


@dataclass(frozen=True, eq=False)
class Seen:
    """One batch.

    Parameters
    ----------
    observed : Observed
    interval_s : float
        From the start of the batch before to the start of this one.
    waiting : int
        Source tuples that waited when it was done.
    partitions : mapping of str to array
        Rows of each router partition of a target.
    hot_keys : mapping of str to mapping of int to int
    costs : tuple of InstanceRecord
        What instances are charged with.
    state_bytes : mapping of str to sequence of int
        State of each instance of an operator, as far as it was looked at.
    """

    observed: Observed
    interval_s: float
    waiting: int
    partitions: Mapping[str, FloatArray]
    hot_keys: Mapping[str, Mapping[int, int]]
    costs: tuple[InstanceRecord, ...]
    state_bytes: Mapping[str, Sequence[int]]


class MeasurementWindow:
    """Batches since the plan last changed, and a few figures of those before."""

    def __init__(self) -> None:
        self._seen: deque[Seen] = deque(maxlen=LENGTH)
        self._recent: deque[Seen] = deque(maxlen=LENGTH)

    def add(
        self,
        observed: Observed,
        interval_s: float,
        waiting: int,
        stats: Sequence[TaskStats] = (),
        costs: Sequence[InstanceRecord] | None = None,
        state_bytes: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Take note of a batch.

        Parameters
        ----------
        stats : sequence of TaskStats
            Rows by router partition and by hot key, where tasks counted them.
        costs : sequence of InstanceRecord, optional
            What instances are charged with, where that is not what they took by themselves.
        state_bytes : mapping of str to sequence of int, optional
            State of each instance, where somebody looked.
        """
        partitions: dict[str, FloatArray] = {}
        hot: dict[str, dict[int, int]] = {}
        for one in stats:
            for vertex, counts in one.partitions.items():
                found = np.asarray(counts, dtype=np.float64)
                known = partitions.get(vertex)
                partitions[vertex] = found if known is None else known + found
            for vertex, keys in one.hot_keys.items():
                total = hot.setdefault(vertex, {})
                for key, rows in keys.items():
                    total[key] = total.get(key, 0) + rows
        charged = observed.instances if costs is None else tuple(costs)
        found_state = dict(state_bytes or {})
        seen = Seen(observed, max(interval_s, 1e-3), waiting, partitions, hot, charged, found_state)
        self._seen.append(seen)
        self._recent.append(seen)

    def changed(self) -> None:
        """Begin anew: what was measured under another plan says little of this one."""
        self._seen.clear()

    @property
    def batch_ms(self) -> float:
        """Time that a batch takes."""
        times = [one.observed.batch.duration_ms for one in self._recent]
        return median(times) if times else 0.0

    @property
    def idle_share(self) -> float:
        """Part of the time in which no batch runs; 1 while too little was seen."""
        seen = list(self._recent)
        if len(seen) < LEAST:
            return 1.0
        ran_s = sum(one.observed.batch.duration_ms for one in seen[:-1]) / 1000.0
        return max(0.0, 1.0 - ran_s / sum(one.interval_s for one in seen[1:]))

    @property
    def waiting(self) -> int:
        """Source tuples that waited after the last batch."""
        return self._recent[-1].waiting if self._recent else 0

    def rates(self, *, waiting: bool = True) -> tuple[float, float]:
        """Source tuples a second that were processed, and that came in the last few batches.

        Parameters
        ----------
        waiting : bool
            Count those that came and wait, too.
        """
        seen = list(self._recent)
        if not seen:
            return 0.0, 0.0
        processed = sum(one.observed.batch.rows_in for one in seen)
        processed_per_s = processed / sum(one.interval_s for one in seen)
        before, *late = seen[-RECENT - 1 :]
        if not late:
            return processed_per_s, processed_per_s
        came = sum(one.observed.batch.rows_in + one.observed.batch.dropped for one in late)
        if waiting:
            came += late[-1].waiting - before.waiting
        return processed_per_s, max(0.0, came / sum(one.interval_s for one in late))

    def latency_ms(self) -> dict[str, float]:
        """Percentiles over the window."""
        whole = Histogram.merged(one.observed.batch.latency for one in self._recent)
        named = {"p50": 50.0, "p95": 95.0, "p99": 99.0}
        found = {name: whole.percentile(part) for name, part in named.items()}
        return {name: value for name, value in found.items() if value is not None}

    def remote_share(self) -> float | None:
        """Part of the shuffled bytes that crossed nodes."""
        total = sum(one.observed.batch.shuffle_bytes for one in self._recent)
        remote = sum(one.observed.batch.remote_bytes for one in self._recent)
        return remote / total if total else None

    def measurements(self, sources: Sequence[str], cluster: Cluster) -> Measurements | None:
        """Reduce the window to what strategies read; None while it is too short.

        Parameters
        ----------
        sources : sequence of str
            Vertices that are sources.
        cluster : Cluster
            The nodes, with what they have.
        """
        if len(self._seen) < LEAST:
            return None
        slow = stragglers([one.costs for one in self._seen])
        samples = [_sample(one, slow, cluster) for one in self._seen]
        seconds = sum(one.interval_s for one in self._seen)
        partitions: dict[str, FloatArray] = {}
        hot: dict[str, dict[int, float]] = {}
        for one in self._seen:
            for vertex, counts in one.partitions.items():
                known = partitions.get(vertex)
                if known is None or len(known) != len(counts):
                    known = np.zeros_like(counts)
                partitions[vertex] = known + counts / seconds
            for vertex, keys in one.hot_keys.items():
                total = hot.setdefault(vertex, {})
                for key, rows in keys.items():
                    total[key] = total.get(key, 0.0) + rows / seconds
        found = Measurements.from_samples(samples, sources)
        return replace(found, partition_rates=partitions, hot_keys=hot)


def stragglers(batches: Sequence[Sequence[InstanceRecord]]) -> dict[str, float]:
    """Nodes that take longer for the same than others do, and how many times as long.

    It must show in each of the last `PARTS` parts of the window; the smallest ratio counts.

    Parameters
    ----------
    batches : sequence of sequence of InstanceRecord
        Oldest first.
    """
    found: dict[str, float] = {}
    for least, length in STRAGGLES:
        if len(batches) < PARTS * length:
            continue
        ends = [len(batches) - number * length for number in range(PARTS)]
        parts = [[i for batch in batches[end - length : end] for i in batch] for end in ends]
        ratios = [slowness(part) for part in parts]
        for node in ratios[0]:
            least_seen = min(ratio.get(node, 0.0) for ratio in ratios)
            if least_seen >= least:
                found[node] = max(found.get(node, 0.0), least_seen)
    return found


def slowness(instances: Sequence[InstanceRecord]) -> dict[str, float]:
    """Time that each node takes, in times of what the others take for the same operators.

    An instance holds a slot of its executor for as long as it runs, whether it computes, waits for
    something, or waits for a processor that others use; so time, not CPU time, is what it costs.
    Time for a tuple and time for a task are compared, and the smaller ratio counts: a task costs
    something whatever it gets, so that one with few tuples takes long for each.
    """
    totals: dict[tuple[str, str], tuple[int, int, float]] = {}
    for one in instances:
        tasks, tuples, ms = totals.get((one.operator, one.node), (0, 0, 0.0))
        added = (tasks + 1, tuples + one.tuples_in, ms + (one.run_ms or 0.0))
        totals[one.operator, one.node] = added
    each: dict[str, dict[str, tuple[float, float]]] = {}
    for (operator, node), (tasks, tuples, ms) in totals.items():
        if tuples >= ENOUGH_TUPLES and ms >= ENOUGH_MS:
            each.setdefault(operator, {})[node] = (ms / tuples, ms / tasks)
    ratios: dict[str, list[float]] = {}
    for by_node in each.values():
        for node, costs in by_node.items():
            others = [cost for name, cost in by_node.items() if name != node]
            if others:
                usual = [median(values) for values in zip(*others, strict=True)]
                ratio = min(cost / base for cost, base in zip(costs, usual, strict=True))
                ratios.setdefault(node, []).append(ratio)
    return {node: median(values) for node, values in ratios.items()}


def _slow_then(one: Seen, slow: Mapping[str, float]) -> Mapping[str, float]:
    """Of the nodes that are slow now, those that were so in a batch: before, time was cost."""
    if not slow:
        return slow
    ratios = slowness(one.costs)
    return {node: by for node, by in slow.items() if ratios.get(node, by) >= (1.0 + by) / 2.0}


def _sample(one: Seen, slow: Mapping[str, float], cluster: Cluster) -> Sample:
    """Turn a batch into a sample, in which a slow node's instances cost what they should."""
    tuples: dict[str, list[float]] = {}
    spent: dict[str, list[float]] = {}
    use: dict[str, float] = {}
    then = _slow_then(one, slow)
    for record in sorted(one.costs, key=lambda i: (i.operator, i.index)):
        seconds = (record.run_ms or 0.0) / 1000.0 / then.get(record.node, 1.0)
        tuples.setdefault(record.operator, []).append(float(record.tuples_in))
        spent.setdefault(record.operator, []).append(seconds)
        use[record.node] = use.get(record.node, 0.0) + seconds / one.interval_s
    cores = dict(zip(cluster.names, cluster.cpu_cores.tolist(), strict=True))
    cpu = {
        node: busy / cores.get(node, 1.0) + 1.0 - 1.0 / slow.get(node, 1.0)
        for node, busy in use.items()
    }
    taken = resources(one.observed.uses, one.state_bytes)
    return Sample(
        duration_s=one.interval_s,
        tuples_in={name: np.array(values) for name, values in tuples.items()},
        transferred={(e.source, e.target): e.matrix for e in one.observed.edges},
        cpu_s={name: np.array(values) for name, values in spent.items()},
        busy=busy_share(one.observed.uses, one.observed.instances),
        mem_mb=taken.mem_mb,
        state_mb=taken.state_mb,
        sent_mb=taken.sent_mb,
        received_mb=taken.received_mb,
        io_mb=taken.io_mb,
        nodes=node_use(one.observed.uses, cpu, cluster, one.interval_s),
        latency_ms=one.observed.batch.latency.mean_ms,
    )
