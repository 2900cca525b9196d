"""What runs tasks in places: Spark, or this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from penstock.engine.batch import BatchSpec
from penstock.engine.job_graph import JobGraph

#: The body of a stage's tasks: partition, frames in, folder of the place; partitions, frames out.
Body = Callable[[int, Iterable[bytes], Path], Iterator[tuple[int, bytes]]]


@dataclass(frozen=True, eq=False)
class Stage:
    """Tasks that run together.

    Parameters
    ----------
    executors : tuple of str
        One for each partition, "" being anywhere.
    body : callable
    inputs : tuple of tuple of bytes
        Frames that the driver sends to each partition; of a job's first stage only.
    """

    executors: tuple[str, ...]
    body: Body
    inputs: tuple[tuple[bytes, ...], ...] = ()


#: Tasks that run beside those of a layer of a batch.
StateSenders = Mapping[int, Sequence[Stage]]

#: A batch as most are.
NO_SENDERS: StateSenders = {}


class Backend(Protocol):
    """Something that runs tasks in places, and returns the frames for the driver."""

    def run(
        self, job_graph: JobGraph, spec: BatchSpec, senders: StateSenders = NO_SENDERS
    ) -> Iterable[bytes]:
        """Run a batch; raise if any task could not be run.

        Parameters
        ----------
        senders : mapping of int to sequence of Stage
            Tasks that run beside those of a layer, and send to the next one.
        """
        ...

    def job(
        self, name: str, stages: Sequence[Stage], *, background: bool = False
    ) -> Iterable[bytes]:
        """Run stages one after the other, each task in its place.

        Parameters
        ----------
        background : bool
            It is run while batches are, by another thread, and may be cancelled.
        """
        ...

    def cancel_background(self) -> None:
        """Have the job that runs beside batches fail, if there is one."""
        ...

    def executor_at(self, location: str) -> str:
        """Return what tells the place at a home from all others there ever were; "" is anywhere."""
        ...

    def backup_nodes(self) -> Mapping[str, str]:
        """Return, for each node that is there, the home of the process that keeps fragments."""
        ...

    def alive(self) -> frozenset[str]:
        """Return the places that are there."""
        ...
