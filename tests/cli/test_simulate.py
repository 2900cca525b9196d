"""``penstock simulate`` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app

ROOT = Path(__file__).parents[2]


def call(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


def test_an_application_is_simulated_by_name() -> None:
    code, out, _ = call("simulate", "wordcount", "--rate", "5000", "--seconds", "20")
    assert code == 0
    assert "throughput /s" in out
    assert "5k" in out


def test_several_strategies_are_compared_as_json() -> None:
    code, out, _ = call(
        "simulate",
        str(ROOT / "examples" / "portrait.yaml"),
        "--cluster",
        str(ROOT / "examples" / "lab.yaml"),
        "--strategy",
        "even,rstorm",
        "--seconds",
        "20",
        "--json",
    )
    assert code == 0
    even, rstorm = (json.loads(line) for line in out.splitlines())
    assert (even["strategy"], rstorm["strategy"]) == ("even", "rstorm")
    assert even["nodes"] > rstorm["nodes"]
    assert even["latency_ms"]["p50"] <= even["latency_ms"]["p99"]


def test_ten_times_the_rate_needs_more_nodes() -> None:
    def nodes(scale: str) -> float:
        words = ["--cluster", str(ROOT / "examples" / "lab.yaml"), "--rate", "500", "--json"]
        topology = str(ROOT / "examples" / "portrait.yaml")
        code, out, _ = call("simulate", topology, *words, "--rate-scale", scale, "--seconds", "40")
        assert code == 0
        return float(json.loads(out)["most_nodes"])

    assert nodes("20") > nodes("1")


def test_the_report_is_one_well_formed_page(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    code, _, err = call(
        "simulate",
        "wordcount",
        "--seconds",
        "30",
        "--fault",
        "slow-node@t=10:factor=0.5",
        "--report",
        str(file),
    )
    assert code == 0
    assert str(file) in err
    text = file.read_text(encoding="utf-8")
    ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
    assert "Simulated, not measured" in text
    assert "slow-node@t=10" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "wordcount"),
        (["missing.yaml"], "missing.yaml"),
        (["wordcount", "--strategy", "evn"], "did you mean 'even'"),
        (["wordcount", "--rate", "fast"], "tuples a second"),
        (["wordcount", "--seconds", "0"], "seconds"),
        (["wordcount", "--rate-scale", "-1"], "rate-scale"),
        (["wordcount", "--fault", "kill-node"], "KIND@t=SECONDS"),
        (["wordcount", "--fault", "kill-node@t=1:node=x"], "a node of the cluster"),
        (["wordcount", "--nodes", "1", "--fault", "kill-node@t=1"], "the last node; simulate more"),
        (["wordcount", "--nodes", "0"], "nodes"),
        (["wordcount", "--nodes", "2", "--cluster", "x.yaml"], "exclude each other"),
        (["wordcount", "--costs", "x.yaml"], "x.yaml"),
        (["wordcount", "--zipf", "9"], "coefficient"),
        (["wordcount", "--seed", "-1"], "seed"),
    ],
)
def test_mistakes_are_answered_in_one_line(words: list[str], said: str) -> None:
    code, _, err = call("simulate", *words)
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1
