"""The watermarks that steps with state run by.

Watermarks are those of Spark:

1. The watermark of a stream in a batch is the largest event time in the batches before it, less the
   lateness that is allowed. It starts at 1970 and never goes back. It is an input of the batch, so
   that a batch that is repeated drops and removes the same.
2. The watermark of a step that reads two streams is the smaller one of theirs.
3. What is late, is by the watermark of the *batch before*; what is over, by that of this batch.
4. When a batch moved the watermark and there is no more data, also at the end of a source, a batch
   without data follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.pipeline.keyed.protocols import EventTimed
from penstock.pipeline.steps import Step


def advanced_watermarks(
    steps: Iterable[Step],
    watermarks: Mapping[str, int],
    seen: Iterable[Mapping[str, int]],
) -> dict[str, int]:
    """Watermarks of all steps that follow event time after a batch, and of their streams.

    Parameters
    ----------
    steps : iterable of Step
        All steps of the pipeline.
    watermarks : mapping of str to int
        Those that the batch ran with.
    seen : iterable of mapping of str to int
        Largest event time of each stream, as every task saw it.
    """
    times, made = list(seen), dict[str, int]()
    for step in steps:
        keyed: Any = step.keyed
        if not isinstance(keyed, EventTimed):
            continue
        streams = {
            name: max([watermarks.get(name, 0), *(t[name] - late for t in times if name in t)])
            for name, late in keyed.latenesses(step.name).items()
        }
        made |= streams
        if streams:
            made[step.name] = min(streams.values())
    return made


def routed_by(keyed: Any) -> tuple[str, ...]:
    """Columns by which the rows of a keyed step find their instance."""
    found: tuple[str, ...] = getattr(keyed, "routed_by", keyed.by)
    return found
