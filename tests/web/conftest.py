"""A small store with one run that has everything, for the tests of the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing.page_store import fill_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    place = tmp_path / "metrics.sqlite"
    fill_store(place)
    return place
