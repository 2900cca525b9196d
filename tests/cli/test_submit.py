"""What `penstock submit` says when the script has ended."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.live import Board
from penstock.cli.submit import _finish

WHY = "a query with a continuous trigger cannot be attached; it runs as it is"


@pytest.mark.parametrize("as_json", [False, True])
def test_queries_that_were_left_alone_are_told(
    as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session: Any = SimpleNamespace(runs=[], events=[WHY])
    with Board(as_json) as board:
        _finish(board, [session], str(tmp_path / "no.sqlite"), tmp_path / "r.html", as_json)
    told = capsys.readouterr()
    assert WHY in told.err
    if as_json:
        assert json.loads(told.out) == {"queries": [], "left_alone": [WHY]}
