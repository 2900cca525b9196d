"""What the state of each partition weighs, and how long another executor takes to load it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from penstock.runtimes.attached.placement import Partition, ran_on
from penstock.runtimes.attached.progress import TaskRun
from penstock.runtimes.attached.topology import QueryGraph

#: Time to open a store, in ms, and to load a byte of it, until loads were seen.
OPEN_MS, BYTE_MS = 50.0, 20.0 / 1e6

#: Loads that are remembered.
KEPT = 64


class LoadTimes:
    """Learns from the tasks of every batch."""

    def __init__(self) -> None:
        self._bytes: dict[Partition, int] = {}
        self._ran: dict[Partition, str] = {}
        #: Executors that have run state partitions, and so have all that it takes at hand.
        self.experienced: set[str] = set()
        self._loads: deque[tuple[int, int]] = deque(maxlen=KEPT)

    def learn(self, graph: QueryGraph, tasks: Mapping[str, Mapping[int, TaskRun]]) -> None:
        """Take note of the state that tasks had, and of the time that new executors loaded it."""
        ran = ran_on(graph, tasks)
        for (stage, number), executor in ran.items():
            task = tasks[stage][number]
            before = self._ran.get((stage, number), executor)
            if before != executor and task.load_ms:
                self._loads.append((task.stored_bytes, task.load_ms))
            self._bytes[stage, number] = task.stored_bytes
        self._ran |= ran
        self.experienced |= set(ran.values())

    def cost_ms(self, graph: QueryGraph) -> dict[Partition, float]:
        """Time that loading each partition elsewhere takes."""
        loaded, spent = (sum(one[i] for one in self._loads) for i in (0, 1))
        factor = 1.0
        expected = OPEN_MS * len(self._loads) + BYTE_MS * loaded
        if self._loads:
            factor = spent / expected
        return {
            (stage.name, number): factor
            * (OPEN_MS + BYTE_MS * self._bytes.get((stage.name, number), 0))
            for stage in graph.stateful
            for number in range(stage.partitions)
        }

    def state_bytes(self, partitions: Collection[Partition]) -> int:
        """State of some partitions."""
        return sum(self._bytes.get(one, 0) for one in partitions)

    def state_mb(self, graph: QueryGraph) -> dict[str, float]:
        """State of each stage, in MB."""
        return {
            stage.name: sum(self._bytes.get((stage.name, n), 0) for n in range(stage.partitions))
            / 1e6
            for stage in graph.stateful
        }
