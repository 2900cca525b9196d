"""What runs inside Python workers around the body of a task: the shared job graph, a time limit."""

from __future__ import annotations

import gc
import pickle
import signal
import struct
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

from penstock.engine.batch import BatchSpec
from penstock.engine.errors import TaskTimedOut, UserCode
from penstock.engine.job_graph import JobGraph
from penstock.engine.task.task import run_partition
from penstock.runtimes.spark.file_rows import FileRows

#: Job graphs that a worker process keeps: those of pipelines that run together.
MOST_GRAPHS = 8

#: The function of a stage's tasks as Spark calls it: messages in, keys and messages out.
TaskFunction = Callable[[int, Iterator[bytes]], Iterator[bytes]]

_FROZEN = False
_GRAPHS: dict[str, JobGraph] = {}


class SharedGraph:
    """A job graph as tasks hold it: sent once, and unpickled once for each worker process.

    Functions of the user's script can only be sent as cloudpickle sends them, by value.

    Parameters
    ----------
    broadcast : Broadcast
        Of the pickled job graph.
    """

    def __init__(self, broadcast: Any) -> None:
        self.broadcast = broadcast
        self.token = uuid.uuid4().hex

    @property
    def value(self) -> JobGraph:
        """The job graph, in a worker."""
        found = _GRAPHS.get(self.token)
        if found is None:
            if len(_GRAPHS) >= MOST_GRAPHS:
                _GRAPHS.clear()
            found = _GRAPHS[self.token] = pickle.loads(self.broadcast.value)
        return found


@dataclass(frozen=True, eq=False)
class BatchTask:
    """The function of one layer's tasks in a batch.

    A class, not a function within a function: only its values are pickled with every batch.
    """

    graph: SharedGraph
    spec: BatchSpec
    layer: int
    folder: Path
    limit_s: float
    files: FileRows | None = None

    def __call__(self, partition: int, arrived: Iterator[bytes]) -> Iterator[bytes]:
        """Run one partition."""
        freeze()
        graph = self.graph.value
        with time_limit(self.limit_s):
            rows = self._rows(graph, self.files, partition) if self.files is not None else ()
            yield from as_pairs(
                run_partition(
                    graph, self.spec, self.layer, partition, arrived, rows, folder=self.folder
                )
            )

    def _rows(
        self, graph: JobGraph, files: FileRows, partition: int
    ) -> Iterator[tuple[str, pa.Table]]:
        """Read rows of files; a file that cannot be read is a failure of its source."""
        vertex, instance = self.spec.instance_at(self.layer, partition)
        head = graph.by_name[vertex].head
        read = partial(files.of, head, instance)
        yield from UserCode(instance, self.spec.batch_id).call(head, read)


@dataclass(frozen=True, eq=False)
class StageTask:
    """The function of the tasks of any other stage."""

    body: Callable[[int, Iterator[bytes], Path], Iterable[tuple[int, bytes]]]
    folder: Path
    limit_s: float

    def __call__(self, partition: int, arrived: Iterator[bytes]) -> Iterator[bytes]:
        """Run one partition."""
        freeze()
        with time_limit(self.limit_s):
            yield from as_pairs(self.body(partition, arrived, self.folder))


@dataclass(frozen=True, eq=False)
class FirstTask:
    """The function of tasks that get what the driver gives them, mostly nothing."""

    task: TaskFunction

    def __call__(self, partition: int, arrived: Iterator[bytes]) -> Iterator[bytes]:
        """Run one partition."""
        # Read to the end: a worker whose input is left over is not used again.
        messages = [one for data in arrived for part in pickle.loads(data) for one in part]
        yield from self.task(partition, iter(messages))


def as_pairs(messages: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    """Write each message after the number of the partition that it goes to."""
    for target, message in messages:
        yield key_of(target)
        yield message


def key_of(partition: int) -> bytes:
    """Write the number of a partition as PySpark does: eight bytes, the highest first."""
    return struct.pack("!q", partition)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TaskTimedOut` in what runs inside when it takes longer; 0 means no limit.

    An alarm interrupts Python code, sleeping and waiting. It does not interrupt a library that
    computes without returning to Python: the driver ends the worker then, a bit later.
    """
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    def expired(number: int, frame: FrameType | None) -> None:
        raise TaskTimedOut(seconds)

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def freeze() -> None:
    """Take what is loaded out of the garbage collector's sight, once for each worker process.

    PySpark's daemon collects garbage after every task, which would walk through every imported
    module and all state each time.
    """
    global _FROZEN
    if not _FROZEN:
        gc.collect()
        gc.freeze()
        _FROZEN = True
