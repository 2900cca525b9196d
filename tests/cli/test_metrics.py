"""``penstock metrics`` on a store with one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.store.histogram import Histogram
from penstock.store.records import BatchRecord, RunRecord
from penstock.store.store import MetricsStore

RUNNER = CliRunner()


@pytest.fixture
def store(tmp_path: Path) -> str:
    place = tmp_path / "metrics.sqlite"
    with MetricsStore.open(place) as made:
        made.put_run(RunRecord("r1", "words", "even", 10.0))
        latency = Histogram.of([5.0, 7.0])
        made.put_batch(BatchRecord("r1", 0, 10.0, 500.0, rows_in=40, latency=latency))
    return str(place)


def test_runs_are_listed(store: str) -> None:
    shown = RUNNER.invoke(app, ["metrics", store, "--json"])
    assert shown.exit_code == 0
    assert json.loads(shown.stdout) == {
        "run": "r1",
        "topology": "words",
        "strategy": "even",
        "status": "running",
    }
    assert "words" in RUNNER.invoke(app, ["metrics", store]).stdout


def test_a_run_is_summed_up(store: str) -> None:
    shown = RUNNER.invoke(app, ["metrics", store, "--run", "latest", "--json"])
    assert json.loads(shown.stdout)["rows_in"] == 40


def test_prometheus_text(store: str) -> None:
    shown = RUNNER.invoke(app, ["metrics", store, "--prometheus"])
    assert shown.exit_code == 0
    assert "# TYPE" in shown.stdout
    assert shown.stdout.endswith("\n")


def test_bad_input_is_a_line_and_a_code(store: str, tmp_path: Path) -> None:
    for arguments in ([store, "--run", "r9"], [str(tmp_path / "nothing.sqlite")]):
        shown = RUNNER.invoke(app, ["metrics", *arguments])
        assert shown.exit_code == 2
        assert "penstock:" in shown.stderr
