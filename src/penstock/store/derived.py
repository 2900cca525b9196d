"""Figures that follow from records: imbalance, and the time that each batch stands for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from penstock.common.arrays import frozen_floats
from penstock.model.load import lin, lit
from penstock.store.records import BatchRecord, InstanceRecord


def imbalance(
    instances: Iterable[InstanceRecord], stateful: Collection[str], *, load: str = "cpu_ms"
) -> tuple[float | None, dict[str, float]]:
    """LIN over the nodes and LIT of each stateful operator, for a `BatchRecord`.

    Parameters
    ----------
    instances : iterable of InstanceRecord
        Those of one batch.
    stateful : collection of str
        Operators whose imbalance counts.
    load : {"cpu_ms", "run_ms"}
        What a node's load is the sum of. Take ``run_ms`` for operators that wait instead of
        computing. LIN is None when it was not measured on every instance.
    """
    nodes: dict[str, float] = {}
    tuples: dict[str, list[int]] = {}
    measured = True
    for instance in instances:
        value = getattr(instance, load)
        measured = measured and value is not None
        nodes[instance.node] = nodes.get(instance.node, 0.0) + (value or 0.0)
        if instance.operator in stateful:
            tuples.setdefault(instance.operator, []).append(instance.tuples_in)
    over_nodes = lin(frozen_floats(list(nodes.values()))) if nodes and measured else None
    return over_nodes, {name: lit(frozen_floats(counts)) for name, counts in tuples.items()}


def intervals_s(
    batches: Sequence[BatchRecord], before: BatchRecord | None = None
) -> tuple[float, ...]:
    """Seconds that each batch stands for: since the start of the batch before it.

    The rows of a batch arrived while the one before ran and while nothing ran, so rates are counts
    over this time; the duration alone would overstate them where batches start at fixed times. The
    very first batch has only its duration.
    """
    spans: list[float] = []
    for batch in batches:
        since = batch.started_at_s - before.started_at_s if before else 0.0
        spans.append(since if since > 0 else batch.duration_ms / 1000.0)
        before = batch
    return tuple(spans)
