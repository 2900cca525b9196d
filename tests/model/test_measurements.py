from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import InvalidValue, Measurements, Sample, Utilisation, trimmed_mean
from penstock.model.measurements import attributed_share, trimmed_mean_arrays


@pytest.mark.parametrize(
    ("window", "mean"),
    [
        ([], None),
        ([7.0], 7.0),
        ([1.0, 5.0], 3.0),  # two: nothing to trim
        ([9.0, 1.0, 4.0], 4.0),  # three: the middle one
        ([3.0, 100.0, 5.0, 0.0, 4.0], 4.0),  # five: (3 + 5 + 4) / 3, not / 5
        ([2.0, 2.0, 2.0], 2.0),  # equal samples are trimmed once each
    ],
)
def test_trimmed_mean(window: list[float], mean: float | None) -> None:
    assert trimmed_mean(window) == mean


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_trimmed_mean_wants_numbers(bad: float) -> None:
    with pytest.raises(InvalidValue) as caught:
        trimmed_mean([1.0, bad])
    assert str(caught.value) == (
        f"parameter samples of a window must be finite numbers, got (1.0, {bad!r})"
    )


@given(st.lists(st.lists(st.floats(0, 1e15), min_size=3, max_size=3), min_size=1, max_size=7))
def test_arrays_are_trimmed_entry_by_entry(samples: list[list[float]]) -> None:
    got = trimmed_mean_arrays([np.array(sample) for sample in samples])
    want = [trimmed_mean(entry) for entry in zip(*samples, strict=True)]
    np.testing.assert_allclose(got, np.array(want, dtype=np.float64), rtol=1e-12)


def test_a_huge_spike_leaves_the_others_as_they_were() -> None:
    assert trimmed_mean_arrays([np.array([x]) for x in (1.0, 1e17, 2.0, 0.0)])[0] == 1.5


def test_a_share_of_the_node_by_weighted_tuples() -> None:
    # Node 0: 10 tuples of weight 3 and 30 of weight 1 share 6 cores half and half.
    # Node 1: one instance takes it all. Node 2 processed nothing. Node 3 is empty.
    share = attributed_share(
        tuples=np.array([10.0, 30.0, 5.0, 0.0]),
        node_of=np.array([0, 0, 1, 2]),
        node_use=np.array([6.0, 2.0, 1.0, 9.0]),
        complexity=np.array([3.0, 1.0, 0.5, 1.0]),
    )
    assert share.tolist() == [3.0, 3.0, 2.0, 0.0]


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=9
    )
)
def test_shares_add_up_to_the_use_of_the_node(rows: list[tuple[int, int, int]]) -> None:
    tuples, node_of, complexity = (np.array(c) for c in zip(*rows, strict=True))
    use = np.array([1.0, 2.0, 3.0])
    share = attributed_share(tuples.astype(np.float64), node_of, use, complexity)
    for node in range(3):
        busy = bool(tuples[node_of == node].sum())
        assert share[node_of == node].sum() == pytest.approx(use[node] if busy else 0.0)


def sample(*values: float, duration_s: float = 1.0, latency_ms: float | None = None) -> Sample:
    return Sample(
        duration_s,
        tuples_in={"in": np.array(values)},
        transferred={("in", "out"): np.array([values])},
        cpu_s={"in": np.array(values) / 100},
        nodes={"n": Utilisation(cpu=values[0] / 100)},
        latency_ms=latency_ms,
    )


def test_a_window_becomes_trimmed_rates() -> None:
    window = [sample(10, 20), sample(12, 18), sample(900, 19), sample(24, 42, duration_s=2)]
    got = Measurements.from_samples(window, ["in", "absent"])
    # Per second: 10 12 900 12 and 20 18 19 21; the extremes go.
    assert got.tuples_per_s["in"].tolist() == [12.0, 19.5]
    assert got.rates["in", "out"].tolist() == [[12.0, 19.5]]
    np.testing.assert_allclose(got.cpu_cores["in"], [0.12, 0.195])
    assert dict(got.source_rates) == {"in": 31.5}
    assert got.nodes["n"] == Utilisation(cpu=(0.12 + 0.24) / 2)
    assert got.latency_ms is None
    totals = np.array([30, 30, 919, 33])
    assert got.rate_cv == pytest.approx(totals.std() / totals.mean())


