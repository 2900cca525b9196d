"""Runs and batches to fill a metrics store with, for its contract suite and other tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from penstock.common.errors import InvalidValue, PenstockError
from penstock.store import (
    BatchRecord,
    EdgeRecord,
    Histogram,
    InstanceRecord,
    MetricsStore,
    NodeRecord,
    OperatorRecord,
    RunRecord,
    StoreError,
)


class Opener(Protocol):
    """Opens the database of a check."""

    def __call__(self, *, keep_detail: int | None = None, read_only: bool = False) -> MetricsStore:
        """Open it as `MetricsStore.open` does."""


Check = Callable[[Opener], None]

#: Names that a careless store would stumble over.
ODD_NAMES = (
    "'; DROP TABLE penstock_runs; --",
    '"quoted" and \\escaped\\',
    "%s ? $1 :name {0}",
    "слово 词 🌊 e\u0301",
    " blanks \t and\nlines ",
    "NULL",
    "x" * 5000,
)


def a_run(name: str = "r1", started_at_s: float = 1000.0) -> RunRecord:
    """Make a run."""
    return RunRecord(name, "wordcount", "penstock", started_at_s, config={"rate": [1, 2], "n": 4})


def a_batch(
    run: str, number: int, size: int = 2
) -> tuple[
    BatchRecord,
    tuple[InstanceRecord, ...],
    tuple[EdgeRecord, ...],
    tuple[NodeRecord, ...],
    tuple[OperatorRecord, ...],
]:
    """Make a batch with all its detail: two operators of `size` instances on two nodes."""
    batch = BatchRecord(
        run,
        number,
        started_at_s=1000.0 + 2.0 * number,
        duration_ms=500.0,
        rows_in=100 * (number + 1),
        rows_out=50,
        queue_length=7,
        dropped=1,
        local_bytes=10,
        host_local_bytes=20,
        remote_bytes=30,
        tasks=2 * size,
        tasks_honoured=2 * size - 1,
        nodes_used=2,
        lin=0.25,
        lit={"count": 0.5},
        latency=Histogram.of([1.0, 2.0, 300.0]),
        figures={"planning_ms": 0.1},
    )
    instances = tuple(
        InstanceRecord(
            run,
            number,
            operator,
            i,
            node=f"node-{i % 2}",
            executor=str(i % 2),
            host="10.0.0.1",
            tuples_in=10 * (i + 1),
            tuples_out=5,
            cpu_ms=20.0 * (i + 1),
            run_ms=40.0,
            mem_bytes=1 << 20,
        )
        for operator in ("count", "lines")
        for i in range(size)
    )
    edges = (EdgeRecord.of(run, number, "lines", "count", np.eye(size, dtype=np.int64) * 9),)
    nodes = (NodeRecord(run, number, "node-0", cpu=0.5), NodeRecord(run, number, "node-1", mem=0.1))
    return batch, instances, edges, nodes, (an_operator(run, number),)


def an_operator(run: str, number: int) -> OperatorRecord:
    """Make what is known of an operator in a batch."""
    return OperatorRecord(
        run,
        number,
        "count",
        late_rows=3,
        watermark_us=1_000_000,
        hot_keys=[{"hash": "18446744073709551615", "name": "the", "rows": 40}],
        state=[{"size_bytes": 10, "data": 1, "parity": 1, "fragments": ["node-0", ""]}],
    )


def refused(action: Callable[..., object], *values: object) -> bool:
    """Tell whether an action fails with an error that is meant for the user."""
    try:
        result = action(*values)
    except (StoreError, InvalidValue) as error:
        return bool(str(error))
    except PenstockError:
        return False
    if isinstance(result, MetricsStore):
        result.close()
    return False
