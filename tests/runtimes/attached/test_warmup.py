"""State that is loaded ahead in a thread of its own, and what becomes of a failure there."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("pyspark")

from penstock.runtimes.attached.warmup import WORTH_MS, Warmup, worthwhile


def test_only_what_takes_long_is_loaded_ahead() -> None:
    moves = {("count", 0): "1", ("count", 1): "2"}
    costs = {("count", 0): WORTH_MS, ("count", 1): 1.0}
    assert worthwhile(moves, costs, {"1", "2"}) == {("count", 0): "1"}
    assert worthwhile(moves, costs, {"1"}) == moves, "an executor that is new opens stores ahead"


def test_a_failure_is_told_once_and_raises_nothing() -> None:
    def broken(action: str, lines: str) -> int:
        raise OSError("no such executor")

    warmup = Warmup(broken)
    while not warmup.begin("a store"):
        time.sleep(0.01)
    told = warmup.take_failure()
    assert told == "state could not be loaded ahead: OSError: no such executor"
    assert warmup.take_failure() == ""
