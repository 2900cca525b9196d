"""The body of one task: an instance's part of one micro-batch, from frames to frames.

It knows nothing of Spark: the engine brings the frames here and takes them away, and so does the
local runner that tests use.
"""

from __future__ import annotations

import resource
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.common.arrow_keys import decoded, normal_keys
from penstock.engine.batch import BatchSpec
from penstock.engine.errors import StepFailed, TaskTimedOut
from penstock.engine.job_graph import MOST_INSTANCES, JobGraph
from penstock.engine.messages import (
    DATA,
    DRIVER,
    ERROR,
    SHARED,
    SINK,
    STATS,
    Message,
    decode,
    encode,
    encode_json,
)
from penstock.engine.state.backup import keep
from penstock.engine.task.exchange import deal
from penstock.engine.task.hot_keys import SplitKeys
from penstock.engine.task.metrics import TaskMetrics
from penstock.engine.task.state import TaskState
from penstock.engine.task.working_state import WorkingState
from penstock.pipeline.keyed.windowed import Windowed, routed_by
from penstock.pipeline.steps import Step, wants_origin
from penstock.state.versions import StateLost

#: Rows of a failed batch that an error shows, and rows that may be left out one by one.
SAMPLE_ROWS = 3

#: Stamps are counted in steps of this many microseconds.
STAMP_STEP_US = 1000


def run_partition(
    job_graph: JobGraph,
    spec: BatchSpec,
    layer: int,
    partition: int,
    frames: Iterable[bytes],
    rows: Iterable[tuple[str, pa.Table]] = (),
    *,
    folder: Path,
) -> Iterator[tuple[int, bytes]]:
    """Run one instance's part of a batch, or one node's part of keeping fragments.

    Parameters
    ----------
    job_graph : JobGraph
    spec : BatchSpec
    layer, partition : int
        Which instance.
    frames : iterable of bytes
        Frames from the layer before; always read to the end.
    rows : iterable of (str, Table)
        Rows of source steps that the engine reads itself (streaming DataFrames).
    folder : Path
        Folder of the node that this runs on.

    Yields
    ------
    tuple of (int, bytes)
        Partition of the next layer, and a frame. In the last layer the number means nothing.
    """
    if layer == len(spec.layers):
        yield from keep(spec, partition, frames, folder)
        return
    with closing(_Task(job_graph, spec, layer, partition, folder)) as task:
        yield from task.relay(frames)
        yield from task.run(rows)


