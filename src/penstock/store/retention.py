"""How much of a long run is kept: all of the last batches, and rolled up what is older.

A day at five batches a second is 432,000 batches. With the defaults some ten thousand rows are kept
of it: the last 3,000 batches as they were, before them one row for ten, and one for a hundred of
those that are older than 30,000 batches. Instances and edges are kept of the last 1,000.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from penstock.common.parameters import Checked, param
from penstock.store.histogram import Histogram
from penstock.store.records import ROLLED_UP, BatchRecord
from penstock.store.store import MetricsStore

#: Writes from one look at what is old to the next.
EVERY = 500


@dataclass(frozen=True)
class Retention(Checked):
    """What is kept of the batches of a run.

    Examples
    --------
    >>> Retention(keep_batches=0)
    Traceback (most recent call last):
    ...
    penstock.common.errors.InvalidValue: parameter keep_batches of Retention must be \
a whole number of at least 1, got 0
    """

    keep_detail: int = param(1_000, "Batches whose instances and edges are kept.", least=1)
    keep_batches: int = param(3_000, "Batches that are kept one by one.", least=1)
    keep_tens: int = param(30_000, "Batches that are kept ten to a row; then a hundred.", least=1)


class RollUp:
    """Applies a retention to one run while it is written.

    Parameters
    ----------
    retention : Retention
    run : str
    """

    def __init__(self, retention: Retention, run: str) -> None:
        self.retention, self.run = retention, run
        self._writes = 0
        self._since = {10: 0, 100: 0}

    def after_write(self, store: MetricsStore) -> None:
        """Roll up what has become old, from time to time."""
        self._writes += 1
        if self._writes % EVERY == 0:
            self.apply(store)

    def apply(self, store: MetricsStore) -> None:
        """Roll up what is old now."""
        last = store.batches(self.run, last=1)
        if not last:
            return
        kept = {10: self.retention.keep_batches, 100: self.retention.keep_tens}
        for size, count in kept.items():
            # Whole groups only: the rest follows when it is complete.
            before = (last[0].batch - count) // size * size
            if before > self._since[size]:
                roll_up(store, self.run, size, since=self._since[size], before=before)
                self._since[size] = before


def roll_up(store: MetricsStore, run: str, size: int, *, since: int = 0, before: int) -> None:
    """Let one row stand for `size` batches, for the batches from `since` to below `before`."""
    found = store.batches(run, since=since, before=before)
    for _, group in groupby(found, key=lambda one: one.batch // size):
        members = list(group)
        if len(members) > 1:
            store.replace_batches(members, merged(members))


def merged(batches: Sequence[BatchRecord]) -> BatchRecord:
    """Let one record stand for several batches that follow each other.

    Counts, bytes and latencies are those of all of them, durations and imbalances the mean, the
    queue and the nodes the most that any had. It has the number and the start of the last, so that
    rates come out as before.

    Examples
    --------
    >>> two = [BatchRecord("r", n, 10.0 + n, 200.0, rows_in=100) for n in (0, 1)]
    >>> one = merged(two)
    >>> one.batch, one.rows_in, one.duration_ms, one.figures["rolled_up"]
    (1, 200, 200.0, 2)
    """
    last = batches[-1]
    count = sum(one.stands_for for one in batches)
    names = {name for one in batches for name in one.figures} - {ROLLED_UP}
    figures = {
        name: math.fsum(one.figures.get(name, 0.0) for one in batches) for name in sorted(names)
    }
    operators = {name for one in batches for name in one.lit}
    measured = [one.lin for one in batches if one.lin is not None]
    return BatchRecord(
        last.run,
        last.batch,
        last.started_at_s,
        sum(one.duration_ms * one.stands_for for one in batches) / count,
        rows_in=sum(one.rows_in for one in batches),
        rows_out=sum(one.rows_out for one in batches),
        queue_length=max(one.queue_length for one in batches),
        dropped=sum(one.dropped for one in batches),
        local_bytes=sum(one.local_bytes for one in batches),
        host_local_bytes=sum(one.host_local_bytes for one in batches),
        remote_bytes=sum(one.remote_bytes for one in batches),
        tasks=sum(one.tasks for one in batches),
        tasks_honoured=sum(one.tasks_honoured for one in batches),
        nodes_used=max(one.nodes_used for one in batches),
        lin=fmean(measured) if measured else None,
        lit={n: fmean(one.lit[n] for one in batches if n in one.lit) for n in sorted(operators)},
        latency=Histogram.merged(one.latency for one in batches),
        figures={**figures, ROLLED_UP: count},
    )
