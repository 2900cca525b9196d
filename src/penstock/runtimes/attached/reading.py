"""What holds back how a query reads its Kafka topics, from what its last batches read. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.model import Kind
from penstock.runtimes.attached.progress import Batch, TaskRun
from penstock.runtimes.attached.topic_partitions import TopicPartition, topic_partitions
from penstock.runtimes.attached.topology import QueryGraph

#: Batches that are looked back on.
KEPT = 10

#: Rows from which on the shares of partitions mean something.
ENOUGH_ROWS = 1000

#: A partition with so many times the mean of its topic's rows is a heavy one.
HEAVY = 2.0

#: Batches' worth of rows from which on a query is behind, and the part of what waits that one
#: partition has where the others are not to blame.
BEHIND, MOSTLY = 2.0, 0.5

#: Part of a batch that reading takes, from which on a heavy partition is worth a word, and from
#: which on more tasks are.
MATTERS, READS = 0.25, 0.5


@dataclass(frozen=True)
class Read:
    """What one batch read.

    Parameters
    ----------
    partitions : tuple of TopicPartition
    interval_s : float
        From the start of the batch before to the start of this one.
    duration_ms, source_ms : float
        Of the batch, and of the longest of its stages that read sources.
    tasks, cores : int
        Tasks of that stage, and cores that could run them.
    """

    partitions: tuple[TopicPartition, ...]
    interval_s: float
    duration_ms: float
    source_ms: float
    tasks: int
    cores: int

    @property
    def rows(self) -> int:
        """Offsets that it read."""
        return sum(one.rows for one in self.partitions)

    @property
    def lag(self) -> int:
        """Offsets that it left."""
        return sum(one.lag for one in self.partitions)


class Reading:
    """The last batches of one query."""

    def __init__(self) -> None:
        self._reads: deque[Read] = deque(maxlen=KEPT)

    def add(
        self,
        batch: Batch,
        graph: QueryGraph,
        tasks: Mapping[str, Mapping[int, TaskRun]],
        interval_s: float,
    ) -> None:
        """Take note of a batch; one that reads no Kafka topic says nothing."""
        found = topic_partitions(batch.progress)
        if not found:
            return
        reading = [tasks[s.name] for s in graph.stages if s.kind is Kind.SOURCE and tasks[s.name]]
        spans = [
            (
                max(task.finished_ms for task in own.values())
                - min(task.launched_ms for task in own.values()),
                len(own),
            )
            for own in reading
        ]
        source_ms, count = max(spans, default=(0, 0))
        cores = sum(executor.cores for executor in batch.executors)
        self._reads.append(
            Read(found, interval_s, batch.duration_ms, float(source_ms), count, cores)
        )

    def advice(self, waits: bool) -> dict[str, str]:
        """Say what could be better, by a name for each; see `advice_on`."""
        return dict(advice_on(tuple(self._reads), waits))


def advice_on(reads: Sequence[Read], waits: bool) -> Iterator[tuple[str, str]]:
    """Say what holds reading back, each with a name that stays the same while the figures change.

    Parameters
    ----------
    reads : sequence of Read
        Oldest first; fewer than `KEPT` say nothing.
    waits : bool
        Whether batches end before their trigger comes.
    """
    if len(reads) < KEPT:
        return
    source_ms = sum(read.source_ms for read in reads)
    part = source_ms / max(1.0, sum(read.duration_ms for read in reads))
    if part >= MATTERS:
        yield from _heavy(reads)
    yield from _behind(reads, waits)
    if part >= READS:
        yield from _few(reads[-1], part)


def _heavy(reads: Sequence[Read]) -> Iterator[tuple[str, str]]:
    rows: dict[str, dict[int, int]] = {}
    for read in reads:
        for one in read.partitions:
            own = rows.setdefault(one.topic, {})
            own[one.number] = own.get(one.number, 0) + one.rows
    for topic, own in sorted(rows.items()):
        total = sum(own.values())
        number = max(own, key=lambda at: own[at])
        times = own[number] * len(own) / max(1, total)
        if total >= ENOUGH_ROWS and times >= HEAVY:
            yield (
                f"heavy {topic}",
                f"partition {number} of topic {topic} brought {own[number] / total:.0%} of the "
                f"rows of the last {len(reads)} batches, {times:.1f} times the mean of its "
                f"{len(own)} partitions: one task reads all of them. The option minPartitions="
                f"{max(2, len(own)) * 2} of the source splits it; producers could spread its keys",
            )


def _behind(reads: Sequence[Read], waits: bool) -> Iterator[tuple[str, str]]:
    first, last = reads[0], reads[-1]
    a_batch = sum(read.rows for read in reads) / len(reads)
    if last.lag <= BEHIND * max(1.0, a_batch) or last.lag <= first.lag:
        return
    seconds = max(1e-3, sum(read.interval_s for read in reads[1:]))
    grows = (last.lag - first.lag) / seconds
    furthest = max(last.partitions, key=lambda one: one.lag)
    where = ""
    if len(last.partitions) > 1 and furthest.lag >= MOSTLY * last.lag:
        where = (
            f", {furthest.lag / last.lag:.0%} of them in partition {furthest.number} of topic "
            f"{furthest.topic}"
        )
    text = (
        f"{last.lag:,} rows wait at the topics{where}, and {grows:,.0f} more every second, while "
        f"the query reads {sum(r.rows for r in reads[1:]) / seconds:,.0f} a second"
    )
    if waits:
        yield (
            "capped",
            f"{text}; batches end before their trigger comes: maxOffsetsPerTrigger or the "
            "trigger's interval holds it back, not the executors",
        )
    else:
        yield "behind", f"{text}; it needs more executors, or less work for a row"


def _few(last: Read, part: float) -> Iterator[tuple[str, str]]:
    if 0 < last.tasks <= last.cores // 2:
        yield (
            "few",
            f"{last.tasks} tasks read the topics for {part:.0%} of the batch, and there are "
            f"{last.cores} cores: the option minPartitions={last.cores} of the source lets all "
            "of them read",
        )
