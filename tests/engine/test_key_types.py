"""Equal keys of different types may not meet; that is told, and they are not counted apart."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import functions as F
from penstock.engine.errors import StepFailed
from penstock.model import NotAllowed
from penstock.pipeline import Memory, Pipeline, Rows
from penstock.runtimes.local import run_locally
from penstock.state.config import StateConfig
from penstock.state.store import clear_cache

DAY = datetime.date(2024, 2, 29)

#: Keys, and a type in which they have other hashes.
APART: dict[str, tuple[pa.Array, pa.DataType]] = {
    "number": (pa.array([1, 1]), pa.float64()),
    "text": (pa.array([1, 1]), pa.string()),
    "unit": (pa.array([DAY, DAY]).cast(pa.timestamp("us")), pa.timestamp("ms")),
    "date": (pa.array([DAY, DAY]), pa.date64()),
    "scale": (pa.array([1, 1]).cast(pa.decimal128(20, 1)), pa.decimal128(20, 2)),
}


def counted(keys: pa.Array, kind: pa.DataType, out: Memory) -> Pipeline:
    """Count keys that have another type in batches with a null, as those of pandas do."""

    def changed(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not batch.column("v").null_count:
            return batch
        return batch.set_column(0, "k", batch.column("k").cast(kind))

    rows = pa.table({"k": keys, "v": [1, None][: len(keys)]})
    return (
        Pipeline("p")
        .source("rows", Rows(rows))
        .map("changed", changed)
        .aggregate("count", by="k", n=F.count(), parallelism=5)
        .sink("out", out)
    )


@pytest.mark.parametrize("name", APART)
def test_types_that_change_from_batch_to_batch(name: str) -> None:
    out = Memory()
    with pytest.raises((NotAllowed, StepFailed), match="type"):
        run_locally(counted(*APART[name], out), [1])
    assert out.table().to_pylist() == [{"k": APART[name][0][0].as_py(), "n": 1}]


def test_types_that_change_after_a_restart(tmp_path: Path) -> None:
    kept = StateConfig("checkpoint")
    run_locally(counted(pa.array([1]), pa.float64(), Memory()), root=tmp_path, state_config=kept)
    clear_cache()
    out = Memory()
    with pytest.raises(NotAllowed, match="'count' gets keys of different types, int64 and double"):
        run_locally(counted(pa.array([1, 1]), pa.float64(), out), root=tmp_path, state_config=kept)
    assert not out.batches


def test_a_key_that_was_always_null_may_get_a_type() -> None:
    def untyped(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.column("k").null_count < batch.num_rows:
            return batch
        return batch.set_column(0, "k", pa.nulls(batch.num_rows))

    out = Memory()
    rows = pa.table({"k": [None, 1, None], "j": ["a", "a", "a"]})
    pipeline = (
        Pipeline("p")
        .source("rows", Rows(rows))
        .map("untyped", untyped)
        .aggregate("count", by=["j", "k"], n=F.count(), parallelism=5)
        .sink("out", out)
    )
    run_locally(pipeline, [1, 2])
    counts: dict[Any, int] = {row["k"]: row["n"] for row in out.table().to_pylist()}
    assert counts == {None: 2, 1: 1}


def test_sides_of_a_join_that_never_meet_in_a_batch() -> None:
    left, right = pa.table({"k": [1, 1], "v": [1, 2]}), pa.table({"k": [1.0, 1.0], "w": [1, 2]})
    pipeline = (
        Pipeline("p")
        .source("left", Rows(left))
        .source("right", Rows(right))
        .filter("first", pc.field("v") == 1, after="left")
        .filter("second", pc.field("w") == 2, after="right")
        .join("both", "second", after="first", on="k", parallelism=5)
        .sink("out", Memory())
    )
    with pytest.raises(NotAllowed, match="'both' gets keys of different types, int64 and double"):
        run_locally(pipeline, [1])
