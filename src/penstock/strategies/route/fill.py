"""Pour what can go anywhere to where there is least, until all stand level."""

from __future__ import annotations

import numpy as np

from penstock.common.arrays import FloatArray, IntArray


def filled(loads: FloatArray, amount: float) -> FloatArray:
    """Say how much each gets of an amount, so that the lowest loads rise to one level.

    Examples
    --------
    >>> filled(np.array([5.0, 1.0, 2.0]), 3.0).tolist()
    [0.0, 2.0, 1.0]

    Parameters
    ----------
    loads : array
        What each has already.
    amount : float
    """
    order = np.argsort(loads, kind="stable")
    lowest = loads[order]
    # The level that the first one, two, three ... would reach; the last that is below the next.
    levels = (amount + np.cumsum(lowest)) / np.arange(1, len(loads) + 1)
    count = int(np.searchsorted(lowest > np.concatenate(([np.inf], levels[:-1])), True))
    return np.asarray(np.maximum(levels[count - 1] - loads, 0.0), dtype=np.float64)


def level_counts(loads: IntArray, tuples: int, turn: int = 0) -> IntArray:
    """Say how many of so many tuples each gets; what does not come out even begins at `turn`.

    Examples
    --------
    >>> level_counts(np.array([4, 0, 1]), 4).tolist()
    [0, 3, 1]
    """
    counts = np.floor(filled(loads.astype(np.float64), float(tuples))).astype(np.int64)
    left = tuples - int(counts.sum())
    if left:
        turned = (np.arange(len(loads)) - turn) % len(loads)
        counts[np.lexsort((turned, loads + counts))[:left]] += 1
    return counts
