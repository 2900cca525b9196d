"""The wheel as a stranger installs it: in an empty environment, with what it says it needs."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def output_of(*command: str | Path, cwd: Path) -> str:
    """Run a command that knows nothing of this environment, and return what it prints."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV", "COV_", "COVERAGE"))
    }
    ran = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.slow
def test_the_wheel_installs_and_runs_in_an_empty_environment(tmp_path: Path) -> None:
    pip = ("-m", "pip", "--quiet", "--disable-pip-version-check")
    output_of(sys.executable, *pip, "wheel", "--no-deps", "-w", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("penstock-*.whl")
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    command = tmp_path / "empty" / "bin" / "penstock"
    # Python compiles what is imported; compiling all of it takes longer than installing it.
    output_of(python, *pip, "install", "--no-compile", f"{wheel}[spark]", cwd=tmp_path)
    where = "import penstock, pyspark; print(penstock.__file__)"
    assert Path(output_of(python, "-c", where, cwd=tmp_path)).is_relative_to(tmp_path)
    topology = ROOT / "examples" / "wordcount.yaml"
    planned = output_of(command, "plan", topology, "--nodes", "2", "--strategy", "ms", cwd=tmp_path)
    assert "ms: feasible" in planned
    assert "wordcount" in output_of(command, "apps", cwd=tmp_path)
    assert "--checkpoint" in output_of(command, "run", "--help", cwd=tmp_path)
    listed = output_of(python, *pip, "list", cwd=tmp_path)
    tools = {"pytest", "mypy", "ruff", "sphinx", "hypothesis", "torch"}
    assert not tools & {line.split()[0].lower() for line in listed.splitlines()[2:]}
