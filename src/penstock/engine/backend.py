"""What the engine needs of whatever runs its tasks: Spark, or this process."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from penstock.engine.batch import BatchSpec
from penstock.engine.job_graph import JobGraph

#: The body of a stage's tasks. It gets the number of its partition, the encoded messages that were
#: sent there, and the folder of its executor; it yields partitions of the next stage and messages.
TaskBody = Callable[[int, Iterable[bytes], Path], Iterator[tuple[int, bytes]]]

#: Seconds that a background job is given to end after its Spark job was cancelled.
STOP_S = 10.0


@dataclass(frozen=True, eq=False)
class Stage:
    """Tasks that run at the same time.

    Parameters
    ----------
    executors : tuple of str
        Executor of each partition; "" is any.
    body : callable
        What each task does; see `TaskBody`.
    inputs : tuple of tuple of bytes
        Messages from the driver to each partition; only the first stage of a job may have some.
    """

    executors: tuple[str, ...]
    body: TaskBody
    inputs: tuple[tuple[bytes, ...], ...] = ()


#: By layer of a batch: more stages that run together with it and send state to the next layer.
StateSenders = Mapping[int, Sequence[Stage]]

#: A batch that no state migrates with.
NO_SENDERS: StateSenders = {}


class Backend(Protocol):
    """Runs tasks on executors, and returns the messages that they send to the driver."""

    def run(
        self, job_graph: JobGraph, spec: BatchSpec, senders: StateSenders = NO_SENDERS
    ) -> Iterable[bytes]:
        """Run a batch; raise if any task could not be run.

        Parameters
        ----------
        job_graph : JobGraph
        spec : BatchSpec
        senders : mapping of int to sequence of Stage
            Tasks that run together with those of a layer, and send state to the next layer.
        """
        ...

    def job(
        self, name: str, stages: Sequence[Stage], *, background: bool = False
    ) -> Iterable[bytes]:
        """Run stages one after the other, each task on its executor.

        Parameters
        ----------
        name : str
        stages : sequence of Stage
        background : bool
            Whether another thread runs it while batches run; then it may be cancelled.
        """
        ...

    def cancel_background(self) -> None:
        """Cancel the background job, if one is running: its thread gets an error."""
        ...

    def executor_at(self, location: str) -> str:
        """Return the id of the executor at a location, never used twice; "" is any executor."""
        ...

    def backup_nodes(self) -> Mapping[str, str]:
        """Return, for each node that is alive, the location that stores fragments."""
        ...

    def alive(self) -> frozenset[str]:
        """Return the executors that are alive."""
        ...


class BackgroundJob(threading.Thread):
    """A job that runs in a thread of its own while batches run, and can be stopped.

    Parameters
    ----------
    backend : Backend
    name : str
        Of the thread.
    unfinished : str
        What `failure` says as long as the work is not done.

    Attributes
    ----------
    stopping : Event
        Set when the job is no longer wanted.
    failure : str
        Why the work failed; empty if it did not.
    """

    def __init__(self, backend: Backend, name: str, unfinished: str = "") -> None:
        super().__init__(name=name, daemon=True)
        self.backend = backend
        self.stopping = threading.Event()
        self.failure = unfinished

    def run(self) -> None:
        """Do the work, and keep the reason if it fails: the driver reads it between batches."""
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - the driver reads `failure`, and goes on
            self.failure = f"{type(error).__name__}: {error}"
        else:
            self.failure = ""

    @abstractmethod
    def work(self) -> None:
        """Run jobs on the backend, until all is done or `stopping` is set."""

    def stop(self, grace_s: float) -> None:
        """Wait so many seconds for the end, then cancel the job; within a bounded time."""
        self.stopping.set()
        self.join(grace_s)
        deadline = time.monotonic() + STOP_S
        while self.is_alive() and time.monotonic() < deadline:
            self.backend.cancel_background()
            self.join(0.2)
