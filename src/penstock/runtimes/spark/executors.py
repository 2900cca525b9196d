"""The executors of a session: which are there, which are warm, and how to get more or fewer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from penstock.control.runtime import ActionFailed
from penstock.model import Cluster
from penstock.runtimes.spark.errors import ExecutorLost
from penstock.runtimes.spark.jvm import Executor
from penstock.runtimes.spark.nodes import by_node, cluster_of, executor_ids, executors_a_node

#: Seconds between two looks for executors that came later.
LOOK_S = 0.5

#: Times that all are warmed up before a run is given up.
ATTEMPTS = 5

#: Warms up the executors of the given ids, or all when given None.
WarmUp = Callable[[Collection[str] | None], None]


def no_warm_up(only: Collection[str] | None) -> None:
    """Do nothing: the executors run tasks that need no preparation."""


class Manager(Protocol):
    """What lists, requests and releases executors; `Jvm` does it."""

    @property
    def master(self) -> str:
        """The cluster manager, as messages name it."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether Spark was stopped, or is just being."""
        ...

    def executors(self) -> list[Executor]:
        """List the executors that are alive."""
        ...

    def request_executors(self, total: int) -> bool:
        """Ask for executors until there are so many; False where that is not possible."""
        ...

    def release_executors(self, ids: list[str]) -> bool:
        """Give up executors; False where that is not possible."""
        ...


class Executors:
    """The executors that one run may use; those that come later are warmed up first.

    Parameters
    ----------
    jvm : Manager
        Lists, requests and releases the executors.
    warm_up : callable
        Raises `ExecutorLost` when an executor is lost meanwhile.
    processes : int
        Executors that stand for a node, on an embedded cluster.

    Attributes
    ----------
    per_node : int
        Executors that stand for a node, or 0, as in `by_node`.
    cluster : Cluster
        The nodes as of the last `look`.
    """

    def __init__(self, jvm: Manager, warm_up: WarmUp = no_warm_up, processes: int = 1) -> None:
        self._jvm, self._warm_up = jvm, warm_up
        self._warming = threading.Lock()
        self._gone: set[str] = set()
        there = jvm.executors()
        self._ready = {executor.id for executor in there}
        self.per_node = executors_a_node(there, processes)
        self._ids: Mapping[str, str] = {}
        self.cluster = self.look()

    def executors(self) -> list[Executor]:
        """List the executors that are there, without those that were released."""
        return [e for e in self._jvm.executors() if e.id not in self._gone]

    def ready(self) -> list[Executor]:
        """List the executors that are there and warm."""
        return [e for e in self.executors() if e.id in self._ready]

    def look(self) -> Cluster:
        """Describe the nodes that are there and warm; those of before, while there are none."""
        executors = self.ready()
        if not executors and self._ids:
            # All are lost at once: what is run next finds out, and waits for others.
            return self.cluster
        self._ids = executor_ids(executors, self.per_node)
        self.cluster = cluster_of(executors, self.per_node)
        return self.cluster

    @property
    def executor_ids(self) -> Mapping[str, str]:
        """Id of the executor at each location of a plan, as of the last `look`."""
        return self._ids

    def executor_of(self, location: str) -> str:
        """Return the id of the executor at a location of a plan, as of the last `look`."""
        return self._ids.get(location, location)

    # ---- more or fewer

    def request(self, nodes: int) -> None:
        """Ask the cluster manager for executors until there are so many nodes.

        Raises
        ------
        ActionFailed
            When the cluster manager takes no such requests.
        """
        executors = self.executors()
        nodes_now = max(1, len(by_node(executors, self.per_node)))
        each = self.per_node or max(1, round(len(executors) / nodes_now))
        if not self._jvm.request_executors(nodes * each):
            raise ActionFailed(f"{self._jvm.master} cannot be asked for executors")

    def release(self, nodes: Iterable[str]) -> list[str]:
        """Give up the executors of some nodes, and return their ids.

        Raises
        ------
        ActionFailed
            When the cluster manager releases none.
        """
        found = by_node(self.executors(), self.per_node)
        ids = [executor.id for name in nodes for executor in found.get(name, ())]
        if not self._jvm.release_executors(ids):
            raise ActionFailed(f"{self._jvm.master} cannot be told to release executors")
        self.released(ids)
        # Spark now wants none at all if it was never told a number, and would replace no loss.
        self._jvm.request_executors(len(self.executors()))
        return ids

    def released(self, ids: Iterable[str]) -> None:
        """Leave out executors that were released: Spark may list them for a while."""
        self._gone |= set(ids)

    # ---- warm

    def warm_up(self) -> None:
        """Warm up all that are there."""
        for left in reversed(range(ATTEMPTS)):
            try:
                self._warm_up(None)
                return
            except ExecutorLost:
                # One that was released before this run may still have been listed.
                if not left:
                    raise

    def warm_up_new(self) -> None:
        """Warm up those that came since; only then are they planned for."""
        with self._warming:
            found = {executor.id for executor in self.executors()}
            fresh = found - self._ready
            if fresh:
                try:
                    self._warm_up(fresh)
                except ExecutorLost:
                    return
            self._ready = found

    def watch(self, over: threading.Event, failed: Callable[[Exception], None]) -> threading.Thread:
        """Start a thread that warms up late-comers beside the stream.

        Parameters
        ----------
        over : Event
            Ends it, and so does a stop of Spark.
        failed : callable
            Told of any other error, which ends it too.
        """
        thread = threading.Thread(
            target=self._watch, args=(over, failed), name="penstock-executors", daemon=True
        )
        thread.start()
        return thread

    def _watch(self, over: threading.Event, failed: Callable[[Exception], None]) -> None:
        try:
            while not over.wait(LOOK_S):
                self.warm_up_new()
        except Exception as error:  # noqa: BLE001 - told, unless nobody is left to use executors
            if not (over.is_set() or self._jvm.stopped):
                failed(error)
