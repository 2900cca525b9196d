"""``penstock reproduce`` as a user types it."""

from __future__ import annotations

from typer.testing import CliRunner

from penstock.cli.main import app


def call(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


def test_an_unknown_paper_is_refused() -> None:
    code, _, err = call("reproduce", "rs")
    assert code == 2
    assert "ts, sra, sl, ms, ra, all" in err
