"""``penstock advise``: what is printed, as text, JSON and HTML, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.strategies import strategies

LOGS = Path(__file__).parents[1] / "data" / "event_logs"
SKEW = str(LOGS / "skew.zstd")

#: Few strategies, because all of them take a while.
FEW = ["--strategy", "penstock,spark,even"]


def test_the_cause_is_told_first_with_figures_and_settings() -> None:
    done = CliRunner().invoke(app, ["advise", str(LOGS / "partitions.lz4"), *FEW])
    assert done.exit_code == 0, done.output
    (first,) = [line for line in done.output.splitlines() if line.strip().startswith("1. ")]
    assert "Too many shuffle partitions: 64 tasks on 2 cores" in first
    assert "set spark.sql.shuffle.partitions = 4 (now 64)" in done.output
    assert "Executors by hour" in done.output
    assert "The plan that each strategy would choose" in done.output


def test_json_has_an_object_for_each_application() -> None:
    done = CliRunner().invoke(app, ["advise", SKEW, str(LOGS / "batch"), "--json", *FEW])
    assert done.exit_code == 0, done.output
    skew, batch = (json.loads(line) for line in done.stdout.splitlines())
    assert skew["streaming"] is True
    assert skew["queries"][0]["findings"][0]["rule"] == "skew"
    assert [plan["strategy"] for plan in skew["plans"]] == ["penstock", "spark", "even"]
    assert batch["streaming"] is False
    assert batch["queries"] == []


def test_a_batch_log_is_told_to_be_no_stream() -> None:
    done = CliRunner().invoke(app, ["advise", str(LOGS / "batch")])
    assert done.exit_code == 0
    assert "This is not a streaming application" in done.output


@pytest.mark.slow
def test_the_report_is_one_page_that_loads_nothing(tmp_path: Path) -> None:
    page = tmp_path / "advice.html"
    done = CliRunner().invoke(app, ["advise", str(LOGS), "--report", str(page), *FEW])
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    ET.fromstring(text.split("\n", 1)[1])
    assert "Skew: partition" in text
    assert "Idle executors: 4 are there" in text
    assert "<script" not in text
    assert "src=" not in text


def test_names_from_a_log_cannot_break_the_page(tmp_path: Path) -> None:
    log, page = tmp_path / "log", tmp_path / "advice.html"
    name = "<b>&\\u0001"
    log.write_text(
        '{"Event":"SparkListenerApplicationStart","App Name":"' + name + '"}\n', encoding="utf-8"
    )
    done = CliRunner().invoke(app, ["advise", str(log), "--report", str(page)])
    assert done.exit_code == 0, done.output
    ET.fromstring(page.read_text(encoding="utf-8").split("\n", 1)[1])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "does not exist"),
        ("", "is empty"),
        ("{broken\n", "is not an event log of Spark: its first line is not JSON"),
        ("a,b\n1,2\n", "is not an event log of Spark"),
        ('{"a": 1}\n', "is not an event log of Spark: its first line is not an event"),
    ],
)
def test_bad_input_is_a_sentence_and_code_2(tmp_path: Path, content: str | None, why: str) -> None:
    log = tmp_path / "log"
    if content is not None:
        log.write_text(content, encoding="utf-8")
    done = CliRunner().invoke(app, ["advise", str(log)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"penstock: {log} {why}")
    assert done.stderr.count("\n") == 1


def test_a_report_that_cannot_be_written_is_a_sentence_and_code_2(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["advise", SKEW, "--report", str(tmp_path / "no" / "a.html"), *FEW]
    )
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr


def test_an_unknown_strategy_is_refused() -> None:
    done = CliRunner().invoke(app, ["advise", SKEW, "--strategy", "evn"])
    assert done.exit_code == 2
    assert "did you mean 'even'?" in done.stderr


@pytest.mark.slow
def test_every_strategy_plans_unless_some_are_named() -> None:
    done = CliRunner().invoke(app, ["advise", SKEW, "--json"])
    assert done.exit_code == 0, done.output
    plans = json.loads(done.stdout)["plans"]
    assert tuple(plan["strategy"] for plan in plans) == strategies.names()
