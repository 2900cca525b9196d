"""Fixtures of the engine's tests."""

from __future__ import annotations

import pytest

from penstock.engine.migration import precopy
from penstock.state.backup import fragments as fragments_module
from penstock.state.store import clear_cache


@pytest.fixture(autouse=True)
def empty_cache() -> None:
    clear_cache()


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pre-copy however small the state is."""
    monkeypatch.setattr(precopy, "SMALL_BYTES", 1)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut everything that is sent into parts."""
    monkeypatch.setattr(fragments_module, "PART_BYTES", 300)
