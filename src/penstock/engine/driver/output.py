"""What the driver does with what tasks sent: checks types, merges split keys, commits to sinks.

The keys of a step have one type, in all batches and from all senders. Keys that are equal and have
different types, such as 1 and 1.0, or a time in milliseconds and in microseconds, may have
different hashes. They would reach different instances, which cannot see that they are equal. So
tasks report the types of the keys that they send, and the driver compares them before it commits
anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from penstock.engine.errors import SinkFailed, StepFailed
from penstock.engine.job_graph import MAX_INSTANCES, JobGraph
from penstock.engine.messages import SharedRows, SinkRows, TaskStats, decode, encode
from penstock.engine.task.hot_keys import merge_split_keys
from penstock.model import NotAllowed, PenstockError
from penstock.pipeline.steps import Attempt, Sink, StagedFile

#: By step, the types of its key, in the order of its columns; of what was always null, ``null``.
KeyTypes = Mapping[str, tuple[str, ...]]

_UNKNOWN = "null"


def checked_key_types(before: KeyTypes, stats: Iterable[TaskStats]) -> dict[str, tuple[str, ...]]:
    """Return the types of keys after a batch.

    Parameters
    ----------
    before : mapping of str to tuple of str
        Types in all batches before.
    stats : iterable of TaskStats
        What the tasks of the batch report.

    Raises
    ------
    NotAllowed
        When keys of one step have different types.
    """
    known = {step: tuple(types) for step, types in before.items()}
    for one in stats:
        for step, variants in one.key_types.items():
            for types in variants:
                known[step] = _same(step, known.get(step, types), types)
    return known


def _same(step: str, one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    pairs = list(zip(one, other, strict=True))
    for place, (left, right) in enumerate(pairs):
        if left != right and _UNKNOWN not in (left, right):
            column = "" if len(pairs) == 1 else f" in column {place + 1} of the key"
            raise NotAllowed(
                f"step {step!r} gets keys of different types{column}, {left} and {right}, so that "
                "equal keys would not meet; cast them in a select before it"
            )
    return tuple(right if left == _UNKNOWN else left for left, right in pairs)


def merge_shared_rows(
    job_graph: JobGraph, batch_id: int, messages: Iterable[object]
) -> tuple[dict[str, pa.Table], dict[str, bytes]]:
    """Merge the rows of split keys that instances sent.

    Returns
    -------
    tuple of dict
        By step: the rows that are emitted, and the shares that the owners of the keys get with the
        next batch, as an Arrow IPC stream.
    """
    shared = [message for message in messages if isinstance(message, SharedRows)]
    tables: dict[str, list[pa.Table]] = {}
    for message in sorted(shared, key=lambda message: message.sender):
        name = job_graph.pipeline.steps[message.step].name
        tables.setdefault(name, []).append(decode(message.body))
    emitted: dict[str, pa.Table] = {}
    shares: dict[str, bytes] = {}
    for name, found in tables.items():
        try:
            rows, left = merge_split_keys(job_graph.steps[name].keyed, found)
        except Exception as error:
            cause = f"{type(error).__name__}: {error} (while split keys were merged)"
            raise StepFailed(name, 0, batch_id, cause, "[]") from error
        if rows is not None:
            emitted[name] = rows
        if left is not None:
            shares[name] = bytes(encode(left))
    return emitted, shares


def commit_sinks(
    job_graph: JobGraph,
    attempt: Attempt,
    messages: Iterable[object],
    stats: Sequence[TaskStats],
    emitted: Mapping[str, pa.Table],
) -> dict[str, int]:
    """Commit a batch to all sinks, and return the rows of each.

    Parameters
    ----------
    job_graph : JobGraph
    attempt : Attempt
    messages : iterable
        Those of them that are `SinkRows` are for sinks that live in the driver.
    stats : sequence of TaskStats
    emitted : mapping of str to Table
        By step: what was merged of split keys.
    """
    rows: dict[str, list[pa.Table]] = {}
    for message in messages:
        if isinstance(message, SinkRows):
            name = job_graph.pipeline.steps[message.step].name
            rows.setdefault(name, []).append(decode(message.body))
    written = {}
    for step, sink in job_graph.sinks:
        merged = [emitted[link.source] for link in step.links if link.source in emitted]
        staged = [one.staged[step.name] for one in stats if step.name in one.staged]
        if sink.on_workers:
            # Files of the driver's own are numbered after those of all instances.
            for number, part in enumerate(merged, len(job_graph.vertices) * MAX_INSTANCES):
                file = sink.stage(attempt, number, part)
                staged += [] if file is None else [file]
        tables = [*rows.get(step.name, ()), *(() if sink.on_workers else merged)]
        table = pa.concat_tables(tables, promote_options="permissive") if tables else None
        _commit(step.name, sink, attempt, table, staged)
        by_tasks = sum(one.sinks.get(step.name, 0) for one in stats)
        written[step.name] = by_tasks + sum(part.num_rows for part in merged)
    return written


def _commit(
    step: str,
    sink: Sink,
    attempt: Attempt,
    table: pa.Table | None,
    staged: Sequence[StagedFile],
) -> None:
    """Have a sink take a batch, and say which one when it fails."""
    try:
        sink.commit(attempt, table, staged)
    except PenstockError:
        raise
    except Exception as error:
        raise SinkFailed(step, attempt.batch_id, f"{type(error).__name__}: {error}") from error
