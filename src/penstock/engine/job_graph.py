"""From a pipeline to what runs: steps chained into vertices, wires between them, layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from penstock.engine.fuse import fused
from penstock.model import Edge, Grouping, InvalidValue, Kind, Operator, Topology
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.steps import Attempt, Link, Source, Step

#: What a task costs whatever it does, in percent of a core: about 100 ms in each of two batches a
#: second.
TASK_CPU_PCT = 20.0

#: Files of a sink are numbered by vertex and instance, with room for so many of these.
MOST_INSTANCES = 100_000

_CHAINABLE = frozenset({Grouping.SHUFFLE, Grouping.NONE, Grouping.LOCAL_OR_SHUFFLE})


@dataclass(frozen=True, eq=False)
class Vertex:
    """Steps that run in the same instances: a head, and what is chained behind it.

    Parameters
    ----------
    name : str
        Names of the head and of the chained functions, joined by ``+``.
    head : str
    steps : tuple of str
        All steps of the vertex, sinks included.
    kind : Kind
    splittable : bool
        Whether the tuples of a key may go to several instances.
    """

    name: str
    head: str
    steps: tuple[str, ...]
    kind: Kind
    splittable: bool = False


@dataclass(frozen=True, eq=False)
class JobEdge:
    """A stream between two vertices: from a step of one to the head of the other."""

    number: int
    source: str
    target: str
    from_step: str
    to_step: str
    link: Link


@dataclass(frozen=True, eq=False)
class JobGraph:
    """A pipeline, chained and wired; how many instances there are is the plan's business."""

    pipeline: Pipeline
    vertices: tuple[Vertex, ...]
    edges: tuple[JobEdge, ...]
    children: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, pipeline: Pipeline) -> JobGraph:
        """Chain and wire.

        A stateless function behind one step, with shuffle or local grouping and no parallelism of
        its own, runs in that step's instances. A sink runs in the instances of whatever it reads.
        Split keys are merged without a vertex of their own where that can be; see `fused`.
        """
        pipeline = fused(pipeline)
        if not any(step.sink is not None for step in pipeline.steps):
            raise InvalidValue("steps", f"pipeline {pipeline.name!r}", "ended with a sink", "none")
        home: dict[str, str] = {}
        members: dict[str, list[str]] = {}
        children: dict[str, list[str]] = {step.name: [] for step in pipeline.steps}
        edges: list[JobEdge] = []
        for step in pipeline.steps:
            if step.sink is not None:
                for link in step.links:
                    children[link.source].append(step.name)
                    members[home[link.source]].append(step.name)
                continue
            if _chained(step):
                upstream = step.links[0].source
                home[step.name] = home[upstream]
                children[upstream].append(step.name)
                members[home[upstream]].append(step.name)
                continue
            home[step.name] = step.name
            members[step.name] = [step.name]
        names = {head: _name(pipeline, steps) for head, steps in members.items()}
        vertices = tuple(
            Vertex(
                names[head],
                head,
                tuple(steps),
                _kind(pipeline[head]),
                pipeline[head].splittable,
            )
            for head, steps in members.items()
        )
        for step in pipeline.steps:
            if step.sink is not None or _chained(step):
                continue
            for link in step.links:
                edges.append(
                    JobEdge(
                        len(edges),
                        names[home[link.source]],
                        names[step.name],
                        link.source,
                        step.name,
                        link,
                    )
                )
        return cls(
            pipeline, vertices, tuple(edges), {name: tuple(c) for name, c in children.items()}
        )

    @cached_property
    def by_name(self) -> Mapping[str, Vertex]:
        """Vertices by name."""
        return {vertex.name: vertex for vertex in self.vertices}

    @cached_property
    def layers(self) -> tuple[tuple[str, ...], ...]:
        """Names of the vertices by depth."""
        return self.topology(1).layers

    def edges_from(self, step: str) -> tuple[JobEdge, ...]:
        """Wires that start at a step."""
        return tuple(edge for edge in self.edges if edge.from_step == step)

    def sinks(self) -> tuple[Step, ...]:
        """Return the steps that are sinks."""
        return tuple(step for step in self.pipeline.steps if step.sink is not None)

    def for_workers(self) -> JobGraph:
        """Return the part that tasks need: sinks and sources that live in the driver stay there."""
        steps = tuple(
            replace(
                step,
                sink=step.sink if step.sink is None or step.sink.on_workers else _InDriver(),
                source=step.source
                if step.source is None or is_source(step.source)
                else _InDriver(),
            )
            for step in self.pipeline.steps
        )
        return replace(self, pipeline=replace(self.pipeline, steps=steps))

    def topology(self, default_parallelism: int) -> Topology:
        """Return the topology for the planner.

        Parameters
        ----------
        default_parallelism : int
            Instances of a vertex whose steps name none.
        """
        operators = []
        for vertex in self.vertices:
            steps = [self.pipeline[name] for name in vertex.steps if not self.pipeline[name].sink]
            head = steps[0]
            reached = 1.0
            cpu = 0.0
            for step in steps:
                cpu += reached * step.hints.cpu_us_per_tuple
                if step is not head or head.source is None:
                    reached *= step.hints.selectivity
            operators.append(
                Operator(
                    vertex.name,
                    vertex.kind,
                    parallelism=head.parallelism or default_parallelism,
                    cpu_us_per_tuple=cpu,
                    cpu_pct=TASK_CPU_PCT,
                    mem_mb=math.fsum(step.hints.mem_mb for step in steps),
                    selectivity=reached,
                    state_mb=head.hints.state_mb if vertex.kind is Kind.STATEFUL else 0.0,
                    tuple_bytes=steps[-1].hints.tuple_bytes,
                    rate_per_s=head.hints.rate_per_s if head.source is not None else None,
                    splittable=vertex.splittable,
                )
            )
        edges = tuple(Edge(w.source, w.target, w.link.grouping) for w in self.edges)
        return Topology(self.pipeline.name, tuple(operators), edges)


class _InDriver:
    """Stands in a task for what only the driver has."""

    on_workers = False
    stamp = None

    def start(self, checkpoint: str) -> None:
        """Never called in a task."""

    def stage(self, attempt: Attempt, instance: int, table: object) -> None:
        """Never called: the rows go to the driver."""

    def commit(self, attempt: Attempt, table: object, staged: object = ()) -> None:
        """Never called in a task."""

    def recover(self, committed: int) -> None:
        """Never called in a task."""


def is_source(stream: object) -> bool:
    """Whether a stream is one of ours, which tasks read, and not a DataFrame."""
    return isinstance(stream, Source)


def _chained(step: Step) -> bool:
    return (
        (step.function is not None or step.late_for is not None)
        and step.chain
        and step.parallelism is None
        and len(step.links) == 1
        and step.links[0].grouping in _CHAINABLE
    )


def _kind(step: Step) -> Kind:
    if step.source is not None:
        return Kind.SOURCE
    return Kind.STATEFUL if step.keyed is not None else Kind.STATELESS


def _name(pipeline: Pipeline, steps: list[str]) -> str:
    return "+".join(name for name in steps if pipeline[name].sink is None)
