"""``penstock nexmark``: checked before Spark starts, and compared when it ran."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app

START = "from penstock.cli.main import app; app()"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["q77"], "must be one of q0"),
        (["q5,q1x"], "q1x"),
        (["--batches", "2"], "batches of nexmark must be at least 5"),
        (["--events", "100"], "at least 50 for each"),
        (["--master", "lokal"], "lokal"),
    ],
)
def test_what_is_wrong_is_told_first(words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["nexmark", *words])
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.spark
def test_queries_are_run_and_compared() -> None:
    words = [sys.executable, "-c", START, "nexmark", "q1,q5", "--events", "4000"]
    done = subprocess.run(
        [*words, "--batches", "5", "--spark", "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["query"] for row in rows] == ["q1", "q5"]
    assert all(row["equal"] and row["spark_equal"] for row in rows)
    assert all(row["rows_per_s"] > 0 and row["cpu_us_per_row"] > 0 for row in rows)
