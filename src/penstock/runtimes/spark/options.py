"""How a pipeline is run on Spark: what a user may set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.control.settings import Settings
from penstock.engine.source_queue import QUEUE
from penstock.faults.fault import Fault
from penstock.model import InvalidValue
from penstock.state.config import StateConfig


@dataclass(frozen=True)
class Options:
    """How a pipeline is run.

    Parameters
    ----------
    checkpoint : path, str or None
        Folder of the journal and the state, which all executors must reach, or an address as
        ``hdfs://host/folder`` that Arrow can open on all of them; None: a folder of its
        own that is removed at the end. With a folder, a run that was stopped or killed goes on
        where it was.
    state : str or None
        How state is kept: ``peers``, in fragments on other nodes; ``checkpoint``, in the
        checkpoint's folder; ``both``. By default by peers if there are several nodes, and in the
        checkpoint if there is one.
    data, parity : int
        Fragments that a run of state is cut into, and further ones that may be missing; fewer where
        there are fewer nodes.
    backup_every : int
        Batches that the driver holds the changes of before it gives them to peers, beside the
        batches; 1: every batch ends with peers having them. A lost node takes nothing with it
        either way.
    state_memory_mb : float
        Memory for the state of an instance; one of more than a quarter of it is mapped from a file.
    replaced_s : float
        How long to wait for the replacement of a lost executor before going on without it.
    control : Settings or None
        How the loop behaves that keeps the plan fitting; None: the first plan stays.
    faults : sequence of Fault or str
        What is to go wrong, and when; for tests and demonstrations on one machine.
    store : str, path or None
        Metrics store: a file or a ``postgresql://`` URL; None: in the checkpoint's folder.
    queue, when_full
        As in `SourceQueue`.
    interval_s : float
        Least time from the start of one batch to that of the next.
    on_error : str
        ``stop`` or ``skip``; as in `Driver`.
    drain : bool
        For streaming DataFrames: take what is there at the start, and end.
    seed : int
        Of the strategy's randomness.
    """

    checkpoint: str | Path | None = None
    store: str | Path | None = None
    queue: int = QUEUE
    when_full: str = "wait"
    interval_s: float = 0.2
    on_error: str = "stop"
    drain: bool = False
    seed: int = 0
    state: str | None = None
    data: int = 7
    parity: int = 1
    backup_every: int = 8
    state_memory_mb: float = 256.0
    replaced_s: float = 15.0
    control: Settings | None = field(default_factory=Settings)
    faults: Sequence[Fault | str] = ()

    def __post_init__(self) -> None:
        if not self.interval_s >= 0:
            raise InvalidValue("interval_s", "a run", "a number of at least 0", self.interval_s)

    def state_config(self, shared: str, nodes: int, pinned: bool) -> StateConfig:
        """Say how state is kept, choosing where the user did not.

        Parameters
        ----------
        shared : str
            Where a checkpoint would lie.
        nodes : int
        pinned : bool
            Whether instances stay where the plan says; without that only a checkpoint is of use.
        """
        mode = self.state
        if mode is None and (nodes == 1 or not pinned):
            mode = "checkpoint"
        elif mode is None:
            mode = "peers" if self.checkpoint is None else "both"
        return StateConfig(
            mode,
            shared=shared,
            data=self.data,
            parity=self.parity,
            every=self.backup_every,
            memory_mb=self.state_memory_mb,
            sync=self.checkpoint is not None,
        )
