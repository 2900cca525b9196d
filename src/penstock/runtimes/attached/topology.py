"""From the stages of a query to a topology that strategies plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.model import Edge, Grouping, Kind, Operator, Topology
from penstock.runtimes.attached.progress import Batch, PlanSegment, StatefulOperator, TaskRun


@dataclass(frozen=True)
class QueryStage:
    """One stage of a query: an operator of its topology.

    Parameters
    ----------
    name : str
    kind : Kind
        A stage with state is stateful, one that reads a source is a source.
    partitions : int
        Tasks that it has in a batch.
    parents : tuple of str
        Stages whose shuffles it reads.
    operators : tuple of StatefulOperator
        Whose state partition ``i`` task ``i`` reads and writes; empty where that is not so.
    """

    name: str
    kind: Kind
    partitions: int
    parents: tuple[str, ...]
    operators: tuple[StatefulOperator, ...] = ()


@dataclass(frozen=True)
class QueryGraph:
    """The stages of a query, in the order of the data flow.

    Parameters
    ----------
    name : str
    stages : tuple of QueryStage
    ranks : mapping of str to int
        Position of each stage among the batch's stages by id: Spark numbers them the same way in
        every batch.
    not_placed : tuple of str
        Why stages with state cannot be placed, a sentence each.
    """

    name: str
    stages: tuple[QueryStage, ...]
    ranks: Mapping[str, int]
    not_placed: tuple[str, ...] = ()

    @property
    def stateful(self) -> tuple[QueryStage, ...]:
        """Stages whose state partitions can be placed."""
        return tuple(stage for stage in self.stages if stage.operators)

    def topology(self, state_mb: Mapping[str, float] | None = None) -> Topology:
        """Describe the query to a strategy, with the state that was measured."""
        sizes = state_mb or {}
        operators = tuple(
            Operator(
                stage.name,
                stage.kind,
                stage.partitions,
                state_mb=sizes.get(stage.name, 0.0) if stage.kind is Kind.STATEFUL else 0.0,
            )
            for stage in self.stages
        )
        kinds = {stage.name: stage.kind for stage in self.stages}
        edges = tuple(
            Edge(
                parent,
                stage.name,
                Grouping.FIELDS if kinds[stage.name] is Kind.STATEFUL else Grouping.SHUFFLE,
            )
            for stage in self.stages
            for parent in stage.parents
        )
        return Topology(self.name, operators, edges)

    def stage_of(self, batch: Batch) -> Mapping[int, str]:
        """Name of the stage that each of Spark's stages of a batch is."""
        if batch.segments:
            return _matched(batch, _names(batch.segments))
        by_rank = {rank: name for name, rank in self.ranks.items()}
        ids = sorted({stage.id for stage in batch.stages})
        if len(ids) != len(by_rank):
            return {}
        return {number: by_rank[rank] for rank, number in enumerate(ids) if rank in by_rank}

    def tasks(self, batch: Batch) -> Mapping[str, Mapping[int, TaskRun]]:
        """Last successful task of each partition of each stage; time of others is added to it."""
        names = self.stage_of(batch)
        found: dict[str, dict[int, TaskRun]] = {stage.name: {} for stage in self.stages}
        for task in sorted(batch.tasks, key=lambda t: (t.stage, t.attempt, t.finished_ms)):
            if not task.succeeded or task.stage not in names:
                continue
            own = found.setdefault(names[task.stage], {})
            before = own.get(task.partition)
            spent = before.run_ms if before is not None else 0
            own[task.partition] = replace(task, run_ms=task.run_ms + spent)
        return found


def graph_of(name: str, batch: Batch) -> QueryGraph | None:
    """Find the stages of a query in one of its batches; None where it did not run them all."""
    if not batch.segments:
        return None
    names = _names(batch.segments)
    matched = _matched(batch, names)
    runs = {matched[run.id]: run for run in batch.stages if run.id in matched}
    if set(runs) != set(names.values()):
        return None
    writer = {segment.writes: names[segment] for segment in batch.segments}
    stages, problems = [], []
    for segment in _in_order(batch.segments):
        own, count = names[segment], runs[names[segment]].tasks
        operators = segment.operators
        if any(operator.partitions != count for operator in operators):
            # As below a union: which task has which partition cannot be told from outside.
            problems.append(
                f"{own} runs {count} tasks for {operators[0].partitions} state partitions, so that "
                "Penstock cannot tell which is which and leaves them where Spark puts them"
            )
            operators = ()
        kind = Kind.STATELESS if segment.reads else Kind.SOURCE
        kind = Kind.STATEFUL if operators and segment.reads else kind
        parents = tuple(dict.fromkeys(writer[shuffle] for shuffle in segment.reads))
        stages.append(QueryStage(own, kind, count, parents, operators if segment.reads else ()))
    ids = sorted({run.id for run in batch.stages})
    ranks = {stage: ids.index(run.id) for stage, run in runs.items()}
    return QueryGraph(name, tuple(stages), ranks, tuple(problems))


def _names(segments: tuple[PlanSegment, ...]) -> dict[PlanSegment, str]:
    """Name every segment after what it does; the same names in every batch."""
    names: dict[PlanSegment, str] = {}
    sources = [segment for segment in segments if not segment.reads]
    for number, segment in enumerate(segments):
        if segment.operators:
            found = (f"{one.name}-{one.id}" for one in segment.operators)
            names[segment] = "+".join(found)
        elif not segment.reads:
            at = sources.index(segment)
            names[segment] = "source" if len(sources) == 1 else f"source-{at}"
        else:
            names[segment] = f"stage-{number}"
    return names


def _in_order(segments: tuple[PlanSegment, ...]) -> list[PlanSegment]:
    """Sort segments so that each comes after those that it reads."""
    writer = {segment.writes: segment for segment in segments}
    done: list[PlanSegment] = []

    def visit(segment: PlanSegment) -> None:
        for shuffle in segment.reads:
            visit(writer[shuffle])
        if segment not in done:
            done.append(segment)

    visit(segments[0])
    return done


def _matched(batch: Batch, names: Mapping[PlanSegment, str]) -> dict[int, str]:
    """Match Spark's stages with segments by the shuffles that they write and read."""
    written = {run.id: run.writes for run in batch.stages}
    by_write = {segment.writes: names[segment] for segment in batch.segments if segment.writes}
    last = batch.segments[0]
    found: dict[int, str] = {}
    for run in batch.stages:
        if run.writes in by_write:
            found[run.id] = by_write[run.writes]
        elif {written.get(parent, "") for parent in run.parents} == set(last.reads):
            found[run.id] = names[last]
    return found
