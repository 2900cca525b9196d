"""Runs an unchanged PySpark script with all its streaming queries attached."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.runtimes.attached.attach import AttachedSession, attach

#: Settings of Spark that ``penstock-python`` reads, as in ``--conf spark.penstock.strategy=even``.
STRATEGY, RECOMMEND_ONLY = "spark.penstock.strategy", "spark.penstock.recommendOnly"
MIN_NODES, MAX_NODES = "spark.penstock.minNodes", "spark.penstock.maxNodes"
STORE = "spark.penstock.store"


class Sessions:
    """The sessions that a script makes, each attached when it is first made.

    Parameters
    ----------
    say : callable
        Told in a sentence why a session is not attached.
    options : callable
        Gives the options of `attach` for a session.
    """

    def __init__(
        self, say: Callable[[str], None], options: Callable[[SparkSession], dict[str, Any]]
    ) -> None:
        self._say, self._options = say, options
        self._known: set[int] = set()
        self.attached: list[AttachedSession] = []

    def made(self, spark: SparkSession) -> None:
        """Attach a session; whatever goes wrong is said, and the script goes on."""
        context: Any = getattr(spark, "_sc", spark)
        if id(context) in self._known:
            return
        self._known.add(id(context))
        try:
            handle = attach(spark, **self._options(spark))
        except Exception as error:  # noqa: BLE001 - the script must not notice
            self._say(f"not attached, the queries run as they are: {type(error).__name__}: {error}")
            return
        if isinstance(handle, AttachedSession):
            self.attached.append(handle)
        else:
            self._say(handle.explain())

    def detach(self) -> None:
        """Leave all of them alone."""
        for session in self.attached:
            session.detach()


@contextmanager
def told_of_sessions(made: Callable[[SparkSession], None]) -> Iterator[None]:
    """Have a function told of every session that is made by ``SparkSession.builder`` meanwhile."""
    builder: Any = SparkSession.Builder
    original = builder.getOrCreate

    def get_or_create(self: Any) -> SparkSession:
        spark: SparkSession = original(self)
        made(spark)
        return spark

    builder.getOrCreate = get_or_create
    try:
        yield
    finally:
        builder.getOrCreate = original


def run_script(script: str | Path, arguments: Sequence[str] = ()) -> None:
    """Run a script as ``python SCRIPT ARGUMENTS`` would."""
    before, path = sys.argv, sys.path
    sys.argv = [str(script), *arguments]
    sys.path = [str(Path(script).resolve().parent), *sys.path[1:]]
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv, sys.path = before, path


def options_of(spark: SparkSession) -> dict[str, Any]:
    """Read the options of `attach` from a session's ``spark.penstock.*`` settings."""
    conf = spark.sparkContext.getConf()
    return {
        "strategy": conf.get(STRATEGY, "penstock"),
        "recommend_only": conf.get(RECOMMEND_ONLY, "false") == "true",
        "min_nodes": int(conf.get(MIN_NODES, "0") or 0),
        "max_nodes": int(conf.get(MAX_NODES, "0") or 0),
        "store": conf.get(STORE, None),
    }


def python() -> None:
    """Be the Python of a driver that ``spark-submit`` starts: ``penstock-python SCRIPT ...``.

    Used as ``--conf spark.pyspark.driver.python=penstock-python``. Anything but a script is left to
    Python itself.
    """
    script, arguments = sys.argv[1:2], sys.argv[2:]
    if not script or not script[0].endswith(".py"):
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    sessions = Sessions(_say, options_of)
    with told_of_sessions(sessions.made):
        try:
            run_script(script[0], arguments)
        finally:
            for session in sessions.attached:
                _say(session.explain())
            sessions.detach()


def _say(text: str) -> None:
    sys.stderr.write(f"penstock: {text}\n")
