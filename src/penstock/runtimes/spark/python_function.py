"""Functions that Python workers run in a stage, as Spark's JVM holds them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark import SparkContext
from pyspark.accumulators import _accumulatorRegistry
from pyspark.serializers import CloudPickleSerializer, NoOpSerializer

from penstock.runtimes.spark.worker import TaskFunction

#: A function of so many bytes or more goes as a broadcast, as Spark itself does it.
BROADCAST_BYTES = 1 << 20


class PythonFunctions:
    """Makes functions for the JVM that differ from each other in what is pickled, and little else.

    The environment and the interpreter are those of the context, and broadcasts are those of the
    job graph, the same in every batch: they are put together once, with a dozen calls into the JVM,
    and copied there. Accumulators are sent back only where the user has made one.

    Parameters
    ----------
    sc : SparkContext
    """

    def __init__(self, sc: SparkContext) -> None:
        self._sc: Any = sc
        pickler: Any = CloudPickleSerializer
        self._pickler = pickler()
        self._made: dict[tuple[int, ...], Any] = {}

    def of(self, task: TaskFunction) -> tuple[bytearray, Any]:
        """Return a function pickled, and a function of the JVM that has all else."""
        command = (task, None, NoOpSerializer(), NoOpSerializer())
        pickled = self._pickler.dumps(command)
        if len(pickled) >= BROADCAST_BYTES:
            pickled = self._pickler.dumps(self._sc.broadcast(pickled))
        needed = list(self._sc._pickled_broadcast_vars)
        self._sc._pickled_broadcast_vars.clear()
        return bytearray(pickled), self._like(needed)

    def _like(self, broadcasts: Iterable[Any]) -> Any:
        needed = {id(broadcast): broadcast for broadcast in broadcasts}
        # Spark's scheduler waits for an answer of this process for each task that has one.
        counting = bool(_accumulatorRegistry)
        key = (counting, *sorted(needed))
        found = self._made.get(key)
        if found is None or found[1] != needed:
            sc = self._sc
            made = sc._jvm.SimplePythonFunction(
                bytearray(),
                sc.environment,
                sc._python_includes,
                sc.pythonExec,
                sc.pythonVer,
                [broadcast._jbroadcast for broadcast in needed.values()],
                sc._javaAccumulator if counting else None,
            )
            # The broadcasts are kept, so that none of them is collected and its id used again.
            self._made = {key: (made, needed)}
            found = self._made[key]
        return found[0]
