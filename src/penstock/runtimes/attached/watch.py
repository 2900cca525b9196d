"""Spark's side of an attached query: what is heard of it, and what Spark is told."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.runtimes.attached.progress import executors_of
from penstock.runtimes.spark.jvm import Context, Executor, compiled, ship

#: In this order: one may use those before it.
_SOURCES = ("WarmStores", "StreamingWatch")

#: How long a task waits for the executor that it prefers; Spark reads it for every task set.
_LOCALITY_WAIT = "spark.locality.wait"

#: What executors load our classes from, and its folder in each application: Spark may read it for
#: as long as a stage runs that was begun while it was known.
_JAR = "penstock-warm.jar"
_JARS: WeakKeyDictionary[SparkContext, tempfile.TemporaryDirectory[str]] = WeakKeyDictionary()


class Watch(Context):
    """Listens to the streaming queries of one application, and tells Spark where state is to be.

    Parameters
    ----------
    spark : SparkSession
    """

    def __init__(self, spark: SparkSession) -> None:
        sc: Any = spark.sparkContext
        super().__init__(sc)
        self._session: Any = spark._jsparkSession
        made, self._code = compiled(sc, __package__, _SOURCES)
        arguments = sc._gateway.new_array(sc._jvm.java.lang.Object, 1)
        arguments[0] = sc._jsc.sc()
        self._java: Any = made["StreamingWatch"].getConstructors()[0].newInstance(arguments)
        self._wait_before: str | None = None
        self._raised = False
        self._shipped = False
        self._java.begin()

    def next(self, wait_s: float) -> str | None:
        """Return the next thing that happened; None when nothing did for so long."""
        text = self._java.next(int(wait_s * 1000))
        return None if text is None else str(text)

    def follow(self, query: StreamingQuery) -> None:
        """Hear of the batches of a query from now on."""
        classic: Any = query
        self._java.follow(str(query.id), classic._jsq.streamingQuery())

    def leave(self, query: str) -> None:
        """Hear no more of a query's batches."""
        self._java.leave(query)

    def busy(self, query: str) -> bool:
        """Whether tasks of a query use its state just now."""
        return bool(self._java.busy(query))

    def report(self, lines: str) -> None:
        """Tell Spark's coordinator where stores are, one a line as `report_lines` spells them."""
        if lines:
            self._java.report(self._session, lines)

    def warm(self, query: str, action: str, lines: str) -> int:
        """Load stores where they are to be soon, hand them over to Spark or drop them.

        Parameters
        ----------
        action : str
            ``load``, ``hand over`` or ``drop``.
        lines : str
            As `report_lines` spells them.

        Returns
        -------
        int
            Stores for which it was done; others are loaded by the batch that first uses them.
        """
        if not self._shipped:
            folder = _JARS.get(self._sc)
            if folder is None:
                folder = _JARS[self._sc] = tempfile.TemporaryDirectory(prefix="penstock-warm-")
            ship(self._sc, self._code, Path(folder.name) / _JAR)
            self._shipped = True
        return int(self._java.warm(query, action, lines))

    def executors(self) -> list[Executor]:
        """List the executors that are alive."""
        return list(executors_of(str(self._java.executors()).splitlines()))

    def wait_for_preferred(self, seconds: int) -> None:
        """Have tasks wait longer for the executor that they prefer, until `wait_as_before`."""
        conf = self._context.conf()
        if not self._raised:
            self._wait_before = str(conf.get(_LOCALITY_WAIT, "")) or None
            self._raised = True
        conf.set(_LOCALITY_WAIT, f"{seconds}s")

    def wait_as_before(self) -> None:
        """Undo `wait_for_preferred`."""
        if not self._raised:
            return
        self._raised = False
        if self._wait_before is None:
            self._context.conf().remove(_LOCALITY_WAIT)
        else:
            self._context.conf().set(_LOCALITY_WAIT, self._wait_before)

    def end(self) -> None:
        """Listen no more, and leave neither a setting nor a jar behind."""
        if self.stopped:
            return
        self.wait_as_before()
        self._java.end()
        if self._shipped:
            self._shipped = False
            self._java.forget(_JAR)
