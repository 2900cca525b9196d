"""A profile: how many tuples a second a source makes, as time goes by."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.model import InvalidValue

#: The forms that `Profile.parse` understands.
FORMS = (
    "2000 (tuples a second)",
    "steps:1800x20,3000x20 (rate x seconds, the last rate stays)",
    "sine:1000..5000/60 (lowest..highest/period in seconds)",
    "square:1000,4000/30 (low,high/period in seconds)",
    "file:PATH (CSV or JSON with time_s and rate_per_s)",
)

#: Pieces of constant rate that stand for one period of a sine, each with the sine's exact mean.
SINE_PIECES = 360

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Profile:
    """A rate that is constant piece by piece, once or over and over.

    So tuples and seconds are turned into each other exactly: tuple number `i`, counted from 0, is
    made at the moment at which the integral of the rate reaches `i + 1`.

    Examples
    --------
    >>> steps = Profile.parse("steps:1000x2,3000x2")
    >>> [steps.position(t) for t in (0, 1, 2, 3, 10)]
    [0, 1000, 2000, 5000, 26000]
    >>> steps.time_of([999, 1999, 4999])
    array([1., 2., 3.])
    >>> Profile.parse("stairs:1,2")
    Traceback (most recent call last):
    ...
    penstock.common.errors.InvalidValue: parameter profile of a source must be one of \
