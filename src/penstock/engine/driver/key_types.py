"""One type for the keys of a step, in all batches and from all senders.

Keys that are equal and have different types, such as 1 and 1.0, or a time in milliseconds and in
microseconds, may have different hashes. They would reach different instances, which cannot see that
they are equal. So tasks report the types of the keys that they send, and the driver compares them
before it commits anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.engine.messages import TaskStats
from penstock.model import NotAllowed

#: By step, the types of its key, in the order of its columns; of what was always null, ``null``.
KeyTypes = Mapping[str, tuple[str, ...]]

_UNKNOWN = "null"


def checked_key_types(before: KeyTypes, stats: Iterable[TaskStats]) -> dict[str, tuple[str, ...]]:
    """Return the types of keys after a batch.

    Parameters
    ----------
    before : mapping of str to tuple of str
        Types in all batches before.
    stats : iterable of TaskStats
        What the tasks of the batch report.

    Raises
    ------
    NotAllowed
        When keys of one step have different types.
    """
    known = {step: tuple(types) for step, types in before.items()}
    for one in stats:
        for step, variants in one.key_types.items():
            for types in variants:
                known[step] = _same(step, known.get(step, types), types)
    return known


def _same(step: str, one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    pairs = list(zip(one, other, strict=True))
    for place, (left, right) in enumerate(pairs):
        if left != right and _UNKNOWN not in (left, right):
            column = "" if len(pairs) == 1 else f" in column {place + 1} of the key"
            raise NotAllowed(
                f"step {step!r} gets keys of different types{column}, {left} and {right}, so that "
                "equal keys would not meet; cast them in a select before it"
            )
    return tuple(right if left == _UNKNOWN else left for left, right in pairs)
