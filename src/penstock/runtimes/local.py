"""A pipeline in this process, without Spark: for tests and for trying things out.

The bodies of the tasks, the state, the commit log and the sinks are those of the real engine. What
it does not model: processes that die, anything in parallel, the network.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from penstock.engine.backend import NO_SENDERS, Body, Stage, StateSenders
from penstock.engine.batch import BatchSpec
from penstock.engine.driver.driver import BatchResult, Driver
from penstock.engine.job_graph import JobGraph
from penstock.engine.messages import DRIVER, Message
from penstock.engine.task.task import run_partition
from penstock.model import Cluster, Plan
from penstock.pipeline.builder import Pipeline
from penstock.state.config import StateConfig
from penstock.state.store import clear_cache
from penstock.strategies import Request, strategies


class LocalBackend:
    """Runs the tasks of a wave one after the other; folders stand for places.

    Parameters
    ----------
    root : Path
        Where the folders of the places are made.
    nodes : iterable of str
        Nodes that are there; each has one process.
    """

    def __init__(self, root: Path, nodes: Iterable[str]) -> None:
        self.root = Path(root)
        self.nodes = list(nodes)

    def run(
        self, job_graph: JobGraph, spec: BatchSpec, senders: StateSenders = NO_SENDERS
    ) -> Iterable[bytes]:
        """Run layer by layer."""

        def body(layer: int) -> Body:
            def run(partition: int, frames: Iterable[bytes], place: Path) -> Any:
                return run_partition(job_graph, spec, layer, partition, frames, folder=place)

            return run

        stages = [Stage(spec.layer_locations[layer], body(layer)) for layer in range(spec.depth)]
        return self._run(stages, senders)

    def job(
        self, name: str, stages: Sequence[Stage], *, background: bool = False
    ) -> Iterable[bytes]:
        """Run stage by stage."""
        return self._run(stages, NO_SENDERS)

    def _run(self, stages: Sequence[Stage], senders: StateSenders) -> Iterable[bytes]:
        arrived = {partition: list(frames) for partition, frames in enumerate(stages[0].inputs)}
        for layer, stage in enumerate(stages):
            leaving: dict[int, list[bytes]] = {}
            for one in (stage, *senders.get(layer, ())):
                for partition, place in enumerate(one.executors):
                    frames = arrived.get(partition, []) if one is stage else []
                    folder = self.root / quote(place, safe="")
                    for target, data in one.body(partition, frames, folder):
                        leaving.setdefault(target, []).append(data)
            arrived = leaving
        frames = [data for sent in arrived.values() for data in sent]
        assert all(Message.unpack(data).layer == DRIVER for data in frames)
        return frames

    def cancel_background(self) -> None:
        """Do nothing: a job is over soon."""

    def executor_at(self, location: str) -> str:
        """Return the location: nothing else is ever there."""
        return location

    def backup_nodes(self) -> Mapping[str, str]:
        """Return the one process of each node."""
        return {node: f"{node}/0" for node in self.nodes}

    def alive(self) -> frozenset[str]:
        """Return the processes of all nodes."""
        return frozenset(self.backup_nodes().values())

    def lose(self, node: str) -> None:
        """Take a node away, with all that it kept; and what this process remembers."""
        self.nodes.remove(node)
        shutil.rmtree(self.root / quote(f"{node}/0", safe=""), ignore_errors=True)
        clear_cache()


def run_locally(
    pipeline: Pipeline,
    cuts: Sequence[int] = (),
    *,
    parallelism: int = 2,
    nodes: int = 2,
    root: str | Path | None = None,
    on_error: str = "stop",
    state_config: StateConfig | None = None,
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
        Places that instances are dealt to, for local grouping.
    root : path, optional
        Folder of the checkpoint; by default one that is removed afterwards, and is therefore not
        flushed to the disk.
    on_error, state_config
        As in `Driver`.
    """
    job_graph = JobGraph.of(pipeline)
    cluster = Cluster.of(nodes)
    plan = strategies.make("even").plan(Request(job_graph.topology(parallelism), cluster))
    assert isinstance(plan, Plan)
    with tempfile.TemporaryDirectory(prefix="penstock-") as scratch:
        backend = LocalBackend(Path(scratch) / "nodes", cluster.names)
        state_config = state_config or StateConfig(sync=root is not None)
        driver = Driver(job_graph, backend, Path(root or scratch), plan, on_error, state_config)
        return run_to_end(driver, cuts)


def run_to_end(driver: Driver, cuts: Sequence[int] = ()) -> list[BatchResult]:
    """Run the batches of a driver that its commit log does not have yet, until the sources end."""
    ends = {
        step.name: int(step.source.end)
        for step in driver.job_graph.pipeline.steps
        if step.source is not None
    }
    results = []
    pending = driver.pending()
    if pending is not None:
        results.append(driver.run_batch(pending))
    reached = driver.position()
    for cut in [*sorted(cuts), max(ends.values(), default=0)]:
        ranges = {}
        for name, end in ends.items():
            start, stop = reached.get(name, 0), min(cut, end)
            if stop > start:
                ranges[name] = ((start, stop),)
                reached[name] = stop
        if ranges:
            results.append(driver.run_batch(ranges))
    return results
