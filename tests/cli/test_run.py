"""``penstock run`` as a user types it: everything is checked before Spark starts."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli import run as command
from penstock.cli.checks import check_nodes
from penstock.cli.main import app
from penstock.cli.scratch import scratch
from penstock.engine.errors import StepFailed
from penstock.model import PenstockError


class SparkStarted(AssertionError):
    """A check came too late."""


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def started() -> None:
        raise SparkStarted

    monkeypatch.setattr(command, "require_java", started)
    monkeypatch.chdir(tmp_path)


def call(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["run", *words])
    if isinstance(result.exception, SparkStarted):
        raise result.exception
    return result.exit_code, result.stderr


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["wordcout"], "did you mean 'wordcount'?"),
        (["wordcount", "--strategy", "pennstock"], "did you mean 'penstock'?"),
        (["wordcount", "--master", "lokal[2]"], "one of local[4], local-cluster[4,1,1024]"),
        (["wordcount", "--master", "local[0]"], "local[0]"),
        (["wordcount", "--master", "spark://host"], "spark://HOST:PORT"),
        (["wordcount", "--master", "spark://127.0.0.1:99999"], "a port from 1 to 65535"),
        (["wordcount", "--master", f"spark://127.0.0.1:{closed_port()}"], "no Spark master"),
        (["wordcount", "--nodes", "0"], "nodes"),
        (["wordcount", "--nodes", "100000"], "needs about 30,000,000 MB"),
        (["wordcount", "--checkpoint", "taken/inside"], "taken is a file, not a folder"),
        (["wordcount", "--checkpoint", ""], "a folder or an address"),
        (["wordcount", "--checkpoint", "nofs://host/folder"], "Arrow can open"),
        (["wordcount", "--store", "taken"], "metrics store taken"),
        (["wordcount", "--store", "postgresql://127.0.0.1:1/none"], "metrics store"),
        (["wordcount", "--report", "missing/report.html"], "there is no folder missing"),
        (["wordcount", "--report", "folder"], "is a folder; name a file in it"),
        (["wordcount", "--parallelism", "0"], "parallelism"),
        (["wordcount", "--seed", "-1"], "seed"),
        (["wordcount", "--zipf", "9"], "coefficient"),
        (["wordcount", "--seconds", "0"], "more than 0"),
        (["wordcount", "--rate", "fast"], "tuples a second"),
        (["wordcount", "--min-nodes", "5", "--max-nodes", "3"], "at least min_nodes"),
    ],
)
def test_bad_input_is_2_and_one_sentence(words: list[str], said: str) -> None:
    Path("taken").write_text("a text, no database and no folder")
    Path("folder").mkdir()
    code, told = call(*words)
    assert code == 2
    assert said in told
    assert told.startswith("penstock: ")
    assert told.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_report_in_a_folder_for_reading_is_refused(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    code, told = call("wordcount", "--report", "closed/report.html")
    assert code == 2
    assert "cannot be written" in told


def test_sound_input_goes_on_to_spark() -> None:
    with pytest.raises(SparkStarted):
        call("wordcount", "--checkpoint", "new/folder", "--store", "m.sqlite", "--report", "r.html")
    assert not Path("new").exists()


def test_memory_bounds_an_embedded_cluster() -> None:
    check_nodes(10, available_mb=3000)
    with pytest.raises(PenstockError, match="at most 10, or a --master"):
        check_nodes(11, available_mb=3000)


def test_temporary_files_go_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    before = tempfile.gettempdir()
    with scratch() as folder:
        assert Path(tempfile.mkdtemp()).parent == folder == Path(os.environ["TMPDIR"])
        os.environ["SPARK_HOME"] = str(folder)
    assert not folder.exists()
    assert "SPARK_HOME" not in os.environ
    assert tempfile.gettempdir() == before
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "x" * 80)
    with scratch() as folder:
        assert folder.parent == Path("/tmp")


class FakeSpark:
    """Stands for `penstock.spark`, without a cluster."""

    def embedded(self, nodes: int, processes: int = 1) -> str:
        return f"local-cluster[{nodes * processes},1,1024]"

    @contextlib.contextmanager
    def cluster(self, master: str, processes: int = 1) -> Iterator[object]:
        yield object()


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("pyspark")

    def use(failure: Exception) -> None:
        monkeypatch.setattr(command, "require_java", lambda: None)
        import penstock
        from penstock.runtimes.spark import query

        def launch(*given: object) -> Any:
            raise failure

        monkeypatch.setattr(query, "launch", launch)
        monkeypatch.setattr(penstock, "spark", FakeSpark(), raising=False)
        monkeypatch.setitem(sys.modules, "penstock.spark", penstock.spark)

    return use


def test_a_failed_run_is_3_and_no_traceback(fails: Any) -> None:
    fails(RuntimeError("An error occurred while calling o1.x\n\tat org.apache.spark"))
    code, told = call("wordcount")
    assert code == 3
    assert "the run failed: RuntimeError: An error occurred while calling o1.x;" in told
    assert "Traceback" not in told
    assert "org.apache.spark" not in told
    code, told = call("wordcount", "--verbose")
    assert code == 3
    assert "Traceback" in told
    assert "org.apache.spark" in told


def test_the_users_traceback_comes_first(fails: Any) -> None:
    trace = 'Traceback (most recent call last):\n  File "mine.py", line 3, in split'
    failure = StepFailed("split", 0, 3, "ValueError: bad", "[]", trace)
    fails(failure)
    code, told = call("wordcount")
    assert code == 3
    assert told.index("mine.py") < told.index("penstock: the run failed: step 'split' failed")


def test_what_is_misspelt_is_answered_with_the_near_word() -> None:
    for words, near in (
        (["run", "wordcount", "--stratgy", "even"], "--strategy"),
        (["rnu", "wordcount"], "run"),
    ):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 2
        assert near in result.stderr


@pytest.mark.spark
@pytest.mark.parametrize(
    ("sign", "number", "code"),
    [("warming up", signal.SIGTERM, 143), ("batch 0:", signal.SIGINT, 130)],
)
def test_a_signal_is_a_clean_stop(tmp_path: Path, sign: str, number: int, code: int) -> None:
    pytest.importorskip("pyspark")
    # Not under pytest's folder: the paths of sockets must be short.
    temporary = Path(tempfile.mkdtemp(prefix="p-"))
    words = ["run", "wordcount", "--nodes", "2", "--seconds", "300", "--checkpoint", "state"]
    with (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", "from penstock.cli.main import app; app()", *words],
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(temporary)},
            stdout=subprocess.DEVNULL,
            stderr=err,
        )
        told, until = "", time.monotonic() + 120
        while sign not in told and process.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
            told = (tmp_path / "err").read_text()
        process.send_signal(number)
        assert process.wait(120) == code, (tmp_path / "err").read_text()
    told = (tmp_path / "err").read_text()
    assert f"exit code {code}" in told.splitlines()[-1]
    assert "Traceback" not in told
    temporary.rmdir()  # which must be empty
    assert (tmp_path / "state").exists()


JOB = """
from penstock import functions as F
from penstock.pipeline import Discard, Lines, Pipeline

