"""Keys of every Arrow type through the engine, in several batches: grouped as in SQL."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import functions as F
from penstock.engine.errors import StepFailed
from penstock.model import NotAllowed
from penstock.pipeline import Memory, Pipeline, Rows
from penstock.runtimes.local import run_locally
from penstock.testing.tables import KEYS, array, columns, comparable


def final_counts(sink: Memory) -> dict[Any, int]:
    """The last count of each key."""
    table = sink.table()
    rows = [] if table is None else table.to_pylist()
    return {comparable(row["k"]): row["n"] for row in rows}


@pytest.mark.parametrize("name", KEYS)
@settings(max_examples=4)
@given(st.data())
def test_a_key_of_any_type_is_counted_over_batches(name: str, data: Any) -> None:
    kind, pool = KEYS[name]
    keys = data.draw(columns(kind, pool, 24))
    rows = Rows(pa.table({"k": keys, "v": range(24)}))
    out = Memory()
    pipeline = (
        Pipeline("p")
        .source("rows", rows)
        .aggregate("count", by="k", n=F.count(), parallelism=2)
        .sink("out", out)
    )
    run_locally(pipeline, [7, 8, 20])
    assert final_counts(out) == Counter(comparable(key) for key in keys.to_pylist())


@pytest.mark.parametrize("name", KEYS)
def test_a_function_finds_the_state_of_a_key_of_any_type(name: str) -> None:
    kind, pool = KEYS[name]
    column = array([*pool, None, *pool, None], kind)

    def update(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        known = {comparable(row["k"]): row["n"] for row in state.to_pylist()}
        # The last of equal rows holds for all.
        seen = Counter(comparable(key) for key in rows.column("k").to_pylist())
        at = {comparable(key): row for row, key in enumerate(rows.column("k").to_pylist())}
        changed = rows.select(["k"]).take(list(at.values()))
        totals = [known.get(key, 0) + seen[key] for key in at]
        changed = changed.append_column("n", pa.array(totals, pa.int64()))
        return changed, changed

    out = Memory()
    pipeline = (
        Pipeline("p")
        .source("rows", Rows(pa.table({"k": column})))
        .stateful("own", by="k", update=update, state=pa.schema([("n", pa.int64())]), parallelism=2)
        .sink("out", out)
    )
    run_locally(pipeline, [len(pool), len(pool) + 1])
    assert final_counts(out) == Counter(comparable(key) for key in column.to_pylist())


def test_null_keys_are_one_key_in_every_batch_and_none_is_left_out() -> None:
    out = Memory()
    pipeline = (
        Pipeline("p")
        .source(
            "rows", Rows(pa.table({"k": ["a", None, None, "a", None], "j": [1, 1, None, 1, 1]}))
        )
        .aggregate("count", by=["k", "j"], n=F.count())
        .sink("out", out)
    )
    results = run_locally(pipeline, [2, 3], on_error="skip")
    table = out.table()
    assert table is not None
    found = {(row["k"], row["j"]): row["n"] for row in table.to_pylist()}
    assert found == {("a", 1): 2, (None, 1): 2, (None, None): 1}
    assert sum(result.skipped for result in results) == 0


def test_a_key_without_equality_stops_the_first_batch_with_a_sentence() -> None:
    kind = pa.map_(pa.string(), pa.int64())

    def make(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"k": pa.array([[("a", 1)]] * batch.num_rows, kind)})

    pipeline = (
        Pipeline("p")
        .source("rows", Rows(pa.table({"x": [1, 2]})))
        .map("make", make)
        .aggregate("count", by="k", n=F.count())
        .sink("out", Memory())
    )
    with pytest.raises(StepFailed, match="maps and unions have no equality"):
        run_locally(pipeline, on_error="skip")


def test_a_key_without_equality_is_refused_when_the_pipeline_is_built() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    rows = Rows(pa.table({"k": pa.array([[("a", 1)]], kind)}))
    with pytest.raises(NotAllowed, match=r"step 'count'.*maps and unions have no equality"):
        Pipeline("p").source("rows", rows).aggregate("count", by="k", n=F.count())


def test_the_last_row_of_a_key_of_any_type_is_found() -> None:
    keys = pa.array([[1], None, [1], [], None])
    out = Memory(batches={0: pa.table({"k": keys, "n": range(5)})})
    assert out.latest("k").column("n").to_pylist() == [2, 3, 4]
