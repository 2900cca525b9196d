"""How long it takes to save state, to restore it and to move it, by peers and by a checkpoint.

The experiments are those of Sl figures 20 to 25, on any backend. The times are those that a stream
would wait: from the driver's call until all state is safe, or ready for use on its new executor.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import functions as F
from penstock.common.arrays import frozen_ints
from penstock.engine.backend import NO_SENDERS, Stage, StateSenders
from penstock.engine.batch import BatchSpec
from penstock.engine.driver.driver import Backend, Driver
from penstock.engine.job_graph import JobGraph
from penstock.engine.messages import unpack
from penstock.engine.state.backup import StoreFragments
from penstock.experiments.state_bench.tasks import OPERATOR, Answer, Clean, Fill, Load, Save
from penstock.model import Cluster, Plan
from penstock.pipeline import Discard, Pipeline, Rows
from penstock.state.backup.erasure_code import Code
from penstock.state.config import StateConfig
from penstock.state.versions import StateLost
from penstock.strategies import Request, strategies

MB = 1_000_000

#: Ways to keep state that are compared.
MODES = ("peers", "checkpoint")

Row = dict[str, Any]


class Losing:
    """A backend of which some places are said to be gone."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.lost: set[str] = set()

    def run(
        self, job_graph: JobGraph, spec: BatchSpec, senders: StateSenders = NO_SENDERS
    ) -> Iterable[bytes]:
        """Run a batch."""
        return self.inner.run(job_graph, spec, senders)

    def job(
        self, name: str, stages: Sequence[Stage], *, background: bool = False
    ) -> Iterable[bytes]:
        """Run stages."""
        return self.inner.job(name, stages, background=background)

    def cancel_background(self) -> None:
        """Cancel the job beside batches."""
        self.inner.cancel_background()

    def executor_at(self, location: str) -> str:
        """Return the executor at a location."""
        return self.inner.executor_at(location)

    def backup_nodes(self) -> Mapping[str, str]:
        """Return the backup nodes that are not gone."""
        found = self.inner.backup_nodes().items()
        return {
            node: location
            for node, location in found
            if self.executor_at(location) not in self.lost
        }

    def alive(self) -> frozenset[str]:
        """Return the places that are not gone."""
        return self.inner.alive() - self.lost


