"""The papers' experiments: figures, their pages, and the trials behind them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar
from xml.etree import ElementTree

from penstock.experiments.papers import ra, sl, ts
from penstock.experiments.papers.draw import bars
from penstock.experiments.papers.figure import Figure
from penstock.experiments.papers.page import Paper, markdown, write
from penstock.experiments.papers.trial import Declared, System, bottleneck, steady
from penstock.model import Keep, Measurements, Plan
from penstock.strategies import Request, strategies


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


def test_a_figure_compares_values_where_they_are_the_claim() -> None:
    nodes = {"1800/s": 5.0, "3000/s": 7.0}
    assert example(paper=nodes, here=nodes, same=True).verdict == "as in the paper"
    other = example(paper=nodes, here={"1800/s": 5.0, "3000/s": 5.0}, same=True)
    assert other.wrong == (("3000/s", "3000/s"),)
    assert other.verdict == "1 of 2 as in the paper"
    text = markdown(Paper("xx", "A paper", {}, (other,)))
    assert "**Not as in the paper** (which has 7 at 3000/s)." in text


def test_what_is_declared_is_all_that_a_declared_system_sees() -> None:
    seen: list[Request] = []

    class Watched:
        name: ClassVar[str] = "watched"
        summary: ClassVar[str] = ""
        origin: ClassVar[str] = ""

        def plan(self, request: Request) -> Plan | Keep:
            seen.append(request)
            return strategies.make("even").plan(request)  # type: ignore[no-any-return]

    measured = Measurements(source_rates={"read": 9e9})
    topology = ts.APPS["WordCount"]
    Declared("watched", Watched()).plan(Request(topology, ts.CLUSTER, measured))
    (request,) = seen
    assert request.measurements is None
    assert len(request.graph) == sum(topology.parallelism.values())
    assert set(request.graph.cpu_cores.tolist()) == {0.1}
    assert set(request.graph.mem_mb.tolist()) == {128.0}


def test_the_algorithm_alone_has_no_local_search() -> None:
    for paper in (ra, sl, ts):
        alone = paper.SYSTEMS[-1]
        assert alone.parameters == {"polish": 0}
        assert strategies.make(alone.strategy, **alone.parameters).polish == 0


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