def counts(lines: int = 3):
    begun = Pipeline("words").source("lines", Lines(["a"] * lines))
    return begun.aggregate("count", by="line", n=F.count()).sink("out", Discard())

pipeline = counts()
"""


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "words_job.py"
    path.write_text(JOB)
    return str(path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{}:count"], "did you mean 'counts'?"),
        (["{}x.py"], "JOB.py of a run must be a file"),
        (["{}:F"], "must be one of"),
        (["{}:counts", "--set", "linse=4"], "did you mean 'lines'?"),
        (["{}:counts", "--set", "lines=many"], "must be a number, got 'many'"),
        (["{}", "--set", "lines=4"], "--set"),
        (["wordcount", "--set", "polish"], "must be name=value"),
        (["topn", "--strategy", "ra", "--set", "polsh=0"], "did you mean 'polish'?"),
        (["topn", "--strategy", "ra", "--set", "polish=-1"], "polish of Ra must be"),
        (["wordcount", "--set", "queue.size=0"], "size"),
        (["wordcount", "--set", "recovery.retries=-1"], "retries"),
        (["wordcount", "--set", "interval_s=-1"], "interval_s"),
        (["wordcount", "--set", "stable_rounds=0"], "stable_rounds of Settings must be"),
        (["wordcount", "--set", "loop.cooldown=5", "--no-adapt"], "left out with --no-adapt"),
        (["wordcount", "--processes", "0"], "a whole number of at least 1"),
        (["wordcount", "--processes", "2", "--master", "local[2]"], "on a given --master"),
    ],
)
def test_parameters_and_scripts_are_checked_first(job: str, words: list[str], said: str) -> None:
    code, text = call(*(word.format(job) for word in words))
    assert code == 2
    assert said in text


@pytest.mark.parametrize(
    "words",
    [["{}"], ["{}:counts", "--set", "lines=4"], ["topn", "--strategy", "ra", "--set", "polish=0"]],
)
def test_what_is_right_goes_on_to_spark(job: str, words: list[str]) -> None:
    with pytest.raises(SparkStarted):
        call(*(word.format(job) for word in words))


def test_a_script_that_fails_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "broken_job.py"
    path.write_text("pipeline = 1 / 0\n")
    code, text = call(str(path))
    assert code == 2
    assert "ZeroDivisionError" in text
    assert "broken_job.py" in text
