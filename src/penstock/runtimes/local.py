"""A pipeline in this process, without Spark: for tests and for trying things out.

Tasks, state, commit log and sinks are those of a run on Spark. It does not model processes that
die, the network, or anything that happens at the same time: tasks run one after the other.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from penstock.engine.backend import NO_SENDERS, Stage, StateSenders, TaskBody
from penstock.engine.batch import BatchSpec
from penstock.engine.driver.driver import BatchResult, Driver
from penstock.engine.job_graph import JobGraph
from penstock.engine.source_queue import QUEUE, queue_of
from penstock.engine.task.task import run_partition
from penstock.model import Cluster, Keep, PenstockError
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.steps import PartitionedSource
from penstock.state.config import StateConfig
from penstock.state.store import clear_cache
from penstock.strategies import Request, strategies


class LocalBackend:
    """Runs the tasks of a batch one after the other; a folder stands for each executor.

    Parameters
    ----------
    root : Path
        Where the folders of the executors are made.
    nodes : iterable of str
        Nodes that are alive; each has one executor.
    """

    def __init__(self, root: Path, nodes: Iterable[str]) -> None:
        self.root = Path(root)
        self.nodes = list(nodes)

    def run(
        self, job_graph: JobGraph, spec: BatchSpec, senders: StateSenders = NO_SENDERS
    ) -> Iterable[bytes]:
        """Run layer by layer."""
        stages = [
            Stage(spec.layer_locations[layer], _task_body(job_graph, spec, layer))
            for layer in range(spec.depth)
        ]
        return self._run(stages, senders)

    def job(
        self, name: str, stages: Sequence[Stage], *, background: bool = False
    ) -> Iterable[bytes]:
        """Run stage by stage."""
        return self._run(stages, NO_SENDERS)

    def _run(self, stages: Sequence[Stage], senders: StateSenders) -> Iterable[bytes]:
        received = {partition: list(sent) for partition, sent in enumerate(stages[0].inputs)}
        for layer, stage in enumerate(stages):
            sent: dict[int, list[bytes]] = {}
            for one in (stage, *senders.get(layer, ())):
                for partition, executor in enumerate(one.executors):
                    messages = received.get(partition, []) if one is stage else []
                    folder = self.root / quote(executor, safe="")
                    for target, data in one.body(partition, messages, folder):
                        sent.setdefault(target, []).append(data)
            received = sent
        return [data for messages in received.values() for data in messages]

    def cancel_background(self) -> None:
        """Do nothing: a job is soon over."""

    def executor_at(self, location: str) -> str:
        """Return the location itself: it has one executor, which is never replaced."""
        return location

    def backup_nodes(self) -> Mapping[str, str]:
        """Return the location of the one executor of each node."""
        return {node: f"{node}/0" for node in self.nodes}

    def alive(self) -> frozenset[str]:
        """Return the executors of all nodes."""
        return frozenset(self.backup_nodes().values())

    def lose(self, node: str) -> None:
        """Remove a node with all its files, and the state that this process has in memory."""
        self.nodes.remove(node)
        shutil.rmtree(self.root / quote(f"{node}/0", safe=""), ignore_errors=True)
        clear_cache()


def _task_body(job_graph: JobGraph, spec: BatchSpec, layer: int) -> TaskBody:
    def run(partition: int, messages: Iterable[bytes], folder: Path) -> Iterator[tuple[int, bytes]]:
        return run_partition(job_graph, spec, layer, partition, messages, folder=folder)

    return run


def run_locally(
    pipeline: Pipeline,
    cuts: Sequence[int] = (),
    *,
    parallelism: int = 2,
    nodes: int = 2,
    root: str | Path | None = None,
    on_error: str = "stop",
    state_config: StateConfig | None = None,
    rename: Mapping[str, str] | None = None,
    forget: Collection[str] = (),
) -> list[BatchResult]:
    """Run all sources of a pipeline to their end, in batches.

    Parameters
    ----------
    pipeline : Pipeline
        Its sources must end.
    cuts : sequence of int
        Positions where one batch ends and the next begins; every source is cut there.
    parallelism : int
        Instances of steps that name none.
    nodes : int
        Nodes that instances are placed on.
    root : path, optional
        Folder of the checkpoint; by default one that is removed afterwards, and is therefore not
        flushed to the disk.
    on_error, state_config, rename, forget
        As in `Driver`.
    """
    job_graph = JobGraph.of(pipeline)
    cluster = Cluster.of(nodes)
    plan = strategies.make("even").plan(Request(job_graph.topology(parallelism), cluster))
    if isinstance(plan, Keep):
        raise PenstockError(f"no plan: {plan.reasons[0]}")
    with tempfile.TemporaryDirectory(prefix="penstock-") as scratch:
        backend = LocalBackend(Path(scratch) / "nodes", cluster.names)
        state_config = state_config or StateConfig(sync=root is not None)
        folder = Path(root or scratch)
        driver = Driver(job_graph, backend, folder, plan, on_error, state_config, rename, forget)
        return run_to_end(driver, cuts)


def run_to_end(driver: Driver, cuts: Sequence[int] = ()) -> list[BatchResult]:
    """Run the batches of a driver that are not committed yet, until the sources end.

    A source with partitions is taken as it is, and not cut.
    """
    sources = {s.name: s.source for s in driver.job_graph.pipeline.steps if s.source is not None}
    ends = {n: int(s.end) for n, s in sources.items() if not isinstance(s, PartitionedSource)}
    results = []
    pending = driver.pending()
    if pending is not None:
        results.append(driver.run_batch(pending))
    reached = driver.positions()
    queues = {
        name: queue_of(source, QUEUE, "wait", reached.get(name, ()))
        for name, source in sources.items()
        if name not in ends
    }
    position = {name: reached[name][0] if name in reached else 0 for name in ends}
    for cut in [*sorted(cuts), max(ends.values(), default=0)]:
        ranges: dict[str, tuple[tuple[int, int], ...]] = {}
        for name, end in ends.items():
            start, stop = position[name], min(cut, end)
            if stop > start:
                ranges[name] = ((start, stop),)
                position[name] = stop
        if ranges:
            results.append(driver.run_batch(ranges))
    while any(not queue.ended for queue in queues.values()):
        ranges = {name: queue.take(0.0) for name, queue in queues.items()}
        if any(ranges.values()):
            results.append(
                driver.run_batch({name: taken for name, taken in ranges.items() if taken})
            )
    while driver.watermark_moved:
        results.append(driver.run_batch({}))
    return results
