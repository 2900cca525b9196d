"""Both databases keep the one contract, and the contract notices a store that does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from penstock.store import MetricsStore, StoreError
from penstock.store.transactions import Transactions
from penstock.testing.broken import ContractBroken
from penstock.testing.metrics_examples import Check, Opener, a_batch, a_run
from penstock.testing.metrics_store import METRICS_STORE_CHECKS, check_metrics_store


@pytest.mark.parametrize("check", METRICS_STORE_CHECKS.values(), ids=METRICS_STORE_CHECKS)
def test_contract(check: Check, opened: Opener) -> None:
    check(opened)


def test_the_whole_suite_at_once(tmp_path: Path) -> None:
    numbers = count()
    check_metrics_store(lambda: partial(MetricsStore.open, tmp_path / f"{next(numbers)}.db"))


def test_the_documented_query(opened: Opener) -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    (query,) = re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    with opened() as store:
        store.put_run(a_run())
        for number in range(60):
            store.put_batch(*a_batch("r1", number))
        with store._database.transaction() as cursor:
            cursor.execute(query)
            rows = cursor.fetchall()
    # From second 1000 to 1118, at 30 of 60 bytes across nodes.
    assert [row[0] for row in rows] == [16, 17, 18]
    assert sum(float(row[1]) for row in rows) * 60 == pytest.approx(100 * 60 * 61 / 2)
    assert {float(row[2]) for row in rows} == {0.5}


def forgetful(self: MetricsStore, *args: Any, **kwargs: Any) -> None:
    """Write nothing."""


def empty(self: MetricsStore, *args: Any, **kwargs: Any) -> tuple[()]:
    return ()


@pytest.mark.parametrize(
    ("method", "broken", "check"),
    [
        ("put_run", forgetful, "runs"),
        ("put_event", forgetful, "plans and events"),
        ("delete_run", forgetful, "delete run"),
        ("close", forgetful, "closed"),
        ("instances", empty, "batches"),
        ("edges", empty, "odd names"),
    ],
)
def test_a_broken_store_is_noticed(
    method: str,
    broken: Callable[..., Any],
    check: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    closing: Callable[[MetricsStore], MetricsStore],
) -> None:
    really_close = MetricsStore.close
    monkeypatch.setattr(MetricsStore, method, broken)

    def opened(**options: Any) -> MetricsStore:
        return closing(MetricsStore.open(tmp_path / "metrics.db", **options))

    with pytest.raises((ContractBroken, ValueError, StoreError)):
        METRICS_STORE_CHECKS[check](opened)
    monkeypatch.setattr(MetricsStore, "close", really_close)


@pytest.fixture
def closing() -> Iterator[Callable[[MetricsStore], MetricsStore]]:
    """Close what a broken store leaves open."""
    known: list[MetricsStore] = []
    yield lambda store: known.append(store) or store  # type: ignore[func-returns-value]
    for store in known:
        store.close()


def test_a_store_that_keeps_the_first_attempt_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Transactions.sql
    monkeypatch.setattr(
        Transactions,
        "sql",
        lambda self, text: real(self, text.replace("AND batch = ?", "AND batch = ? AND 1 = 0")),
    )
    with pytest.raises(ContractBroken, match="first attempt"):
        METRICS_STORE_CHECKS["replayed batch"](partial(MetricsStore.open, tmp_path / "metrics.db"))
