"""The events of NEXMark: persons, auctions and bids, made by position.

Of fifty events in a row the first is a person, the next three are auctions, the rest are bids, as
published. Each kind is a stream of its own, so that a query reads no more than it needs; numbers
and times are those of the common sequence. Persons and auctions are numbered from 1,000 in the
order in which they come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.arrays import IntArray
from penstock.common.keywords import class_keywords
from penstock.model import InvalidValue
from penstock.pipeline.sources.draws import Draws
from penstock.pipeline.sources.generator import Generator
from penstock.pipeline.sources.rates import Profile

TIME = pa.timestamp("us", "UTC")

SCHEMAS = {
    "person": pa.schema(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("email_address", pa.string()),
            ("credit_card", pa.string()),
            ("city", pa.string()),
            ("state", pa.string()),
            ("date_time", TIME),
            ("extra", pa.string()),
        ]
    ),
    "auction": pa.schema(
        [
            ("id", pa.int64()),
            ("item_name", pa.string()),
            ("description", pa.string()),
            ("initial_bid", pa.int64()),
            ("reserve", pa.int64()),
            ("date_time", TIME),
            ("expires", TIME),
            ("seller", pa.int64()),
            ("category", pa.int64()),
            ("extra", pa.string()),
        ]
    ),
    "bid": pa.schema(
        [
            ("auction", pa.int64()),
            ("bidder", pa.int64()),
            ("price", pa.int64()),
            ("channel", pa.string()),
            ("url", pa.string()),
            ("date_time", TIME),
            ("extra", pa.string()),
        ]
    ),
}

#: Place of the first event of each kind among fifty, and how many of them there are.
PLACES = {"person": (0, 1), "auction": (1, 3), "bid": (4, 46)}
ROUND = 50

#: Number of the first person, auction and category; categories there are.
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5

#: One of so many is hot: the first of its hundred.
HOT_EVERY = 100

#: Auctions and persons that a bid may name besides the hot one: so many of the latest.
OPEN_AUCTIONS, ACTIVE_PERSONS = 100, 1000

#: The stream begins on 15 July 2015, as published.
BEGIN_US = 1_436_918_400 * 10**6

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond")
FIRST_NAMES = ("Ada", "Ben", "Cora", "Dan", "Eva", "Finn", "Gail", "Hugo", "Ines", "Jon", "Kate")
LAST_NAMES = ("Abel", "Berg", "Cole", "Diaz", "Ek", "Frost", "Gray", "Hill", "Ito", "Jones")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000

_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", dtype=np.uint8)


@class_keywords
@dataclass(frozen=True)
class Events:
    """Content of a generator: the events of one kind.

    Parameters
    ----------
    kind : str
        ``person``, ``auction`` or ``bid``.
    events_per_s : float
        Events of all kinds in a second of event time.
    disorder_s : float
        By how much an event may be earlier than one before it, in seconds of event time.
    hot_auctions, hot_bidders, hot_sellers : int
        One row of so many has an auction, a bidder or a seller that is not the hot one.
    """

    kind: str = "bid"
    events_per_s: float = 10_000.0
    disorder_s: float = 0.0
    hot_auctions: int = 2
    hot_bidders: int = 4
    hot_sellers: int = 4

    def __post_init__(self) -> None:
        if self.kind not in SCHEMAS:
            raise InvalidValue("kind", "Events", "one of " + ", ".join(SCHEMAS), self.kind)
        if not self.events_per_s > 0:
            raise InvalidValue("events_per_s", "Events", "a positive number", self.events_per_s)
        if not self.disorder_s >= 0:
            raise InvalidValue("disorder_s", "Events", "at least 0", self.disorder_s)
        for name in ("hot_auctions", "hot_bidders", "hot_sellers"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidValue(name, "Events", "a whole number of at least 1", value)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the kind."""
        return SCHEMAS[self.kind]

    def columns(self, draws: Draws) -> Mapping[str, Any]:
        """Make the events at these positions of their kind."""
        numbers = event_numbers(self.kind, draws.positions)
        made = {"person": self._persons, "auction": self._auctions, "bid": self._bids}
        return {**made[self.kind](draws, numbers), "extra": _texts(draws, "extra", 40)}

    def _persons(self, draws: Draws, numbers: IntArray) -> dict[str, Any]:
        first = _choice(draws, "first", FIRST_NAMES)
        last = _choice(draws, "last", LAST_NAMES)
        card = pc.cast(pa.array(10**15 + draws.below("card", 9 * 10**15)), pa.string())
        return {
            "id": FIRST_ID + numbers // ROUND,
            "name": pc.binary_join_element_wise(first, last, " "),
            "email_address": pc.binary_join_element_wise(
                pc.utf8_lower(last), "@", _texts(draws, "host", 8), ".com", ""
            ),
            "credit_card": card,
            "city": _choice(draws, "city", CITIES),
            "state": _choice(draws, "state", STATES),
            "date_time": self._times(draws, numbers),
        }

    def _auctions(self, draws: Draws, numbers: IntArray) -> dict[str, Any]:
        times = self._times(draws, numbers)
        # Long enough for as many auctions to be open as bids choose from, on the average.
        horizon_us = OPEN_AUCTIONS * ROUND / PLACES["auction"][1] * 1e6 / self.events_per_s
        length = 1 + (draws.uniform("length") * 2 * horizon_us).astype(np.int64)
        initial = _prices(draws, "initial")
        return {
            "id": FIRST_ID + draws.positions,
            "item_name": _texts(draws, "item", 20),
            "description": _texts(draws, "description", 60),
            "initial_bid": initial,
            "reserve": initial + _prices(draws, "reserve"),
            "date_time": times,
            "expires": times + length,
            "seller": _person(draws, "seller", numbers, self.hot_sellers),
            "category": FIRST_CATEGORY + draws.below("category", CATEGORIES),
        }

    def _bids(self, draws: Draws, numbers: IntArray) -> dict[str, Any]:
        last = numbers // ROUND * PLACES["auction"][1] + PLACES["auction"][1] - 1
        low = np.maximum(last - OPEN_AUCTIONS + 1, 0)
        one = low + (draws.uniform("auction") * (last - low + 1)).astype(np.int64)
        hot = draws.uniform("hot auction") * self.hot_auctions >= 1.0
        channel = draws.below("channel", CHANNELS)
        known = draws.uniform("hot channel") < 0.5
        number = pc.cast(pa.array(channel), pa.string())
        address = pc.binary_join_element_wise(
            "https://www.nexmark.com",
            _texts(draws, "dir1", 5),
            _texts(draws, "dir2", 5),
            _texts(draws, "dir3", 5),
            "item.htm?query=1",
            "/",
        )
        return {
            "auction": FIRST_ID + np.where(hot, last // HOT_EVERY * HOT_EVERY, one),
            "bidder": _person(draws, "bidder", numbers, self.hot_bidders),
            "price": _prices(draws, "price"),
            "channel": pc.if_else(
                pa.array(known),
                pa.array(HOT_CHANNELS).take(pa.array(channel % len(HOT_CHANNELS))),
                pc.binary_join_element_wise("channel", number, "-"),
            ),
            "url": pc.if_else(
                pa.array(known),
                address,
                pc.binary_join_element_wise(address, number, "&channel_id="),
            ),
            "date_time": self._times(draws, numbers),
        }

    def _times(self, draws: Draws, numbers: IntArray) -> IntArray:
        """Event times in microseconds since 1970, out of order by less than the bound."""
        exact = BEGIN_US + (numbers * (1e6 / self.events_per_s)).astype(np.int64)
        if not self.disorder_s:
            return exact
        early = (draws.uniform("disorder") * self.disorder_s * 1e6).astype(np.int64)
        made: IntArray = np.maximum(exact - early, BEGIN_US)
        return made


def event_numbers(kind: str, positions: IntArray) -> IntArray:
    """Return the numbers, among all events, of those at these positions of their kind.

    Examples
    --------
    >>> event_numbers("auction", np.arange(5)).tolist()
    [1, 2, 3, 51, 52]
    """
    place, count = PLACES[kind]
    return positions // count * ROUND + place + positions % count


def count_of(kind: str, events: int) -> int:
    """Count the events of a kind among the first `events` of all.

    Examples
    --------
    >>> [count_of(kind, 120) for kind in ("person", "auction", "bid")]
    [3, 9, 108]
    """
    place, count = PLACES[kind]
    rest = min(max(events % ROUND - place, 0), count)
    return events // ROUND * count + rest


def source(
    kind: str,
    events: int,
    *,
    profile: Profile | str | float = 1e9,
    seed: int = 0,
    events_per_s: float = 10_000.0,
    disorder_s: float = 0.0,
) -> Generator:
    """Return the events of one kind among the first `events` of all, as a source.

    Parameters
    ----------
    kind : str
        ``person``, ``auction`` or ``bid``.
    events : int
        Events of all kinds.
    profile : Profile, str or float
        Rows of this kind a second.
    seed : int
        Sources of one seed belong together.
    events_per_s, disorder_s
        As in `Events`.
    """
    content = Events(kind, events_per_s=events_per_s, disorder_s=disorder_s)
    return Generator(profile, content, seed, count_of(kind, events))


def _person(draws: Draws, what: str, numbers: IntArray, one_of: int) -> IntArray:
    """Draw the number of a person: mostly the hot one of the latest hundred."""
    last = numbers // ROUND
    low = np.maximum(last - ACTIVE_PERSONS + 1, 0)
    one = low + (draws.uniform(what) * (last - low + 1)).astype(np.int64)
    hot = draws.uniform(f"hot {what}") * one_of >= 1.0
    made: IntArray = FIRST_ID + np.where(hot, last // HOT_EVERY * HOT_EVERY, one)
    return made


def _prices(draws: Draws, what: str) -> IntArray:
    """Draw prices in cents, spread evenly over six powers of ten."""
    made: IntArray = np.rint(10.0 ** (draws.uniform(what) * 6.0) * 100.0).astype(np.int64)
    return made


def _choice(draws: Draws, what: str, values: tuple[str, ...]) -> pa.Array:
    return pa.array(values).take(pa.array(draws.below(what, len(values))))


def _texts(draws: Draws, what: str, length: int) -> pa.Array:
    """Draw one of a thousand random words for each position; making each anew would be slow."""
    words = _words(draws.seed, what, length)
    return words.take(pa.array(draws.below(f"which {what}", len(words))))


def _words(seed: int, what: str, length: int, count: int = 1000) -> pa.Array:
    letters: npt.NDArray[np.uint8] = _LETTERS[Draws(seed, 0, count).below(what, 26, length)]
    offsets = np.arange(0, (count + 1) * length, length, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))
