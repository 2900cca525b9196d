"""The command keeps its promises: flags, JSON keys, exit codes, and never a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner, Result

import penstock
from penstock.cli.main import app
from penstock.cli.progress import ProgressBar
from penstock.files import load_plan
from penstock.model import Keep, Plan, Reason, Refused
from penstock.strategies import Request, strategies
from penstock.strategies.even import Even

EXAMPLES = Path(__file__).parents[2] / "examples"
GRAPHS = Path(__file__).parents[1] / "data" / "topologies"
WORDS = str(EXAMPLES / "wordcount.yaml")
KEYS = [
    "strategy",
    "seconds",
    "feasible",
    "infeasible",
    "nodes_used",
    "cut_share",
    "in_process_share",
    "max_node_load",
    "lin",
    "reasons",
    "placement",
]


def penstock_(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@dataclass(frozen=True)
class Never:
    name: ClassVar[str] = "never"
    summary: ClassVar[str] = "refuses everything"
    origin: ClassVar[str] = "these tests"

    def plan(self, request: Request) -> Plan | Keep:
        raise Refused("never takes a request; ask 'even'")


@dataclass(frozen=True)
class Keeper:
    name: ClassVar[str] = "keeper"
    summary: ClassVar[str] = "keeps what runs"
    origin: ClassVar[str] = "these tests"

    def plan(self, request: Request) -> Plan | Keep:
        return Keep((Reason("nothing to do"),))


@pytest.fixture
def more_strategies() -> Iterator[None]:
    strategies.names()  # all are loaded
    added: list[type[Any]] = [Never, Keeper]
    for part in added:
        strategies.register(part)
    yield
    for part in added:
        del strategies._parts[part.name]


def test_json_has_the_promised_keys() -> None:
    result = penstock_("plan", WORDS, "--nodes", "2", "--json")
    assert result.exit_code == 0
    (found,) = lines(result)
    assert list(found) == KEYS
    assert found["strategy"] == "penstock"
    assert found["feasible"] is True
    assert found["infeasible"] == []
    assert found["nodes_used"] == 2
    assert found["cut_share"] == pytest.approx(0.5)
    assert all(isinstance(reason, str) for reason in found["reasons"])
    assert {name: len(spots) for name, spots in found["placement"].items()} == {
        "lines": 2,
        "split": 4,
        "count": 6,
    }
    (even,) = lines(penstock_("plan", WORDS, "--nodes", "2", "--strategy", "even", "--json"))
    assert even["placement"]["lines"][1] == {"node": "node-1", "process": 0}


def test_nodes_are_four_when_nothing_is_said() -> None:
    (found,) = lines(penstock_("plan", WORDS, "--strategy", "even", "--json"))
    assert found["nodes_used"] == 4


def test_several_strategies_give_a_line_each_in_the_order_asked() -> None:
    result = penstock_("plan", WORDS, "--strategy", "rstorm, even,rstorm", "--json")
    assert [found["strategy"] for found in lines(result)] == ["rstorm", "even"]


def test_all_asks_every_strategy_and_prints_nothing_but_json() -> None:
    graph = str(GRAPHS / "c01-t33.json")
    result = penstock_("plan", graph, "--nodes", "2", "--strategy", "all", "--json")
    assert [found["strategy"] for found in lines(result)] == list(strategies.names())
    for found in lines(result):
        assert list(found) == KEYS


def test_equal_seeds_give_equal_plans() -> None:
    def placements(seed: str) -> list[Any]:
        asked = ("plan", WORDS, "--strategy", "even,rstorm,spark,metis", "--seed", seed, "--json")
        return [found["placement"] for found in lines(penstock_(*asked))]

    assert placements("7") == placements("7")


def test_a_plan_does_not_depend_on_who_else_is_asked() -> None:
    alone = lines(penstock_("plan", WORDS, "--strategy", "spark", "--json"))[0]
    after = lines(penstock_("plan", WORDS, "--strategy", "even,spark", "--json"))[1]
    assert alone["placement"] == after["placement"]


def test_exact_nodes_reaches_the_strategy() -> None:
    asked = ("plan", WORDS, "--nodes", "6", "--strategy", "rstorm", "--exact-nodes", "--json")
    assert lines(penstock_(*asked))[0]["nodes_used"] == 6


def test_measurements_change_the_rates() -> None:
    measured = ("--measurements", str(EXAMPLES / "wordcount-measured.yaml"))
    result = penstock_("plan", WORDS, *measured)
    assert result.exit_code == 0
    assert "17,490 tuples/s" in result.stdout


def test_a_person_reads_plan_reasons_and_comparison() -> None:
    result = penstock_("plan", WORDS, "--nodes", "2", "--strategy", "even,rstorm")
    assert result.exit_code == 0
    assert "each 0.7286 cores, 1,789 MB, 4 processes" in result.stdout
    assert "node-0    70%  lines[0] split[0,2] count[0,2,4]" in result.stdout
    assert "why: 12 instances placed in turn" in result.stdout
    assert "Comparison" in result.stdout


def test_long_plans_are_cut_for_people() -> None:
    result = penstock_("plan", str(GRAPHS / "c01-t00.json"), "--nodes", "40")
    assert "nodes: ... and 24 more (--json prints all)" in result.stdout


def test_names_are_not_markup(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("operators: [{name: '[red]a[/]', kind: source}]")
    result = penstock_("plan", str(file), "--nodes", "1")
    assert result.exit_code == 0
    assert "[red]a[/][0]" in result.stdout


def test_infeasible_is_1_and_says_what_breaks(tmp_path: Path) -> None:
    cluster = tmp_path / "small.yaml"
    cluster.write_text("nodes: [{name: tiny, cpu_cores: 0.1, mem_mb: 10, slots: 2}]")
    asked = ("plan", WORDS, "--cluster", str(cluster))
    result = penstock_(*asked)
    assert result.exit_code == 1
    assert "breaks: node 'tiny' needs" in result.stdout
    result = penstock_(*asked, "--json")
    assert result.exit_code == 1
    (found,) = lines(result)
    assert found["feasible"] is False
    assert len(found["infeasible"]) == 3
    assert found["placement"]
    assert penstock_(*asked, "--strategy", "even,rstorm").exit_code == 1


@pytest.mark.usefixtures("more_strategies")
def test_a_refusal_is_told_and_only_fatal_alone() -> None:
    result = penstock_("plan", WORDS, "--strategy", "never", "--json")
    assert result.exit_code == 1
    (found,) = lines(result)
    reason = "never takes a request; ask 'even'"
    assert list(found) == KEYS
    assert (found["feasible"], found["infeasible"]) == (False, [reason])
    assert found["placement"] is found["cut_share"] is found["lin"] is None
    result = penstock_("plan", WORDS, "--strategy", "never,even")
    assert result.exit_code == 0
    assert "never: refused" in result.stdout
    assert reason in result.stdout


@pytest.mark.usefixtures("more_strategies")
def test_keep_without_a_running_plan_is_no_plan() -> None:
    result = penstock_("plan", WORDS, "--strategy", "keeper", "--json")
    assert result.exit_code == 1
    assert lines(result)[0]["reasons"] == ["nothing to do"]


def test_a_cyclic_topology_is_planned_with_a_warning_on_stderr() -> None:
    result = penstock_("plan", str(GRAPHS / "c01-t11.json"), "--json")
    assert result.exit_code == 0
    assert "without a cycle, got 'op3 -> op3' (can be planned, cannot run)" in result.stderr
    assert len(lines(result)) == 1


def test_a_plan_is_saved(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert penstock_("plan", WORDS, "--out", str(file)).exit_code == 0
    assert load_plan(file) == penstock.plan(WORDS, 4)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["plan", "nope.yaml"], "nope.yaml does not exist"),
        (["plan", "."], "must end in .yaml, .yml, .json"),
        (["plan", WORDS, "--nodes", "0"], "a whole number from 1 to 100000, got 0"),
        (["plan", WORDS, "--nodes", "-3"], "got -3"),
        (["plan", WORDS, "--nodes", "x"], "--nodes"),
        (["plan", WORDS, "--nodes", "2", "--cluster", WORDS], "exclude each other"),
        (["plan", WORDS, "--cluster", WORDS], "must be one of nodes"),
        (["plan", WORDS, "--measurements", WORDS], "is not known"),
        (["plan", WORDS, "--strategy", "evn"], "did you mean 'even'?"),
        (["plan", WORDS, "--strategy", ""], "all or a name"),
        (["plan", WORDS, "--seed", "-1"], "a whole number of at least 0, got -1"),
        (["plan", WORDS, "--out", "x.json", "--strategy", "even,rstorm"], "can hold one plan"),
        (["plan", WORDS, "--out", "/no/such/x.json"], "make it first"),
        (["plan"], "FILE"),
        (["plan", WORDS, "--colour"], "--colour"),
        (["plant"], "plant"),
    ],
)
def test_bad_input_is_2_and_one_message(words: list[str], told: str) -> None:
    result = penstock_(*words)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Traceback" not in result.output


def test_rates_beyond_reason_are_bad_input(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    names = [f"o{i}" for i in range(40)]
    operators = [{"name": name, "selectivity": 1e12} for name in names]
    operators[0] = {"name": "o0", "kind": "source"}
    edges = [{"from": a, "to": b} for a, b in pairwise(names)]
    file.write_text(json.dumps({"operators": operators, "edges": edges}))
    result = penstock_("plan", str(file))
    assert result.exit_code == 2
    assert "at most 1e+15 tuples/s" in result.stderr


def test_strategies_are_listed() -> None:
    result = penstock_("strategies")
    assert result.exit_code == 0
    assert f"even\n    {Even.summary}\n    from {Even.origin}\n" in result.stdout
    found = lines(penstock_("strategies", "--json"))
    assert [row["name"] for row in found] == list(strategies.names())
    assert all(list(row) == ["name", "summary", "origin", "parameters"] for row in found)


def test_version_and_help() -> None:
    assert penstock_("--version").stdout == f"penstock {penstock.__version__}\n"
    assert "penstock plan examples/wordcount.yaml --nodes 4" in penstock_("plan", "--help").stdout
    assert "strategies" in penstock_("--help").stdout


def test_progress_shows_on_a_terminal_after_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with ProgressBar(2, patience_s=0.0) as progress:
        progress.now("slow")
        time.sleep(0.3)
        progress.now("slower")
    assert "slow" in capsys.readouterr().err
    monkeypatch.delenv("FORCE_COLOR")
    with ProgressBar(1, patience_s=0.0) as progress:
        progress.now("silent")
    assert capsys.readouterr().err == ""


INTERRUPTED = """
import os, signal
from penstock.cli.main import app
from penstock.strategies.even import Even

def plan(self, request):
    os.kill(os.getpid(), signal.SIGINT)
    import time
    time.sleep(30)

Even.plan = plan
app()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_is_130_and_one_line() -> None:
    # A test runner in the background may ignore SIGINT, and children inherit that.
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "plan", WORDS, "--strategy", "even", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )
    assert ran.returncode == 130
    assert ran.stderr == "penstock: interrupted, exit code 130\n"
    assert ran.stdout == ""
