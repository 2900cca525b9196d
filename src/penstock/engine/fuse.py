"""Merges of split keys that need no step of their own, because the driver can do them."""

from __future__ import annotations

from dataclasses import replace

from penstock.model import Grouping
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.keyed.reduce import Mergeable, WorkThenReduce
from penstock.pipeline.keyed.step import same
from penstock.pipeline.keyed.windowed import Windowed
from penstock.pipeline.steps import Hints, Step, wants_origin


def fused(pipeline: Pipeline) -> Pipeline:
    """Make one step of a step that reduces parts of split keys and the step that merges them.

    The driver then merges; see `penstock.engine.task.hot_keys`. It can do so where only sinks read
    the results, and where tuples are routed by a table, so that each key has an owner. It cannot
    where there are windows, which close in all instances at once, or where the function has to know
    which of several steps its tuples come from.
    """
    steps = list(pipeline.steps)
    for merge in pipeline.steps:
        parts = _parts_of(pipeline, merge)
        if parts is not None and isinstance(merge.keyed, Mergeable):
            steps[steps.index(merge)] = _one(parts, merge, merge.keyed)
            steps.remove(parts)
    return replace(pipeline, steps=tuple(steps))


def _parts_of(pipeline: Pipeline, merge: Step) -> Step | None:
    """Return the step whose parts a step merges, if the driver can do that."""
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


def _one(parts: Step, merge: Step, keyed: Mergeable) -> Step:
    work, before, after = parts.function, parts.hints, merge.hints
    return replace(
        merge,
        links=parts.links,
        keyed=keyed if work is None or work is same else WorkThenReduce(keyed, work),
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
