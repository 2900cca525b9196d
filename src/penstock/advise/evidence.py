"""One query's steady batches, and the sums over them that the rules look at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median

from penstock.advise.application import Application, LoggedBatch, LoggedQuery, LoggedStage
from penstock.advise.elastic import Elastic

#: Batches at the start that are left out while enough others remain: code is still compiled then,
#: and Python workers start.
WARM_UP = 2

#: Executor memory when nothing else was asked for.
DEFAULT_MEMORY = 1 << 30

_SIZE = re.compile(r"\s*(\d+)\s*([kmgt]?)b?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Evidence:
    """What the rules look at.

    Parameters
    ----------
    application : Application
    query : LoggedQuery
    elastic : Elastic, optional
        What elastic executors would have cost the application; None where that is not known.
    """

    application: Application
    query: LoggedQuery
    elastic: Elastic | None = None

    @cached_property
    def batches(self) -> tuple[LoggedBatch, ...]:
        """Batches that count: those that ran after the warm-up and have tasks."""
        ran = tuple(b for b in self.query.batches if b.id in self.query.stages_of)
        return ran[min(WARM_UP, len(ran) // 3) :]

    @cached_property
    def stages(self) -> tuple[LoggedStage, ...]:
        """Stages of the batches that count."""
        return tuple(s for b in self.batches for s in self.query.stages_of[b.id])

    @cached_property
    def total_ms(self) -> float:
        """Time of all batches that count."""
        return sum(b.took_ms for b in self.batches)

    @cached_property
    def span_ms(self) -> tuple[float, float]:
        """Start of the first and end of the last of them."""
        if not self.batches:
            return (0.0, 0.0)
        return (self.batches[0].start_ms, max(b.end_ms for b in self.batches))

    @cached_property
    def cores(self) -> int:
        """Tasks that could run at the same time."""
        return max(1, round(self.application.cores(*self.span_ms)))

    @cached_property
    def executors(self) -> int:
        """Executors that were there at any time meanwhile."""
        return sum(e.present_ms(*self.span_ms) > 0 for e in self.application.executors)

    @property
    def batch_ms(self) -> float:
        """Time of a batch, on average."""
        return self.total_ms / len(self.batches) if self.batches else 0.0

    @cached_property
    def cycle_ms(self) -> float:
        """Time from one batch to the next, in the middle."""
        starts = [b.start_ms for b in self.batches]
        gaps = [b - a for a, b in pairwise(starts) if b > a]
        return median(gaps) if gaps else max(self.batch_ms, 1.0)

    @cached_property
    def waiting_share(self) -> float:
        """Part of the time in which no batch ran: it waited for its trigger, or for data."""
        low, high = self.span_ms
        return max(0.0, 1.0 - self.total_ms / (high - low)) if high > low else 0.0

    def share(self, ms: float) -> float:
        """Part of the time of all batches, from 0 to 1."""
        return min(1.0, max(0.0, ms / self.total_ms)) if self.total_ms > 0 else 0.0

    def mean(self, ms: float) -> float:
        """Divide a sum by the number of batches."""
        return ms / len(self.batches) if self.batches else 0.0

    def phase_ms(self, *names: str) -> float:
        """Sum phases over all batches."""
        return sum(b.phase_ms(*names) for b in self.batches)

    def setting(self, name: str, default: str) -> str:
        """Value of a setting of Spark in this application."""
        return self.application.properties.get(name, default)

    @property
    def memory_bytes(self) -> float:
        """Heap of one executor."""
        return size_of(self.setting("spark.executor.memory", ""), DEFAULT_MEMORY)


def size_of(text: str, otherwise: float) -> float:
    """Read a size as Spark writes it.

    Examples
    --------
    >>> size_of("700m", 0), size_of("2g", 0), size_of("much", 5)
    (734003200.0, 2147483648.0, 5)
    """
    found = _SIZE.fullmatch(text)
    if not found:
        return otherwise
    return float(found[1]) * 1024.0 ** "_kmgt".index(found[2].lower() or "_")


def usual(values: Iterable[float]) -> float:
    """Return the value in the middle; 0 when there is none."""
    found = list(values)
    return median(found) if found else 0.0


def covered_ms(stages: Sequence[LoggedStage]) -> float:
    """Time in which at least one of some stages ran."""
    total, end = 0.0, 0.0
    for stage in sorted(stages, key=lambda s: s.submitted_ms):
        low = max(stage.submitted_ms, end)
        if stage.completed_ms > low:
            total += stage.completed_ms - low
            end = stage.completed_ms
    return total
