"""What users did in a shop as a stream has it: out of order, and some of it twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.apps.taobao import BEGIN_S, SCHEMA
from penstock.model import InvalidValue
from penstock.pipeline.sources.draws import Draws, uniform_of
from penstock.pipeline.sources.zipf import Zipf

#: Behaviours that there are here, and which part of them are purchases.
VIEW, BUY, BUYS = "pv", "buy", 0.2

#: Rows in a second of the shop's time.
PER_S = 4

#: Most rows that a second copy comes after the first, which part of the rows are such copies, and
#: how many seconds a row comes late. All in all a row is at most `DISORDER_S` late.
BEHIND, COPIES, JITTER_S = 20, 0.15, 4
DISORDER_S = BEHIND // PER_S + JITTER_S


@dataclass(frozen=True)
class Visits:
    """Content of a generator: Taobao's columns, out of order and with duplicates.

    Parameters
    ----------
    users, items : int
        How many there are.
    zipf : float
        Skew of the users, 0.0 to 2.0.
    """

    users: int = 100
    items: int = 10
    zipf: float = 1.0

    def __post_init__(self) -> None:
        for name in ("users", "items"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidValue(name, "Visits", "a whole number of at least 1", value)
        Zipf(self.users, self.zipf)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the published file."""
        return SCHEMA

    def columns(self, draws: Draws) -> Mapping[str, Any]:
        """Draw the number of a visit; all else follows from that, so that copies are equal."""
        behind = 1 + draws.below("behind", BEHIND)
        copied = draws.uniform("copied") < COPIES
        visit = np.maximum(draws.positions - np.where(copied, behind, 0), 0)

        def drawn(what: str, limit: int) -> Any:
            return (uniform_of(draws.seed, what, visit) * limit).astype(np.int64)

        item = 1 + drawn("item", self.items)
        buys = uniform_of(draws.seed, "buys", visit) < BUYS
        return {
            "user": 1 + Zipf(self.users, self.zipf).ranks(uniform_of(draws.seed, "user", visit)),
            "item": item,
            "category": 1 + item % 5,
            "behavior": pa.array(np.where(buys, BUY, VIEW)),
            "timestamp": BEGIN_S + visit // PER_S - drawn("late", JITTER_S + 1),
        }
