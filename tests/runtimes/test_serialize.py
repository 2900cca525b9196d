"""Functions of a user's own module reach workers that do not have it."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from penstock import functions as F
from penstock.engine.job_graph import JobGraph
from penstock.pipeline import Memory, Pipeline, Rows, static
from penstock.runtimes.spark.serialize import packed

MODULE = """
def same(batch, **_):
    return batch

def update(rows, state):
    return None, None
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "a_module_of_my_own.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("a_module_of_my_own")
    sys.modules.pop("a_module_of_my_own", None)


STATE = pa.schema([("n", pa.int64())])


@pytest.mark.parametrize(
    "how",
    ["map", "rows", "update", "timer", "work", "partial", "split", "custom", "merging", "table"],
)
def test_functions_go_by_value(own: ModuleType, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Pipeline("p").source("rows", Rows(pa.table({"k": [1]})))
    counted: dict[str, Any] = {"by": "k", "n": F.count()}
    made = {
        "map": lambda: source.map("m", own.same),
        "update": lambda: source.stateful("s", by="k", update=own.update, state=STATE),
        "work": lambda: source.aggregate("s", work=own.same, **counted),
        "partial": lambda: source.aggregate("s", work=partial(own.same, x=1), **counted),
        "split": lambda: source.aggregate("s", work=own.same, split=True, **counted),
        "custom": lambda: source.aggregate("s", by="k", reduce=F.custom(own.same, own.same, STATE)),
        "rows": lambda: source.rows("r", own.same, STATE),
        "timer": lambda: source.stateful(
            "s",
            by="k",
            update=own.update,
            state=STATE,
            on_timer=own.same,
            processing_timer="n",
        ),
        "merging": lambda: source.aggregate(
            "s", by="k", n=F.merging("k", own.same, own.same, pa.int64())
        ),
        "table": lambda: source.join("j", static(own.same), on="k"),
    }[how]()
    data = packed(JobGraph.of(made.sink("out", Memory())))
    # None means that it cannot be imported, as on a worker.
    monkeypatch.setitem(sys.modules, "a_module_of_my_own", None)
    assert pickle.loads(data).pipeline.name == "p"