@dataclass(eq=False)
class StateBench:
    """Measures on one backend.

    Parameters
    ----------
    backend : Backend
    nodes : Cluster
        Its nodes, each with one process.
    checkpoint : str
        Folder that all places reach.
    server : str
        URL of a server for files that stands for that folder; see `Save`.
    data, parity : int
        The code, as far as there are nodes for it.
    repeats : int
        Each figure is the median of so many.
    say : callable
        Is told what is measured.
    """

    backend: Backend
    nodes: Cluster
    checkpoint: str
    server: str = ""
    data: int = 7
    parity: int = 3
    repeats: int = 3
    say: Callable[[str], None] = field(default=lambda _: None)

    def sizes(self, sizes_mb: Iterable[float]) -> list[Row]:
        """One instance, whose node is lost (Sl fig. 20 and 21)."""
        return [
            self._compared({"state_mb": size}, [size], [0], [1], lose=True) for size in sizes_mb
        ]

    def moved(self, counts: Iterable[int], least_mb: float, most_mb: float) -> list[Row]:
        """Instances all over the cluster that move to the next node (Sl fig. 22)."""
        width, rows = len(self.nodes), []
        for count in counts:
            sizes = np.linspace(least_mb, most_mb, count).tolist()
            before = [i % width for i in range(count)]
            after = [(node + 1) % width for node in before]
            about = {"instances": count, "state_mb": sum(sizes)}
            rows.append(self._compared(about, sizes, before, after, lose=False))
        return rows

    def lost(self, counts: Iterable[int], size_mb: float) -> list[Row]:
        """All instances of a node that is lost, restored on the other nodes."""
        width, rows = len(self.nodes), []
        for count in counts:
            after = [1 + i % (width - 1) for i in range(count)]
            about = {"instances": count, "state_mb": size_mb * count}
            sizes = [size_mb] * count
            rows.append(self._compared(about, sizes, [0] * count, after, lose=True))
        return rows

    def missing(self, size_mb: float) -> list[Row]:
        """Backup nodes that are lost with the node, up to as many as may be."""
        rows = []
        for gone in range(self.parity + 1):
            took = self._median("peers", [size_mb], [0], [1], lose=True, gone=gone)
            rows.append({"missing": gone, "state_mb": size_mb, "recover_s": took["recover_s"]})
        return rows

    def warm_up(self) -> None:
        """Have every place do all of it once with little, uncounted."""
        width = len(self.nodes)
        after = [(i + 1) % width for i in range(width)]
        for mode in MODES:
            self._once(mode, [1.0] * width, list(range(width)), after, lose=False)

    # ---- one measurement

    def _compared(
        self, about: Row, sizes_mb: Sequence[float], before: list[int], after: list[int], lose: bool
    ) -> Row:
        """Measure all ways in turn, so that what disturbs one disturbs the others."""
        row = dict(about)
        taken: dict[str, list[Row]] = {mode: [] for mode in MODES}
        for _, mode in itertools.product(range(self.repeats), MODES):
            taken[mode].append(self._once(mode, sizes_mb, before, after, lose))
        for name in ("save_s", "recover_s"):
            for mode in MODES:
                row[f"{name}_{mode}"] = statistics.median(one[name] for one in taken[mode])
            row[f"{name}_ratio"] = row[f"{name}_checkpoint"] / row[f"{name}_peers"]
        row["code"] = taken["peers"][0]["code"]
        return row

    def _median(self, *what: Any, **more: Any) -> Row:
        taken = [self._once(*what, **more) for _ in range(self.repeats)]
        names = ("save_s", "recover_s")
        return {name: statistics.median(one[name] for one in taken) for name in names}

    def _once(
        self,
        mode: str,
        sizes_mb: Sequence[float],
        before: list[int],
        after: list[int],
        lose: bool,
        gone: int = 0,
    ) -> Row:
        self.say(f"{mode}: {len(sizes_mb)} instances, {sum(sizes_mb):g} MB")
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as commit_log:
            job_graph = _layout(len(sizes_mb))
            backend = Losing(self.backend)
            state_config = StateConfig(
                mode, self.checkpoint, data=self.data, parity=self.parity, memory_mb=4096.0
            )
            plan = self._plan(job_graph, before)
            driver = Driver(job_graph, backend, Path(commit_log), plan, state_config=state_config)
            spec = driver.transition.spec({}, 0, synchronous=True)
            places = tuple(backend.executor_at(location) for location in spec.locations[OPERATOR])
            sizes = tuple(int(size * MB) for size in sizes_mb)
            made = self._job("fill", [Stage(places, Fill(spec, sizes))])
            stages = [Stage(places, Save(spec, self.server))]
            if spec.backup_nodes:
                stages.append(
                    Stage(tuple(map(backend.executor_at, spec.backup_nodes)), StoreFragments(spec))
                )
            started = time.perf_counter()
            saved = self._job("save", stages)
            took: Row = {"save_s": time.perf_counter() - started, "code": "none"}
            for index, answer in saved.items():
                if spec.backup_nodes:
                    kept = spec.fragment_placements[OPERATOR][index]
                    took["code"] = f"{kept.r}+{kept.c}"
                place = places[index] if mode == "peers" else ""
                if answer.saved is not None:
                    driver.registry.record_saved(spec, OPERATOR, index, answer.saved, place)
            if lose:
                backend.lost |= set(places)
                blocks = driver.registry.catalog.find(job_graph.pipeline.name, OPERATOR, 0)
                backup_nodes = blocks[0].backup_nodes if blocks else ()
                backend.lost |= set(backup_nodes[:gone])
            plan = self._plan(job_graph, self._free(backend, after))
            started = time.perf_counter()
            driver.adopt(plan)
            following = tuple(backend.executor_at(str(spot)) for spot in plan.placement[OPERATOR])
            there = self._job("load", [Stage(following, Load(spec, self.server))])
            took["recover_s"] = time.perf_counter() - started
            if any(there[i].total != made[i].total for i in made):
                raise StateLost("what was put together is not what was saved")
            self._clean()
            return took

    def _free(self, backend: Losing, after: list[int]) -> list[int]:
        """Take the next node that is there where one is lost."""
        there = [i for i, n in enumerate(self.nodes.names) if n in backend.backup_nodes()]
        return [node if node in there else there[node % len(there)] for node in after]

    def _plan(self, job_graph: JobGraph, before: list[int]) -> Plan:
        topology = job_graph.topology(1)
        made = strategies.make("even").plan(Request(topology, self.nodes))
        assert isinstance(made, Plan)
        node_of = frozen_ints(np.asarray([before[0], *before]))
        zeros = frozen_ints(np.zeros(len(node_of), dtype=np.int64))
        return replace(made, node_of=node_of, process_of=zeros, active=(), routing={})

    def _job(self, name: str, stages: Sequence[Stage]) -> dict[int, Answer]:
        messages = [unpack(bytes(data)) for data in self.backend.job(name, stages)]
        return {m.instance: m for m in messages if isinstance(m, Answer)}

    def _everywhere(self) -> tuple[str, ...]:
        return tuple(sorted(self.backend.alive()))

    def _clean(self) -> None:
        self._job("clean", [Stage(self._everywhere(), Clean())])


def coding(size_mb: float = 10.0, repeats: int = 5) -> list[Row]:
    """Time the code alone (Sl fig. 23, 24 and 25), in CPU seconds: it keeps one core busy."""
    data = np.random.default_rng(0).bytes(int(size_mb * MB))
    rows = []
    for figure, r, c, gone in _codes():
        code = Code(r, c)
        left = code.encode(data)[gone : gone + r]
        encode_s = statistics.median(_timed(partial(code.encode, data), repeats))
        decode_s = statistics.median(_timed(partial(Code.decode, left), repeats))
        rows.append(
            {
                "experiment": figure,
                "r": r,
                "c": c,
                "missing": gone,
                "encode_s": encode_s,
                "decode_s": decode_s,
                "encode_mb_s": size_mb / encode_s,
                "decode_mb_s": size_mb / decode_s,
            }
        )
    return rows


def _codes() -> Iterator[tuple[str, int, int, int]]:
    yield "as the paper's default", 7, 3, 0
    yield "as the paper's default", 7, 3, 3
    for r in range(6, 17, 2):
        yield "data fragments", r, 3, 3
    for c in range(2, 9, 2):
        yield "parity fragments", 8, c, c
    for gone in (0, 1, 2, 4, 6, 8):
        yield "missing fragments", 8, 8, gone


def _timed(work: Callable[[], object], repeats: int) -> Iterator[float]:
    for _ in range(repeats):
        started = time.process_time()
        work()
        yield time.process_time() - started


def _layout(instances: int) -> JobGraph:
    empty = pa.table({"key": pa.array([], pa.int64()), "n": pa.array([], pa.int64())})
    return JobGraph.of(
        Pipeline("state-bench")
        .source("rows", Rows(empty), parallelism=1)
        .aggregate(OPERATOR, by="key", n=F.last("n"), parallelism=instances)
        .sink("out", Discard())
    )
