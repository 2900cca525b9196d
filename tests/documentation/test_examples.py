"""Everything that the documents show is run: Python, commands, and files in YAML."""

from __future__ import annotations

import doctest
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.files import load_cluster, load_measurements, load_topology
from penstock.files.topology import TOPOLOGY_FIELDS
from penstock.runtimes.sim.costs import CostProfile
from penstock.store import BatchRecord, MetricsStore, RunRecord

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "strategies").glob("*.md"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
    ]
)
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Commands that start Spark, take minutes, or go on until Ctrl-C.
SLOW = (
    *("calibrate", "chaos", "compare", "nexmark", "reproduce", "run", "serve"),
    *("state-bench", "submit"),
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def fences(page: Path, language: str) -> Iterator[tuple[int, str]]:
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        if match[1] == language:
            yield text.count("\n", 0, match.start()) + 1, match[2]


def examples(language: str) -> list[object]:
    return [
        pytest.param(page, code, id=f"{page.relative_to(ROOT)}:{line}")
        for page in PAGES
        for line, code in fences(page, language)
    ]


@pytest.fixture(autouse=True)
def with_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def leave_a_run_in(place: str) -> None:
    """Write what a run would have left, for the commands that follow."""
    with MetricsStore.open(place) as store:
        store.put_run(RunRecord("r1", "wordcount", "penstock", started_at_s=1000.0))
        store.put_batch(BatchRecord("r1", 0, 1000.0, 350.0, rows_in=5000))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_examples_give_what_they_show(page: Path) -> None:
    # The blocks of a page build on each other.
    source = "\n".join(code for _, code in fences(page, "python"))
    test = doctest.DocTestParser().get_doctest(source, {}, page.name, str(page), 0)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    assert not report, "".join(report)


@pytest.mark.parametrize(("page", "code"), examples("py"))
def test_what_is_not_run_is_python_at_least(page: Path, code: str) -> None:
    compile(code, str(page), "exec")


@pytest.mark.parametrize(("page", "code"), examples("console"))
def test_commands_give_what_they_show(page: Path, code: str) -> None:
    for block in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        command, _, wanted = block.partition("\n")
        words = shlex.split(command)
        assert words[0] == "penstock", command
        if words[1] in SLOW:
            # A minute of Spark, or of simulation, each: that the command is understood must do.
            slow = get_command(app).commands[words[1]]  # type: ignore[attr-defined]
            given = slow.make_context(words[1], words[2:]).params
            if given.get("store") is not None:
                leave_a_run_in(given["store"])
            if words[1] == "calibrate":
                CostProfile.spark().save(given["out"])
            continue
        result = CliRunner().invoke(app, words[1:])
        assert result.exit_code == 0, result.output
        if wanted.strip():
            checker = doctest.OutputChecker()
            assert checker.check_output(wanted, result.stdout, FLAGS), result.stdout


@pytest.mark.parametrize(("page", "code"), examples("yaml"))
def test_files_load(page: Path, code: str, tmp_path: Path) -> None:
    file = tmp_path / "shown.yaml"
    file.write_text(code, encoding="utf-8")
    fields = set(yaml.safe_load(code))
    if fields <= set(TOPOLOGY_FIELDS):
        load_topology(file, relaxed=False)
    elif fields == {"nodes"}:
        load_cluster(file)
    else:
        load_measurements(file, load_topology("examples/wordcount.yaml"))


def test_every_page_has_something_to_check() -> None:
    assert len(examples("console")) > 5
    assert len(examples("yaml")) > 3
