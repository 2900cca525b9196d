"""Percentiles are within the error of a bucket, and nothing is lost on the way."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import InvalidValue
from penstock.store.histogram import (
    BOUNDS_MS,
    BUCKETS,
    EMPTY,
    HIGHEST_MS,
    LOWEST_MS,
    RELATIVE_ERROR,
    Histogram,
)

latencies = st.floats(0.0, HIGHEST_MS)
windows = st.lists(latencies, min_size=1, max_size=60)


def test_the_buckets_are_as_promised() -> None:
    assert RELATIVE_ERROR < 0.03
    assert BOUNDS_MS[0] == LOWEST_MS
    assert BOUNDS_MS[-1] == HIGHEST_MS
    assert (np.diff(BOUNDS_MS) / BOUNDS_MS[:-1] <= RELATIVE_ERROR + 1e-12).all()


@given(windows, st.floats(0, 100))
def test_a_percentile_is_within_the_error_of_its_bucket(values: list[float], p: float) -> None:
    exact = float(np.percentile(values, p))
    found = Histogram.of(values).percentile(p)
    assert found is not None
    assert abs(found - exact) <= exact * RELATIVE_ERROR + LOWEST_MS


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.5])
def test_percentiles_of_many_values(spread: float) -> None:
    values = np.random.default_rng(0).lognormal(5.0, spread, 50_000)
    histogram = Histogram.of(values)
    for p in (0, 1, 25, 50, 90, 95, 99, 99.9, 100):
        assert histogram.percentile(p) == pytest.approx(np.percentile(values, p), rel=0.03)
    assert histogram.mean_ms == pytest.approx(values.mean())


@given(windows, st.lists(st.floats(0, 100), min_size=2, max_size=8))
def test_percentiles_ascend_within_the_ends(values: list[float], ps: list[float]) -> None:
    histogram = Histogram.of(values)
    found = [histogram.percentile(p) or 0.0 for p in sorted(ps)]
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(found))
    assert min(values) <= found[0] * (1 + 1e-12)
    assert found[-1] <= max(values) * (1 + 1e-12)
    assert histogram.percentile(0) == min(values)
    assert histogram.percentile(100) == max(values)


@given(st.lists(st.lists(latencies, max_size=20), max_size=6))
def test_merging_counts_all(parts: list[list[float]]) -> None:
    together = Histogram.of([v for part in parts for v in part])
    step = EMPTY
    for part in parts:
        step = step.merge(Histogram.of(part))
    at_once = Histogram.merged(Histogram.of(part) for part in parts)
    for merged in (step, at_once):
        assert (merged.counts == together.counts).all()
        assert (merged.min_ms, merged.max_ms) == (together.min_ms, together.max_ms)
        assert merged.sum_ms == pytest.approx(together.sum_ms)


@given(st.lists(latencies, max_size=60))
def test_json_round_trip(values: list[float]) -> None:
    histogram = Histogram.of(values)
    again = Histogram.from_dict(json.loads(json.dumps(histogram.to_dict(), allow_nan=False)))
    assert again == histogram
    assert hash(again) == hash(histogram)


@given(st.lists(st.tuples(latencies, st.integers(0, 5)), max_size=20))
def test_how_often_a_value_occurred(pairs: list[tuple[float, int]]) -> None:
    values = [v for v, _ in pairs]
    weighted = Histogram.of(values, [n for _, n in pairs])
    plain = Histogram.of([v for v, n in pairs for _ in range(n)])
    assert (weighted.counts == plain.counts).all()
    assert (weighted.min_ms, weighted.max_ms) == (plain.min_ms, plain.max_ms)
    assert weighted.sum_ms == pytest.approx(plain.sum_ms)


def test_outside_of_the_buckets() -> None:
    histogram = Histogram.of([-5.0, 0.0, 0.05, 2 * HIGHEST_MS])
    assert histogram.counts[0] == 3
    assert histogram.counts[-1] == 1
    assert histogram.min_ms == 0.0
    assert histogram.percentile(100) == 2 * HIGHEST_MS


def test_a_value_on_a_bound_is_at_most_the_bound() -> None:
    assert Histogram.of(BOUNDS_MS).at_most(0) == 1
    assert Histogram.of([BOUNDS_MS[7]]).at_most(7) == 1
    assert Histogram.of([BOUNDS_MS[7]]).at_most(6) == 0
    assert Histogram.of([HIGHEST_MS]).counts[-1] == 0


def test_nothing_counted() -> None:
    for nothing in (EMPTY, Histogram.of([]), Histogram.of([5.0], [0]), Histogram.merged([])):
        assert nothing.count == 0
        assert nothing.percentile(50) is None
        assert nothing.mean_ms is None
        assert nothing == EMPTY
    assert "count=0" in repr(EMPTY)


def test_it_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Histogram.of([1.0]).counts[0] = 1


@pytest.mark.parametrize("p", [-0.1, 100.1, float("nan")])
def test_no_such_percentile(p: float) -> None:
    with pytest.raises(InvalidValue):
        Histogram.of([1.0]).percentile(p)


@pytest.mark.parametrize("values", [[float("nan")], [float("inf")]])
def test_values_must_be_finite(values: list[float]) -> None:
    with pytest.raises(InvalidValue):
        Histogram.of(values)


@pytest.mark.parametrize("times", [[-1], [0.5], [1, 2]])
def test_times_must_be_counts(times: list[float]) -> None:
    with pytest.raises(InvalidValue):
        Histogram.of([1.0], times)


@pytest.mark.parametrize(
    "change",
    [
        {"scheme": "log9"},
        {"buckets": [BUCKETS]},
        {"buckets": [-1]},
        {"buckets": ["x"]},
        {"counts": [-1]},
        {"counts": [1, 2]},
        {"counts": [0]},
        {"counts": [2**70]},
        {"min_ms": 7.0},
        {"max_ms": float("nan")},
        {"max_ms": None},
        {"sum_ms": -1.0},
        {"sum_ms": "much"},
    ],
)
def test_a_stored_one_is_checked(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        Histogram.from_dict({**Histogram.of([1.0]).to_dict(), **change})


def test_a_stored_one_must_be_complete() -> None:
    with pytest.raises(InvalidValue):
        Histogram.from_dict({"scheme": "log80"})
