"""ARCHITECTURE.md, and the page about hot keys, name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
HOT_KEYS = (ROOT / "docs" / "hot-keys.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+(?:\.py|/))`", TEXT + HOT_KEYS)))


def test_files_are_named() -> None:
    assert len(NAMED) > 30


@pytest.mark.parametrize("name", NAMED)
def test_what_is_named_exists(name: str) -> None:
    assert any(
        (base / name).exists()
        for base in (
            ROOT,
            ROOT / "src" / "penstock",
            *(ROOT / "src" / "penstock").glob("*/"),
        )
    ), f"{name} is named and not there"


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target
