"""``penstock compare`` as a user types it; Spark is stood in for."""

from __future__ import annotations

import json
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from penstock.cli import compare as command
from penstock.cli.main import app
from penstock.experiments.compare.scenario import Engine, Scenario, Tell, compare
from penstock.model import PenstockError
from penstock.report.comparison import FIGURES, Entry, Instant, entry_of
from penstock.store.records import BatchRecord, RunRecord, RunRecords

LEVEL = ("compare", "wordcount", "--engine", "sim", "--rate", "5000", "--seconds", "20")


def call(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


def page(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
    return text


def test_a_simulated_comparison_is_a_table_and_a_page(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    code, out, err = call(*LEVEL, "--strategies", "even,penstock", "--report", str(file))
    assert code == 0
    head, *lines = out.splitlines()
    assert head.split() == ["even", "penstock"]
    assert [line.split("  ")[0] for line in lines] == [figure.label for figure in FIGURES]
    # What came in the last half second waits for the batch after it.
    assert lines[0].split() == ["throughput", "/s", "4.88k", "4.88k"]
    assert str(file) in err
    text = page(file)
    assert "Simulated, not measured" in text
    assert text.count("<svg xmlns") == 9


def test_json_has_an_object_a_line(tmp_path: Path) -> None:
    file = str(tmp_path / "page.html")
    first = call(*LEVEL, "--strategies", "even,ra", "--json", "--report", file)
    assert first[0] == 0
    even, ra = (json.loads(line) for line in first[1].splitlines())
    assert (even["strategy"], ra["strategy"]) == ("even", "ra")
    assert even["failure"] is None
    assert even["throughput_per_s"] == pytest.approx(5000 * 19.5 / 20)
    assert even["node_seconds"] == pytest.approx(even["nodes"] * 20)
    assert even["p50_ms"] <= even["p95_ms"] <= even["p99_ms"]
    assert {figure.name for figure in FIGURES} <= set(even)
    again = call(*LEVEL, "--strategies", "even,ra", "--json", "--report", file)
    assert first[1] == again[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "wordcount"),
        (["wordcount", "--strategies", "evn"], "did you mean 'even'"),
        (["wordcount", "--strategies", ","], "a name"),
        (["wordcount", "--engine", "storm"], "spark or sim"),
        (["wordcount", "--rate", "fast"], "tuples a second"),
        (["wordcount", "--seconds", "0"], "seconds"),
        (["wordcount", "--seconds", "nan"], "seconds"),
        (["wordcount", "--nodes", "0"], "nodes"),
        (["wordcount", "--seed", "-1"], "seed"),
        (["wordcount", "--zipf", "9"], "coefficient"),
    ],
)
def test_mistakes_are_answered_in_one_line(words: list[str], said: str) -> None:
    code, _, err = call("compare", *words)
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_page_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    code, _, err = call(*LEVEL, "--strategies", "even", "--report", str(tmp_path / "no" / "p.html"))
    assert code == 2
    assert "make it first" in err


def record(strategy: str, **run: object) -> RunRecords:
    batches = tuple(
        BatchRecord(
            "r",
            i,
            100.0 + i,
            500.0,
            rows_in=1000,
            rows_out=0 if i in (2, 3) else 10,
            nodes_used=2 if i < 4 else 4,
            local_bytes=300,
            remote_bytes=100,
            lin=0.5,
            lit={"count": 0.25, "other": 0.75},
        )
        for i in range(8)
    )
    plain = {"rows_lost": 0, "rows_duplicated": 0, **run}
    return RunRecords(RunRecord("r", "wordcount", strategy, 100.0, **plain), batches)  # type: ignore[arg-type]


def fake(scenario: Scenario, strategy: str, tell: Tell) -> Entry:
    tell("running")
    if strategy == "ra":
        raise PenstockError("no executor <came>")
    if strategy == "ts":
        raise ZeroDivisionError("by nothing")
    return entry_of(record(strategy))


def use(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    monkeypatch.setattr(command, "engine_of", lambda _: engine)


def test_a_strategy_that_fails_is_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, fake)
    file = tmp_path / "page.html"
    words = ("compare", "wordcount", "--strategies", "ra,even,ts,sl", "--report", str(file))
    code, out, err = call(*words)
    assert code == 1
    assert out.splitlines()[0].split() == ["even", "sl"]
    assert "ra failed: no executor <came>" in out
    assert "ts failed: ZeroDivisionError: by nothing" in out
    assert "comparing: sl" in err
    assert "no executor &lt;came&gt;" in page(file)
    code, out, _ = call(*words, "--json")
    assert code == 1
    values = [json.loads(line) for line in out.splitlines()]
    assert [v["failure"] is None for v in values] == [False, True, False, True]


def test_a_page_of_failures_alone_is_well_formed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, fake)
    file = tmp_path / "page.html"
    assert call("compare", "topn", "--strategies", "ra", "--report", str(file))[0] == 1
    assert "Over time" not in page(file)


def test_lost_rows_are_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, lambda _s, name, _t: entry_of(record(name, rows_lost=3)))
    file = str(tmp_path / "page.html")
    assert call("compare", "topn", "--strategies", "even", "--report", file)[0] == 1


