"""A pipeline in this process, without Spark: for tests and for trying things out.

The bodies of the tasks, the state, the journal and the sinks are those of the real engine. What it
does not model: processes that die, anything in parallel, the network.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock.model import Cluster, Plan
from penstock.pipeline.build import Pipeline
from penstock.pipeline.driver import BatchResult, Driver
from penstock.pipeline.execute import run_partition
from penstock.pipeline.frames import DRIVER, Frame
from penstock.pipeline.layout import Layout
from penstock.pipeline.wave import Wave
from penstock.strategies import Request, strategies


class LocalBackend:
    """Runs the tasks of a wave one after the other."""

    def run(self, layout: Layout, wave: Wave) -> Iterable[bytes]:
        """Run layer by layer."""
        arrived: dict[int, list[bytes]] = {}
        for layer in range(len(wave.layers)):
            leaving: dict[int, list[bytes]] = {}
            for partition in range(wave.width(layer)):
                for target, data in run_partition(
                    layout, wave, layer, partition, arrived.get(partition, [])
                ):
                    leaving.setdefault(target, []).append(data)
            arrived = leaving
        frames = [data for sent in arrived.values() for data in sent]
        assert all(Frame.unpack(data).layer == DRIVER for data in frames)
        return frames


def run_locally(
    pipeline: Pipeline,
    cuts: Sequence[int] = (),
    *,
    parallelism: int = 2,
    nodes: int = 2,
    root: str | Path | None = None,
    on_error: str = "stop",
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
        Folder of the journal and the state; by default one that is removed afterwards.
    on_error : str
        As in `Driver`.
    """
    layout = Layout.of(pipeline)
    plan = strategies.make("even").plan(Request(layout.topology(parallelism), Cluster.of(nodes)))
    assert isinstance(plan, Plan)
    with tempfile.TemporaryDirectory(prefix="penstock-") as scratch:
        driver = Driver(layout, LocalBackend(), Path(root or scratch), plan, on_error)
        return run_to_end(driver, cuts)


def run_to_end(driver: Driver, cuts: Sequence[int] = ()) -> list[BatchResult]:
    """Run the batches of a driver that its journal does not have yet, until the sources end."""
    ends = {
        step.name: int(step.source.end)
        for step in driver.layout.pipeline.steps
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
