"""The live view, drawn into memory at several widths."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from penstock.cli.live import WINDOW, Board
from penstock.store.histogram import Histogram
from penstock.store.records import BatchRecord

BATCH = BatchRecord(
    "r",
    0,
    1000.0,
    450.0,
    rows_in=2000,
    rows_out=9000,
    local_bytes=600,
    remote_bytes=400,
    tasks=8,
    tasks_honoured=8,
    nodes_used=2,
    lin=0.1414,
    lit={"count": 0.25},
    latency=Histogram.of(np.array([400.0, 900.0, 2500.0]), np.array([50, 45, 5])),
)


def drawn(width: int, reasons: tuple[str, ...] = (), **changes: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=24, force_terminal=True, record=True)
    board = Board(False, console)
    for number in range(3):
        batch = replace(BATCH, batch=number, started_at_s=1000.0 + number, **changes)
        board.show(SimpleNamespace(batch=batch))  # type: ignore[arg-type]
    board.plan(SimpleNamespace(reasons=reasons))  # type: ignore[arg-type]
    board.tick(18.4)
    console.print(board.view())
    *lines, blank = console.export_text().splitlines()
    # The cursor waits on a line of its own.
    assert blank == ""
    return lines


def test_all_figures_fit_into_80_columns() -> None:
    lines = drawn(80, ("2 of 2 nodes hold it with a load of 0.80",))
    assert [len(line) for line in lines] == [80] * len(lines)
    text = "\n".join(lines)
    for shown in (
        "running  18 s, 6,000 rows",
        "rate         2,000 rows/s",
        "throughput   2,000 rows/s",
        "batch              450 ms",
        "p50  651 ms",
        "p95  993 ms",
        "p99  2.49 s",
        "nodes          2",
        "imbalance   0.14",
        "skew        0.25",
        "remote    40 %",
        "placed   100 %",
        "waiting      0",
        "last decision: 2 of 2 nodes hold it with a load of 0.80",
    ):
        assert shown in text
    assert "\u2026" not in text


@pytest.mark.parametrize("width", [30, 44, 60, 79, 80, 100, 200])
def test_nothing_is_cut_off_at_any_width(width: int) -> None:
    text = "\n".join(drawn(width, rows_in=123_456, duration_ms=12_345.0, queue_length=499_999))
    for shown in ("123,456 rows/s", "12.3 s", "imbalance", "100 %", "500k"):
        assert shown in text
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("value", [0, 9, 123_456])
def test_figures_stay_where_they_are(value: int) -> None:
    lines = drawn(80, rows_in=value, queue_length=value, lin=value / 1e4)
    assert [line.index("p50") for line in lines if "p50" in line] == [30]
    assert [line.index("remote") for line in lines if "remote" in line] == [63]


def test_a_long_decision_takes_three_lines_at_most() -> None:
    lines = drawn(80, ("partition [bold]17[/bold] of count[3] moves " * 20,))
    assert len(lines) == 8
    assert lines[-2].rstrip("│ ").endswith("\u2026")
    assert "[bold]17[/bold] of count[3]" in "\n".join(lines)


def test_rate_is_what_comes_and_throughput_what_is_taken() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, record=True)
    board = Board(False, console)
    for number in range(WINDOW):
        batch = replace(
            BATCH,
            batch=number,
            started_at_s=1000.0 + number,
            queue_length=500 * number,
            dropped=100,
        )
        board.show(SimpleNamespace(batch=batch))  # type: ignore[arg-type]
    console.print(board.view())
    text = console.export_text()
    assert "rate         2,600 rows/s" in text
    assert "throughput   2,000 rows/s" in text


def test_before_the_first_batch_it_says_what_it_waits_for() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, record=True)
    board = Board(False, console)
    board.say("starting Spark")
    console.print(board.view())
    assert "starting Spark  0 s" in console.export_text()


NOISY = """
import subprocess, sys
from penstock.cli.noise import Noise
try:
    with Noise() as noise:
        subprocess.run([sys.executable, "-c", "import os; os.write(2, b'torn\\\\n')"], check=True)
        while not noise.lines:
            pass
        if sys.argv[1] == "fail":
            raise ValueError("failed")
except ValueError:
    pass
print("after", file=sys.stderr)
"""


@pytest.mark.parametrize(("end", "shown"), [("well", "after\n"), ("fail", "torn\nafter\n")])
def test_what_others_write_is_shown_only_after_a_failure(end: str, shown: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOISY, end],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=dict(os.environ),
    )
    assert done.stderr == shown
