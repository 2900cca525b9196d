"""How a pipeline is run on Spark: what a user may set, by subject."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.common.keywords import class_keywords
from penstock.control.settings import Settings as Settings
from penstock.engine.source_queue import POLICIES, QUEUE
from penstock.model import InvalidValue
from penstock.state.config import StateConfig


@class_keywords
@dataclass(frozen=True)
class StateOptions:
    """How the state of a run is kept.

    Parameters
    ----------
    mode : str or None
        ``peers``: in fragments on other nodes; ``checkpoint``: in the checkpoint's folder;
        ``both``. None: by peers if there are several nodes, and in the checkpoint if there is one.
    data, parity : int
        Fragments that a segment of state is cut into, and further ones, as many as may be missing;
        fewer where there are fewer nodes.
    backup_every : int
        Batches for which the driver holds the changes before it gives them to backup nodes, beside
        the batches; with 1, every batch ends with backup nodes having them. A lost node loses
        nothing either way.
    memory_mb : float
        Memory for the state of an instance; a state of more than a quarter of it is mapped from a
        file.
    """

    mode: str | None = None
    data: int = 7
    parity: int = 1
    backup_every: int = 8
    memory_mb: float = 256.0

    def config(
        self, shared: str = "", nodes: int = 1, *, pinned: bool = True, checkpoint: bool = True
    ) -> StateConfig:
        """Return how state is kept, with a mode where the user named none.

        Parameters
        ----------
        shared : str
            Where state of a checkpoint lies.
        nodes : int
        pinned : bool
            Whether instances stay where the plan says; without that only a checkpoint is of use.
        checkpoint : bool
            Whether the user asked for a checkpoint.
        """
        mode = self.mode
        if mode is None and (nodes == 1 or not pinned):
            mode = "checkpoint"
        elif mode is None:
            mode = "both" if checkpoint else "peers"
        return StateConfig(
            mode,
            shared=shared,
            data=self.data,
            parity=self.parity,
            every=self.backup_every,
            memory_mb=self.memory_mb,
            sync=checkpoint,
        )


@class_keywords
@dataclass(frozen=True)
class QueueOptions:
    """The queue between each source and the batches.

    Parameters
    ----------
    size : int
        Rows that may wait, which is also the most that one batch takes.
    when_full : str
        ``wait``: the source is held up and nothing is lost; ``drop``: what does not fit is dropped,
        newest first, and counted.
    """

    size: int = QUEUE
    when_full: str = "wait"

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise InvalidValue("size", "QueueOptions", "a whole number of at least 1", self.size)
        if self.when_full not in POLICIES:
            allowed = "one of " + ", ".join(POLICIES)
            raise InvalidValue("when_full", "QueueOptions", allowed, self.when_full)


@class_keywords
@dataclass(frozen=True)
class RecoveryOptions:
    """How long to wait, and how often to try again, when something goes wrong.

    Parameters
    ----------
    task_timeout_s : float
        Time that one task may take, in seconds. A function that takes longer fails the run, with
        the name of its step. 0 means no limit.
    replacement_wait_s : float
        How long to wait for the replacement of a lost executor before going on without it.
    no_executors_wait_s : float
        How long to wait for an executor when all are lost.
    retries : int
        Times that a batch is run again after a source or a sink failed, before the run fails.
    retry_pause_s : float
        Pause before the first of these; each further one is twice as long, up to a minute.
    """

    task_timeout_s: float = 600.0
    replacement_wait_s: float = 15.0
    no_executors_wait_s: float = 300.0
    retries: int = 5
    retry_pause_s: float = 0.5

    def __post_init__(self) -> None:
        names = ("task_timeout_s", "replacement_wait_s", "no_executors_wait_s", "retry_pause_s")
        for name in names:
            value = getattr(self, name)
            if not (isinstance(value, int | float) and value >= 0 and math.isfinite(value)):
                allowed = "a finite number of at least 0"
                raise InvalidValue(name, "RecoveryOptions", allowed, value)
        if isinstance(self.retries, bool) or not isinstance(self.retries, int) or self.retries < 0:
            allowed = "a whole number of at least 0"
            raise InvalidValue("retries", "RecoveryOptions", allowed, self.retries)


@class_keywords
@dataclass(frozen=True)
class Options:
    """All options of a run; `start` makes them of its keywords."""

    checkpoint: str | Path | None = None
    store: str | Path | None = None
    interval_s: float = 0.2
    available_now: bool = False
    on_error: str = "stop"
    seed: int = 0
    state: StateOptions = field(default_factory=StateOptions)
    queue: QueueOptions = field(default_factory=QueueOptions)
    recovery: RecoveryOptions = field(default_factory=RecoveryOptions)
    control: Settings | None = field(default_factory=Settings)
    rename: Mapping[str, str] | None = None
    forget: Collection[str] = ()

    def __post_init__(self) -> None:
        if not self.interval_s >= 0:
            raise InvalidValue("interval_s", "a run", "a number of at least 0", self.interval_s)
        kinds = {
            "state": StateOptions,
            "queue": QueueOptions,
            "recovery": RecoveryOptions,
        }
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind):
                allowed = f"a {kind.__name__}"
                raise InvalidValue(name, "a run", allowed, getattr(self, name))
        if not (self.control is None or isinstance(self.control, Settings)):
            raise InvalidValue("control", "a run", "Settings or None", self.control)
        # What is wrong with these is told before anything is started.
        self.state.config()
