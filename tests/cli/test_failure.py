"""A failure shows the user's own code, and Spark's only when asked for."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import submit as command
from penstock.cli.failure import only_own, users_part
from penstock.cli.main import app
from penstock.engine.errors import StepFailed, UserCode

WORKER = """Job aborted due to stage failure: Task 0 in stage 4.0 failed:
Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark/worker.py", line 1885, in main
    process()
  File "/home/me/job.py", line 12, in parse
    return int(value)
           ^^^^^^^^^^
ValueError: invalid literal for int() with base 10: 'x'

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:581)
\t... 12 more
Caused by: org.apache.spark.SparkException: again
JVM stacktrace:
"""


def test_of_a_workers_report_the_users_part_is_left() -> None:
    assert only_own(WORKER).splitlines() == [
        "Job aborted due to stage failure: Task 0 in stage 4.0 failed:",
        "Traceback (most recent call last):",
        '  File "/home/me/job.py", line 12, in parse',
        "    return int(value)",
        "           ^^^^^^^^^^",
        "ValueError: invalid literal for int() with base 10: 'x'",
    ]


def test_frames_of_penstock_are_left_out() -> None:
    from penstock.model import Operator

    with pytest.raises(ValueError, match="parallelism") as caught:
        Operator("x", parallelism=0)
    told = users_part(caught.value)
    assert "test_failure.py" in told
    assert "model/operator.py" not in told


def test_a_script_that_fails_shows_its_own_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    script = tmp_path / "job.py"
    script.write_text("def parse():\n    return int('x')\n\nparse()\n")
    monkeypatch.setattr(command, "require_java", lambda: None)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["submit", str(script)])
    assert result.exit_code == 1
    first, *_ = [line for line in result.stderr.splitlines() if "File" in line]
    assert str(script) in first
    assert "runpy" not in result.stderr
    verbose = CliRunner().invoke(app, ["submit", "--verbose", str(script)])
    assert verbose.exit_code == 1
    assert "runpy" in verbose.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--strategy", "evn", "job.py"], "did you mean 'even'?"),
        (["missing.py"], "a Python file that exists"),
        (["--report", "no/report.html", "job.py"], "make it first"),
        (["--min-nodes", "4", "--max-nodes", "2", "job.py"], "at least min_nodes"),
    ],
)
def test_bad_input_of_a_submission_is_2(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text("")
    result = CliRunner().invoke(app, ["submit", *words])
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_trace_of_a_users_function_comes_with_the_error() -> None:
    def parse() -> int:
        return int("x")

    with pytest.raises(StepFailed) as caught:
        UserCode(0, 3).call("parse", parse)
    failure = pickle.loads(pickle.dumps(caught.value))
    told = only_own(failure.trace)
    assert 'return int("x")' in told
    assert "engine/errors.py" not in told
    assert told.endswith("ValueError: invalid literal for int() with base 10: 'x'")
