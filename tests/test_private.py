"""What a run writes for itself is for its user alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from penstock import functions as F
from penstock.pipeline import Lines, Memory, Pipeline
from penstock.runtimes.local import run_locally
from penstock.state.config import StateConfig
from penstock.store import MetricsStore


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_state_and_commit_log_are_private(tmp_path: Path) -> None:
    words = (
        Pipeline("words")
        .source("lines", Lines(["a", "b"]))
        .aggregate("count", by="line", n=F.count())
        .sink("out", Memory())
    )
    run_locally(words, root=tmp_path / "checkpoint", state_config=StateConfig("checkpoint"))
    files = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert files
    for file in files:
        above = file.relative_to(tmp_path).parents
        assert any(mode(tmp_path / folder) == 0o700 for folder in list(above)[:-1]), file


def test_the_metrics_file_is_private(tmp_path: Path) -> None:
    MetricsStore.open(tmp_path / "metrics.sqlite").close()
    assert {mode(path) for path in tmp_path.iterdir()} == {0o600}


def test_a_store_where_none_can_be_made_says_why(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="unable to open"):
        MetricsStore.open(tmp_path / "missing" / "metrics.sqlite")
