"""Measurements that are kept as they are made, so that a benchmark can be run in pieces."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

NOTE = Console(stderr=True, highlight=False)
Row = dict[str, Any]

#: Room for what the next measurement takes longer than the longest so far.
MARGIN = 1.15


class Kept:
    """Rows by what was measured, a line of a file each as soon as it is there.

    Parameters
    ----------
    path : Path, optional
        Where they are kept, and taken from when the benchmark goes on; None: nowhere.
    options : mapping
        What changes the measurements: those that were made with others are refused.
    limit_s : float
        Time for all of it: a measurement that would not end by then is not begun.
    """

    def __init__(self, path: Path | None, options: Mapping[str, Any], limit_s: float) -> None:
        self._path, self._options = path, dict(options)
        self._until = time.monotonic() + limit_s
        self._rows: dict[tuple[str, str], list[Row]] = {}
        self._began = time.monotonic()
        #: Parts that were to be measured and were not, for lack of time.
        self.left: list[str] = []
        for line in path.read_text().splitlines() if path is not None and path.exists() else ():
            told = json.loads(line)
            if told["options"] != self._options:
                raise SystemExit(f"{path} is of other options: give the same, or remove it")
            self._rows.setdefault((told["kind"], told["part"]), []).append(told["row"])

    def rows(self, kind: str, part: str) -> list[Row]:
        """Return what was measured of a part, in this run and in those before."""
        return self._rows.get((kind, part), [])

    def due(self, kind: str, part: str, count: int, turn: int, about_s: float) -> bool:
        """Whether a part is to be measured once more in a turn, and there is time for it.

        Parameters
        ----------
        count : int
            How often it is to be measured in all.
        about_s : float
            How long it takes, until it was measured once.
        """
        done = self.rows(kind, part)
        if len(done) >= count or len(done) > turn:
            return False
        longest = max((row["took_s"] for row in done), default=about_s)
        if time.monotonic() + MARGIN * longest > self._until:
            self.left.append(f"{kind}: {part}, {len(done)} of {count} done")
            NOTE.print(f"no time is left for {self.left[-1]}", style="yellow")
            return False
        self._began = time.monotonic()
        NOTE.print(f"{kind}: {part}, {len(done) + 1} of {count}", style="bold")
        return True

    def add(self, kind: str, part: str, row: Row) -> None:
        """Keep what was measured since `due` said so."""
        row = {**row, "took_s": round(time.monotonic() - self._began, 1)}
        self._rows.setdefault((kind, part), []).append(row)
        NOTE.print(f"  {row}")
        if self._path is not None:
            line = {"options": self._options, "kind": kind, "part": part, "row": row}
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")
