"""Searches of users: made up, or from a file with the columns ``user`` and ``query``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.model import InvalidValue
from penstock.pipeline.sources.draws import Draws, uniform_of
from penstock.pipeline.sources.text import lines_of
from penstock.pipeline.sources.zipf import Zipf

SCHEMA = pa.schema([("user", pa.int64()), ("query", pa.string())])

#: Skew of the words of a user.
WORD_ZIPF = 1.0


@dataclass(frozen=True)
class Searches:
    """Content of a generator: what users searched for.

    Every user has favourite words of their own, so that their portraits differ.

    Parameters
    ----------
    users : int
    zipf : float
        Skew of the users, 0.0 to 2.0.
    vocabulary : int
        Different words.
    words : int
        Words of a search.
    """

    users: int = 10_000
    zipf: float = 1.0
    vocabulary: int = 5_000
    words: int = 3

    def __post_init__(self) -> None:
        for name in ("users", "vocabulary", "words"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidValue(name, "Searches", "a whole number of at least 1", value)
        Zipf(self.users, self.zipf)

    @property
    def schema(self) -> pa.Schema:
        """User and query."""
        return SCHEMA

    def columns(self, draws: Draws) -> Mapping[str, Any]:
        """Draw users and their words."""
        user = 1 + Zipf(self.users, self.zipf).ranks(draws.uniform("user"))
        taste = (uniform_of(draws.seed, "taste", user) * self.vocabulary).astype(np.int64)
        ranks = Zipf(self.vocabulary, WORD_ZIPF).ranks(draws.uniform("word", self.words))
        ranks = (ranks + np.repeat(taste, self.words)) % self.vocabulary
        return {"user": user, "query": lines_of(ranks, self.words, self.vocabulary, 0)}
