"""``penstock simulate`` and ``penstock reproduce`` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.experiments.papers import ra, sl, ts
from penstock.experiments.papers.draw import bars
from penstock.experiments.papers.figure import Figure
from penstock.experiments.papers.page import Paper, markdown, write
from penstock.experiments.papers.trial import System, bottleneck, steady

ROOT = Path(__file__).parents[3]


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
        (["wordcount", "--nodes", "1", "--fault", "kill-node@t=1"], "not the last node"),
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


def test_an_unknown_paper_is_refused() -> None:
    code, _, err = call("reproduce", "rs")
    assert code == 2
    assert "ts, sra, sl, ms, ra, all" in err


def example(**more: object) -> Figure:
    values: dict[str, object] = {
        "where": "Fig. 1",
        "what": "latency",
        "unit": "ms",
        "own": "New",
        "here": {"New": 2.0, "Old": 3.0, "Ours": 1.0},
        "paper": {"New": 1.0, "Old": 4.0},
    }
    return Figure(**{**values, **more})  # type: ignore[arg-type]


def test_a_figure_compares_orders() -> None:
    assert example().verdict == "as in the paper"
    assert example().improvement(example().paper, "Old") == 4.0
    three = {"New": 1.0, "Old": 4.0, "Ours": 9.0}
    assert example(paper=three).verdict == "behind Ours here"
    assert example(paper=three, own="Old").verdict == "behind Ours here"
    assert example(paper=three, own="Ours").verdict == "differs among the others"
    assert example(here={"New": 3.0, "Old": 2.0}).verdict == "behind Old here"
    assert example(here={"New": 3.0, "Old": 3.01}).verdict == "level with Old here"
    assert example(paper={}, beats=("Old",)).wrong == ()
    assert example(paper={}).verdict == "no order in the paper"


def test_a_page_names_what_contradicts(tmp_path: Path) -> None:
    drawing = bars("latency", {"paper": {"New": 1.0}, "here": {"New": 3.0, "Old": 2.0}})
    odd = example(here={"New": 3.0, "Old": 2.0}, why="Because.", drawing=drawing)
    paper = Paper("xx", "A paper", {"Cluster": "one"}, (example(), odd))
    text = markdown(paper)
    assert "Of 2 comparisons whose order the paper tells, 1 come out" in text
    assert "**Not as in the paper** (which has New before Old). Because." in text
    assert write(paper, tmp_path) == tmp_path / "xx.md"
    (file,) = tmp_path.glob("*.svg")
    ElementTree.fromstring(file.read_text(encoding="utf-8"))
    assert file.name in text


def test_every_paper_is_compared_with_its_own_system() -> None:
    for paper in (ra, sl, ts):
        assert paper.SYSTEMS[0].label == paper.OWN


def test_a_bottleneck_is_sustained_and_little_more_is_not() -> None:
    system, topology = System("Storm", "even", settles=True), ts.APPS["Top-N"]
    most = bottleneck(system, topology, ts.CLUSTER)
    assert most > 1000
    found = steady(system, topology, ts.CLUSTER, 1.3 * most, seconds=130)
    assert found["throughput_per_s"] < 0.99 * found["arriving_per_s"]