2000 (tuples a second); steps:1800x20,3000x20 (rate x seconds, the last rate stays); \
sine:1000..5000/60 (lowest..highest/period in seconds); square:1000,4000/30 (low,high/period in \
seconds); file:PATH (CSV or JSON with time_s and rate_per_s), got 'stairs:1,2'

    Parameters
    ----------
    starts_s : tuple of float
        Where the pieces begin, in seconds: 0 first, then ascending.
    rates_per_s : tuple of float
        Tuples a second in each piece. Zero is a pause.
    period_s : float, optional
        After so many seconds the first piece begins again. Without it the last rate stays; if that
        is 0 the stream ends.
    text : str
        The form that it was made from, for messages and reports.
    """

    starts_s: tuple[float, ...]
    rates_per_s: tuple[float, ...]
    period_s: float | None = None
    text: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        owner = "a profile"
        starts, rates, period = self.starts_s, self.rates_per_s, self.period_s
        if not rates or len(starts) != len(rates):
            raise InvalidValue(
                "starts_s", owner, "as many as there are rates, at least one", starts
            )
        for rate in rates:
            if not math.isfinite(rate) or rate < 0:
                raise InvalidValue("rates_per_s", owner, "finite numbers of at least 0", rate)
        ascending = all(a < b for a, b in pairwise(starts))
        if starts[0] != 0 or not ascending or not math.isfinite(starts[-1]):
            raise InvalidValue("starts_s", owner, "finite numbers that ascend from 0", starts)
        if period is not None and not (math.isfinite(period) and period > starts[-1]):
            allowed = f"a number above the start of the last piece, {starts[-1]:g}"
            raise InvalidValue("period_s", owner, allowed, period)
        if not any(rates):
            raise InvalidValue("rates_per_s", owner, "above 0 at some time", rates)

    # ---- ways to make one

    @classmethod
    def of(cls, profile: Profile | str | float) -> Profile:
        """Take a profile, its text form, or a number of tuples a second."""
        if isinstance(profile, Profile):
            return profile
        if isinstance(profile, str):
            return cls.parse(profile)
        return cls.constant(profile)

    @classmethod
    def constant(cls, rate_per_s: float) -> Profile:
        """Make always the same number of tuples a second."""
        if isinstance(rate_per_s, bool) or not isinstance(rate_per_s, (int, float)):
            raise InvalidValue("rates_per_s", "a profile", "a number", rate_per_s)
        return cls((0.0,), (float(rate_per_s),), text=f"{rate_per_s:g}")

    @classmethod
    def steps(cls, steps: Iterable[tuple[float, float]]) -> Profile:
        """Go through pairs of a rate and its duration in seconds; the last rate stays."""
        pairs = [(float(rate), float(length)) for rate, length in steps]
        for _, length in pairs:
            if not (math.isfinite(length) and length > 0):
                raise InvalidValue("steps", "a profile", "longer than 0 seconds each", length)
        ends = np.cumsum([length for _, length in pairs])
        text = "steps:" + ",".join(f"{rate:g}x{length:g}" for rate, length in pairs)
        starts = tuple(float(end) for end in (0.0, *ends[:-1]))
        return cls(starts if pairs else (), tuple(rate for rate, _ in pairs), text=text)

    @classmethod
    def sine(cls, lowest: float, highest: float, period_s: float) -> Profile:
        """Swing between two rates, upwards from the middle."""
        _check_swing(lowest, highest, period_s)
        edges = np.linspace(0.0, 1.0, SINE_PIECES + 1)
        # The mean of sin over a piece, from its integral.
        swing = -np.diff(np.cos(2 * np.pi * edges)) * SINE_PIECES / (2 * np.pi)
        rates = (lowest + highest) / 2 + (highest - lowest) / 2 * swing
        return cls(
            tuple((edges[:-1] * period_s).tolist()),
            tuple(np.maximum(rates, 0.0).tolist()),
            float(period_s),
            f"sine:{lowest:g}..{highest:g}/{period_s:g}",
        )

    @classmethod
    def square(cls, low: float, high: float, period_s: float) -> Profile:
        """Take turns between two rates, half a period each, the low one first."""
        _check_swing(low, high, period_s)
        text = f"square:{low:g},{high:g}/{period_s:g}"
        return cls((0.0, period_s / 2), (float(low), float(high)), float(period_s), text)

    @classmethod
    def replayed(cls, path: str | Path) -> Profile:
        """Read a file of times and rates: CSV with a header, or a JSON list of objects.

        The fields are ``time_s`` and ``rate_per_s``. A rate holds until the next time; before the
        first time it is 0, after the last it stays.
        """
        pairs = sorted(_times_and_rates(Path(path)))
        if pairs and pairs[0][0] > 0:
            pairs.insert(0, (0.0, 0.0))
        times, rates = tuple(t for t, _ in pairs), tuple(r for _, r in pairs)
        return cls(times, rates, text=f"file:{path}")

    @classmethod
    def parse(cls, text: str) -> Profile:
        """Read the text form, as on the command line."""
        kind, colon, rest = text.strip().partition(":")
        number = r"\s*([0-9.eE+]+)\s*"
        if not colon:
            found = re.fullmatch(number, kind)
            if found:
                return cls.constant(_number(found[1], text))
        elif kind == "steps":
            pieces = [re.fullmatch(f"{number}x{number}", piece) for piece in rest.split(",")]
            if all(pieces):
                return cls.steps(
                    (_number(piece[1], text), _number(piece[2], text)) for piece in pieces if piece
                )
        elif kind == "sine":
            # Its first number must not swallow the dots behind it.
            first = r"\s*([0-9eE+]+(?:[.][0-9]+)?)\s*"
            found = re.fullmatch(f"{first}[.][.]{number}/{number}", rest)
            if found:
                return cls.sine(*(_number(part, text) for part in found.groups()))
        elif kind == "square":
            found = re.fullmatch(f"{number},{number}/{number}", rest)
            if found:
                return cls.square(*(_number(part, text) for part in found.groups()))
        elif kind == "file" and rest:
            return cls.replayed(rest)
        raise _unknown(text)

    def __str__(self) -> str:
        return self.text or f"{len(self.starts_s)} pieces"

    # ---- what it says

    def rate(self, elapsed_s: float) -> float:
        """Tuples a second at a moment."""
        moment = max(elapsed_s, 0.0)
        if self.period_s is not None:
            moment %= self.period_s
        return self.rates_per_s[int(np.searchsorted(self.starts_s, moment, side="right")) - 1]

    @property
    def total(self) -> int | None:
        """Tuples in all; None if there is no end."""
        if self.period_s is not None or self.rates_per_s[-1] > 0:
            return None
        return int(self._made[-1])

    def mean_rate(self, duration_s: float) -> float:
        """Tuples a second, averaged from the start."""
        return self.position(duration_s) / duration_s

    def position(self, elapsed_s: float) -> int:
        """Tuples made up to a moment: exactly those whose `time_of` is not later."""
        if elapsed_s <= 0:
            return 0
        if math.isinf(elapsed_s):
            if self.total is None:
                raise InvalidValue(
                    "elapsed_s", "a profile", "finite, because the profile has no end", elapsed_s
                )
            return self.total
        cycles, moment = 0.0, float(elapsed_s)
        if self.period_s is not None:
            cycles, moment = divmod(moment, self.period_s)
        piece = int(np.searchsorted(self.starts_s, moment, side="right")) - 1
        inside = self._made[piece] + (moment - self.starts_s[piece]) * self.rates_per_s[piece]
        count = max(int(cycles * self._per_period + inside), 0)
        # Rounding may be off by one; `time_of` is what counts.
        while count > 0 and self._moment(count - 1) > elapsed_s:
            count -= 1
        while self._moment(count) <= elapsed_s:
            count += 1
        return count

    def time_of(self, positions: npt.ArrayLike) -> Seconds:
        """Moments at which tuples are made, in seconds; infinite for those after the last."""
        made = np.asarray(positions, dtype=np.float64) + 1.0
        cycle = np.zeros_like(made)
        if self.period_s is not None:
            cycle = np.ceil(made / self._per_period) - 1.0
            made -= cycle * self._per_period
            # Rounding may put the last tuple of a period at the very start of the next.
            cycle -= made <= 0.0
            made = np.where(made <= 0.0, self._per_period, np.minimum(made, self._per_period))
        # The piece in which the integral gets to `made`; pauses are passed over.
        piece = np.maximum(np.searchsorted(self._made, made, side="left") - 1, 0)
        starts, rates = np.array(self.starts_s), np.array(self.rates_per_s)
        with np.errstate(divide="ignore", invalid="ignore"):
            moment = starts[piece] + (made - self._made[piece]) / rates[piece]
        last = math.inf if self.period_s is None else self.period_s
        moment = np.minimum(moment, np.append(starts[1:], last)[piece])
        return np.asarray(moment + cycle * (self.period_s or 0.0), dtype=np.float64)

    def stamps_us(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Moments of the tuples from `start` up to `stop`, in whole microseconds."""
        return np.rint(self.time_of(np.arange(start, stop)) * 1e6).astype(np.int64)

    @cached_property
    def _made(self) -> Seconds:
        """Tuples made before each piece of the first round."""
        lengths = np.diff(self.starts_s)
        made = np.cumsum(lengths * np.array(self.rates_per_s[:-1]))
        # 0.1 tuples a second for 10 seconds are one tuple, and not a little less.
        return np.concatenate(([0.0], np.round(made, 9)))

    @cached_property
    def _per_period(self) -> float:
        if self.period_s is None:
            return 0.0
        rest = (self.period_s - self.starts_s[-1]) * self.rates_per_s[-1]
        return round(float(self._made[-1] + rest), 9)

    def _moment(self, position: int) -> float:
        return float(self.time_of([position])[0])


