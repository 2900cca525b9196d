"""The job graph of a pipeline: steps chained into vertices, edges between vertices, layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from penstock.engine.fuse import fused
from penstock.model import Edge, Grouping, Kind, NotAllowed, Operator, Topology
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.sinks import DriverSink
from penstock.pipeline.steps import Attempt, Link, PartitionedSource, Sink, Source, Step

#: CPU time that a task takes whatever it does, in percent of a core: about 100 ms in each of two
#: batches a second.
TASK_CPU_PCT = 20.0

#: Instances of a vertex, at the most: the files of a sink are numbered by vertex and instance.
MAX_INSTANCES = 100_000

_CHAINABLE = frozenset({Grouping.SHUFFLE, Grouping.NONE, Grouping.LOCAL_OR_SHUFFLE})


@dataclass(frozen=True, eq=False)
class Vertex:
    """Steps that run in the same instances: a head, and the steps that are chained behind it.

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
    """A stream between two vertices: from a step of one to the head of the other.

    Parameters
    ----------
    number : int
        Position in `JobGraph.edges`.
    source, target : str
        Vertices.
    from_step, to_step : str
    link : Link
    side : int
        Which of the streams that its target reads it is: the position of the link in the step.
    """

    number: int
    source: str
    target: str
    from_step: str
    to_step: str
    link: Link
    side: int = 0


@dataclass(frozen=True, eq=False)
class JobGraph:
    """A pipeline as vertices and edges; the number of instances is up to the plan.

    Parameters
    ----------
    pipeline : Pipeline
    vertices : tuple of Vertex
    edges : tuple of JobEdge
    children : mapping of str to tuple of str
        By step: the steps and sinks that are chained behind it.
    """

    pipeline: Pipeline
    vertices: tuple[Vertex, ...]
    edges: tuple[JobEdge, ...]
    children: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, pipeline: Pipeline) -> JobGraph:
        """Chain the steps of a pipeline into vertices, and connect these by edges.

        A stateless step that reads one other step, with shuffle or local grouping and no
        parallelism of its own, is chained: it runs in the instances of that step. A sink runs in
        the instances of the step that it reads. Split keys are merged without a vertex of their own
        where that is possible; see `fused`.
        """
        pipeline = fused(pipeline)
        if not any(step.sink is not None for step in pipeline.steps):
            raise NotAllowed(f"pipeline {pipeline.name!r} has no sink; end it with .sink(...)")
        head_of: dict[str, str] = {}
        members: dict[str, list[str]] = {}
        children: dict[str, list[str]] = {step.name: [] for step in pipeline.steps}
        edges: list[JobEdge] = []
        for step in pipeline.steps:
            if step.sink is not None:
                for link in step.links:
                    children[link.source].append(step.name)
                    members[head_of[link.source]].append(step.name)
                continue
            if _chained(step):
                upstream = step.links[0].source
                head_of[step.name] = head_of[upstream]
                children[upstream].append(step.name)
                members[head_of[upstream]].append(step.name)
                continue
            head_of[step.name] = step.name
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
            for side, link in enumerate(step.links):
                edges.append(
                    JobEdge(
                        len(edges),
                        names[head_of[link.source]],
                        names[step.name],
                        link.source,
                        step.name,
                        link,
                        side,
                    )
                )
        return cls(
            pipeline, vertices, tuple(edges), {name: tuple(c) for name, c in children.items()}
        )

    @cached_property
    def by_name(self) -> Mapping[str, Vertex]:
        """The vertices by name."""
        return {vertex.name: vertex for vertex in self.vertices}

    @cached_property
    def layers(self) -> tuple[tuple[str, ...], ...]:
        """Names of the vertices by depth."""
        return self.topology(1).layers

    @cached_property
    def edges_from(self) -> Mapping[str, tuple[JobEdge, ...]]:
        """The edges that start at each step."""
        return {
            name: tuple(edge for edge in self.edges if edge.from_step == name)
            for name in self.children
        }

    @cached_property
    def sinks(self) -> tuple[tuple[Step, Sink], ...]:
        """The steps that are sinks, each with its sink."""
        return tuple((step, step.sink) for step in self.pipeline.steps if step.sink is not None)

    @cached_property
    def steps(self) -> Mapping[str, Step]:
        """The steps by name."""
        return {step.name: step for step in self.pipeline.steps}

    @cached_property
    def step_numbers(self) -> Mapping[str, int]:
        """Position of each step in the pipeline, which messages have in their header."""
        return {step.name: number for number, step in enumerate(self.pipeline.steps)}

    def for_workers(self) -> JobGraph:
        """Return the part that tasks need, without sinks and sources that only the driver has."""
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
        """Return the topology that a strategy plans for.

        Parameters
        ----------
        default_parallelism : int
            Instances of a vertex whose head names no parallelism.
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
        edges = tuple(Edge(e.source, e.target, e.link.grouping) for e in self.edges)
        return Topology(self.pipeline.name, tuple(operators), edges)


class _InDriver(DriverSink):
    """Stands in a task for a sink or source that only the driver has."""

    stamp = None

    def commit(self, attempt: Attempt, table: object, staged: object = ()) -> None:
        """Do nothing: only the driver commits."""


def is_source(stream: object) -> bool:
    """Whether tasks can read a stream themselves: it is a source, and not a DataFrame."""
    return isinstance(stream, Source | PartitionedSource)


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