class _Task:
    def __init__(
        self, job_graph: JobGraph, spec: BatchSpec, layer: int, partition: int, place: Path
    ) -> None:
        self.job_graph, self.spec, self.place = job_graph, spec, place
        self.layer, self.partition = layer, partition
        self.vertex, self.instance = spec.instance_at(layer, partition)
        self.inputs: dict[int, list[pa.Table]] = {}
        self.out: list[Message] = []
        self.kept: Iterable[Message] = ()
        self.rows_in = 0
        self.sent: dict[int, dict[int, int]] = {}
        self.to_sinks: dict[str, list[pa.Table]] = {}
        self.staged: dict[str, dict[str, Any]] = {}
        self.metrics = TaskMetrics()
        self.skipped = 0
        self.skipped_sample: Any = None
        self.stamps: dict[int, int] = {}
        self.task_state: TaskState | None = None
        if self.vertex in spec.bases:
            self.task_state = TaskState(spec, self.vertex, self.instance, place)

    def close(self) -> None:
        """Remove what came and was of no use."""
        if self.task_state is not None:
            self.task_state.close()

    # ---- frames that come in

    def relay(self, frames: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """Keep what is for this instance, and send on what is for a later layer."""
        mine: list[Message] = []
        for data in frames:
            frame = Message.unpack(data)
            if frame.layer != self.layer:
                yield self._hop(frame.layer, frame.partition), bytes(data)
            elif frame.kind == DATA:
                mine.append(frame)
            else:
                assert self.task_state is not None, "state came to an instance that keeps none"
                self.task_state.take(frame)
        # In the order of the senders, however they came: a batch that is repeated looks the same.
        for frame in sorted(mine, key=lambda frame: frame.sender):
            self.inputs.setdefault(frame.edge, []).append(decode(frame.body))

    def _hop(self, layer: int, partition: int) -> int:
        here = self.spec.layer_locations[self.layer][self.partition]
        return self.spec.hop(here, self.layer, layer, partition)

    # ---- the work

    def run(self, rows: Iterable[tuple[str, pa.Table]]) -> Iterator[tuple[int, bytes]]:
        cpu, wall = time.process_time(), time.perf_counter()
        failed = False
        try:
            self._head(rows)
            self._flush()
        except StepFailed as error:
            failed = True
            self.out = [self._to_driver(ERROR, 0, encode_json(_plain_error(error)))]
        except StateLost as error:
            failed = True
            self.out = [self._to_driver(ERROR, 1, encode_json(str(error)))]
        for frame in self.out if failed else chain(self.out, self.kept):
            yield self._hop(frame.layer, frame.partition), frame.pack()
        stats = {
            "vertex": self.vertex,
            "instance": self.instance,
            "rows_in": self.rows_in,
            "sent": {} if failed else self.sent,
            "sinks": {}
            if failed
            else {n: sum(t.num_rows for t in tables) for n, tables in self.to_sinks.items()},
            "staged": {} if failed else self.staged,
            "partitions": {n: counts.tolist() for n, counts in self.metrics.partitions.items()},
            **self.metrics.stats(),
            "skipped": self.skipped,
            "sample": self.skipped_sample,
            "stamps": self.stamps,
            "saved": None if failed or self.task_state is None else self.task_state.saved,
            "arrived": None if self.task_state is None else self.task_state.arrived,
            "cpu_s": time.process_time() - cpu,
            "wall_s": time.perf_counter() - wall,
            "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        frame = self._to_driver(STATS, 0, encode_json(stats))
        yield self._hop(DRIVER, 0), frame.pack()

    def _head(self, rows: Iterable[tuple[str, pa.Table]]) -> None:
        head = self.job_graph.pipeline[self.job_graph.by_name[self.vertex].head]
        if head.source is not None:
            for table in self._read(head, rows):
                self.rows_in += table.num_rows
                self._emit(head, table)
            return
        if head.keyed is not None:
            self._keyed(head)
            return
        for edge in self.job_graph.edges:
            tables = self.inputs.get(edge.number)
            if edge.target == self.vertex and tables:
                table = self._together(edge.from_step, tables)
                self.rows_in += table.num_rows
                self._map(head, table, edge.from_step)

    def _read(self, head: Step, rows: Iterable[tuple[str, pa.Table]]) -> Iterator[pa.Table]:
        """Rows of a source: its share of the batch's ranges, or what the engine read."""
        stamp = getattr(head.source, "stamp", None)
        count = self.spec.parallelism[self.vertex]
        for start, stop in self.spec.ranges.get(head.name, ()):
            low = start + (stop - start) * self.instance // count
            high = start + (stop - start) * (self.instance + 1) // count
            if high > low:
                table = self._guard(
                    head, None, lambda a=low, b=high: decoded(head.source.read(a, b))
                )
                self._count_stamps(table, stamp)
                yield table
        for name, table in rows:
            if name == head.name and table.num_rows:
                yield decoded(table)

    def _count_stamps(self, table: pa.Table, stamp: str | None) -> None:
        if stamp is None:
            return
        steps = np.asarray(table.column(stamp)) // STAMP_STEP_US
        for value, times in zip(*np.unique(steps, return_counts=True), strict=True):
            self.stamps[int(value)] = self.stamps.get(int(value), 0) + int(times)

    def _map(self, step: Step, table: pa.Table, origin: str) -> None:
        function = step.function if step.late_for is None else self._late(step.late_for)
        assert function is not None
        named = wants_origin(function)

        def call(batch: pa.RecordBatch) -> pa.Table | None:
            made = function(batch, origin) if named else function(batch)
            return _as_table(made)

        for made in self._attempt(step, table, call):
            self._emit(step, made)

    def _late(self, name: str) -> Any:
        """Return the function that picks the rows which come too late for a step's windows."""
        keyed, mark = self.job_graph.pipeline[name].keyed, self._watermark(name)
        assert isinstance(keyed, Windowed)
        return lambda batch: keyed.late_rows(batch, mark)

    def _watermark(self, step: str) -> int | None:
        return self.spec.watermarks.get(step)

    def _keyed(self, step: Step) -> None:
        """Update the state with all tuples of the batch, and save what changed."""
        keyed, task_state = step.keyed, self.task_state
        assert keyed is not None
        assert task_state is not None
        held = WorkingState(keyed, *task_state.load(keyed.by))
        split_keys = self._split_keys(step, held)
        tables = [t for edge in self.job_graph.edges for t in self.inputs.get(edge.number, ())]
        if tables:
            whole = self._together(step.name, tables)
            self.rows_in += whole.num_rows

            def call(batch: pa.RecordBatch) -> pa.Table | None:
                table = pa.Table.from_batches([batch])
                return held.update(table) if split_keys is None else split_keys.update(table)

            for made in self._attempt(step, whole, call):
                self._emit(step, made)
        shared = None if split_keys is None else split_keys.for_driver()
        if shared is not None:
            self.out.append(self._to_driver(SHARED, self._number(step.name), encode(shared)))
        mark, before = self._watermark(step.name), self.spec.passed.get(step.name)
        if isinstance(keyed, Windowed) and mark is not None and keyed.crossed(before, mark):
            due = held.state.where(partial(keyed.over, watermark_us=mark))
            closed, expired = keyed.close(due, mark)
            held.remove(expired)
            if closed is not None:
                self._emit(step, closed)
        self.kept = task_state.save(held.changed, held.state)

    def _split_keys(self, step: Step, held: WorkingState) -> SplitKeys | None:
        """Begin to share split keys, with the shares of the batch before put into the state."""
        routing, shares = self.spec.routing.get(self.vertex), self.spec.shares.get(step.name)
        if routing is None or not (step.splittable or shares):
            return None
        split_keys = SplitKeys(held, routing, self.instance)
        if shares is not None:
            self._guard(step, None, lambda: split_keys.settle(shares))
        return split_keys if step.splittable else None

    # ---- functions of the user's

    def _attempt(self, step: Step, table: pa.Table, call: Any) -> Iterator[pa.Table]:
        """Call a function on a batch; on failure stop, or leave out the rows that it fails on."""
        batch = _one_batch(table)
        if batch is None:
            return
        try:
            made = self._guard(step, batch, lambda: call(batch))
        except StepFailed as error:
            # Leaving out rows mends neither a function that ends the process nor one that hangs.
            if self.spec.on_error != "skip" or not isinstance(error.__cause__, Exception):
                raise
            if batch.num_rows == 1:
                self.skipped += 1
                self.skipped_sample = self.skipped_sample or _plain_error(error)
                return
            half = batch.num_rows // 2
            for part in (batch.slice(0, half), batch.slice(half)):
                yield from self._attempt(step, pa.Table.from_batches([part]), call)
            return
        if made is not None and made.num_rows:
            yield made

    def _guard(self, step: Step, batch: pa.RecordBatch | None, call: Any) -> Any:
        try:
            return call()
        except StepFailed:
            raise
        except (Exception, SystemExit, TaskTimedOut) as error:
            sample = [] if batch is None else batch.slice(0, SAMPLE_ROWS).to_pylist()
            # The last frame of one that took too long is that of the alarm.
            where = traceback.extract_tb(error.__traceback__)[-1 - isinstance(error, TaskTimedOut)]
            cause = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
            raise StepFailed(
                step.name, self.instance, self.spec.batch_id, cause, repr(sample)
            ) from error

    # ---- frames that go out

    def _emit(self, step: Step, table: pa.Table) -> None:
        """Hand rows to what is chained behind a step, and to the wires that start there."""
        for name in self.job_graph.children[step.name]:
            child = self.job_graph.pipeline[name]
            if child.sink is not None:
                self._sink(child, table)
            else:
                self._map(child, table, step.name)
        for edge in self.job_graph.edges_from(step.name):
            target = self.job_graph.pipeline[edge.to_step]
            rows, single = table, True
            if target.keyed is not None:
                batch = _one_batch(table)
                if batch is None:
                    continue
                by = edge.link.by if edge.link.by_key else routed_by(target.keyed)
                by = tuple(name for name in by if name in batch.schema.names)
                batch = self._guard(target, batch, lambda b=batch, k=by: normal_keys(b, k))
                mark = self._watermark(target.name)
                made = self._guard(
                    target, batch, lambda t=target, b=batch, m=mark: self.metrics.partial(t, b, m)
                )
                rows, single = (
                    self._guard(target, batch, lambda r=made: _as_table(r)),
                    made is batch,
                )
            if rows is not None:
                self._send(edge.number, rows, single)

    def _send(self, number: int, table: pa.Table, single: bool) -> None:
        edge = self.job_graph.edges[number]
        spec = self.spec
        count = spec.parallelism[edge.target]
        here = spec.layer_locations[self.layer][self.partition]
        homes = spec.locations.get(edge.target, ())
        near = tuple(i for i, home in enumerate(homes) if home == here)
        counts = self.sent.setdefault(number, {})
        routing = spec.routing.get(edge.target)
        hashes = self._guard(
            self.job_graph.pipeline[edge.to_step],
            None,
            lambda: self.metrics.hashes(
                edge.target, edge.link, table, routing, count, single=single
            ),
        )
        last: tuple[pa.Table, memoryview] | None = None
        for target, part in self._guard(
            self.job_graph.pipeline[edge.to_step],
            None,
            lambda: list(
                deal(
                    table,
                    edge.link,
                    count,
                    table_of=routing,
                    turn=spec.batch_id + self.instance,
                    near=near,
                    hashes=hashes,
                )
            ),
        ):
            # A batch that is copied to all is encoded once.
            body = last[1] if last is not None and last[0] is part else encode(part)
            last = (part, body)
            layer, partition = spec.address(edge.target, target)
            self.out.append(Message(DATA, layer, partition, number, self.instance, body))
            counts[target] = counts.get(target, 0) + part.num_rows

    def _sink(self, step: Step, table: pa.Table) -> None:
        self.to_sinks.setdefault(step.name, []).append(table)

    def _flush(self) -> None:
        """Hand each sink its rows at once: a second write would replace the first."""
        for name, tables in self.to_sinks.items():
            step = self.job_graph.pipeline[name]
            sink = step.sink
            assert sink is not None
            table = self._together(name, tables)
            if sink.on_workers:
                # One file an instance: the instances of all vertices are told apart.
                names = [vertex.name for vertex in self.job_graph.vertices]
                unique = names.index(self.vertex) * MOST_INSTANCES + self.instance
                staged = self._guard(
                    step, None, lambda t=table, u=unique, k=sink: k.stage(self.spec.attempt, u, t)
                )
                if staged is not None:
                    self.staged[name] = asdict(staged)
            else:
                self.out.append(self._to_driver(SINK, self._number(name), encode(table)))

    def _together(self, step: str, tables: list[pa.Table]) -> pa.Table:
        """Put the parts of a stream together; they must have one schema."""
        first = tables[0].schema
        for table in tables[1:]:
            if table.schema.names != first.names:
                cause = (
                    f"its batches have different columns: {first.names} and {table.schema.names}"
                )
                raise StepFailed(step, self.instance, self.spec.batch_id, cause, "[]")
        return self._guard(
            self.job_graph.pipeline[step],
            None,
            lambda: pa.concat_tables(tables, promote_options="permissive"),
        )

    def _number(self, name: str) -> int:
        return [step.name for step in self.job_graph.pipeline.steps].index(name)

    def _to_driver(self, kind: bytes, number: int, body: memoryview | bytes) -> Message:
        return Message(kind, DRIVER, 0, number, self.instance, body)


def _one_batch(table: pa.Table) -> pa.RecordBatch | None:
    if not table.num_rows:
        return None
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    return pa.RecordBatch.from_arrays(
        [column.combine_chunks() for column in table.columns], schema=table.schema
    )


def _as_table(made: Any) -> pa.Table | None:
    if made is None:
        return None
    if isinstance(made, pa.RecordBatch):
        made = pa.Table.from_batches([made])
    if isinstance(made, pa.Table):
        return decoded(made)
    raise TypeError(
        "a step must return a pyarrow.RecordBatch, a pyarrow.Table or None, "
        f"got {type(made).__name__}"
    )


def _plain_error(error: StepFailed) -> dict[str, Any]:
    return {
        "step": error.step,
        "instance": error.instance,
        "batch_id": error.batch_id,
        "cause": error.cause,
        "sample": error.sample,
    }
