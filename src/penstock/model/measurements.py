"""What was measured: windows of samples, trimmed rates, the cost of each instance.

What is not known is None or absent, never NaN and never a silent 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, frozen_floats, group_sums
from penstock.common.errors import InvalidValue

EdgeKey = tuple[str, str]

#: What is measured of a node.
RESOURCES = ("cpu", "mem", "io", "network")

#: Measurements that have a figure for each instance of an operator.
BY_INSTANCE = (
    "tuples_per_s",
    "cpu_cores",
    "mem_mb",
    "state_mb",
    "sent_mb_s",
    "received_mb_s",
    "io_mb_s",
)


def trimmed_mean(samples: Sequence[float]) -> float | None:
    """Mean of a window with its largest and its smallest sample left out.

    A spike must not trigger a reschedule (Sl eq. 2, Ms eq. 5, Ra eq. 1). The printed formulas
    divide by the whole window; here the divisor is the number of samples that are left. Fewer than
    three samples leave nothing to trim and give their plain mean, none gives None.

    Examples
    --------
    >>> trimmed_mean([10, 10, 1000, 10, 0])
    10.0
    >>> trimmed_mean([]) is None
    True
    """
    if any(not math.isfinite(s) for s in samples):
        raise InvalidValue("samples", "a window", "finite numbers", tuple(samples))
    if not samples:
        return None
    kept = sorted(samples)[1:-1] if len(samples) >= 3 else samples
    return math.fsum(kept) / len(kept)


def trimmed_mean_arrays(samples: Sequence[FloatArray]) -> FloatArray:
    """`trimmed_mean` for every entry of equally shaped arrays at once; at least one sample."""
    stack = np.stack(samples)
    # Sorted, not sum - max - min: next to a spike the small samples would be rounded away.
    kept = np.sort(stack, axis=0)[1:-1] if len(stack) >= 3 else stack
    return np.asarray(kept.mean(axis=0), dtype=np.float64)


@dataclass(frozen=True)
class Utilisation:
    """Measured use of one node, as fractions of its capacity; None where nothing was measured.

    Parameters
    ----------
    cpu, mem : float or None
        Cores and memory.
    io : float or None
        Disk traffic.
    network : float or None
        What its link sends or receives, whichever is more.
    """

    cpu: float | None = None
    mem: float | None = None
    io: float | None = None
    network: float | None = None

    def __post_init__(self) -> None:
        for parameter in RESOURCES:
            value = getattr(self, parameter)
            if value is not None and (not math.isfinite(value) or value < 0):
                raise InvalidValue(parameter, "a utilisation", "at least 0 or left out", value)


@dataclass(frozen=True, eq=False)
class Sample:
    """What one interval showed.

    Parameters
    ----------
    duration_s : float
        Length of the interval, in seconds.
    tuples_in : mapping of str to array
        Tuples that each instance of an operator processed; for a source, read.
    transferred : mapping of (str, str) to array
        Tuples between the instances of two operators, source instances in rows.
    cpu_s : mapping of str to array
        CPU seconds of each instance. Operators that were not measured are absent.
    busy : mapping of str to float
        Part of the time of an operator's instances in which a processor works for them.
    mem_mb, state_mb : mapping of str to array
        Memory that each instance takes, its state included; state of it that a move would carry.
    sent_mb, received_mb, io_mb : mapping of str to array
        What each instance sent to others, received, and read from and wrote to disks.
    nodes : mapping of str to Utilisation
    latency_ms : float or None
        End to end, over the tuples that were committed in the interval.
    """

    duration_s: float
    tuples_in: Mapping[str, FloatArray] = field(default_factory=dict)
    transferred: Mapping[EdgeKey, FloatArray] = field(default_factory=dict)
    cpu_s: Mapping[str, FloatArray] = field(default_factory=dict)
    busy: Mapping[str, float] = field(default_factory=dict)
    mem_mb: Mapping[str, FloatArray] = field(default_factory=dict)
    state_mb: Mapping[str, FloatArray] = field(default_factory=dict)
    sent_mb: Mapping[str, FloatArray] = field(default_factory=dict)
    received_mb: Mapping[str, FloatArray] = field(default_factory=dict)
    io_mb: Mapping[str, FloatArray] = field(default_factory=dict)
    nodes: Mapping[str, Utilisation] = field(default_factory=dict)
    latency_ms: float | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.duration_s) or self.duration_s <= 0:
            raise InvalidValue("duration_s", "a sample", "a positive number", self.duration_s)


@dataclass(frozen=True, eq=False)
class Measurements:
    """A window of samples, reduced to what strategies read.

    Parameters
    ----------
    source_rates : mapping of str to float
        Tuples per second of each source operator, all instances together.
    rates : mapping of (str, str) to array
        `Tr`: tuples per second between the instances of two operators, source instances in rows.
    tuples_per_s : mapping of str to array
        Tuples per second that each instance processed.
    cpu_cores : mapping of str to array
        Cores that each instance used, measured or attributed.
    busy : mapping of str to float
        Part of the time of an operator's instances in which a processor worked for them.
    mem_mb, state_mb : mapping of str to array
        Memory that each instance takes, its state included; state of it that a move would carry.
    sent_mb_s, received_mb_s, io_mb_s : mapping of str to array
        What each instance sends to others, receives, and reads from and writes to disks.
    tuple_bytes : mapping of str to float
        Size of a tuple that an operator sends, as it is sent.
    nodes : mapping of str to Utilisation
    partition_rates : mapping of str to array
        Tuples per second of each router partition of an operator.
    hot_keys : mapping of str to mapping of int to float
        Tuples per second of an operator's heaviest keys, by their hash.
    latency_ms : float or None
    rate_cv : float or None
        Coefficient of variation of the total source rate over the window; None with fewer than
        three samples that measured every source.
    """

    source_rates: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[EdgeKey, FloatArray] = field(default_factory=dict)
    tuples_per_s: Mapping[str, FloatArray] = field(default_factory=dict)
    cpu_cores: Mapping[str, FloatArray] = field(default_factory=dict)
    busy: Mapping[str, float] = field(default_factory=dict)
    mem_mb: Mapping[str, FloatArray] = field(default_factory=dict)
    state_mb: Mapping[str, FloatArray] = field(default_factory=dict)
    sent_mb_s: Mapping[str, FloatArray] = field(default_factory=dict)
    received_mb_s: Mapping[str, FloatArray] = field(default_factory=dict)
    io_mb_s: Mapping[str, FloatArray] = field(default_factory=dict)
    tuple_bytes: Mapping[str, float] = field(default_factory=dict)
    nodes: Mapping[str, Utilisation] = field(default_factory=dict)
    partition_rates: Mapping[str, FloatArray] = field(default_factory=dict)
    hot_keys: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    latency_ms: float | None = None
    rate_cv: float | None = None

    def __post_init__(self) -> None:
        for name in ("rates", *BY_INSTANCE, "partition_rates"):
            arrays: dict[Any, FloatArray] = {}
            for key, values in getattr(self, name).items():
                array = frozen_floats(values)
                if not np.isfinite(array).all() or (array < 0).any():
                    raise InvalidValue(
                        name, f"measurements of {key}", "finite and not negative", values
                    )
                arrays[key] = array
            object.__setattr__(self, name, MappingProxyType(arrays))
        for name in ("source_rates", "busy", "tuple_bytes"):
            for operator, value in getattr(self, name).items():
                if not math.isfinite(value) or value < 0:
                    owner = f"source {operator!r}" if name == "source_rates" else repr(operator)
                    raise InvalidValue(name, owner, "finite and not negative", value)

    @classmethod
    def from_samples(cls, samples: Sequence[Sample], sources: Sequence[str]) -> Measurements:
        """Reduce a window of samples to trimmed means.

        An operator or an edge counts with the samples that measured it at its latest shape: samples
        from before a change of parallelism say nothing about the instances of now.
        """
        tuples = _trimmed_by_key([(s.tuples_in, s.duration_s) for s in samples])
        seen = [name for name in sources if name in tuples]
        totals = [
            sum(float(np.sum(s.tuples_in[name])) for name in seen) / s.duration_s
            for s in samples
            if all(name in s.tuples_in for name in seen)
        ]
        mean = float(np.mean(totals)) if totals else 0.0
        return cls(
            source_rates={name: float(tuples[name].sum()) for name in seen},
            rates=_trimmed_by_key([(s.transferred, s.duration_s) for s in samples]),
            tuples_per_s=tuples,
            cpu_cores=_trimmed_by_key([(s.cpu_s, s.duration_s) for s in samples]),
            busy=_trimmed_values([s.busy for s in samples]),
            mem_mb=_trimmed_by_key([(s.mem_mb, 1.0) for s in samples]),
            # State only grows and shrinks slowly: what it is now counts.
            state_mb={name: mb for s in samples for name, mb in s.state_mb.items()},
            sent_mb_s=_trimmed_by_key([(s.sent_mb, s.duration_s) for s in samples]),
            received_mb_s=_trimmed_by_key([(s.received_mb, s.duration_s) for s in samples]),
            io_mb_s=_trimmed_by_key([(s.io_mb, s.duration_s) for s in samples]),
            tuple_bytes=_tuple_bytes(samples),
            nodes=_trimmed_nodes(samples),
            latency_ms=trimmed_mean([s.latency_ms for s in samples if s.latency_ms is not None]),
            rate_cv=float(np.std(totals) / mean) if len(totals) >= 3 and mean > 0 else None,
        )


def attributed_share(
    tuples: FloatArray, node_of: IntArray, node_use: FloatArray, complexity: FloatArray
) -> FloatArray:
    """Share of its node's measured use that falls to each instance.

    An instance's share is its tuples over those of all instances of the node (Sl eq. 3-4, Ra
    eq. 3-5), each weighted by its operator's complexity. Ms eq. 6-8 print a product of two sums in
    the divisor, which is no share; it is read as the sum of the weighted tuples.

    Parameters
    ----------
    tuples : array
        Tuples that each instance processed.
    node_of : array of int
        Node of each instance.
    node_use : array
        Measured use of each node, in any unit.
    complexity : array
        Weight of each instance's tuples.

    Returns
    -------
    array
        In the unit of `node_use`. A node whose instances processed nothing attributes nothing.

    Examples
    --------
    >>> attributed_share(np.array([30., 10.]), np.array([0, 0]), np.array([2.0]), np.ones(2))
    array([1.5, 0.5])
    """
    weight = tuples * complexity
    per_node = group_sums(node_of, weight, len(node_use))
    divisor = per_node[node_of]
    share = np.divide(weight, divisor, out=np.zeros_like(weight), where=divisor > 0)
    return np.asarray(share * node_use[node_of], dtype=np.float64)


def _trimmed_by_key(
    windows: Sequence[tuple[Mapping[Any, FloatArray], float]],
) -> dict[Any, FloatArray]:
    series: dict[Any, list[FloatArray]] = {}
    for values, duration_s in windows:
        for key, array in values.items():
            rate = np.asarray(array, dtype=np.float64) / duration_s
            kept = series.setdefault(key, [])
            if kept and kept[-1].shape != rate.shape:
                kept.clear()
            kept.append(rate)
    return {key: trimmed_mean_arrays(rates) for key, rates in series.items()}


def _trimmed_nodes(samples: Sequence[Sample]) -> dict[str, Utilisation]:
    names = dict.fromkeys(name for s in samples for name in s.nodes)

    def mean(name: str, resource: str) -> float | None:
        seen = [getattr(s.nodes[name], resource) for s in samples if name in s.nodes]
        return trimmed_mean([value for value in seen if value is not None])

    return {n: Utilisation(*(mean(n, resource) for resource in RESOURCES)) for n in names}


def _trimmed_values(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """`trimmed_mean` for every key."""
    series: dict[str, list[float]] = {}
    for values in samples:
        for name, value in values.items():
            series.setdefault(name, []).append(value)
    means = {name: trimmed_mean(values) for name, values in series.items()}
    return {name: mean for name, mean in means.items() if mean is not None}


def _tuple_bytes(samples: Sequence[Sample]) -> dict[str, float]:
    """Bytes for each tuple that an operator sent, over the whole window."""
    sent: dict[str, float] = {}
    tuples: dict[str, float] = {}
    for sample in samples:
        for name, mb in sample.sent_mb.items():
            sent[name] = sent.get(name, 0.0) + float(np.sum(mb)) * 1e6
            leaving = sum(float(np.sum(t)) for (s, _), t in sample.transferred.items() if s == name)
            tuples[name] = tuples.get(name, 0.0) + leaving
    return {name: size / tuples[name] for name, size in sent.items() if tuples[name] > 0}
