"""Which columns of a source are read by the steps behind it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import functions as F
from penstock.engine.columns_read import columns_read
from penstock.pipeline import Memory, Pipeline, Rows
from penstock.pipeline.keyed.windows import session, sliding

COLUMNS = ["a", "b", "c", "t", "rest"]
BEGUN = Pipeline("p").source("s", Rows(pa.table({name: [1] for name in COLUMNS})))


def _read(pipeline: Pipeline) -> set[str] | None:
    found = columns_read(pipeline, "s", COLUMNS)
    return None if found is None else set(found)


def test_aggregations_say_what_they_read() -> None:
    made = BEGUN.aggregate("n", by="a", n=F.count(), x=F.top(2, "b", keep=["c"]))
    assert _read(made.sink("o", Memory())) == {"a", "b", "c"}
    for window in (sliding("t", "10 s", "2 s"), session("t", "5 s")):
        made = BEGUN.aggregate("n", by="a", window=window, n=F.sum("b"))
        assert _read(made.sink("o", Memory())) == {"a", "b", "t"}
    made = BEGUN.aggregate("n", by="a", n=F.last("b", "t"), m=F.count_distinct("c"))
    assert _read(made.sink("o", Memory())) == {"a", "b", "c", "t"}


def test_selections_and_filters_say_what_they_read() -> None:
    chosen = BEGUN.select("x", {"y": pc.field("b") + 1, "a": "a"}).sink("o", Memory())
    # Shown as "add_checked(b, 1)", which "c" could be a part of, too.
    assert _read(chosen) == {"a", "b", "c"}
    some = BEGUN.filter("f", pc.field("rest") > 1).aggregate("n", by="b", n=F.count())
    assert _read(some.sink("o", Memory())) == {"b", "rest", "t"}


@pytest.mark.parametrize(
    "made",
    [
        BEGUN,
        BEGUN.map("m", lambda batch: batch).aggregate("n", by="a", n=F.count()),
        BEGUN.filter("f", pc.field("b") > 1),
        BEGUN.select("x", {"y": pc.field(0)}),
        BEGUN.aggregate("n", by="a", n=F.count()).map("m", lambda batch: batch, after="s"),
        BEGUN.aggregate("n", by="a", n=F.count()).deduplicate("d", by="a", after="s"),
    ],
)
def test_anything_else_may_read_all(made: Pipeline) -> None:
    assert _read(made.sink("o", Memory())) is None
