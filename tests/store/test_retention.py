"""What is kept of a long run."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.store import BatchRecord, Histogram, InstanceRecord, MetricsStore, RunRecord, Totals
from penstock.store.derived import intervals_s
from penstock.store.retention import Retention, RollUp


def record(number: int) -> BatchRecord:
    return BatchRecord(
        "r",
        number,
        1000.0 + number * 0.2,
        150.0,
        rows_in=100,
        tasks=4,
        tasks_honoured=4,
        nodes_used=2,
        latency=Histogram.of([5.0, 7.0]),
        lin=0.5,
        lit={"count": 1.0},
        figures={"skipped": 1.0},
    )


def filled(place: Path, batches: int, retention: Retention) -> MetricsStore:
    store = MetricsStore.open(place, keep_detail=retention.keep_detail)
    store.put_run(RunRecord("r", "words", "even", 1.0))
    rolling = RollUp(retention, "r")
    for number in range(batches):
        instance = InstanceRecord("r", number, "count", 0, "a", tuples_in=100, run_ms=1.0)
        store.put_batch(record(number), [instance])
        rolling.after_write(store)
    rolling.apply(store)
    return store


def test_sums_and_rates_are_those_of_all_batches(tmp_path: Path) -> None:
    small = Retention(keep_detail=50, keep_batches=100, keep_tens=500)
    with filled(tmp_path / "m.sqlite", 3000, small) as store:
        found = store.batches("r")
        kept = {one.batch for one in store.instances("r")}
    assert len(found) < 200
    assert len(kept) <= 50
    assert [one.batch for one in found[-100:]] == list(range(2900, 3000))
    sums = Totals.of(found)
    assert (sums.batches, sums.rows_in, sums.tasks_honoured) == (3000, 300_000, 12_000)
    assert sums.latency.count == 6000
    assert sum(one.figures["skipped"] for one in found) == 3000
    spans = intervals_s(found)
    rates = [one.rows_in / span for one, span in zip(found[1:], spans[1:], strict=True)]
    assert rates == pytest.approx([500.0] * len(rates))
    assert [one.duration_ms for one in found] == pytest.approx([150.0] * len(found))


def test_a_store_does_not_grow_with_the_day(tmp_path: Path) -> None:
    small = Retention(keep_detail=50, keep_batches=100, keep_tens=500)
    sizes = []
    for batches in (2_000, 8_000):
        place = tmp_path / f"{batches}.sqlite"
        filled(place, batches, small).close()
        sizes.append(place.stat().st_size)
    # Sixty rows of a hundred batches each are what the longer one has more.
    assert sizes[1] < 2 * sizes[0]
