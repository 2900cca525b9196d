"""Queries attached and disturbed, compared with unattached ones; in a process of its own.

``python equality_checks.py KIND ... [--trouble TROUBLE ...] [--files N]`` prints JSON. Troubles:
``move`` rotates all state partitions every second batch, ``warm`` has state loaded ahead of every
move, ``scale`` adds an executor and releases another, ``kill`` ends an executor with ``kill -9``,
``thread`` ends Penstock's own thread.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from tests.runtimes.attached.streams import KINDS, read, write_files

from penstock.control.runtime import ActionFailed
from penstock.model import Plan
from penstock.runtimes.attached import warmup
from penstock.runtimes.attached.query import AttachedQuery
from penstock.runtimes.spark.injector import executor_pid
from penstock.runtimes.spark.session import _prepare_environment
from penstock.spark import attach, embedded

TROUBLES = ("move", "warm", "scale", "kill", "thread")
NODES, PARTITIONS = 3, 4

#: Java compiles quickly rather than well: young processes share few cores.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: State in RocksDB, with its changelog, as people run it.
CONF = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.executor.memory": "1024m",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming."
    "state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def session() -> SparkSession:
    """Start a session as a user would, with Penstock knowing nothing of it."""
    master = embedded(NODES)
    _prepare_environment(master)
    root = str(Path(__file__).parents[3])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master(master).appName("attached")
    for key, value in CONF.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    wait_for(spark, NODES)
    return spark


def wait_for(spark: SparkSession, executors: int) -> None:
    """Wait until there are so many executors."""
    context: Any = spark.sparkContext._jsc
    deadline = time.monotonic() + 120
    # The driver is listed, too.
    while context.sc().getExecutorMemoryStatus().size() <= executors:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{executors} executors did not come")
        time.sleep(0.1)


def rotated(plan: Plan) -> Plan:
    """Move every partition to the next node of those that the plan uses."""
    used = np.unique(plan.node_of)
    after = {int(a): int(b) for a, b in zip(used, np.roll(used, 1), strict=True)}
    return replace(plan, node_of=np.array([after[n] for n in plan.node_of.tolist()]))


class Disturber:
    """Makes trouble for an attached query, at fixed batches."""

    def __init__(self, spark: SparkSession, troubles: list[str]) -> None:
        self.spark, self.troubles = spark, troubles
        self.handle: Any = None
        self.done: dict[str, int] = dict.fromkeys(TROUBLES, 0)
        self.tasks = self.honoured = self.seen = 0

    def __call__(self, observed: Any) -> None:
        """Act after a batch; called in Penstock's thread."""
        batch, runtime = observed.batch, self.handle.runtime
        self.seen += 1
        self.tasks += batch.tasks
        self.honoured += batch.tasks_honoured
        if "kill" in self.troubles and self.seen == 5:
            victim = sorted({one.executor for one in observed.instances})[0]
            pid = executor_pid(self.spark.sparkContext.applicationId, victim)
            os.kill(pid, signal.SIGKILL)
            self.done["kill"] += 1
        elif "scale" in self.troubles and self.seen == 3:
            runtime.request_nodes(len(runtime.cluster) + 1)
            self.done["scale"] += 1
        elif "scale" in self.troubles and self.seen == 8:
            self._release(runtime)
        elif "thread" in self.troubles and self.seen == 6:
            self.done["thread"] += 1
            raise SystemExit("the thread ends")
        elif "move" in self.troubles and self.seen % 2 == 0:
            self._move(runtime)

    def _move(self, runtime: Any) -> None:
        target = rotated(runtime.plan)
        try:
            if "warm" in self.troubles:
                warmup.WORTH_MS = 0.0
                while not runtime.prepare(target):
                    time.sleep(0.01)
            runtime.apply(target)
            self.done["move"] += 1
        except ActionFailed:
            # An executor of the plan was killed: use those that are there.
            self._onto(runtime, tuple(runtime.observe().cluster.names))

    def _release(self, runtime: Any) -> None:
        names = tuple(runtime.observe().cluster.names)
        self._onto(runtime, names[1:])
        runtime.release_nodes(names[:1])
        self.done["scale"] += 1

    def _onto(self, runtime: Any, names: tuple[str, ...]) -> None:
        plan = runtime.plan
        node_of = np.arange(len(plan.node_of)) % len(names)
        processes = np.zeros_like(node_of)
        moved = replace(plan, nodes=names, node_of=node_of, process_of=processes, active=())
        while runtime.apply(moved).left:
            pass


def run(
    spark: SparkSession, kind: str, folder: Path, disturber: Disturber | None
) -> list[tuple[int, str]]:
    """Run a query to the end of its files; return every row with the batch that wrote it."""
    rows: list[tuple[int, str]] = []

    def collect(frame: DataFrame, batch: int) -> None:
        rows.extend((batch, str(row)) for row in frame.collect())

    query_of, mode = KINDS[kind]
    with tempfile.TemporaryDirectory(prefix="penstock-equality-") as checkpoint:
        query = (
            query_of(read(spark, folder))
            .writeStream.foreachBatch(collect)
            .outputMode(mode)
            .queryName(kind)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        if disturber is not None:
            handle = attach(query, adapt=False, on_batch=disturber)
            assert isinstance(handle, AttachedQuery)
            disturber.handle = handle
        query.awaitTermination()
        if disturber is not None:
            _settled(disturber)
    return sorted(rows)


def _settled(disturber: Disturber) -> None:
    """Wait until the query's end was heard of, unless nobody listens any more."""
    deadline = time.monotonic() + 30
    while disturber.handle.attached and time.monotonic() < deadline:
        if disturber.done["thread"]:
            disturber.handle.detach()
        time.sleep(0.1)


def compare(spark: SparkSession, kind: str, troubles: list[str], files: int) -> dict[str, Any]:
    """Run a query unattached and attached, and compare every row."""
    with tempfile.TemporaryDirectory(prefix="penstock-files-") as root:
        folder = Path(root) / "files"
        write_files(folder, files)
        began = time.monotonic()
        alone = run(spark, kind, folder, None)
        between = time.monotonic()
        disturber = Disturber(spark, troubles)
        attached = run(spark, kind, folder, disturber)
        wait_for(spark, 2)
        return {
            "rows": len(alone),
            "equal": attached == alone,
            "missing": [row for row in alone if row not in attached][:3],
            "added": [row for row in attached if row not in alone][:3],
            "batches": disturber.seen,
            "done": disturber.done,
            "tasks": disturber.tasks,
            "honoured": disturber.honoured,
            "warmed": disturber.handle.runtime.warmed,
            "events": disturber.handle.events,
            "threads": [t.name for t in threading.enumerate() if t.name.startswith("penstock")],
            "jars": str(spark.sparkContext._jsc.sc().listJars().mkString(",")),
            "wait": spark.sparkContext._jsc.sc().conf().get("spark.locality.wait", ""),
            "seconds": [round(between - began, 1), round(time.monotonic() - between, 1)],
        }


def main() -> None:
    """Run what is asked for on one cluster."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--trouble", nargs="*", default=["move"], choices=TROUBLES)
    parser.add_argument("--files", type=int, default=8)
    asked = parser.parse_args()
    spark = session()
    found = {}
    for kind in asked.kinds:
        found[kind] = compare(spark, kind, asked.trouble, asked.files)
        print(kind, json.dumps(found[kind]), file=sys.stderr, flush=True)
    wrong = [kind for kind, one in found.items() if not (one["equal"] and one["rows"])]
    print("RESULT " + json.dumps(found), flush=True)
    spark.stop()
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
