"""Split steps made one where the driver can merge."""

from __future__ import annotations

from dataclasses import replace

from penstock.model import Grouping
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.keyed.reduce import Mergeable, WorkThenReduce
from penstock.pipeline.keyed.step import same
from penstock.pipeline.keyed.windowed import Windowed
from penstock.pipeline.steps import Hints, Step, wants_origin


def fused(pipeline: Pipeline) -> Pipeline:
    """Make one step of each two that work on parts and merge them, where a driver can merge.

    That is where nothing but sinks reads the results, and keys are dealt by a table, so that each
    has a home. It is not where there are windows, which close in all instances at once, or where
    work has to know which of several steps its tuples come from.
    """
    steps = list(pipeline.steps)
    for merge in pipeline.steps:
        parts = _parts_of(pipeline, merge)
        if parts is not None:
            at = steps.index(merge)
            steps[at] = _one(parts, merge)
            steps.remove(parts)
    return replace(pipeline, steps=tuple(steps))


def _parts_of(pipeline: Pipeline, merge: Step) -> Step | None:
    if merge.keyed is None or isinstance(merge.keyed, Windowed) or len(merge.links) != 1:
        return None
    parts = pipeline[merge.links[0].source]
    read = [step for step in pipeline.steps for link in step.links if link.source == parts.name]
    after = [s for s in pipeline.steps if any(link.source == merge.name for link in s.links)]
    fits = (
        parts.splittable
        and read == [merge]
        and len(parts.links) == 1
        and parts.links[0].grouping is Grouping.FIELDS
        and parts.links[0].by == merge.keyed.by
        and not wants_origin(parts.function)
        and all(step.sink is not None for step in after)
    )
    return parts if fits else None


def _one(parts: Step, merge: Step) -> Step:
    assert isinstance(merge.keyed, Mergeable)
    work, before, after = parts.function, parts.hints, merge.hints
    return replace(
        merge,
        links=parts.links,
        keyed=merge.keyed if work is None or work is same else WorkThenReduce(merge.keyed, work),
        parallelism=parts.parallelism,
        hints=Hints(
            before.cpu_us_per_tuple + after.cpu_us_per_tuple,
            before.mem_mb + after.mem_mb,
            before.selectivity * after.selectivity,
            after.state_mb,
            after.tuple_bytes,
        ),
        splittable=True,
    )
