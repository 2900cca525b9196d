"""Sliding windows in panes emit, batch by batch, what windows that are kept whole emit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import functions as F
from penstock.pipeline import Memory, Pipeline, Rows, sliding
from penstock.pipeline.keyed import step
from penstock.pipeline.keyed.panes import PanedWindows
from penstock.pipeline.keyed.windowed import Windowed
from penstock.runtimes.local import run_locally
from penstock.testing.tables import row_counts

rows = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(-5, 60), st.integers(-9, 9)),
    min_size=1,
    max_size=30,
)
shapes = st.integers(2, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1)))


def emitted(
    found: list[tuple[str, int, int]], cuts: list[int], shape: tuple[int, int], late: int
) -> tuple[Any, list[Any]]:
    """The kind of step that there is, and what each batch emits."""
    keys, times, values = zip(*found, strict=True)
    table = pa.table({"k": keys, "t": pa.array(times), "v": values})
    size, slide = shape
    window = sliding("t", f"{size} us", f"{slide} us", lateness=f"{late} us")
    sink = Memory()
    made = (
        Pipeline("p")
        .source("rows", Rows(table))
        .aggregate("w", by="k", window=window, n=F.count(), m=F.avg("v"), d=F.count_distinct("v"))
        .sink("out", sink)
    )
    run_locally(made, cuts)
    batches = [(number, row_counts(t.to_pylist())) for number, t in sorted(sink.batches.items())]
    return made["w"].keyed, [(number, counts) for number, counts in batches if counts]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows, st.data(), shapes, st.sampled_from([0, 3, 20]))
def test_panes_are_not_seen(
    monkeypatch: pytest.MonkeyPatch,
    found: list[tuple[str, int, int]],
    data: Any,
    shape: tuple[int, int],
    late: int,
) -> None:
    # Rows come about in order, so that some windows close before the end.
    found = [(k, t + 3 * place, v) for place, (k, t, v) in enumerate(found)]
    cuts = data.draw(st.lists(st.integers(0, len(found)), max_size=8))
    keyed, in_panes = emitted(found, cuts, shape, late)
    assert isinstance(keyed, PanedWindows)
    with monkeypatch.context() as patched:
        patched.setattr(step, "in_panes", lambda *_: False)
        keyed, whole = emitted(found, cuts, shape, late)
    assert type(keyed) is Windowed
    assert in_panes == whole
