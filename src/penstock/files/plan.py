"""Plan files: what `Plan.to_dict` says, as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.files.document import FilePath, read_document
from penstock.files.errors import FileError
from penstock.model import InvalidValue, Plan


def save_plan(plan: Plan, path: FilePath) -> None:
    """Write a plan as JSON; `load_plan` reads it back.

    Raises
    ------
    FileError
        When the file cannot be written, or does not end in ``.json``.
    """
    if Path(path).suffix.lower() != ".json":
        raise FileError(str(path), "must end in .json to hold a plan")
    text = json.dumps(plan.to_dict(), indent=1, allow_nan=False) + "\n"
    try:
        Path(path).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(str(path), f"cannot be written: {reason}") from None


def load_plan(path: FilePath) -> Plan:
    """Read a plan that `save_plan` wrote.

    Raises
    ------
    FileError
        When the file is not such a plan.
    """
    values = read_document(path)
    if not isinstance(values, dict):
        raise FileError(str(path), "must be a plan that penstock saved")
    try:
        return Plan.from_dict(values)
    except InvalidValue as error:
        raise FileError(str(path), f"does not hold together: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise FileError(str(path), f"is not a plan that penstock saved ({problem})") from None
