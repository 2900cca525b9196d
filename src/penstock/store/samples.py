"""From stored batches to the samples that measurements are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

from penstock.common.arrays import FloatArray, frozen_floats
from penstock.model import Sample, Utilisation
from penstock.store.records import (
    BatchRecord,
    EdgeRecord,
    InstanceRecord,
    NodeRecord,
    intervals_s,
)

R = TypeVar("R", EdgeRecord, InstanceRecord, NodeRecord)


def samples_of(
    batches: Sequence[BatchRecord],
    instances: Iterable[InstanceRecord] = (),
    edges: Iterable[EdgeRecord] = (),
    nodes: Iterable[NodeRecord] = (),
    *,
    before: BatchRecord | None = None,
) -> tuple[Sample, ...]:
    """Make one sample of each batch.

    A sample lasts since the start of the batch before, see `records.intervals_s`; a batch that took
    no time at all gives none. An operator is left out of a sample when one of its instances was not
    recorded, and its CPU when one was not measured: what is not known is absent.

    Parameters
    ----------
    batches : sequence of BatchRecord
        In order.
    instances, edges, nodes : iterable
        Detail of those batches; each batch's together.
    before : BatchRecord or None
        The batch before the first of `batches`.
    """
    of_instances, of_edges, of_nodes = _by_batch(instances), _by_batch(edges), _by_batch(nodes)
    samples: list[Sample] = []
    for batch, span_s in zip(batches, intervals_s(batches, before), strict=True):
        if span_s <= 0:
            continue
        tuples_in, cpu_s = _by_operator(of_instances.get(batch.batch, ()))
        samples.append(
            Sample(
                duration_s=span_s,
                tuples_in=tuples_in,
                transferred={(e.source, e.target): e.matrix for e in of_edges.get(batch.batch, ())},
                cpu_s=cpu_s,
                nodes={
                    n.node: Utilisation(n.cpu, n.mem, n.io) for n in of_nodes.get(batch.batch, ())
                },
                latency_ms=batch.latency.mean_ms,
            )
        )
    return tuple(samples)


def _by_batch(records: Iterable[R]) -> dict[int, tuple[R, ...]]:
    return {b: tuple(group) for b, group in groupby(records, key=attrgetter("batch"))}


def _by_operator(
    instances: Iterable[InstanceRecord],
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    by_operator: dict[str, dict[int, InstanceRecord]] = {}
    for instance in instances:
        by_operator.setdefault(instance.operator, {})[instance.index] = instance
    tuples: dict[str, FloatArray] = {}
    cpu: dict[str, FloatArray] = {}
    for name, by_index in by_operator.items():
        if set(by_index) != set(range(len(by_index))):
            continue
        ordered = [by_index[i] for i in range(len(by_index))]
        tuples[name] = frozen_floats([i.tuples_in for i in ordered])
        measured = [i.cpu_ms for i in ordered if i.cpu_ms is not None]
        if len(measured) == len(ordered):
            cpu[name] = frozen_floats(measured) / 1000.0
    return tuples, cpu
