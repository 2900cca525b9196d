"""What came of the runs of `penstock chaos`, kept in a file, so that another call can go on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.faults.schedules import Schedule
from penstock.model import InvalidValue, PenstockError

#: How a line begins.
_BEGIN = '{"seed": '

_ALLOWED = "a file that --keep made, or a new one"


class ChaosRecord:
    """A line of JSON for each run, in the order in which they ended.

    A run whose last line says that it ended equal is not run again. One that failed is.

    Examples
    --------
    >>> record = ChaosRecord(None)
    >>> record.seed is None, record.left([Schedule("a", "topn")])[0].app
    (True, 'topn')

    Parameters
    ----------
    path : Path, optional
        The file; without it nothing is kept.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lines = _read(path) if path is not None and path.exists() else []
        if path is not None:
            _check_writable(path)

    @property
    def seed(self) -> int | None:
        """The seed of the random schedules in it, if there is any."""
        seeds = [line["seed"] for line in self._lines if line["seed"] is not None]
        return seeds[-1] if seeds else None

    def left(self, chosen: Iterable[Schedule]) -> list[Schedule]:
        """Return the schedules that have not ended equal yet."""
        passed = {line["schedule"]: line["passed"] for line in self._lines}
        return [schedule for schedule in chosen if not passed.get(str(schedule), False)]

    def add(self, outcome: Mapping[str, Any], seed: int | None) -> None:
        """Append what came of a run, as `TrialOutcome.to_dict` gives it."""
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"seed": seed, **outcome}) + "\n")


def _read(path: Path) -> list[dict[str, Any]]:
    found = []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue("keep", "chaos", _ALLOWED, f"{path} ({error})") from None
    # The last line may be cut off, if the process was killed while it wrote it.
    whole = text[: text.rfind("\n") + 1]
    rest = text[len(whole) :]
    if not (_BEGIN.startswith(rest) or rest.startswith(_BEGIN)):
        # Somebody else's file: it must stay as it is.
        raise InvalidValue("keep", "chaos", _ALLOWED, str(path))
    for line in whole.splitlines():
        try:
            values = json.loads(line)
            found.append({name: values[name] for name in ("seed", "schedule", "passed")})
        except (ValueError, KeyError, TypeError):
            raise InvalidValue("keep", "chaos", _ALLOWED, str(path)) from None
    if rest:
        path.write_text(whole, encoding="utf-8")
    return found


def _check_writable(path: Path) -> None:
    try:
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise PenstockError(f"--keep {path} cannot be written: {error.strerror}") from None
