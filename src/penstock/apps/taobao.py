"""Taobao user behaviour: made up, or from ``UserBehavior.csv`` as Alibaba published it.

The file has no header and five columns: user, item, category, behaviour (``pv`` a view, ``buy``,
``cart``, ``fav``), and the time in seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.model import InvalidValue
from penstock.pipeline.sources.draws import Draws, uniform_of
from penstock.pipeline.sources.readers import Csv
from penstock.pipeline.sources.zipf import Zipf

SCHEMA = pa.schema(
    [
        ("user", pa.int64()),
        ("item", pa.int64()),
        ("category", pa.int64()),
        ("behavior", pa.string()),
        ("timestamp", pa.int64()),
    ]
)

#: The behaviours and their shares in the published file.
BEHAVIORS = ("pv", "cart", "fav", "buy")
SHARES = (0.896, 0.055, 0.029, 0.020)

#: The published file begins on 25 November 2017, Beijing time, and has nine days.
BEGIN_S, DAYS_S = 1_511_539_200, 9 * 86_400

#: Reader of the published file.
READER = Csv(SCHEMA, header=False)


@dataclass(frozen=True)
class Behavior:
    """Content of a generator: what users did with items.

    Parameters
    ----------
    users, items, categories : int
        How many there are.
    zipf : float
        Skew of the items, 0.0 to 2.0.
    """

    users: int = 100_000
    items: int = 50_000
    categories: int = 500
    zipf: float = 1.0

    def __post_init__(self) -> None:
        for name in ("users", "items", "categories"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidValue(name, "Behavior", "a whole number of at least 1", value)
        Zipf(self.items, self.zipf)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the published file."""
        return SCHEMA

    def columns(self, draws: Draws) -> Mapping[str, Any]:
        """Draw users, items and behaviours; an item is always in the same category."""
        rank = Zipf(self.items, self.zipf).ranks(draws.uniform("item"))
        category = (uniform_of(draws.seed, "category", rank) * self.categories).astype(np.int64)
        which = np.searchsorted(np.cumsum(SHARES)[:-1], draws.uniform("behavior"), side="right")
        return {
            "user": 1 + draws.below("user", self.users),
            "item": 1 + rank,
            "category": 1 + category,
            "behavior": pa.array(BEHAVIORS).take(pa.array(which)),
            # Ten rows a second of the shop's time, over and over its nine days.
            "timestamp": BEGIN_S + draws.positions // 10 % DAYS_S,
        }
