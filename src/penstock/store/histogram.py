"""A latency histogram as a value: log-spaced buckets, merged by adding, read by percentile."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.common.arrays import FloatArray, IntArray, frozen_floats, frozen_ints
from penstock.common.errors import InvalidValue

#: Values up to the first share one bucket, and so do values above the second.
LOWEST_MS = 0.1
HIGHEST_MS = 3_600_000.0

#: Buckets in each factor of ten: a bucket is 2.92 % wide.
PER_DECADE = 80

#: Names the bounds in what is stored; another set of bounds takes another name.
SCHEME = "log80"

_INNER = math.ceil(math.log10(HIGHEST_MS / LOWEST_MS) * PER_DECADE)

#: Upper bounds, in ms. Bucket i holds ``BOUNDS_MS[i-1] < value <= BOUNDS_MS[i]``; the first begins
#: at 0 and one more without an upper bound follows the last.
BOUNDS_MS: FloatArray = frozen_floats(
    np.append(LOWEST_MS * 10.0 ** (np.arange(_INNER) / PER_DECADE), HIGHEST_MS)
)

BUCKETS = len(BOUNDS_MS) + 1

#: A percentile is off by at most this fraction between `LOWEST_MS` and `HIGHEST_MS`.
RELATIVE_ERROR = 10.0 ** (1 / PER_DECADE) - 1.0


def _nothing() -> IntArray:
    return frozen_ints(np.zeros(BUCKETS))


@dataclass(frozen=True, eq=False)
class Histogram:
    """How many values fell into each bucket, with their sum, smallest and largest.

    Examples
    --------
    >>> latency = Histogram.of([3.0, 4.0, 5.0]).merge(Histogram.of([100.0]))
    >>> latency.count, latency.max_ms, latency.percentile(100)
    (4, 100.0, 100.0)
    >>> Histogram().percentile(50) is None
    True

    Parameters
    ----------
    counts : array of int
        Values in each of the `BUCKETS` buckets.
    sum_ms : float
        Sum of all values.
    min_ms, max_ms : float or None
        None exactly when nothing was counted.
    """

    counts: IntArray = field(default_factory=_nothing)
    sum_ms: float = 0.0
    min_ms: float | None = None
    max_ms: float | None = None

    def __post_init__(self) -> None:
        owner = "a latency histogram"
        counts = frozen_ints(self.counts)
        if counts.shape != (BUCKETS,) or (counts < 0).any():
            raise InvalidValue("counts", owner, f"{BUCKETS} counts of at least 0", self.counts)
        object.__setattr__(self, "counts", counts)
        if not math.isfinite(self.sum_ms) or self.sum_ms < 0:
            raise InvalidValue("sum_ms", owner, "a finite number of at least 0", self.sum_ms)
        empty = not counts.any()
        if empty != (self.min_ms is None) or empty != (self.max_ms is None):
            allowed = "given exactly when something was counted"
            raise InvalidValue("min_ms and max_ms", owner, allowed, (self.min_ms, self.max_ms))
        if self.min_ms is not None and self.max_ms is not None:
            ordered = 0 <= self.min_ms <= self.max_ms < math.inf
            # The ends must lie in the buckets that are filled, or a percentile would leave them.
            filled = np.flatnonzero(counts)
            ends = np.searchsorted(BOUNDS_MS, [self.min_ms, self.max_ms])
            if not ordered or tuple(ends) != (filled[0], filled[-1]):
                allowed = "the ends of what was counted"
                raise InvalidValue("min_ms and max_ms", owner, allowed, (self.min_ms, self.max_ms))

    @classmethod
    def of(cls, values_ms: npt.ArrayLike, times: npt.ArrayLike | None = None) -> Histogram:
        """Count values.

        Parameters
        ----------
        values_ms : array
            Latencies, in ms. A negative one, which two hosts with unequal clocks can give, counts
            as 0.
        times : array of int, optional
            How often each value occurred; once without it.

        Raises
        ------
        InvalidValue
            When a value is not finite, or a number of times is negative or not a whole number.
        """
        values = np.asarray(values_ms, dtype=np.float64).ravel()
        if not np.isfinite(values).all():
            raise InvalidValue("values_ms", "a latency histogram", "finite numbers", values_ms)
        values = np.maximum(values, 0.0)
        if times is None:
            buckets = np.searchsorted(BOUNDS_MS, values)
            counts = np.bincount(buckets, minlength=BUCKETS)
            total = float(values.sum())
        else:
            often = np.asarray(times).ravel()
            if often.shape != values.shape:
                raise InvalidValue("times", "a latency histogram", "one for each value", times)
            if not (np.equal(often, np.floor(often)) & (often >= 0)).all():
                allowed = "whole numbers of at least 0"
                raise InvalidValue("times", "a latency histogram", allowed, times)
            seen = often > 0
            values, weights = values[seen], often[seen].astype(np.int64)
            counts = np.zeros(BUCKETS, dtype=np.int64)
            np.add.at(counts, np.searchsorted(BOUNDS_MS, values), weights)
            total = float(values @ weights.astype(np.float64))
        if not len(values):
            return EMPTY
        return cls(frozen_ints(counts), total, float(values.min()), float(values.max()))

    @property
    def count(self) -> int:
        """Values counted."""
        return int(self.counts.sum())

    @property
    def mean_ms(self) -> float | None:
        """Mean, from the exact sum; None when nothing was counted."""
        return self.sum_ms / self.count if self.count else None

    def merge(self, other: Histogram) -> Histogram:
        """Count the values of both."""
        if other.max_ms is None or other.min_ms is None:
            return self
        if self.max_ms is None or self.min_ms is None:
            return other
        return Histogram(
            frozen_ints(self.counts + other.counts),
            self.sum_ms + other.sum_ms,
            min(self.min_ms, other.min_ms),
            max(self.max_ms, other.max_ms),
        )

    @classmethod
    def merged(cls, histograms: Iterable[Histogram]) -> Histogram:
        """Count the values of all."""
        counted = [h for h in histograms if h.max_ms is not None]
        if not counted:
            return EMPTY
        return cls(
            frozen_ints(np.sum([h.counts for h in counted], axis=0)),
            math.fsum(h.sum_ms for h in counted),
            min(h.min_ms for h in counted if h.min_ms is not None),
            max(h.max_ms for h in counted if h.max_ms is not None),
        )

    def percentile(self, p: float) -> float | None:
        """Value below which `p` percent lie, in ms; None when nothing was counted.

        As `numpy.percentile`, it goes between the two values that surround the rank; each of them
        is known within its bucket, so the answer is within `RELATIVE_ERROR`, or within 0.1 ms below
        `LOWEST_MS`. Above `HIGHEST_MS` only the largest value bounds it.
        """
        if not 0 <= p <= 100:
            raise InvalidValue("p", "a percentile", "from 0 to 100", p)
        if self.max_ms is None:
            return None
        cumulative = np.cumsum(self.counts)
        rank = p / 100.0 * (int(cumulative[-1]) - 1)
        below = math.floor(rank)
        low = self._value_at(below, cumulative)
        high = self._value_at(math.ceil(rank), cumulative)
        return low + (rank - below) * (high - low)

    def _value_at(self, rank: int, cumulative: IntArray) -> float:
        """Estimate the value that has `rank` smaller ones before it."""
        low, high = self.min_ms or 0.0, self.max_ms or 0.0
        if rank <= 0:
            return low
        if rank >= int(cumulative[-1]) - 1:
            return high
        bucket = int(np.searchsorted(cumulative, rank, side="right"))
        inside = int(self.counts[bucket])
        before = int(cumulative[bucket]) - inside
        if bucket > 0:
            low = max(low, float(BOUNDS_MS[bucket - 1]))
        if bucket < len(BOUNDS_MS):
            high = min(high, float(BOUNDS_MS[bucket]))
        return low + (high - low) * (rank - before + 0.5) / inside

    def at_most(self, bound: int) -> int:
        """Count the values of at most ``BOUNDS_MS[bound]``."""
        return int(self.counts[: bound + 1].sum())

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Histogram)
            and (self.sum_ms, self.min_ms, self.max_ms)
            == (other.sum_ms, other.min_ms, other.max_ms)
            and bool((self.counts == other.counts).all())
        )

    def __hash__(self) -> int:
        return hash((self.counts.tobytes(), self.sum_ms))

    def __repr__(self) -> str:
        return f"Histogram(count={self.count}, min_ms={self.min_ms}, max_ms={self.max_ms})"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, empty buckets left out; `from_dict` reads them back."""
        if self.max_ms is None:
            return {}
        filled = np.flatnonzero(self.counts)
        return {
            "scheme": SCHEME,
            "buckets": filled.tolist(),
            "counts": self.counts[filled].tolist(),
            "sum_ms": self.sum_ms,
            "min_ms": self.min_ms,
            "max_ms": self.max_ms,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Histogram:
        """Read back what `to_dict` wrote.

        Raises
        ------
        InvalidValue
            When it is not such a histogram.
        """
        if not values:
            return EMPTY
        owner = "a stored latency histogram"
        if values.get("scheme") != SCHEME:
            raise InvalidValue("scheme", owner, repr(SCHEME), values.get("scheme"))
        try:
            counts = np.zeros(BUCKETS, dtype=np.int64)
            buckets = np.asarray(values["buckets"], dtype=np.int64)
            if (buckets < 0).any():
                raise InvalidValue("buckets", owner, "at least 0", values["buckets"])
            counts[buckets] = values["counts"]
            return cls(
                frozen_ints(counts),
                float(values["sum_ms"]),
                float(values["min_ms"]),
                float(values["max_ms"]),
            )
        except InvalidValue:
            raise
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            problem = f"{type(error).__name__}: {error}"
            raise InvalidValue("buckets", owner, "as it was written", problem) from None


#: Nothing counted.
EMPTY = Histogram()
