"""What a task reads and sends: messages of the layers around it, its part of a source, sinks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.arrow_keys import decoded
from penstock.common.key_hashing import HashArray, key_hashes
from penstock.engine.batch import BatchSpec
from penstock.engine.errors import UserCode
from penstock.engine.job_graph import MAX_INSTANCES, JobEdge, JobGraph
from penstock.engine.messages import (
    DRIVER,
    Address,
    EdgeRows,
    SharedRows,
    SinkRows,
    address_of,
    decode,
    encode,
    unpack,
)
from penstock.engine.state.task_state import TaskState
from penstock.engine.task.metrics import TaskMetrics
from penstock.model import Grouping, NotAllowed, RoutingTable
from penstock.pipeline.steps import Link, Source, StagedFile, Step
from penstock.strategies.route import Destination
from penstock.strategies.route.hot_key import HotKey
from penstock.strategies.route.partial_key import PartialKey
from penstock.strategies.route.two_tier import TwoTier, route_by_table

#: Stamps of source rows are counted in steps of this many microseconds.
STAMP_STEP_US = 1000

_TWO_TIER, _PARTIAL_KEY, _HOT_KEY = TwoTier(), PartialKey(), HotKey()


class TaskInput:
    """What one instance reads in one batch.

    Parameters
    ----------
    spec : BatchSpec
    here : Address
        The task.
    state : TaskState or None
        Of the instance; it gets the messages with state.

    Attributes
    ----------
    stamps : dict of int to int
        Rows that the source made in each step of `STAMP_STEP_US`.
    """

    def __init__(self, spec: BatchSpec, here: Address, state: TaskState | None) -> None:
        self.spec, self.here, self.state = spec, here, state
        self.stamps: dict[int, int] = {}
        self._tables: dict[int, list[pa.Table]] = {}

    def receive(self, messages: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """Take the messages for this instance, and pass on those for a later layer."""
        rows: list[EdgeRows] = []
        for data in messages:
            to = address_of(data)
            if to.layer != self.here.layer:
                yield self.spec.next_hop(self.here, to), bytes(data)
                continue
            message = unpack(data)
            if isinstance(message, EdgeRows):
                rows.append(message)
            elif self.state is not None:
                self.state.receive(message)
            else:
                raise TypeError(f"an instance without state got a {type(message).__name__}")
        # In the order of the senders, however they came: a batch that is repeated looks the same.
        for message in sorted(rows, key=lambda message: message.sender):
            self._tables.setdefault(message.edge, []).append(decode(message.body))

    def tables(self, edge: int) -> list[pa.Table]:
        """Return the rows that came along an edge, in the order of their senders."""
        return self._tables.get(edge, [])

    def read_source(
        self, step: Step, user_code: UserCode, rows: Iterable[tuple[str, pa.Table]]
    ) -> Iterator[pa.Table]:
        """Read this instance's part of the batch's ranges, and what the backend read itself.

        Parameters
        ----------
        step : Step
            The source.
        user_code : UserCode
        rows : iterable of (str, Table)
            By source step: rows of streaming DataFrames.
        """
        vertex, instance = self.spec.instance_at(*self.here)
        count = self.spec.parallelism[vertex]
        for low, high in part_of(self.spec.ranges.get(step.name, ()), instance, count):
            table = user_code.call(step.name, partial(_read, step.source, low, high))
            self._count_stamps(table, getattr(step.source, "stamp", None))
            yield table
        for name, table in rows:
            if name == step.name and table.num_rows:
                yield decoded(table)

    def _count_stamps(self, table: pa.Table, stamp: str | None) -> None:
        if stamp is None:
            return
        steps = np.asarray(table.column(stamp)) // STAMP_STEP_US
        for value, times in zip(*np.unique(steps, return_counts=True), strict=True):
            self.stamps[int(value)] = self.stamps.get(int(value), 0) + int(times)


class TaskOutput:
    """What one instance sends in one batch.

    Parameters
    ----------
    job_graph : JobGraph
    spec : BatchSpec
    here : Address
        The task.
    user_code : UserCode

    Attributes
    ----------
    messages : list of (Address, message)
    metrics : TaskMetrics
    sent : dict of int to dict of int to int
        By edge and target instance: rows.
    staged : dict of str to StagedFile
        By sink: the file that this instance wrote.
    """

    def __init__(
        self, job_graph: JobGraph, spec: BatchSpec, here: Address, user_code: UserCode
    ) -> None:
        self.job_graph, self.spec, self.here, self.user_code = job_graph, spec, here, user_code
        self.vertex, self.instance = spec.instance_at(*here)
        self.messages: list[tuple[Address, object]] = []
        self.metrics = TaskMetrics()
        self.sent: dict[int, dict[int, int]] = {}
        self.staged: dict[str, StagedFile] = {}
        self._sink_rows: dict[str, list[pa.Table]] = {}

    def rows_to_sinks(self) -> dict[str, int]:
        """Count the rows for each sink."""
        return {name: sum(t.num_rows for t in found) for name, found in self._sink_rows.items()}

    def send(self, edge: JobEdge, table: pa.Table, *, single: bool) -> None:
        """Send rows along an edge; see `TaskMetrics.hashes` for `single`."""
        spec, metrics, step = self.spec, self.metrics, edge.to_step
        count, routing = spec.parallelism[edge.target], spec.routing.get(edge.target)
        location = spec.layer_locations[self.here.layer][self.here.partition]
        targets = spec.locations.get(edge.target, ())
        local = tuple(i for i, other in enumerate(targets) if other == location)
        sent = self.sent.setdefault(edge.number, {})
        if edge.link.by_key and self.job_graph.steps[step].keyed is not None:
            metrics.keys_sent(step, table, edge.link.by)

        def parts() -> list[tuple[int, pa.Table]]:
            hashes = metrics.hashes(edge.target, edge.link, table, routing, count, single=single)
            turn = spec.batch_id + self.instance
            return list(
                distribute(
                    table,
                    edge.link,
                    count,
                    routing=routing,
                    turn=turn,
                    local=local,
                    hashes=hashes,
                )
            )

        last: tuple[pa.Table, memoryview] | None = None
        for target, part in self.user_code.call(step, parts):
            # Rows that go to all instances are encoded once.
            body = last[1] if last is not None and last[0] is part else encode(part)
            last = (part, body)
            to = spec.address(edge.target, target)
            self.messages.append((to, EdgeRows(edge.number, self.instance, body)))
            sent[target] = sent.get(target, 0) + part.num_rows

    def send_shared(self, step: str, table: pa.Table) -> None:
        """Send what this instance made of split keys to the driver."""
        number = self.job_graph.step_numbers[step]
        self.messages.append((DRIVER, SharedRows(number, self.instance, encode(table))))

    def add_to_sink(self, step: str, table: pa.Table) -> None:
        """Collect rows for a sink."""
        self._sink_rows.setdefault(step, []).append(table)

    def flush_sinks(self) -> None:
        """Give each sink its rows at once: a second write would replace the first."""
        for step, sink in self.job_graph.sinks:
            if step.name not in self._sink_rows:
                continue
            table = self.user_code.together(step.name, self._sink_rows[step.name])
            if sink.on_workers:
                # One file for each instance, numbered over the instances of all vertices.
                names = [vertex.name for vertex in self.job_graph.vertices]
                number = names.index(self.vertex) * MAX_INSTANCES + self.instance
                stage = partial(sink.stage, self.spec.attempt, number, table)
                file = self.user_code.call(step.name, stage)
                if file is not None:
                    self.staged[step.name] = file
            else:
                number = self.job_graph.step_numbers[step.name]
                self.messages.append((DRIVER, SinkRows(number, self.instance, encode(table))))


def distribute(
    table: pa.Table,
    link: Link,
    instances: int,
    *,
    routing: RoutingTable | None,
    turn: int,
    local: tuple[int, ...] = (),
    hashes: HashArray | None = None,
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each target instance that gets any.

    Parameters
    ----------
    table : pyarrow.Table
    link : Link
    instances : int
        Instances of the target.
    routing : RoutingTable or None
        The target's routing table.
    turn : int
        Instance that an even distribution begins with, so that short batches do not all go to the
        first instances.
    local : tuple of int
        Targets at the sender's own location, for local grouping.
    hashes : array, optional
        Hashes of the keys, where they are known already.
    """
    grouping = link.grouping
    if grouping is Grouping.ALL:
        yield from ((target, table) for target in range(instances))
    elif grouping is Grouping.GLOBAL or instances == 1:
        yield 0, table
    elif grouping is Grouping.LOCAL_OR_SHUFFLE and local:
        yield from ((local[i], part) for i, part in _evenly(table, len(local), turn))
    elif grouping in (Grouping.SHUFFLE, Grouping.NONE, Grouping.LOCAL_OR_SHUFFLE):
        yield from _evenly(table, instances, turn)
    elif link.by_key:
        keys = key_hashes(table, link.by) if hashes is None else hashes
        yield from _by_target(table, _routed(keys, link, instances, routing, turn), instances)
    else:
        yield from _by_target(table, _chosen(table, link, instances), instances)


