"""The one error of this package."""

from __future__ import annotations

import reprlib
from typing import Any

from penstock.common.errors import PenstockError

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60
_short.maxlong = 30
_short.maxlist = _short.maxdict = _short.maxtuple = 4
_short.maxlevel = 2


class FileError(PenstockError, ValueError):
    """A file that cannot be read, or that says something that is not allowed.

    Parameters
    ----------
    file : str
        The file as the user named it.
    problem : str
        What is wrong, as the rest of a sentence that begins with the file.
    field : str
        Path of the field, as in ``operators[2].parallelism``; empty when the file as a whole is
        meant.
    """

    def __init__(self, file: str, problem: str, field: str = "") -> None:
        where = f"parameter {field} of {file}" if field else file
        super().__init__(f"{where} {problem}")
        self.file = file
        self.problem = problem
        self.field = field

    def __reduce__(self) -> tuple[type[FileError], tuple[str, str, str]]:
        return (FileError, (self.file, self.problem, self.field))


def shown(value: Any) -> str:
    """Show a value from a file in a message, the long tail cut.

    Examples
    --------
    >>> shown([[[[]]], 2, 3, 4, 5, 6])
    '[[[...]], 2, 3, 4, ...]'
    """
    try:
        text = _short.repr(value)
    except ValueError:  # a whole number with more digits than Python prints
        return "a number with thousands of digits"
    return text.encode("ascii", "backslashreplace").decode("ascii") if _odd(text) else text


def _odd(text: str) -> bool:
    return not text.isprintable()