def _check_swing(low: float, high: float, period_s: float) -> None:
    if not (0 <= low <= high and math.isfinite(high)):
        raise InvalidValue("rates_per_s", "a profile", "a low and a higher rate", (low, high))
    if not (math.isfinite(period_s) and period_s > 0):
        raise InvalidValue("period_s", "a profile", "a number of seconds above 0", period_s)


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _unknown(whole) from None


def _unknown(text: str) -> InvalidValue:
    return InvalidValue("profile", "a source", "one of " + "; ".join(FORMS), text)


def _times_and_rates(path: Path) -> list[tuple[float, float]]:
    owner = f"profile file {path}"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue("path", owner, "a file that can be read", str(error)) from None
    rows: Sequence[Any]
    if path.suffix.lower() == ".json":
        try:
            rows = json.loads(text)
        except ValueError as error:
            raise InvalidValue("content", owner, "JSON", str(error)) from None
        if not isinstance(rows, list):
            raise InvalidValue("content", owner, "a list of objects", type(rows).__name__)
    else:
        rows = list(csv.DictReader(text.splitlines()))
    if not rows:
        raise InvalidValue("content", owner, "at least one time_s and rate_per_s", "none")
    pairs = []
    for number, row in enumerate(rows, start=1):
        try:
            time_s, rate = float(row["time_s"]), float(row["rate_per_s"])
        except (KeyError, TypeError, ValueError):
            raise InvalidValue(
                f"row {number}", owner, "an object with the numbers time_s and rate_per_s", row
            ) from None
        if not (math.isfinite(time_s) and time_s >= 0):
            raise InvalidValue(
                f"time_s in row {number}", owner, "a finite number of at least 0", time_s
            )
        pairs.append((time_s, rate))
    return pairs
