"""Streaming DataFrames as sources: Spark's own query reads them and calls us for every batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.engine.batch import BatchSpec
from penstock.engine.columns_read import columns_read
from penstock.engine.job_graph import is_source
from penstock.engine.task.task import run_partition
from penstock.model import InvalidValue, NotAllowed
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.steps import Step
from penstock.runtimes.spark.file_scan import FileScan, Scanned
from penstock.runtimes.spark.jvm import jvm_of
from penstock.runtimes.spark.worker import SharedGraph, freeze, time_limit

#: Seconds between two looks at whether the query has ended.
LOOK_S = 0.2


def frame_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the source steps that are streaming DataFrames; all sources must be of one kind."""
    sources = [step for step in steps if step.source is not None]
    frames = tuple(step for step in sources if not is_source(step.source))
    for step in frames:
        if not isinstance(step.source, DataFrame) or not step.source.isStreaming:
            allowed = "a source of penstock.pipeline or a streaming DataFrame"
            raise InvalidValue("stream", f"source {step.name!r}", allowed, type(step.source))
    if frames and len(frames) != len(sources):
        ours = next(step.name for step in sources if is_source(step.source))
        raise NotAllowed(
            f"source {frames[0].name!r} is a streaming DataFrame and source {ours!r} is one of "
            "penstock.pipeline; a pipeline has sources of one of these kinds"
        )
    return frames


def pruned(steps: Sequence[Step], pipeline: Pipeline) -> tuple[Step, ...]:
    """Leave out columns that no step reads: they need not leave Spark, nor be read at all."""
    made = []
    for step in steps:
        names = step.source.columns
        read = columns_read(pipeline, step.name, names)
        kept = [name for name in names if read is None or name in read]
        # Spark takes names that differ in their case alone for one.
        if kept and len(kept) < len(names) == len({name.lower() for name in names}):
            quoted = [f"`{name.replace('`', '``')}`" for name in kept]
            step = replace(step, source=step.source.select(*quoted))
        made.append(step)
    return tuple(made)


def drive(
    steps: Sequence[Step],
    on_batch: Callable[[DataFrame, Mapping[str, Scanned] | None, int], None],
    on_idle: Callable[[], None],
    folder: str,
    halt: threading.Event,
    *,
    interval_s: float,
    available_now: bool,
) -> None:
    """Run Spark's query until it ends or is to halt; it halts between batches.

    Parameters
    ----------
    steps : sequence of Step
        Sources that are streaming DataFrames.
    on_batch : callable
        Gets a DataFrame, the files that its rows can be read from, if they can, and the number of
        the batch. The rows are those of a single stream, or of several as (source step, Arrow
        message).
    on_idle : callable
        Called between batches when no data waits, and at the end.
    folder : str
        Where Spark keeps its offsets.
    halt : threading.Event
    interval_s : float
        Least time from one batch to the next.
    available_now : bool
        Take what is there when it starts, and end.
    """
    busy = threading.Lock()
    started: Future[Any] = Future()
    scan = FileScan(steps)

    def guarded(rows: DataFrame, batch_id: int) -> None:
        with busy:
            if not halt.is_set():
                on_batch(rows, scan.of(started.result(), rows), batch_id)

    # A single stream goes as it is; several are told apart by the name of their step.
    single = len(steps) == 1
    everything = (
        steps[0].source if single else reduce(DataFrame.unionAll, [_tagged(step) for step in steps])
    )
    writer = everything.writeStream.foreachBatch(guarded).option("checkpointLocation", str(folder))
    if available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{interval_s} seconds")
    try:
        query: Any = writer.start()
    except BaseException as error:
        # A batch that was begun meanwhile does not wait for ever.
        started.set_exception(error)
        raise
    started.set_result(query)
    try:
        while not halt.is_set():
            if query.awaitTermination(LOOK_S):
                on_idle()
                return
            status = query.status
            if not status["isTriggerActive"] and not status["isDataAvailable"]:
                with busy:
                    on_idle()
    finally:
        with busy:
            query.stop()


def _tagged(step: Step) -> DataFrame:
    """Turn the rows of a stream into Arrow messages that carry the name of their step."""
    name = step.name

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.engine.messages import encode

        for batch in batches:
            if batch.num_rows:
                body = pa.array([bytes(encode(batch))], pa.binary())
                yield pa.record_batch([pa.array([name]), body], names=["source", "body"])

    frame: DataFrame = step.source.mapInArrow(pack, "source string, body binary")
    return frame


def first_stage(
    rows: DataFrame,
    rows_of: str | None,
    graph: SharedGraph,
    spec: BatchSpec,
    locations: list[str],
    limit_s: float,
) -> Any:
    """Return the first layer of a batch over a DataFrame.

    Parameters
    ----------
    rows : DataFrame
    rows_of : str or None
        As in `SparkBackend.rows_of`.
    graph : SharedGraph
    spec : BatchSpec
    locations : list of str
        Where each instance runs, as Spark spells it.
    limit_s : float
        Time that a task may take, in seconds; 0 means no limit.
    """
    # Spark hands a batch over in a session of the query's own.
    spark = rows.sparkSession
    made: Any = spark
    # A partition is an instance: with more of them, two tasks would be one.
    rows = rows.coalesce(min(spec.parallelism[vertex] for vertex in spec.layers[0]))
    jvm = jvm_of(spark.sparkContext)
    pinned = jvm.pin(rows._jdf.queryExecution().toRdd(), locations)
    frame = DataFrame(
        made._jsparkSession.internalCreateDataFrame(pinned, rows._jdf.schema(), False), spark
    )

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze()
        with time_limit(limit_s):
            arrived = _arrived(batches, rows_of)
            for vertex in spec.layers[0]:
                yield from _messages(graph, spec, vertex, arrived)

    out = frame.mapInArrow(run, "target int, frame binary")
    return jvm.frames(out._jdf.queryExecution().toRdd())


def _arrived(batches: Iterator[pa.RecordBatch], rows_of: str | None) -> dict[str, pa.Table]:
    """Sort the rows of a partition by their source step.

    Spark hands them over in parts of some thousand rows; the steps get them as one, because what a
    call costs besides its rows is paid once then.
    """
    from penstock.engine.messages import decode

    if rows_of is not None:
        parts = [batch for batch in batches if batch.num_rows]
        return {rows_of: pa.Table.from_batches(parts)} if parts else {}
    arrived: dict[str, list[pa.Table]] = {}
    for batch in batches:
        for name, body in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            arrived.setdefault(name, []).append(decode(body.as_buffer()))
    return {name: pa.concat_tables(tables) for name, tables in arrived.items()}


def _messages(
    graph: SharedGraph, spec: BatchSpec, vertex: str, arrived: dict[str, pa.Table]
) -> Iterator[pa.RecordBatch]:
    """Run one source vertex over the rows of a partition."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = 0 if context is None else context.partitionId()
    head = graph.value.by_name[vertex].head
    if head not in arrived and number > 0:
        return
    _, partition = spec.address(vertex, number % spec.parallelism[vertex])
    tables = [(head, arrived[head])] if head in arrived else []
    pairs = list(run_partition(graph.value, spec, 0, partition, (), tables, folder=Path()))
    yield pa.record_batch(
        [
            pa.array([target for target, _ in pairs], pa.int32()),
            pa.array([data for _, data in pairs], pa.binary()),
        ],
        names=["target", "frame"],
    )
