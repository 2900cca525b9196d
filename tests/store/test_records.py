"""Records refuse what no database can hold, and derived figures are right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.model import InvalidValue
from penstock.store import (
    BatchRecord,
    EdgeRecord,
    EventRecord,
    Histogram,
    InstanceRecord,
    NodeRecord,
    RunRecord,
    RunStatus,
    StoreError,
    Totals,
    imbalance,
)
from penstock.store.derived import intervals_s
from penstock.store.field_checks import LARGEST, json_text
from penstock.testing.metrics_examples import a_batch, a_run

BATCH = BatchRecord("r", 0, 0.0, 1.0)
LOOP: dict[str, Any] = {}
LOOP["self"] = LOOP


@pytest.mark.parametrize(
    "make",
    [
        lambda: RunRecord("", "t", "s", 0.0),
        lambda: RunRecord("r", "t", "s", float("nan")),
        lambda: RunRecord("r", "t", "s", 0.0, status="lost"),  # type: ignore[arg-type]
        lambda: RunRecord("r", "t", "s", 0.0, config={"x": float("inf")}),
        lambda: RunRecord("r", "t", "s", 0.0, config={"x": object()}),
        lambda: RunRecord("r", "t", "s", 0.0, config=LOOP),
        lambda: RunRecord("r", "t", "s", 0.0, config=[1]),  # type: ignore[arg-type]
        lambda: RunRecord("r", "t", "s", 0.0, rows_lost=-1),
        lambda: replace(BATCH, duration_ms=-1.0),
        lambda: replace(BATCH, duration_ms="1"),  # type: ignore[arg-type]
        lambda: replace(BATCH, duration_ms=True),
        lambda: replace(BATCH, rows_in="1"),  # type: ignore[arg-type]
        lambda: replace(BATCH, lit={"a": "b"}),  # type: ignore[dict-item]
        lambda: replace(BATCH, lit={"a": float("nan")}),
        lambda: replace(BATCH, figures={"a": True}),
        lambda: replace(BATCH, tasks=1, tasks_honoured=2),
        lambda: InstanceRecord("r", 0, "op", -1, "node"),
        lambda: InstanceRecord("r", 0, "op", 0, "node\0"),
        lambda: InstanceRecord("r", 0, "op", 0, "node", cpu_ms=-0.1),
        lambda: NodeRecord("r", 0, "node", cpu=float("inf")),
        lambda: EventRecord("r", 0, 0.0, "", "text"),
        lambda: EventRecord("r", 0, 0.0, "note", "text", {"a": {1, 2}}),
        lambda: EdgeRecord.of("r", 0, "a", "b", [1, 2]),
        lambda: EdgeRecord.of("r", 0, "a", "b", [[0.5]]),
        lambda: EdgeRecord.of("r", 0, "a", "b", [[-1]]),
        lambda: EdgeRecord("r", 0, "a", "b", 1, 1, *(np.array([1]) for _ in range(3))),
        lambda: EdgeRecord("r", 0, "a", "b", 2, 2, *(np.arange(n) for n in (1, 2, 2))),
    ],
)
def test_bad_values_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidValue):
        make()


def test_what_is_kept_is_what_will_be_read() -> None:
    run = RunRecord("r", "t", "s", 0, config={"a": (1, 2), "b": np.int64(3), "c": np.arange(2)})
    assert run.config == {"a": [1, 2], "b": 3, "c": [0, 1]}
    assert RunRecord("r", "t", "s", 0, status="failed").status is RunStatus.FAILED  # type: ignore[arg-type]
    assert json_text({"ü": 1}).isascii()


def test_edges_round_trip_as_matrices() -> None:
    matrix = np.array([[0, 3, 0], [1, 0, LARGEST // 4]])
    edge = EdgeRecord.of("r", 0, "a", "b", matrix)
    assert edge.matrix.tolist() == matrix.astype(float).tolist()
    assert edge == EdgeRecord.of("r", 0, "a", "b", matrix.astype(np.int64))
    assert hash(edge) == hash(EdgeRecord.of("r", 0, "a", "b", matrix))
    assert edge != EdgeRecord.of("r", 0, "a", "b", matrix.T)
    assert EdgeRecord.of("r", 0, "a", "b", np.zeros((2, 3))).matrix.shape == (2, 3)


def test_imbalance_of_a_batch() -> None:
    _, instances, *_ = a_batch("r", 0)
    lin, lit = imbalance(instances, {"count"})
    assert lit == {"count": pytest.approx(1 / 3)}  # tuples 10 and 20
    assert lin == pytest.approx(1 / 3)  # node-0 works 40 ms, node-1 80
    assert imbalance(instances, set(), load="run_ms") == (0.0, {})
    silent = [replace(instances[0], cpu_ms=None), *instances[1:]]
    assert imbalance(silent, set()) == (None, {})
    assert imbalance([], {"count"}) == (None, {})


def test_a_batch_stands_for_the_time_since_the_one_before() -> None:
    batches = [replace(BATCH, started_at_s=t, duration_ms=300.0) for t in (10.0, 11.0, 11.0, 15.0)]
    assert intervals_s(batches) == (0.3, 1.0, 0.3, 4.0)
    assert intervals_s(batches[1:], batches[0]) == (1.0, 0.3, 4.0)
    assert intervals_s([]) == ()


def test_totals_add_up_in_any_order() -> None:
    batches = [a_batch("r", number)[0] for number in range(4)]
    whole = Totals.of(batches)
    assert (whole.batches, whole.rows_in, whole.seconds) == (4, 1000, 6.5)
    assert whole.remote_share == 0.5
    assert whole.placement_honoured == 0.75
    assert Totals.of(reversed(batches)) == whole


def test_totals_of_nothing() -> None:
    nothing = Totals.of([])
    assert nothing == Totals()
    assert (nothing.seconds, nothing.placement_honoured, nothing.remote_share) == (None,) * 3


def test_errors_survive_a_process() -> None:
    import pickle

    again = pickle.loads(pickle.dumps(StoreError("m.db", "is closed")))
    assert str(again) == "metrics store m.db is closed"


def test_a_run_is_its_values() -> None:
    assert a_run() == a_run()
    assert BATCH.latency is Histogram.of([])
    assert replace(BATCH, local_bytes=1, host_local_bytes=2, remote_bytes=3).shuffle_bytes == 6