def _routed(
    keys: HashArray, link: Link, instances: int, routing: RoutingTable | None, turn: int
) -> npt.NDArray[np.int64]:
    """Return the target of each row by its key."""
    if link.grouping is Grouping.FIELDS:
        return route_by_table(keys, routing or _TWO_TIER.table(instances), instances, turn)
    if link.grouping is Grouping.PARTIAL_KEY:
        return _PARTIAL_KEY.route_hashes(keys, Destination(instances))
    # Each sender finds the hot keys of its own batch: there is nothing to remember, and a batch
    # that is repeated goes the same way.
    to = Destination(instances, hot=_HOT_KEY.hot(keys, instances), position=turn)
    return _HOT_KEY.route_hashes(keys, to)


def _chosen(table: pa.Table, link: Link, instances: int) -> npt.NDArray[np.int64]:
    """Return the target of each row as the user chose it: by a column, or by a function."""
    if link.choose is None:
        chosen = np.asarray(table.column(link.by[0]))
    else:
        chosen = np.asarray(link.choose(table.combine_chunks().to_batches()[0], instances))
    targets = chosen.astype(np.int64)
    if len(targets) != table.num_rows:
        raise NotAllowed(
            f"'choose' of {link.grouping.value} grouping must return one instance for each row; it "
            f"returned {len(targets)} for {table.num_rows} rows"
        )
    if len(targets) and (targets.min() < 0 or targets.max() >= instances):
        worst = int(targets.min() if targets.min() < 0 else targets.max())
        raise NotAllowed(
            f"{link.grouping.value} grouping chose instance {worst} for a row, and there are those "
            f"from 0 to {instances - 1}"
        )
    return targets