def test_samples_from_before_a_change_of_parallelism_do_not_count() -> None:
    window = [sample(9, 9), sample(1, 2, 3), sample(3, 4, 5)]
    got = Measurements.from_samples(window, ["in"])
    assert got.tuples_per_s["in"].tolist() == [2.0, 3.0, 4.0]


def test_what_was_not_measured_is_missing_and_not_zero() -> None:
    steady = [sample(10, latency_ms=5), sample(10), sample(10), Sample(1.0)]
    got = Measurements.from_samples(steady, ["in"])
    assert got.rate_cv == 0.0
    assert got.latency_ms == 5.0
    assert "out" not in got.tuples_per_s
    assert got.nodes["n"].mem is None
    assert Measurements.from_samples(steady[:2], ["in"]).rate_cv is None
    nothing = Measurements.from_samples([], ["in"])
    assert nothing.rate_cv is None
    assert not nothing.source_rates


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Utilisation(cpu=-0.1),
            "parameter cpu of a utilisation must be at least 0 or left out, got -0.1",
        ),
        (
            lambda: Utilisation(io=float("nan")),
            "parameter io of a utilisation must be at least 0 or left out, got nan",
        ),
        (
            lambda: Sample(0.0),
            "parameter duration_s of a sample must be a positive number, got 0.0",
        ),
        (
            lambda: Measurements(source_rates={"in": -1.0}),
            "parameter source_rates of source 'in' must be finite and not negative, got -1.0",
        ),
        (
            lambda: Measurements(cpu_cores={"in": np.array([float("nan")])}),
            "parameter cpu_cores of measurements of in must be finite and not negative, "
            "got array([nan])",
        ),
        (
            lambda: Measurements(rates={("a", "b"): np.array([[-1.0]])}),
            "parameter rates of measurements of ('a', 'b') must be finite and not negative, "
            "got array([[-1.]])",
        ),
    ],
)
def test_every_error_says_what_is_allowed(make: Any, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        make()
    assert str(caught.value) == message


def test_arrays_are_copied_and_read_only() -> None:
    mine = np.array([1.0])
    got = Measurements(cpu_cores={"in": mine})
    mine[0] = 9
    assert got.cpu_cores["in"].tolist() == [1.0]
    with pytest.raises(ValueError, match="read-only"):
        got.cpu_cores["in"][0] = 2


def test_a_window_has_what_instances_took() -> None:
    window = [
        Sample(
            2.0,
            transferred={("in", "out"): np.array([[100.0, 100.0]])},
            busy={"in": part},
            mem_mb={"in": np.array([mem])},
            state_mb={"in": np.array([mem / 10])},
            sent_mb={"in": np.array([0.02])},
            io_mb={"in": np.array([8.0])},
            nodes={"n": Utilisation(mem=0.5, network=part)},
        )
        for part, mem in [(0.2, 10.0), (0.3, 20.0), (0.9, 30.0)]
    ]
    got = Measurements.from_samples(window, ["in"])
    assert got.mem_mb["in"].tolist() == [20.0], "a level, and no rate"
    assert got.state_mb["in"].tolist() == [3.0], "the latest"
    assert got.sent_mb_s["in"].tolist() == [0.01]
    assert got.io_mb_s["in"].tolist() == [4.0]
    assert got.busy["in"] == 0.3
    assert got.tuple_bytes["in"] == pytest.approx(100.0)
    assert got.nodes["n"] == Utilisation(mem=0.5, network=0.3)


def test_an_operator_that_sent_nothing_has_no_size_of_tuple() -> None:
    window = [Sample(1.0, sent_mb={"in": np.array([1.0])})]
    assert Measurements.from_samples(window, ["in"]).tuple_bytes == {}
