"""The body of one task of a batch: it reads messages, runs a vertex, and sends messages.

It knows nothing of Spark: a backend brings the messages here and takes them away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.common.arrow_keys import decoded, normal_keys
from penstock.engine.batch import BatchSpec
from penstock.engine.errors import StepFailed, UserCode
from penstock.engine.job_graph import JobGraph
from penstock.engine.messages import DRIVER, Address, TaskError, TaskStats, pack
from penstock.engine.state.backup import StoreFragments
from penstock.engine.state.task_state import TaskState, WorkingState
from penstock.engine.task.exchange import TaskInput, TaskOutput
from penstock.engine.task.hot_keys import SplitKeys
from penstock.engine.task.metrics import ProcessUse, resident_bytes
from penstock.model import PenstockError
from penstock.pipeline.keyed.protocols import Keyed, Process, Watermarks
from penstock.pipeline.keyed.sessions import SessionWindowed
from penstock.pipeline.keyed.timed import routed_by
from penstock.pipeline.keyed.timers import TimedUpdate
from penstock.pipeline.keyed.windowed import START, Windowed
from penstock.pipeline.steps import Step
from penstock.state.versions import StateLost


def run_partition(
    job_graph: JobGraph,
    spec: BatchSpec,
    layer: int,
    partition: int,
    messages: Iterable[bytes],
    rows: Iterable[tuple[str, pa.Table]] = (),
    *,
    folder: Path,
) -> Iterator[tuple[int, bytes]]:
    """Run one instance's part of a batch, or store the fragments of one backup node.

    Parameters
    ----------
    job_graph : JobGraph
    spec : BatchSpec
    layer, partition : int
        Which task.
    messages : iterable of bytes
        Encoded messages of the layer before; always read to the end.
    rows : iterable of (str, Table)
        Rows of source steps that the backend reads itself (streaming DataFrames).
    folder : Path
        Folder of the executor that this runs on.

    Yields
    ------
    tuple of (int, bytes)
        Partition of the next layer, and an encoded message. After the last layer all messages are
        for the driver, whatever the partition.
    """
    if layer == len(spec.layers):
        yield from StoreFragments(spec)(partition, messages, folder)
        return
    with closing(_Task(job_graph, spec, Address(layer, partition), folder)) as task:
        yield from task.input.receive(messages)
        yield from task.run(rows)


class _Task:
    """One instance in one batch: `input` reads, this runs the steps, `output` sends."""

    def __init__(self, job_graph: JobGraph, spec: BatchSpec, here: Address, folder: Path) -> None:
        self.job_graph, self.spec, self.here = job_graph, spec, here
        self.vertex, self.instance = spec.instance_at(*here)
        self.user_code = UserCode(self.instance, spec.batch_id)
        self.state: TaskState | None = None
        if self.vertex in spec.bases:
            self.state = TaskState(spec, self.vertex, self.instance, folder)
        self.input = TaskInput(spec, here, self.state)
        self.output = TaskOutput(job_graph, spec, here, self.user_code)
        self.backup: Iterable[tuple[Address, object]] = ()
        self.rows_in = 0
        self.skipped = 0
        self.first_error: StepFailed | None = None
        self.next_timer_us: int | None = None

    def close(self) -> None:
        """Remove state that was received and not used."""
        if self.state is not None:
            self.state.close()

    def run(self, rows: Iterable[tuple[str, pa.Table]]) -> Iterator[tuple[int, bytes]]:
        """Run the steps of the vertex, and yield what the instance sends, statistics last."""
        cpu, wall, use = time.process_time(), time.perf_counter(), ProcessUse()
        sent_bytes = 0
        failed: StepFailed | StateLost | None = None
        try:
            self._run_head(rows)
            self.output.flush_sinks()
        except (StepFailed, StateLost) as error:
            failed = error
        if failed is not None:
            yield self._packed(DRIVER, TaskError(failed))
        else:
            for to, message in self.output.messages:
                hop, packed = self._packed(to, message)
                sent_bytes += len(packed) if to != DRIVER else 0
                yield hop, packed
            for to, message in self.backup:
                yield self._packed(to, message)
        state, metrics, resident = self.state, self.output.metrics, resident_bytes()
        stats = TaskStats(
            vertex=self.vertex,
            instance=self.instance,
            rows_in=self.rows_in,
            sent={} if failed else self.output.sent,
            sinks={} if failed else self.output.rows_to_sinks(),
            staged={} if failed else self.output.staged,
            partitions=metrics.partitions,
            hot_keys=metrics.hot_keys(),
            key_names=metrics.key_names,
            late=metrics.late,
            event_times=metrics.event_times,
            key_types=metrics.key_types,
            next_timer_us=self.next_timer_us,
            skipped=self.skipped,
            first_error=self.first_error,
            stamps=self.input.stamps,
            saved=None if failed or state is None else state.saved,
            migrated=None if state is None else state.migrated,
            cpu_s=time.process_time() - cpu,
            wall_s=time.perf_counter() - wall,
            rss_bytes=resident,
            process=use.process,
            grown_bytes=use.grown(resident),
            disk_bytes=use.disk(),
            sent_bytes=sent_bytes,
        )
        yield self._packed(DRIVER, stats)

    def _packed(self, to: Address, message: object) -> tuple[int, bytes]:
        return self.spec.next_hop(self.here, to), pack(message, to)

    # ---- steps

    def _run_head(self, rows: Iterable[tuple[str, pa.Table]]) -> None:
        """Run the first step of the vertex on all its input; what is chained behind it follows."""
        head = self.job_graph.steps[self.job_graph.by_name[self.vertex].head]
        if head.source is not None:
            for table in self.input.read_source(head, self.user_code, rows):
                self.rows_in += table.num_rows
                self._emit(head, table)
            return
        if head.keyed is not None:
            self._run_keyed(head, head.keyed)
            return
        for edge in self.job_graph.edges:
            tables = self.input.tables(edge.number)
            if edge.target == self.vertex and tables:
                table = self.user_code.together(edge.from_step, tables)
                self.rows_in += table.num_rows
                self._run_map(head, table, edge.from_step)

    def _run_map(self, step: Step, table: pa.Table, origin: str) -> None:
        """Call the function of a stateless step, and emit what it returns."""
        function: Any = step.function if step.late_for is None else self._late_rows(step.late_for)
        named = step.late_for is None and step.wants_origin

        def call(batch: pa.RecordBatch) -> pa.Table | None:
            return _as_table(function(batch, origin) if named else function(batch))

        for made in self._attempt(step, table, call):
            self._emit(step, made)

    def _late_rows(self, name: str) -> Callable[[pa.RecordBatch], Any]:
        """Return the function that picks the rows which come too late for a step's windows."""
        keyed, watermark = self.job_graph.steps[name].keyed, self.spec.late_before(name)
        if not isinstance(keyed, (Windowed, SessionWindowed)):
            raise PenstockError(f"step {name!r} has no windows, so that no row is late for it")
        return lambda batch: keyed.late_rows(batch, watermark)

    def _run_keyed(self, step: Step, keyed: Keyed | Process) -> None:
        """Update the state with all tuples of the batch, emit results, and save what changed."""
        if self.state is None:
            raise PenstockError(f"step {step.name!r} has state, but the batch knows of none")
        working = WorkingState(keyed, *self.state.load(keyed.by))
        if isinstance(keyed, Process):
            self._run_process(step, keyed, working)
        else:
            self._run_update(step, keyed, working)
        self.backup = self.state.save(working.changed, working.state)

    def _run_process(self, step: Step, keyed: Process, working: WorkingState) -> None:
        """Give a step all streams that it reads, and emit what it makes of them."""
        streams: list[list[pa.Table]] = [[] for _ in range(keyed.sides)]
        for edge in self.job_graph.edges:
            if edge.target == self.vertex:
                streams[edge.side if keyed.sides > 1 else 0] += self.input.tables(edge.number)
        inputs = [self.user_code.together(step.name, t) if t else None for t in streams]
        self.rows_in += sum(table.num_rows for table in inputs if table is not None)
        name = step.name
        spec = self.spec
        watermarks = Watermarks(
            spec.late_before(name), spec.watermark(name), spec.previous_clock_us, spec.clock_us
        )
        made = keyed.run(inputs, working, watermarks)
        while (table := self.user_code.call(name, lambda: next(made, None))) is not None:
            if table.num_rows:
                self._emit(step, table)
        if isinstance(keyed, TimedUpdate):
            self.next_timer_us = keyed.next_timer_us(working)

    def _run_update(self, step: Step, keyed: Keyed, working: WorkingState) -> None:
        """Update the state with all tuples of the batch, and emit results."""
        split_keys = self._split_keys(step, working)
        edges = self.job_graph.edges
        tables = [table for edge in edges for table in self.input.tables(edge.number)]
        if tables:
            together = self.user_code.together(step.name, tables)
            self.rows_in += together.num_rows

            def call(batch: pa.RecordBatch) -> pa.Table | None:
                table = pa.Table.from_batches([batch])
                if split_keys is not None:
                    return split_keys.update(table)
                return working.update(keyed, table)

            for made in self._attempt(step, together, call):
                self._emit(step, made)
        shared = None if split_keys is None else split_keys.for_driver()
        if shared is not None:
            self.output.send_shared(step.name, shared)
        if isinstance(keyed, Windowed):
            self._close_windows(step, keyed, working)

    def _split_keys(self, step: Step, working: WorkingState) -> SplitKeys | None:
        """Merge the shares of the batch before into the state; return this batch's split keys."""
        routing, shares = self.spec.routing.get(self.vertex), self.spec.shares.get(step.name)
        if routing is None or not (step.splittable or shares):
            return None
        split_keys = SplitKeys(working, routing, self.instance)
        if shares is not None:
            self.user_code.call(step.name, lambda: split_keys.merge_shares(shares))
        return split_keys if step.splittable else None

    def _close_windows(self, step: Step, keyed: Windowed, working: WorkingState) -> None:
        """Emit and remove the windows that the watermark has passed since the batch before."""
        name = step.name
        watermarks = Watermarks(self.spec.late_before(name), self.spec.watermark(name))
        if not keyed.crossed(watermarks.before_us, watermarks.now_us):
            return
        due = working.where(partial(keyed.closing, watermarks=watermarks), [START])
        closed, expired = keyed.closed(due, watermarks)
        working.remove(expired)
        if closed is not None:
            self._emit(step, closed)

    def _emit(self, step: Step, table: pa.Table) -> None:
        """Give rows to the steps chained behind a step, and send them along its edges."""
        for name in self.job_graph.children[step.name]:
            child = self.job_graph.steps[name]
            if child.sink is not None:
                self.output.add_to_sink(child.name, table)
            else:
                self._run_map(child, table, step.name)
        for edge in self.job_graph.edges_from[step.name]:
            target = self.job_graph.steps[edge.to_step]
            if target.keyed is None:
                self.output.send(edge, table, single=True)
                continue
            batch = _one_batch(table)
            if batch is None:
                continue
            by = edge.link.by if edge.link.by_key else routed_by(target.keyed)
            reduce = partial(self._reduced, target.name, target.keyed, by, edge.side, batch)
            reduced, single = self.user_code.call(target.name, reduce, batch)
            if reduced is not None:
                self.output.send(edge, reduced, single=single)

    def _reduced(
        self,
        name: str,
        keyed: Keyed | Process,
        by: tuple[str, ...],
        side: int,
        batch: pa.RecordBatch,
    ) -> tuple[pa.Table | None, bool]:
        """Reduce rows for a keyed step before they are sent; say whether they are single tuples."""
        watermark = self.spec.late_before(name)
        batch = normal_keys(batch, tuple(column for column in by if column in batch.schema.names))
        made = self.output.metrics.partial(name, keyed, batch, watermark, side)
        return _as_table(made), made is batch or isinstance(keyed, Process)

    # ---- functions of the user's

    def _attempt(
        self, step: Step, table: pa.Table, call: Callable[[pa.RecordBatch], pa.Table | None]
    ) -> Iterator[pa.Table]:
        """Call a function on a batch; if it fails, stop, or leave out the rows that it fails on."""
        batch = _one_batch(table)
        if batch is None:
            return
        try:
            made = self.user_code.call(step.name, lambda: call(batch), batch)
        except StepFailed as error:
            # Leaving out rows mends neither a function that ends the process nor one that hangs.
            if self.spec.on_error != "skip" or not isinstance(error.__cause__, Exception):
                raise
            if batch.num_rows == 1:
                self.skipped += 1
                self.first_error = self.first_error or error
                return
            half = batch.num_rows // 2
            for part in (batch.slice(0, half), batch.slice(half)):
                yield from self._attempt(step, pa.Table.from_batches([part]), call)
            return
        if made is not None and made.num_rows:
            yield made


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
