"""A rate-controlled source of made-up rows that any worker can make again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from penstock.common.keywords import class_keywords
from penstock.model import InvalidValue
from penstock.pipeline.sources.draws import Draws
from penstock.pipeline.sources.memory import check_range
from penstock.pipeline.sources.rates import Profile
from penstock.pipeline.sources.zipf import Zipf

#: Column with the moment at which a row is due, in microseconds since the stream's start.
STAMP = "stamp_us"


class Content(Protocol):
    """What the rows of a generator hold.

    Attributes
    ----------
    schema : pyarrow.Schema
        Columns besides the stamp.
    """

    @property
    def schema(self) -> pa.Schema:
        """Columns besides the stamp."""
        ...

    def columns(self, draws: Draws) -> Mapping[str, Any]:
        """Make the columns of the rows at `draws.positions`, from nothing but `draws`."""
        ...


@class_keywords
@dataclass(frozen=True)
class Keys:
    """Whole numbers as keys, number 0 the most frequent.

    Parameters
    ----------
    keys : int
    zipf : float
        Coefficient, 0.0 to 2.0.
    name : str
        Name of the column.
    """

    keys: int = 1000
    zipf: float = 0.0
    name: str = "key"

    @property
    def schema(self) -> pa.Schema:
        """One column."""
        return pa.schema([(self.name, pa.int64())])

    def columns(self, draws: Draws) -> Mapping[str, Any]:
        """Draw the keys."""
        return {self.name: Zipf(self.keys, self.zipf).ranks(draws.uniform("key"))}


@class_keywords
@dataclass(frozen=True)
class Generator:
    """Rows made as they are due; the same rows for the same positions, however they are cut.

    Each row has the stamp of its scheduled production in ``stamp_us``, in microseconds since the
    stream's start. A million rows of `Keys` take some tenths of a second.

    Examples
    --------
    >>> made = Generator(2000, Keys(keys=10), seed=1, rows=6)
    >>> made.read(0, 6).column("stamp_us").to_pylist()
    [500, 1000, 1500, 2000, 2500, 3000]
    >>> made.read(2, 6).slice(1, 2) == made.read(3, 5)
    True
    >>> made.available(0.002), made.available(60), made.end
    (4, 6, 6)

    Parameters
    ----------
    profile : Profile, str or float
        Rows a second over time; see `Profile`.
    content : Content
        What the rows hold.
    seed : int
    rows : int, optional
        Where the stream ends; by default where the profile ends, if it does.
    """

    profile: Profile | str | float
    content: Content = field(default_factory=Keys)
    seed: int = 0
    rows: int | None = None
    stamp: ClassVar[str] = STAMP

    def __post_init__(self) -> None:
        object.__setattr__(self, "profile", Profile.of(self.profile))
        rows = self.rows
        if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 0):
            raise InvalidValue("rows", "Generator", "a whole number of at least 0", rows)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise InvalidValue("seed", "Generator", "a whole number", self.seed)

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of the content, and the stamp."""
        return self.content.schema.append(pa.field(STAMP, pa.int64()))

    @property
    def end(self) -> int | None:
        """Position where the stream ends; None if it does not."""
        ends = [end for end in (self.rows, self._profile.total) if end is not None]
        return min(ends, default=None)

    @property
    def rate_per_s(self) -> float:
        """Rows a second over the first minute."""
        return self._profile.mean_rate(60.0)

    def available(self, elapsed_s: float) -> int:
        """Rows that are due after so many seconds."""
        due = self._profile.position(elapsed_s)
        return due if self.end is None else min(due, self.end)

    def read(self, start: int, stop: int) -> pa.Table:
        """Make the rows from position `start` up to `stop`."""
        check_range(start, stop, self.end, "Generator")
        columns = self.content.columns(Draws(self.seed, start, stop))
        stamps = self._profile.stamps_us(start, stop)
        arrays = [
            pa.array(stamps if item.name == STAMP else columns[item.name], item.type)
            for item in self.schema
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    @property
    def _profile(self) -> Profile:
        return Profile.of(self.profile)
