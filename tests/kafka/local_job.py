"""The engine's driver without Spark, from topic to topics, in a process that a test may kill.

Usage: local_job.py SERVERS INTO ROWS COUNTS CHECKPOINT
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.kafka.counting import counting

from penstock.engine.driver.driver import Driver
from penstock.engine.job_graph import JobGraph
from penstock.engine.source_queue import queue_of
from penstock.model import Cluster, Plan
from penstock.pipeline import Kafka
from penstock.runtimes.local import LocalBackend
from penstock.strategies import Request, strategies


def main() -> None:
    """Run in small batches to the end of what is there, and print a line for every batch."""
    servers, into, rows, counts, checkpoint = sys.argv[1:]
    pipeline = counting(Kafka(servers, timeout_s=6.0), into, rows, counts, "latest")
    job_graph, cluster = JobGraph.of(pipeline), Cluster.of(2)
    plan = strategies.make("even").plan(Request(job_graph.topology(2), cluster))
    assert isinstance(plan, Plan)
    backend = LocalBackend(Path(checkpoint) / "nodes", cluster.names)
    driver = Driver(job_graph, backend, checkpoint, plan)
    queue = queue_of(pipeline["words"].source, 150, "wait", driver.positions().get("words", ()))
    pending = driver.pending()
    if pending is not None:
        queue.resume(pending["words"])
        driver.run_batch(pending)
        print("BATCH again", flush=True)
    while not queue.ended:
        if cuts := queue.take(0.0):
            driver.run_batch({"words": cuts})
            print("BATCH", flush=True)


if __name__ == "__main__":
    main()
