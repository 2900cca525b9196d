"""The sums of a run, over all its batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.store.histogram import EMPTY, Histogram
from penstock.store.records import BatchRecord


@dataclass(frozen=True)
class Totals:
    """What a run did so far.

    Parameters
    ----------
    batches, rows_in, rows_out, dropped : int
    local_bytes, host_local_bytes, remote_bytes : int
    tasks, tasks_honoured : int
        As in `BatchRecord`, added up.
    nodes_used : int
        The most nodes that one batch used.
    started_at_s, ended_at_s : float or None
        Start of the first and end of the last batch; None without any.
    latency : Histogram
    """

    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    dropped: int = 0
    local_bytes: int = 0
    host_local_bytes: int = 0
    remote_bytes: int = 0
    tasks: int = 0
    tasks_honoured: int = 0
    nodes_used: int = 0
    started_at_s: float | None = None
    ended_at_s: float | None = None
    latency: Histogram = EMPTY

    @classmethod
    def of(cls, batches: Iterable[BatchRecord]) -> Totals:
        """Add up batches.

        Examples
        --------
        >>> Totals.of([BatchRecord("r", i, float(i), 500.0, rows_in=10) for i in range(3)]).rows_in
        30
        """
        known = tuple(batches)
        if not known:
            return cls()
        return cls(
            batches=sum(b.stands_for for b in known),
            rows_in=sum(b.rows_in for b in known),
            rows_out=sum(b.rows_out for b in known),
            dropped=sum(b.dropped for b in known),
            local_bytes=sum(b.local_bytes for b in known),
            host_local_bytes=sum(b.host_local_bytes for b in known),
            remote_bytes=sum(b.remote_bytes for b in known),
            tasks=sum(b.tasks for b in known),
            tasks_honoured=sum(b.tasks_honoured for b in known),
            nodes_used=max(b.nodes_used for b in known),
            started_at_s=min(b.started_at_s for b in known),
            ended_at_s=max(b.ended_at_s for b in known),
            latency=Histogram.merged(b.latency for b in known),
        )

    @property
    def seconds(self) -> float | None:
        """From the start of the first to the end of the last batch; None without any."""
        if self.started_at_s is None or self.ended_at_s is None:
            return None
        return self.ended_at_s - self.started_at_s

    @property
    def placement_honoured(self) -> float | None:
        """Part of the tasks that ran where the plan says; None when no task had a planned place."""
        return self.tasks_honoured / self.tasks if self.tasks else None

    @property
    def remote_share(self) -> float | None:
        """Part of the shuffle bytes that crossed nodes; None when there were none."""
        total = self.local_bytes + self.host_local_bytes + self.remote_bytes
        return self.remote_bytes / total if total else None