def _evenly(table: pa.Table, instances: int, turn: int) -> Iterator[tuple[int, pa.Table]]:
    """Cut into equal parts without looking at the rows."""
    bounds = np.linspace(0, table.num_rows, instances + 1).astype(np.int64)
    for i in range(instances):
        start, stop = int(bounds[i]), int(bounds[i + 1])
        if stop > start:
            yield (i + turn) % instances, table.slice(start, stop - start)


def _by_target(
    table: pa.Table, targets: npt.NDArray[np.int64], instances: int
) -> Iterator[tuple[int, pa.Table]]:
    """Sort by target once, and cut."""
    order = np.argsort(targets, kind="stable")
    bounds = np.searchsorted(targets[order], np.arange(instances + 1))
    ordered = table.take(pa.array(order))
    for target in range(instances):
        start, stop = int(bounds[target]), int(bounds[target + 1])
        if stop > start:
            yield target, ordered.slice(start, stop - start)


def part_of(ranges: Sequence[tuple[int, int]], instance: int, count: int) -> list[tuple[int, int]]:
    """Return the ranges that one of `count` instances reads: equal parts, in the order of ranges.

    Examples
    --------
    >>> [part_of([(0, 10), (100, 102)], instance, 3) for instance in range(3)]
    [[(0, 4)], [(4, 8)], [(8, 10), (100, 102)]]
    """
    total = sum(stop - start for start, stop in ranges)
    first, last = total * instance // count, total * (instance + 1) // count
    parts, before = [], 0
    for start, stop in ranges:
        low, high = max(start, start + first - before), min(stop, start + last - before)
        if high > low:
            parts.append((low, high))
        before += stop - start
    return parts


def _read(source: Source, start: int, stop: int) -> pa.Table:
    return decoded(source.read(start, stop))
