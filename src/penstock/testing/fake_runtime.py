"""A runtime that only computes loads, for tests of the loop and of whatever listens to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.common.arrays import FloatArray, group_sums
from penstock.control.runtime import ActionFailed, Applied, Observation
from penstock.model import (
    Cluster,
    Grouping,
    InstanceGraph,
    InvalidValue,
    Measurements,
    Plan,
    Sample,
    Topology,
    Utilisation,
    diff,
    expand,
)

#: Samples that a measurement needs, and batches over which the arriving rate is taken.
LEAST, LATELY = 3, 5


@dataclass(eq=False)
class FakeRuntime:
    """One topology whose batches take no time: every one only adds up what its nodes can carry.

    A batch processes what came and what waited, as far as the fullest node allows. It models no
    network, no memory, no start-up cost and no contention inside a node.

    Parameters
    ----------
    topology : Topology
    plan : Plan
    cluster : Cluster
    rate : callable
        Source tuples a second at a stream time in seconds.
    noise : float
        Standard deviation of the rate, as a part of it.
    batch_s : float
        Stream time of a batch.
    start_batches : int or None
        Batches that a new node takes to come; None: it never does.
    elastic : bool
        Whether nodes can be added and removed at all.
    weights : mapping of str to array
        Part of an operator's tuples in each router partition, for skewed keys.
    taken : dict of str to float
        Part of a node's CPU that others take; may be changed between batches.
    fails : dict of str to str
        ``apply``, ``request_nodes``, ``vacate_nodes`` or ``release_nodes``, and the message that
        its next calls fail with; may be changed between batches.
    window : int
        Batches that a measurement looks back on.
    ahead_batches : int
        Batches that copying state ahead of a plan takes.
    portions : int
        Calls of ``apply`` that a plan takes; it is in force after the last.
    """

    topology: Topology
    plan: Plan
    cluster: Cluster
    rate: Callable[[float], float]
    noise: float = 0.0
    seed: int = 0
    batch_s: float = 1.0
    start_batches: int | None = 3
    elastic: bool = True
    weights: Mapping[str, FloatArray] = field(default_factory=dict)
    taken: dict[str, float] = field(default_factory=dict)
    fails: dict[str, str] = field(default_factory=dict)
    window: int = 20
    ahead_batches: int = 0
    portions: int = 1
    #: Every call that could change something: batch, method, argument.
    calls: list[tuple[int, str, object]] = field(default_factory=list, init=False)
    #: Live nodes after each batch.
    nodes_over_time: list[int] = field(default_factory=list, init=False)
    observed: int = field(default=0, init=False)
    #: Plans that were prepared, each with the batch when that began.
    prepared: list[tuple[int, Plan]] = field(default_factory=list, init=False)
    #: Nodes on which nothing is kept.
    vacated: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        if not self.topology.sources or any(o.rate_per_s is None for o in self.topology.sources):
            owner = "a fake runtime"
            raise InvalidValue("topology", owner, "one whose sources declare a rate", "none")
        self._rng = np.random.default_rng(self.seed)
        self._samples: deque[tuple[Sample, dict[str, FloatArray]]] = deque(maxlen=self.window)
        self._arrived: deque[float] = deque(maxlen=LATELY)
        self._coming: list[int] = []
        self._batch = -1
        self._portioned = 0
        self._queue = 0.0
        self._processed = 0.0
        self._made = len(self.cluster)

    # ---- what drives it

    def run(self, batches: int = 1) -> None:
        """Run batches."""
        for _ in range(batches):
            self._batch += 1
            self._arrive()
            self._work()
            self.nodes_over_time.append(len(self.cluster))

    def lose(self, name: str) -> None:
        """Take a node away as a crash does."""
        self.cluster = Cluster(tuple(n for n in self.cluster.nodes if n.name != name))

    # ---- what the loop sees

    @property
    def now_s(self) -> float:
        """Stream time."""
        return (self._batch + 1) * self.batch_s

    def observe(self) -> Observation:
        """Say what was measured."""
        self.observed += 1
        lag_ms = 1000.0 * (self.batch_s + self._queue / max(self._processed / self.batch_s, 1.0))
        return Observation(
            self.now_s,
            self._batch,
            self.cluster,
            self._measurements(),
            batch_ms=self.batch_s * 1000.0,
            throughput_per_s=self._processed / self.batch_s,
            arriving_per_s=float(np.mean(self._arrived)) if self._arrived else 0.0,
            queue_length=int(self._queue),
            latency_ms={"p50": lag_ms, "p95": lag_ms, "p99": lag_ms} if self._samples else {},
        )

    def request_nodes(self, total: int) -> None:
        """Let nodes come, some batches later; fewer than are on their way cancels the rest."""
        self._call("request_nodes", total)
        if not self.elastic:
            raise ActionFailed("this cluster has the nodes that it has")
        wanted = max(0, total - len(self.cluster))
        self._coming = self._coming[:wanted]
        if self.start_batches is not None:
            due = self._batch + self.start_batches
            self._coming += [due] * (wanted - len(self._coming))

    def vacate_nodes(self, names: tuple[str, ...], *, undo: bool = False) -> None:
        """Keep nothing on nodes; `vacated` has their names until they are released."""
        self._call("vacate_nodes", (names, undo))
        if undo:
            self.vacated -= set(names)
            return
        used = {spot.node for spots in self.plan.placement.values() for spot in spots}
        for name in names:
            if name in used:
                raise ActionFailed(f"node {name!r} still holds instances")
        self.vacated |= set(names)

    def release_nodes(self, names: tuple[str, ...]) -> None:
        """Let nodes go that hold nothing."""
        self._call("release_nodes", names)
        if not self.elastic:
            raise ActionFailed("this cluster has the nodes that it has")
        self.vacate_nodes(names)
        for name in names:
            self.lose(name)

    def prepare(self, plan: Plan) -> bool:
        """Be done some batches after a plan that moves something was first prepared."""
        if diff(self.plan, plan).empty:
            self.prepared.append((self._batch, plan))
            return True
        if not self.prepared or not diff(self.prepared[-1][1], plan).empty:
            self.prepared.append((self._batch, plan))
        return self._batch - self.prepared[-1][0] >= self.ahead_batches

    def apply(self, plan: Plan) -> Applied:
        """Use a plan from the next batch on."""
        self._call("apply", plan)
        used = {spot.node for spots in plan.placement.values() for spot in spots}
        missing = used - set(self.cluster.names)
        if missing:
            raise ActionFailed(f"no such nodes: {', '.join(sorted(missing))}")
        moved = [m for m in diff(self.plan, plan).moves if m.target is not None]
        state = sum(
            self.topology[m.operator].state_mb / plan.parallelism[m.operator] for m in moved
        )
        self._portioned += 1
        left = bool(self._portioned % self.portions)
        if not left:
            self.plan = plan
            self._samples.clear()
        return Applied(seconds=state / 125.0, state_bytes=int(state * 1e6), left=left)

    # ---- inside

    def _call(self, method: str, argument: object) -> None:
        self.calls.append((self._batch, method, argument))
        if method in self.fails:
            raise ActionFailed(self.fails[method])

    def _arrive(self) -> None:
        rate = self.rate(self.now_s)
        rate = max(0.0, rate * (1.0 + self.noise * float(self._rng.standard_normal())))
        self._arrived.append(rate)
        self._queue += rate * self.batch_s
        ready = [due for due in self._coming if due <= self._batch]
        self._coming = [due for due in self._coming if due > self._batch]
        shape = self.cluster.nodes[0]
        for _ in ready:
            name = f"node-{self._made}"
            self.cluster = Cluster((*self.cluster.nodes, replace(shape, name=name)))
            self._made += 1

    def _work(self) -> None:
        graph = self._graph()
        node_of = self.plan.node_of_in(self.cluster)
        # The engine runs instances of a lost node somewhere.
        node_of = np.where(node_of < 0, 0, node_of)
        base = sum(float(o.rate_per_s or 0.0) for o in self.topology.sources)
        use = group_sums(node_of, graph.cpu_cores, len(self.cluster))
        others = np.array([self.taken.get(name, 0.0) for name in self.cluster.names])
        free = self.cluster.cpu_cores * (1.0 - others)
        part = min((float(f / u) for f, u in zip(free, use, strict=True) if u > 0), default=np.inf)
        self._processed = min(self._queue, part * base * self.batch_s)
        self._queue -= self._processed
        factor = self._processed / (base * self.batch_s)
        busy = use * factor / np.maximum(self.cluster.cpu_cores, 1e-9) + others
        seconds = self.batch_s
        spans = {o.name: graph.span(o.name) for o in graph.topology.operators}
        sample = Sample(
            seconds,
            tuples_in={n: graph.rate_in[s] * factor * seconds for n, s in spans.items()},
            cpu_s={n: graph.cpu_cores[s] * factor * seconds for n, s in spans.items()},
            nodes={
                name: Utilisation(cpu=min(float(load), 1.0))
                for name, load in zip(self.cluster.names, busy, strict=True)
            },
        )
        partitions = {
            name: weights * float(graph.rate_in[spans[name]].sum()) * factor
            for name, weights in self.weights.items()
        }
        self._samples.append((sample, partitions))

    def _graph(self) -> InstanceGraph:
        topology = self.topology.with_parallelism(self.plan.parallelism)
        edges = []
        for edge in topology.edges:
            table = self.plan.routing.get(edge.target)
            weights = self.weights.get(edge.target)
            if edge.grouping is Grouping.FIELDS and table is not None and weights is not None:
                count = topology[edge.target].parallelism
                share = group_sums(np.asarray(table.partitions), weights, count)
                edge = replace(edge, shares=tuple((share / share.sum()).tolist()))
            edges.append(edge)
        return expand(replace(topology, edges=tuple(edges)))

    def _measurements(self) -> Measurements | None:
        if len(self._samples) < LEAST:
            return None
        sources = [o.name for o in self.topology.sources]
        found = Measurements.from_samples([s for s, _ in self._samples], sources)
        rates = {
            name: np.mean([partitions[name] for _, partitions in self._samples], axis=0)
            for name in self.weights
        }
        return replace(found, partition_rates=rates)
