"""The state benchmark on Spark executors."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.experiments.state_bench.bench import StateBench, coding
from penstock.runtimes.spark.backend import SparkBackend
from penstock.runtimes.spark.jvm import jvm_of
from penstock.runtimes.spark.nodes import cluster_of, executor_ids, executors_a_node
from penstock.runtimes.spark.session import SparkSession

#: Experiments in the order in which they are run.
EXPERIMENTS = ("coding", "sizes", "moved", "lost", "missing")


@dataclass(frozen=True)
class BenchArguments:
    """What to measure.

    Parameters
    ----------
    experiments : sequence of str
        Some of `EXPERIMENTS`.
    sizes_mb : sequence of float
        States of one instance that are saved and restored.
    instances : sequence of int
        How many move, or are lost with a node.
    least_mb, most_mb : float
        States of those that move, from the first to the last; those lost are of the mean size.
    server : str
        URL of a server for files that stands for the checkpoint's folder.
    """

    experiments: Sequence[str] = EXPERIMENTS
    sizes_mb: Sequence[float] = (10, 40, 80, 200)
    instances: Sequence[int] = (1, 2, 4, 8, 16)
    least_mb: float = 10.0
    most_mb: float = 80.0
    data: int = 7
    parity: int = 3
    repeats: int = 3
    server: str = ""


def measure(
    spark: SparkSession, asked: BenchArguments, say: Callable[[str], None]
) -> dict[str, list[dict[str, Any]]]:
    """Run the experiments on the executors of a session, one after the other."""
    executors = jvm_of(spark.sparkContext).executors()
    per_node = executors_a_node(executors, 1)
    homes = executor_ids(executors, per_node)
    backend = SparkBackend(
        spark, lambda home: homes.get(home, home), "penstock-state-bench", per_node=per_node
    )
    with tempfile.TemporaryDirectory(prefix="penstock-checkpoint-") as checkpoint:
        bench = StateBench(
            backend,
            cluster_of(executors, per_node),
            checkpoint,
            asked.server,
            asked.data,
            asked.parity,
            asked.repeats,
            say,
        )
        todo: dict[str, Callable[[], list[dict[str, Any]]]] = {
            "coding": coding,
            "sizes": lambda: bench.sizes(asked.sizes_mb),
            "moved": lambda: bench.moved(asked.instances, asked.least_mb, asked.most_mb),
            "lost": lambda: bench.lost(asked.instances, (asked.least_mb + asked.most_mb) / 2),
            "missing": lambda: bench.missing(asked.most_mb),
        }
        wanted = [name for name in EXPERIMENTS if name in asked.experiments]
        if set(wanted) - {"coding"}:
            say("warming up the workers")
            backend.warm_up()
            bench.warm_up()
        return {name: todo[name]() for name in wanted}
