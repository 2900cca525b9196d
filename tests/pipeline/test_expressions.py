"""Arrow expressions as steps."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.engine.errors import StepFailed
from penstock.engine.job_graph import JobGraph
from penstock.model import InvalidValue, NotAllowed
from penstock.pipeline import Memory, Pipeline, Rows
from penstock.pipeline.expressions import Select
from penstock.runtimes.local import run_locally

SOURCE = Pipeline("p").source("rows", Rows(pa.table({"w": ["a", "b", None], "n": [1, 5, 9]})))


def run(pipeline: Pipeline) -> list[dict[str, Any]]:
    sink = Memory()
    run_locally(pipeline.sink("out", sink), parallelism=1)
    rows: list[dict[str, Any]] = sink.table().to_pylist()
    return rows


def test_columns_and_rows_by_expression() -> None:
    made = SOURCE.filter("many", pc.field("n") > 3).select(
        "shout", {"w": pc.utf8_upper(pc.field("w")), "m": pc.field("n") + 1, "n": "n"}
    )
    assert run(made) == [{"w": "B", "m": 6, "n": 5}, {"w": None, "m": 10, "n": 9}]
    assert [v.name for v in JobGraph.of(made.sink("o", Memory())).vertices] == ["rows+many+shout"]
    assert run(SOURCE.select("only", ["n"])) == [{"n": 1}, {"n": 5}, {"n": 9}]


def test_the_order_of_many_rows_stays() -> None:
    batch = pa.record_batch({"n": list(range(100_000))})
    made = Select.of({"m": pc.field("n")})(batch)
    assert made.column("m").to_pylist() == list(range(100_000))


def test_they_travel() -> None:
    select = pickle.loads(pickle.dumps(Select.of({"m": pc.field("n") * 2})))
    assert select(pa.record_batch({"n": [2]})).to_pylist() == [{"m": 4}]


def test_what_is_no_expression() -> None:
    with pytest.raises(InvalidValue, match="parameter condition of step 'f' must be a pyarrow exp"):
        SOURCE.filter("f", "n > 3")
    with pytest.raises(InvalidValue, match="parameter columns of step 's'"):
        SOURCE.select("s", {"n": 5})
    nothing: list[Any] = ["n", [], {}]
    for wrong in nothing:
        with pytest.raises(InvalidValue, match="columns"):
            SOURCE.select("s", wrong)
    with pytest.raises(NotAllowed, match=r"step 's' does not fit the columns .* No match for"):
        SOURCE.select("s", {"m": pc.field("nothing")})
    unknown = SOURCE.map("same", lambda batch: batch).select("s", {"m": pc.field("nothing")})
    with pytest.raises(StepFailed, match=r"step 's' failed .* No match for"):
        run(unknown)
