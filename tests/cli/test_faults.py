"""Faults on the command line: what is wrong with them is said before Spark is started."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli import chaos
from penstock.cli.main import app
from penstock.experiments.chaos_trial import TrialOutcome
from penstock.faults.schedules import Schedule

pytest.importorskip("pyspark")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fault", "kill-executor"], "KIND@batch=N[:name=value,...] with KIND"),
        (["--fault", "kill-executor@batch=x"], "batch of fault kill-executor must be a whole"),
        (["--fault", "kill-executer@batch=3"], "did you mean 'kill-executor'?"),
        (["--fault", "move@batch=3:to=2"], "setting of fault move must be left out, got 'to'"),
        (["--fault", "explode@batch=3"], "one of kill-executor, kill-worker"),
        (["--fault", "kill-driver@batch=3"], "without --checkpoint"),
        (["--fault", "scale@batch=3:to=0"], "at least 1"),
        (["--state", "memory"], "one of peers, checkpoint, both"),
        (["--data-fragments", "0"], "data"),
        (["--parity-fragments", "-1"], "parity"),
        (["--backup-every", "0"], "every"),
    ],
)
def test_what_a_run_cannot_do_is_said_at_once(words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["run", "wordcount", *words])
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sandcount"], "sandcount"),
        (["--schedules", "0"], "schedules"),
        (["--seed", "-1"], "seed"),
        (["--only", "-1"], "only"),
        (["--nodes", "2"], "at least 3"),
        (["--kind", "read-only"], "give --matrix with it"),
        (["--matrix", "--kind", "red-only"], "did you mean 'read-only'?"),
        (["topn", "--matrix", "--kind", "kill-while-split"], "commcount"),
    ],
)
def test_what_chaos_cannot_do_is_said_at_once(words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["chaos", *words])
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Stand for the cluster: the second run that there is fails."""
    seen: list[Any] = []

    def outcomes(chosen: list[Schedule], nodes: int, stop: object) -> Any:
        for schedule in chosen:
            equal = {"counts": len(seen) != 1}
            seen.append(schedule)
            yield TrialOutcome(
                str(schedule), schedule.app, schedule.name, equal, 1.0, "", ["a plan"]
            )

    monkeypatch.setattr(chaos, "_outcomes", outcomes)
    monkeypatch.setattr(chaos, "require_java", lambda: None)
    return seen


def test_a_failed_schedule_is_told_with_its_seed_and_history(ran: list[Any]) -> None:
    result = CliRunner().invoke(app, ["chaos", "wordcount", "--schedules", "3", "--seed", "8"])
    assert result.exit_code == 1
    assert "2/3 FAILED in 1 s: seed 8/1: wordcount" in result.stderr
    assert "not what it must be: counts" in result.stderr
    assert "  a plan" in result.stderr
    assert "2 of 3 equal to the row" in result.stdout
    assert len(ran) == 3


def test_one_schedule_can_be_run_again(ran: list[Any]) -> None:
    result = CliRunner().invoke(app, ["chaos", "--seed", "8", "--only", "4", "--json"])
    assert result.exit_code == 0
    assert [one.name for one in ran] == ["seed 8/4"]
    assert '"seed": 8' in result.stdout


def test_a_seed_that_was_drawn_is_told(ran: list[Any]) -> None:
    result = CliRunner().invoke(app, ["chaos", "--schedules", "1"])
    assert "seed " in result.stderr.splitlines()[0]


def test_the_matrix_has_every_row_and_one_can_be_run_alone(ran: list[Any]) -> None:
    CliRunner().invoke(app, ["chaos", "topn", "--matrix"])
    assert [one.name for one in ran][-2:] == ["load-wait", "load-drop"]
    ran.clear()
    result = CliRunner().invoke(app, ["chaos", "topn", "--matrix", "--kind", "pause-driver"])
    assert result.exit_code == 0
    assert [one.name for one in ran] == ["pause-driver"]