def test_an_interruption_shows_what_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def impatient(scenario: Scenario, strategy: str, tell: Tell) -> Entry:
        if strategy == "ra":
            raise KeyboardInterrupt
        return fake(scenario, strategy, tell)

    use(monkeypatch, impatient)
    file = tmp_path / "page.html"
    words = ("--strategies", "even,ra,sl", "--report", str(file))
    code, out, err = call("compare", "wordcount", *words)
    assert code == 130
    assert out.splitlines()[0].split() == ["even"]
    assert "interrupted" in err
    assert "<td>even</td>" in page(file)


def test_figures_of_a_run_on_spark() -> None:
    entry = entry_of(record("even"))
    assert entry.seconds == 7.5
    assert entry.throughput_per_s == pytest.approx(8000 / 7.5)
    assert (entry.lin, entry.lit, entry.remote_share) == (0.5, 0.75, 0.25)
    assert entry.most_nodes == 4
    # The first batch stands for its duration, each later one for a second.
    assert entry.node_seconds == pytest.approx(0.5 * 2 + 3 * 2 + 4 * 4)
    assert entry.silent_s == pytest.approx(3.0)
    assert [i.nodes for i in entry.series] == [2] * 4 + [4] * 4
    assert entry.sound
    with pytest.raises(PenstockError, match="no batch"):
        entry_of(RunRecords(RunRecord("r", "wordcount", "even", 1.0)))


def test_the_best_is_marked_unless_all_are() -> None:
    latency = next(f for f in FIGURES if f.name == "p95_ms")
    one, two = Entry("a", p95_ms=10.0), Entry("b", p95_ms=20.0)
    assert latency.best([one, two]) == {"a"}
    assert latency.best([one, Entry("b", p95_ms=10.001)]) == frozenset()
    assert latency.best([one]) == frozenset()
    assert latency.best([one, Entry("b", p95_ms=5.0, failure="died"), two]) == {"a"}


def test_every_strategy_gets_the_same_scenario() -> None:
    seen: list[tuple[Scenario, str]] = []
    told: list[tuple[str, str]] = []

    def engine(scenario: Scenario, strategy: str, tell: Tell) -> Entry:
        seen.append((scenario, strategy))
        tell("working")
        return Entry(strategy, series=(Instant(0.0, *(None,) * 5, 1, *(None,) * 3, 0.0),))

    scenario = Scenario("wordcount", seed=7)
    entries = list(compare(scenario, ["a", "b"], engine, lambda *words: told.append(words)))
    assert [e.strategy for e in entries] == ["a", "b"]
    assert seen == [(scenario, "a"), (scenario, "b")]
    assert told == [("a", "starting"), ("a", "working"), ("b", "starting"), ("b", "working")]


def finished(scenario: Scenario, strategy: str, store: str, tell: Tell) -> None:
    from penstock.store.store import MetricsStore

    tell("running")
    with MetricsStore.open(store) as opened:
        records = record(strategy)
        opened.put_run(records.run)
        for batch in records.batches:
            opened.put_batch(batch)


def failing(scenario: Scenario, strategy: str, store: str, tell: Tell) -> None:
    finished(scenario, strategy, store, tell)
    raise PenstockError("later")


def at_once(scenario: Scenario, strategy: str, store: str, tell: Tell) -> None:
    raise ValueError("at once")


def dying(scenario: Scenario, strategy: str, store: str, tell: Tell) -> None:
    import os
    import sys

    print("last words", file=sys.stderr, flush=True)
    os._exit(3)


def waiting(scenario: Scenario, strategy: str, store: str, tell: Tell) -> None:
    try:
        tell(store)
        time.sleep(60)
    finally:
        Path(scenario.rate.removeprefix("file:")).touch()


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a new process find the functions of this file."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))


@pytest.mark.usefixtures("importable")
def test_a_run_in_its_own_process() -> None:
    spark = pytest.importorskip("penstock.experiments.compare.on_spark")
    told: list[str] = []
    scenario = Scenario("wordcount")
    entry = spark.measured(scenario, "even", told.append, finished)
    assert (entry.strategy, entry.failure, told) == ("even", "", ["running"])
    entry = spark.measured(scenario, "even", told.append, failing)
    assert entry.failure == "later"
    assert entry.seconds == 7.5
    with pytest.raises(PenstockError, match="ValueError: at once"):
        spark.measured(scenario, "even", told.append, at_once)
    with pytest.raises(PenstockError, match="code 3: last words"):
        spark.measured(scenario, "even", told.append, dying)


@pytest.mark.usefixtures("importable")
def test_an_interrupted_process_cleans_up(tmp_path: Path) -> None:
    spark = pytest.importorskip("penstock.experiments.compare.on_spark")
    rate = tmp_path / "rate.csv"
    rate.write_text("time_s,rate_per_s\n0,100\n10,200\n")
    scenario = Scenario("wordcount", rate=f"file:{rate}")
    rate.unlink()

    def impatient(text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spark.measured(scenario, "even", impatient, waiting)
    assert rate.exists()
