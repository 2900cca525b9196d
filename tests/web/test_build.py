"""The built files of the page are those of its sources."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.web import STATIC
from penstock.web.api import FILES

FRONTEND = Path(__file__).parents[2] / "frontend"


def test_the_build_is_of_these_sources() -> None:
    """Needs no Node: the build carries the hash of what it was made from."""
    digest = hashlib.sha256()

    # In the order of build.mjs: folders among the files, by name.
    def walk(folder: Path) -> list[Path]:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
        return [f for e in entries for f in (walk(e) if e.is_dir() else [e])]

    for file in [*walk(FRONTEND / "src"), FRONTEND / "package-lock.json"]:
        digest.update(file.relative_to(FRONTEND).as_posix().encode())
        digest.update(file.read_bytes())
    for name in ("app.js", "app.css"):
        first = (STATIC / name).read_text(encoding="utf-8").partition("*/")[0]
        found = re.search(r"sources ([0-9a-f]{64})", first)
        assert found, name
        assert found[1] == digest.hexdigest(), f"{name} is stale; run: make page"
    for name in ("index.html", "icon.svg"):
        assert (STATIC / name).read_bytes() == (FRONTEND / "src" / name).read_bytes()


def test_all_files_are_there() -> None:
    assert {path.name for path in STATIC.iterdir()} == set(FILES.values())


@pytest.mark.slow
def test_building_again_gives_the_same() -> None:
    if shutil.which("node") is None or not (FRONTEND / "node_modules").is_dir():
        pytest.skip("Node or its packages are missing; make page gets them")
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run(
        ["node", "build.mjs", "--check"],
        cwd=FRONTEND,
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
