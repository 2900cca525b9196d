"""Faults on the command line: what is wrong with them is said before Spark is started."""

from __future__ import annotations

from pathlib import Path
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
        (["--fault", "kill-driver@batch=3"], "kill-driver needs --checkpoint"),
        (["--fault", "kill-node@batch=3"], "kill-node ends a process of a standalone cluster"),
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
        (["--minutes", "0"], "minutes of chaos must be a number above 0"),
        (["--keep", "/nowhere/at/all"], "--keep /nowhere/at/all cannot be written"),
        (["--keep", "/"], "keep"),
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

    def outcomes(chosen: list[Schedule], nodes: int, stop: object, deadline: float) -> Any:
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


def test_a_second_call_runs_what_has_not_ended_equal(ran: list[Any], tmp_path: Path) -> None:
    words = ["chaos", "topn", "--schedules", "3", "--keep", str(tmp_path / "runs")]
    first = CliRunner().invoke(app, [*words, "--seed", "8"])
    assert first.exit_code == 1
    with (tmp_path / "runs").open("a") as file:
        file.write('{"seed": 8, "sched')  # killed while it wrote
    ran.clear()
    ran.append(None)  # the next one fails again
    again = CliRunner().invoke(app, words)
    assert "seed 8; 2 of them ended equal before" in again.stderr
    assert [one.name for one in ran[1:]] == ["seed 8/1"]
    assert "2 of 3 equal to the row" in again.stdout
    third = CliRunner().invoke(app, words)
    assert third.exit_code == 0, third.stderr
    assert "3 of 3 equal to the row" in third.stdout
    ran.clear()
    assert CliRunner().invoke(app, words).exit_code == 0
    assert not ran


def test_what_was_not_begun_in_time_is_told_by_a_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(chaos, "_outcomes", lambda *_: iter(()))
    monkeypatch.setattr(chaos, "require_java", lambda: None)
    result = CliRunner().invoke(app, ["chaos", "--schedules", "5", "--minutes", "1"])
    assert result.exit_code == 4
    assert "0 of 5 equal to the row; 5 were not begun in time" in result.stdout


@pytest.mark.parametrize("text", ["no json\n", "no json", "[1, 2]\n", '{"seed": 1}\n'])
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes"
    path.write_text(text)
    result = CliRunner().invoke(app, ["chaos", "--keep", str(path)])
    assert result.exit_code == 2
    assert "a file that --keep made" in result.stderr
    assert path.read_text() == text
