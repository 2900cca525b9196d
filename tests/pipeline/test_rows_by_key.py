"""Many rows of a key in a table that has each key once: as a list of rows for each key."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import functions as F
from penstock.engine.state.task_state import WorkingState
from penstock.pipeline import Memory, Pipeline, Rows, session
from penstock.pipeline.keyed.rows_by_key import LEFT, NUMBER, RIGHT, SIDE, RowsByKey
from penstock.runtimes.local import run_locally
from penstock.state.table import KeyedTable


class Keyed:
    """What a working state asks of a step."""

    by = ("k", SIDE, NUMBER)
    state = pa.schema([])


def rows_in(table: KeyedTable) -> Counter[Any]:
    """Rows of both sides, without the counters."""
    rows = table.rows()
    found = [] if rows is None else rows.to_pylist()
    return Counter((row["k"], row[SIDE], row["v"]) for row in found if row[SIDE] in (LEFT, RIGHT))


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), keys=st.integers(1, 3), kept=st.floats(0.0, 0.9))
def test_any_rows_added_found_replaced_and_removed(seed: int, keys: int, kept: float) -> None:
    """Each batch finds the rows of some keys, removes a part of them, and adds others.

    It goes on until all keys have been numbered anew, which happens while their rows are changed.
    """
    rng = random.Random(seed)
    table, model = KeyedTable(Keyed.by), Counter[Any]()
    for batch in range(25):
        asked = sorted({rng.randrange(keys) for _ in range(keys)})
        state = WorkingState(Keyed(), table, [])  # type: ignore[arg-type]
        stored = RowsByKey(state, ("k",), pa.table({"k": pa.array(asked, pa.int64())}))
        for side in (LEFT, RIGHT):
            known, of_key = stored.find(side, stored.of_row)
            got = [] if not known.num_rows else known.to_pylist()
            wanted = {key: n for key, n in model.items() if key[0] in asked and key[1] == side}
            assert Counter((row["k"], side, row["v"]) for row in got) == Counter(wanted)
            gone = np.array([rng.random() >= kept for _ in got], dtype=bool)
            if gone.any():
                stored.remove(known.filter(pa.array(gone)), of_key[gone])
                model -= Counter(
                    (row["k"], side, row["v"]) for row, out in zip(got, gone, strict=True) if out
                )
            new = [(rng.choice(asked), batch * 10 + n) for n in range(rng.randrange(4))]
            rows = pa.table({name: pa.array([row[i] for row in new], pa.int64())
                             for i, name in enumerate(("k", "v"))})  # fmt: skip
            stored.add(side, rows, stored.number(rows))
            model += Counter((k, side, v) for k, v in new)
        stored.write()
        table = state.state
        assert rows_in(table) == model


def test_a_key_with_many_sessions_has_each_once() -> None:
    """A session that grows in the batch in which its key is numbered anew is not emitted twice."""
    batches = 40
    # Two rows of each session come in one batch, the last one of it in the next.
    times = [start * 20 + step for start in range(batches) for step in (0, 3, 6)]
    table = pa.table({"k": ["a"] * len(times), "t": [time * 1_000_000 for time in times]})
    out = Memory()
    made = (
        Pipeline("sessions")
        .source("rows", Rows(table))
        .aggregate("s", by="k", window=session("t", "5 s"), n=F.count())
        .sink("out", out)
    )
    run_locally(made, cuts=list(range(2, len(times), 3)))
    found = [(r["window_start"] // 1_000_000, r["n"]) for r in out.table().to_pylist()]
    assert sorted(found) == [(start * 20, 3) for start in range(batches - 1)]
