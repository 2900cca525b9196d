"""What elastic executors would have cost, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


def executor_time(seconds: float) -> str:
    """Write executor-seconds in the unit that fits.

    Examples
    --------
    >>> executor_time(90), executor_time(7200)
    ('90 executor-seconds', '2 executor-hours')
    """
    if seconds < 3600:
        return f"{seconds:.3g} executor-seconds"
    return f"{seconds / 3600:,.4g} executor-hours"


@dataclass(frozen=True)
class Hour:
    """One hour of an application, or the part of it that was recorded.

    Parameters
    ----------
    start_ms : float
    seconds : float
    executors : float
        That were there, on average.
    busy_share : float
        Part of their cores' time that tasks took.
    rows_per_s : float
        Rows that streaming queries read.
    elastic : float
        Executors that the simulated loop had, on average.
    """

    start_ms: float
    seconds: float
    executors: float
    busy_share: float
    rows_per_s: float
    elastic: float


@dataclass(frozen=True)
class Elastic:
    """Executors as they were, and as the control loop would have had them.

    Parameters
    ----------
    executors : int
        That were there at the same time, at the most.
    static_s, executor_s : float
        Executor-seconds as recorded, and as simulated.
    mean_executors, most_executors : float, int
        Of the simulated ones.
    busy_share : float
        Part of the cores' recorded time that tasks took.
    kept_up : float
        Rows that the elastic ones processed, of those that all executors would have: 1 is all.
    static_p95_ms, p95_ms : float or None
        Simulated latency with all executors all the time, and with elastic ones.
    hours : tuple of Hour
    decisions : tuple of str
        What the simulated loop decided, and when.
    """

    executors: int
    static_s: float
    executor_s: float
    mean_executors: float
    most_executors: int
    busy_share: float
    kept_up: float
    static_p95_ms: float | None
    p95_ms: float | None
    hours: tuple[Hour, ...] = ()
    decisions: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "executors": self.executors,
            "static_executor_s": round(self.static_s, 1),
            "elastic_executor_s": round(self.executor_s, 1),
            "elastic_mean_executors": round(self.mean_executors, 3),
            "elastic_most_executors": self.most_executors,
            "busy_share": round(self.busy_share, 4),
            "kept_up": round(self.kept_up, 4),
            "static_p95_ms": self.static_p95_ms,
            "elastic_p95_ms": self.p95_ms,
            "hours": [
                {
                    "start_ms": round(hour.start_ms),
                    "seconds": round(hour.seconds, 1),
                    "executors": round(hour.executors, 3),
                    "busy_share": round(hour.busy_share, 4),
                    "rows_per_s": round(hour.rows_per_s, 2),
                    "elastic_executors": round(hour.elastic, 3),
                }
                for hour in self.hours
            ],
            "decisions": list(self.decisions),
        }
