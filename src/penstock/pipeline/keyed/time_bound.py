"""How far apart the event times of two rows may be that are joined."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model import InvalidValue
from penstock.pipeline.keyed.pairs import Bound
from penstock.pipeline.keyed.protocols import Watermarks
from penstock.pipeline.keyed.rows_by_key import RIGHT
from penstock.pipeline.keyed.windows import microseconds

#: Removing what is over looks at all rows, so that it is done this many times while the watermark
#: passes through the bound. Late rows are dropped before, so that it is not seen.
SWEEPS = 8

#: Watermarks are counted in these steps, as in Spark.
STEP_US = 1000


@dataclass(frozen=True)
class TimeBound:
    """How far apart the event times of two joined rows may be; see `between`."""

    left: str
    right: str
    bound: Bound
    lateness_us: tuple[int, int]

    def __post_init__(self) -> None:
        low, high = self.bound.lower_us, self.bound.upper_us
        if low is not None and high is not None and low > high:
            raise InvalidValue("upper", "a time bound", f"at least the lower one, {low} us", high)
        if min(self.lateness_us) < 0:
            raise InvalidValue("lateness", "a time bound", "at least 0", min(self.lateness_us))

    @property
    def columns(self) -> tuple[str, str]:
        """Columns with the event times of both sides."""
        return self.left, self.right

    def limit_us(self, side: int, watermark_us: int) -> int | None:
        """Latest event time of rows of a side that no row can meet any more; None for none."""
        bound = self.bound if side == RIGHT else self.bound.reversed()
        return None if bound.lower_us is None else watermark_us + bound.lower_us - STEP_US

    def sweeps(self, watermarks: Watermarks) -> bool:
        """Whether it is time to remove rows that are over."""
        low, high = self.bound.lower_us or 0, self.bound.upper_us or 0
        every = max((high - low) // SWEEPS, STEP_US)
        return watermarks.now_us // every > watermarks.before_us // every


def between(
    left: str,
    right: str,
    lower: float | str | None = None,
    upper: float | str | None = None,
    *,
    lateness: float | str | tuple[float | str, float | str] = 0.0,
) -> TimeBound:
    """Bound the event times of joined rows: ``left + lower <= right <= left + upper``.

    Examples
    --------
    A click counts for an advertisement that was shown at most an hour before it:

    >>> bound = between("shown", "clicked", "0 s", "1 h", lateness="10 s")
    >>> bound.bound.upper_us
    3600000000

    Parameters
    ----------
    left, right : str
        Columns with the event times of both sides: timestamps, or int64 microseconds.
    lower, upper : float or str, optional
        Seconds, or a number with a unit such as ``"-5 min"``. Without `lower` rows of the right
        side are kept for good, without `upper` those of the left side.
    lateness : float or str, or a pair of them
        How much older than the newest row of its side a row may be; of both sides, or of each.
    """
    owner = "a time bound"
    sides = lateness if isinstance(lateness, tuple) else (lateness, lateness)
    if len(sides) != 2:
        raise InvalidValue("lateness", owner, "one time, or one of each side", lateness)
    low = None if lower is None else microseconds(lower, "lower", owner, signed=True)
    high = None if upper is None else microseconds(upper, "upper", owner, signed=True)
    late = (
        microseconds(sides[0], "lateness", owner),
        microseconds(sides[1], "lateness", owner),
    )
    return TimeBound(left, right, Bound(low, high), late)
