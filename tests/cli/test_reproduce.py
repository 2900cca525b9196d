"""``penstock reproduce`` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.experiments.papers.figure import Figure
from penstock.experiments.papers.page import Paper


def call(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


def test_an_unknown_paper_is_refused() -> None:
    code, _, err = call("reproduce", "tss")
    assert code == 2
    assert "did you mean 'ts'?" in err
    code, _, err = call("reproduce", "storm")
    assert code == 2
    assert "one of ts, sra, sl, ms, ra, all" in err


def test_json_has_a_figure_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = Figure("Fig. 1", "latency", "ms", "New", {"New": 1.0}, {"New": 2.0})
    paper = Paper("ts", "A paper", {}, (figure,))
    monkeypatch.setattr("penstock.experiments.papers.ts.experiments", lambda say: paper)
    code, out, _ = call("reproduce", "ts", "--out", str(tmp_path / "new"), "--json")
    assert code == 0
    (row,) = (json.loads(line) for line in out.splitlines())
    assert (row["paper"], row["figure"], row["here"]) == ("ts", "Fig. 1", {"New": 1.0})
    assert row["page"] == str(tmp_path / "new" / "ts.md")
