"""Spark sessions that pins work on: an embedded cluster, or any master."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

import penstock
from penstock.model import InvalidValue, PenstockError
from penstock.runtimes.spark.jvm import PROCESSES, jvm_of

__all__ = ["SparkSession", "cluster", "embedded", "session"]

#: Tasks wait this long for their own executor. When it dies the batch is cancelled instead.
LOCALITY_WAIT = "300s"


#: Classes of Spark that call it an error when an executor ends, as one that is released does. A run
#: tells of executors that it loses by itself.
NOISY = (
    "org.apache.spark.ContextCleaner",
    "org.apache.spark.scheduler.TaskSchedulerImpl",
    "org.apache.spark.network.server.TransportRequestHandler",
    "org.apache.spark.network.client.TransportClient",
    "org.apache.spark.network.client.TransportResponseHandler",
)


class ClusterNotUp(PenstockError):
    """The executors that were asked for did not come."""


def settings(master: str) -> dict[str, str]:
    """Return the configuration that the engine needs, or runs much better with."""
    wanted = {
        "spark.sql.adaptive.enabled": "false",
        "spark.locality.wait": LOCALITY_WAIT,
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.python.worker.faulthandler.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "200",
        "spark.ui.retainedTasks": "2000",
        "spark.cleaner.periodicGC.interval": "5min",
        # A file for each target would be four thousand in a batch of sixty-four instances.
        "spark.shuffle.sort.bypassMergeThreshold": "16",
        # Fragments of a large state come from several nodes at once, and not one after the other.
        "spark.reducer.maxSizeInFlight": "256m",
    }
    if master.startswith("local"):
        wanted |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # What stays on this machine need not be small: a buffer for each message costs more.
        wanted |= {"spark.shuffle.compress": "false", "spark.broadcast.compress": "false"}
        # Workers run elsewhere: a relative path, or another installed penstock, would mislead them.
        wanted["spark.executorEnv.PYTHONPATH"] = str(Path(penstock.__file__).parents[1])
    if master.startswith("local-cluster"):
        # One executor stands for one node: what it reads of another's must count as remote.
        wanted["spark.shuffle.readHostLocalDisk"] = "false"
    return wanted


def embedded(nodes: int = 4, cores: int = 1, memory_mb: int = 1024, processes: int = 1) -> str:
    """Return the master of an embedded cluster of so many nodes.

    Parameters
    ----------
    nodes : int
    cores, memory_mb : int
        Of each executor process.
    processes : int
        Executor processes of each node; give `session` the same number.
    """
    for name, value in (("nodes", nodes), ("cores", cores), ("processes", processes)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidValue(name, "an embedded cluster", "a whole number of at least 1", value)
    return f"local-cluster[{nodes * processes},{cores},{memory_mb}]"


def session(
    master: str | None = None,
    *,
    name: str = "penstock",
    conf: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
    processes: int = 1,
) -> SparkSession:
    """Start a session, and wait until its executors are there.

    Parameters
    ----------
    master : str, optional
        Spark master; by default the one that ``spark-submit`` was given, and elsewhere an embedded
        cluster of four nodes.
    name : str
    conf : mapping of str to str, optional
        More configuration; it wins over the engine's own, as do settings of ``spark-submit``.
    timeout_s : float
        How long to wait for the executors.
    processes : int
        Executors that stand for a node, on an embedded cluster.
    """
    given = submitted()
    master = master or given.get("spark.master") or embedded(processes=processes)
    given = {key: at for key, at in given.items() if key not in ("spark.master", "spark.app.name")}
    _prepare_environment(master)
    builder = SparkSession.builder.master(master).appName(name)
    own = {**settings(master), PROCESSES: str(processes), **given}
    for key, value in {**own, **(conf or {})}.items():
        builder = builder.config(key, value)
    if master.startswith("local-cluster"):
        memory = int(master.rstrip("]").split(",")[2])
        builder = builder.config("spark.executor.memory", f"{memory}m")
    spark: SparkSession = builder.getOrCreate()
    _hush(spark)
    try:
        wait_for_executors(spark, expected_executors(master), timeout_s)
    except BaseException:
        # Nobody else knows of it yet: what was started must not stay.
        spark.stop()
        raise
    return spark


def submitted() -> dict[str, str]:
    """Return the settings of the ``spark-submit`` that started this process; without one, none."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _hush(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    for name in NOISY:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def expected_executors(master: str) -> int:
    """Return how many executors to wait for."""
    if master.startswith("local-cluster["):
        return int(master[len("local-cluster[") :].split(",")[0])
    return 1


def wait_for_executors(spark: SparkSession, count: int, timeout_s: float) -> None:
    """Wait until there are so many executors."""
    jvm = jvm_of(spark.sparkContext)
    deadline = time.monotonic() + timeout_s
    while len(jvm.executors()) < count:
        if time.monotonic() > deadline:
            raise ClusterNotUp(
                f"{len(jvm.executors())} of {count} executors came within {timeout_s:g} s; "
                "check that the master is reachable and has free cores and memory"
            )
        time.sleep(0.1)


@contextlib.contextmanager
def cluster(master: str | None = None, **options: object) -> Iterator[SparkSession]:
    """Start a session for a ``with`` block, and stop it afterwards."""
    spark = session(master, **options)  # type: ignore[arg-type]
    try:
        yield spark
    finally:
        spark.stop()


def _prepare_environment(master: str) -> None:
    """Let executors find the same Python and the same packages as the driver."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if master.startswith("local-cluster") and "SPARK_HOME" not in os.environ:
        os.environ["SPARK_HOME"] = _private_home()


def _private_home() -> str:
    """Make a Spark home of links: an embedded cluster writes its work folder into it."""
    package = Path(pyspark.__file__).parent
    home = Path(tempfile.mkdtemp(prefix="penstock-spark-"))
    for entry in package.iterdir():
        (home / entry.name).symlink_to(entry)
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return str(home)
