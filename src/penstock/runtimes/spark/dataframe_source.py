"""Streaming DataFrames as sources: Spark's own query reads them and calls us for every batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.engine.job_graph import is_source
from penstock.model import InvalidValue
from penstock.pipeline.steps import Step

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
        allowed = "streaming DataFrames all, or sources of penstock.pipeline all"
        raise InvalidValue("stream", "the sources of a pipeline", allowed, (frames[0].name, ours))
    return frames


def drive(
    steps: Sequence[Step],
    on_batch: Callable[[DataFrame, int], None],
    folder: str,
    halt: threading.Event,
    *,
    interval_s: float,
    drain: bool,
) -> None:
    """Run Spark's query until it ends or is to halt; it halts between batches.

    Parameters
    ----------
    steps : sequence of Step
        Sources that are streaming DataFrames.
    on_batch : callable
        Gets a DataFrame and the number of the batch: the rows of a single stream, or of several
        as (source step, Arrow message).
    folder : str
        Where Spark keeps its offsets.
    halt : threading.Event
    interval_s : float
        Least time from one batch to the next.
    drain : bool
        Take what is there when it starts, and end.
    """
    busy = threading.Lock()

    def guarded(rows: DataFrame, batch_id: int) -> None:
        with busy:
            if not halt.is_set():
                on_batch(rows, batch_id)

    # A single stream goes as it is; several are told apart by the name of their step.
    single = len(steps) == 1
    everything = (
        steps[0].source if single else reduce(DataFrame.unionAll, [_tagged(step) for step in steps])
    )
    writer = everything.writeStream.foreachBatch(guarded).option("checkpointLocation", str(folder))
    if drain:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{interval_s} seconds")
    query: Any = writer.start()
    try:
        while not halt.is_set():
            if query.awaitTermination(LOOK_S):
                return
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
