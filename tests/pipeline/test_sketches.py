"""Different values, percentiles and sketches of other libraries, however the stream is cut."""

from __future__ import annotations

import math
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import functions as F
from penstock.model import InvalidValue, NotAllowed
from penstock.pipeline import Memory, Pipeline, Rows, tumbling
from penstock.runtimes.local import run_locally

RNG = np.random.default_rng(7)
ROWS = pa.table(
    {
        "k": RNG.integers(0, 3, 6000),
        "v": RNG.integers(0, 3000, 6000),
        "x": RNG.lognormal(sigma=3.0, size=6000) * RNG.choice([-1.0, 1.0], 6000),
        "t": np.arange(6000) * 1000,
    }
)


def results(table: pa.Table, cuts: list[int], **options: Any) -> dict[Any, dict[str, Any]]:
    made = Pipeline("p").source("rows", Rows(table)).aggregate("a", by="k", **options)
    sink = Memory()
    run_locally(made.sink("out", sink), cuts)
    return {row["k"]: row for row in sink.latest("k").to_pylist()}


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("cuts", [[], [1, 2, 3000], list(range(500, 6000, 500))])
def test_different_values(cuts: list[int], split: bool) -> None:
    found = results(
        ROWS, cuts, n=F.count_distinct("v"), m=F.approx_count_distinct("v", 0.05), split=split
    )
    once = results(ROWS, [], m=F.approx_count_distinct("v", 0.05))
    for key, row in found.items():
        mask = np.asarray(ROWS["k"]) == key
        exact = len(np.unique(np.asarray(ROWS["v"])[mask]))
        assert row["n"] == exact
        assert row["m"] == once[key]["m"], "the estimate does not depend on the cut"
        assert abs(row["m"] - exact) < 0.15 * exact


values = st.floats(allow_nan=False, allow_infinity=False, width=32) | st.none()


@given(st.lists(values, min_size=1, max_size=60), st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
def test_percentiles_are_as_close_as_they_say(numbers: list[float | None], part: float) -> None:
    table = pa.table({"k": [1] * len(numbers), "x": pa.array(numbers, pa.float64())})
    found = results(table, [len(numbers) // 2], q=F.approx_percentile("x", part, 0.01))[1]["q"]
    there = sorted(number for number in numbers if number is not None)
    if not there:
        assert found is None
        return
    exact = there[max(math.ceil(part * len(there)), 1) - 1]
    assert found == pytest.approx(exact, rel=0.0101)


def test_several_percentiles_in_windows() -> None:
    found = results(ROWS, [100, 2000], q=F.approx_percentile("x", [0.1, 0.9], 0.02))
    numbers = np.asarray(ROWS["x"])
    for key, row in found.items():
        own = np.sort(numbers[np.asarray(ROWS["k"]) == key])
        exact = [own[math.ceil(part * len(own)) - 1] for part in (0.1, 0.9)]
        assert row["q"] == pytest.approx(exact, rel=0.021)
    window = tumbling("t", 1, emit="changes")
    windowed = results(ROWS, [100, 2000], q=F.approx_percentile("x", [0.5]), window=window)
    assert len(windowed) == 3


def test_numbers_that_are_none() -> None:
    table = pa.table({"k": [1, 1, 1, 2], "x": [math.inf, math.nan, -math.inf, None]})
    found = results(table, [2], q=F.approx_percentile("x", [0.0, 0.5, 1.0]))
    assert found[1]["q"][:2] == [-math.inf, math.inf]
    assert math.isnan(found[1]["q"][2])
    assert found[2]["q"] is None


def heavy_hitters(values: pa.Array) -> bytes:
    sketch = datasketches.frequent_strings_sketch(8)
    for value in values.to_pylist():
        sketch.update(str(value))
    return bytes(sketch.serialize())


def merged(states: list[bytes]) -> bytes:
    first, *others = (datasketches.frequent_strings_sketch.deserialize(one) for one in states)
    for other in others:
        first.merge(other)
    return bytes(first.serialize())


def most_frequent(state: bytes) -> str:
    sketch = datasketches.frequent_strings_sketch.deserialize(state)
    kind = datasketches.frequent_items_error_type.NO_FALSE_POSITIVES
    return str(sketch.get_frequent_items(kind)[0][0])


def test_a_sketch_of_a_library_beside_other_columns() -> None:
    table = pa.table({"k": [1, 1, 1, 2, 2], "v": ["a", "b", "a", "c", "c"]})
    sketch = F.merging(
        "v", heavy_hitters, merged, pa.binary(), finish=most_frequent, type=pa.string()
    )
    found = results(table, [1, 2, 3], top=sketch, n=F.count())
    assert {key: (row["top"], row["n"]) for key, row in found.items()} == {
        1: ("a", 3),
        2: ("c", 2),
    }


def test_what_is_refused() -> None:
    with pytest.raises(InvalidValue, match="parameter rsd of approx_count_distinct must be"):
        F.approx_count_distinct("v", 0.0)
    with pytest.raises(InvalidValue, match="parameter percentage of approx_percentile must be"):
        F.approx_percentile("v", 1.5)
    with pytest.raises(InvalidValue, match="parameter accuracy"):
        F.approx_percentile("v", 0.5, 0)
    with pytest.raises(InvalidValue, match="parameter merge of merging must be a function"):
        F.merging("v", len, 3, pa.int64())  # type: ignore[arg-type]
    ordered = F.merging("v", len, sum, pa.int64(), ordered=True)
    with pytest.raises(NotAllowed, match="order of arrival"):
        results(ROWS, [], n=ordered, split=True)
