"""The word that somebody probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near_miss(word: str, known: Iterable[str]) -> str:
    """Return a hint at the known word that is nearest to a mistyped one, or nothing.

    Examples
    --------
    >>> near_miss("paralelism", ["name", "parallelism"])
    "; did you mean 'parallelism'?"
    >>> near_miss("colour", ["name", "parallelism"])
    ''
    """
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
