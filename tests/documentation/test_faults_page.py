"""The page on faults names every kind, every row of the matrix, and tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.faults.fault import KINDS
from penstock.faults.schedules import EVERY, ONCE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fault_is_on_the_page(kind: str) -> None:
    assert re.search(rf"`{kind}(@batch=7[^`]*)?`", PAGE)


@pytest.mark.parametrize("row", [*EVERY, *ONCE])
def test_every_row_of_the_matrix_is_on_the_page(row: str) -> None:
    assert f"`{row}`" in PAGE.partition("## The matrix")[2]


def test_the_tests_that_the_page_names_are_there() -> None:
    assert len(NAMED) > 25
    missing = [
        f"{path}::{name}"
        for path, name in NAMED
        if not (ROOT / path).exists()
        or not re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.M)
    ]
    assert not missing
