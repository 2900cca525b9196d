"""The executors of a run: which are there, which are warm, and where each stands in a plan."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping

from penstock.model import Cluster
from penstock.runtimes.spark.backend import ExecutorLost
from penstock.runtimes.spark.jvm import Executor, Jvm
from penstock.runtimes.spark.nodes import cluster_of, executor_ids, stand_apart

#: Seconds between two looks for executors that came later.
GREET_S = 0.5

#: Times that all are warmed up before a run is given up.
ATTEMPTS = 5


class Executors:
    """The executors that one run may use; those that come later are warmed up first.

    Parameters
    ----------
    jvm : Jvm
        Lists the executors.
    warm_up : callable
        Warms up the executors of the given ids, or all when given None; raises `ExecutorLost`.

    Attributes
    ----------
    apart : bool
        Whether each executor stands for a node, as in `by_node`.
    cluster : Cluster
        The nodes as of the last `look`.
    """

    def __init__(self, jvm: Jvm, warm_up: Callable[[Collection[str] | None], None]) -> None:
        self._jvm, self._warm_up = jvm, warm_up
        self._greeting = threading.Lock()
        self._gone: set[str] = set()
        there = jvm.executors()
        self._ready = {executor.id for executor in there}
        self.apart = stand_apart(there)
        self._homes: Mapping[str, str] = {}
        self.cluster = self.look()

    def executors(self) -> list[Executor]:
        """Executors that are there, those that were given up left out."""
        return [e for e in self._jvm.executors() if e.id not in self._gone]

    def released(self, ids: Iterable[str]) -> None:
        """Take note of executors that were given up: they may be listed for a while."""
        self._gone |= set(ids)

    def look(self) -> Cluster:
        """Describe the nodes that are there and warm."""
        executors = [e for e in self.executors() if e.id in self._ready]
        self._homes = executor_ids(executors, self.apart)
        self.cluster = cluster_of(executors, self.apart)
        return self.cluster

    def executor_of(self, home: str) -> str:
        """Return the executor at a home, as of the last `look`."""
        return self._homes.get(home, home)

    def warm_up(self) -> None:
        """Warm up all that are there."""
        for left in reversed(range(ATTEMPTS)):
            try:
                self._warm_up(None)
                return
            except ExecutorLost:
                # One that was given up before this run may still have been listed.
                if not left:
                    raise

    def greet_once(self) -> None:
        """Warm up those that came since; only then are they planned for."""
        with self._greeting:
            found = {executor.id for executor in self.executors()}
            fresh = found - self._ready
            if fresh:
                try:
                    self._warm_up(fresh)
                except ExecutorLost:
                    return
            self._ready = found

    def greet(self, over: threading.Event, failed: Callable[[Exception], None]) -> threading.Thread:
        """Start a thread that greets late-comers beside the stream.

        Parameters
        ----------
        over : Event
            Ends it, and so does a stop of Spark.
        failed : callable
            Told of any other error, which ends it too.
        """
        thread = threading.Thread(
            target=self._greet, args=(over, failed), name="penstock-greet", daemon=True
        )
        thread.start()
        return thread

    def _greet(self, over: threading.Event, failed: Callable[[Exception], None]) -> None:
        try:
            while not over.wait(GREET_S):
                self.greet_once()
        except Exception as error:  # noqa: BLE001 - told, unless nobody is left to use executors
            if not (over.is_set() or self._jvm.stopped):
                failed(error)
