"""The crash-point harness does to files what it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.testing.crash_points import CrashPoints, Died, crash_everywhere


def write(folder: Path, name: str, text: str, *, sync: bool = True) -> None:
    """Write a file as the product does: aside, synced, renamed, folder synced."""
    partial = folder / f".{name}"
    with partial.open("w") as out:
        out.write(text)
        out.flush()
        if sync:
            os.fsync(out.fileno())
    partial.replace(folder / name)
    if sync:
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def test_operations_are_counted_below_the_folders_only(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    with CrashPoints([inside]) as points:
        write(outside, "a", "x")
        assert points.count == 0
        write(inside, "a", "x")
        assert (inside / "a").read_text() == "x"
    assert points.count == 2  # the open for writing, and the rename


@pytest.mark.parametrize("at", [0, 1])
def test_after_a_death_nothing_happens(tmp_path: Path, at: int) -> None:
    with CrashPoints([tmp_path], at) as points:
        with pytest.raises(Died):
            write(tmp_path, "a", "x")
        with pytest.raises(Died):
            write(tmp_path, "b", "x")
    assert points.happened
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()


def test_a_failure_happens_once(tmp_path: Path) -> None:
    with CrashPoints([tmp_path], 0, "fail"):
        with pytest.raises(OSError, match="No space left"):
            write(tmp_path, "a", "x")
        write(tmp_path, "a", "y")
    assert (tmp_path / "a").read_text() == "y"


def test_a_torn_file_keeps_a_part(tmp_path: Path) -> None:
    crash_everywhere(lambda: write(tmp_path, "a", "x" * 100), [tmp_path], at=0, fault="tear")
    assert len((tmp_path / ".a").read_text()) < 100


@pytest.mark.parametrize(("sync", "text"), [(True, "new"), (False, "old")])
def test_a_power_cut_takes_what_was_not_synced(tmp_path: Path, sync: bool, text: str) -> None:
    write(tmp_path, "a", "old")

    def attempt() -> None:
        write(tmp_path, "a", "new", sync=sync)
        write(tmp_path, "b", "never")

    crash_everywhere(attempt, [tmp_path], at=2, fault="lose")
    assert (tmp_path / "a").read_text() == text
    assert not (tmp_path / "b").exists()
