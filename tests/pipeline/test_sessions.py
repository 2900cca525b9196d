"""Sessions and first rows as they are built and run locally."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import functions as F
from penstock.model import InvalidValue, NotAllowed
from penstock.pipeline import Memory, Pipeline, Rows, session
from penstock.pipeline.keyed.sessions import merged_sessions
from penstock.runtimes.local import run_locally

SECOND = 1_000_000


def visits(*pairs: tuple[str, int | None]) -> Pipeline:
    times = [None if s is None else s * SECOND for _, s in pairs]
    table = pa.table({"k": [k for k, _ in pairs], "t": pa.array(times, pa.int64())})
    return Pipeline("p").source("rows", Rows(table), parallelism=1)


spans = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-20, 20), st.integers(1, 5)), min_size=1, max_size=20
)


@given(spans)
def test_spans_that_meet_or_overlap_are_one_session(found: list[tuple[int, int, int]]) -> None:
    keys, starts, sizes = (np.array(column, dtype=np.int64) for column in zip(*found, strict=True))
    of_row, first, last = merged_sessions(keys, starts, starts + sizes)
    wanted = list[tuple[int, int, int]]()
    for key, start, end in sorted((k, s, s + n) for k, s, n in found):
        if wanted and wanted[-1][0] == key and start <= wanted[-1][2]:
            wanted[-1] = (key, wanted[-1][1], max(end, wanted[-1][2]))
        else:
            wanted.append((key, start, end))
    key_of = dict(zip(of_row.tolist(), keys.tolist(), strict=True))
    made = [(key_of[n], int(first[n]), int(last[n])) for n in range(len(first))]
    assert sorted(made) == wanted
    for (key, start, _), number in zip(found, of_row.tolist(), strict=True):
        assert key == key_of[number]
        assert first[number] <= start < last[number]


def test_late_rows_go_to_the_side() -> None:
    source = visits(("a", 1), ("a", 100), ("b", 100), ("a", 3), ("b", None), ("a", 300))
    window = session("t", "5 s", late="side-output")
    out, aside = Memory(), Memory()
    made = (
        source.aggregate("s", by="k", n=F.count(), window=window)
        .sink("out", out)
        .sink("aside", aside, after="s-late")
    )
    results = run_locally(made, [2, 3])
    assert sorted((r["k"], r["window_start"] // SECOND) for r in out.table().to_pylist()) == [
        ("a", 1),
        ("a", 100),
        ("b", 100),
    ]
    assert aside.table().to_pylist() == [{"k": "a", "t": 3 * SECOND}, {"k": "b", "t": None}]
    assert sum(s.late.get("s", 0) for batch in results for s in batch.stats) == 2


def test_a_late_row_joins_two_sessions() -> None:
    out = Memory()
    source = visits(("a", 1), ("a", 11), ("a", 6), ("b", 100), ("b", 200))
    made = source.aggregate("s", by="k", n=F.count(), window=session("t", 5, lateness=60))
    run_locally(made.sink("out", out), [1, 2, 3, 4])
    found = {(r["k"], r["window_start"], r["window_end"], r["n"]) for r in out.table().to_pylist()}
    assert found == {("a", SECOND, 16 * SECOND, 3), ("b", 100 * SECOND, 105 * SECOND, 1)}


def test_what_is_refused() -> None:
    def made(**options: Any) -> Pipeline:
        return visits(("a", 1)).aggregate("s", by="k", n=F.count(), **options)

    with pytest.raises(NotAllowed, match="has sessions, which are worked out where all rows"):
        made(window=session("t", 5), split=True)
    with pytest.raises(InvalidValue, match="parameter gap of a session must be a positive time"):
        session("t", 0)
    with pytest.raises(InvalidValue, match="parameter late of a session must be one of"):
        session("t", 1, late="never")
    with pytest.raises(NotAllowed, match="'window_end' is a column of the key"):
        made(window=session("t", 5), window_end=F.count())
    with pytest.raises(NotAllowed, match="'within', which goes by event time"):
        visits(("a", 1)).deduplicate("d", by="k", within=3)
    with pytest.raises(InvalidValue, match="parameter lateness of step 'd' must be at least 0"):
        visits(("a", 1)).deduplicate("d", by="k", time="t", lateness=-1)
