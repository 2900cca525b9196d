"""The heaviest keys of one batch, counted exactly without counting the light ones."""

from __future__ import annotations

import numpy as np

from penstock.common.arrays import IntArray
from penstock.common.key_hashing import HashArray

#: Groups that keys are put into first; a power of two.
GROUPS = 4096


def heaviest(hashes: HashArray, share: float, most: int = 32) -> tuple[HashArray, IntArray]:
    """Find the keys that have more than a share of a batch, the heaviest first.

    Keys are put into groups by their last bits. A group that has no more than the share as a whole
    holds no heavy key, so that only the few others are sorted: a batch without skew costs one pass.

    Examples
    --------
    >>> keys, counts = heaviest(np.array([7, 7, 9, 7, 5, 9], dtype=np.uint64), share=0.3)
    >>> dict(zip(keys.tolist(), counts.tolist()))
    {7: 3, 9: 2}

    Parameters
    ----------
    hashes : array
    share : float
        Part of the batch, 0 to 1.
    most : int
        Keys returned at the most.

    Returns
    -------
    tuple of array
        Hashes and how often each comes.
    """
    least = share * len(hashes)
    group = (hashes & np.uint64(GROUPS - 1)).astype(np.int64)
    crowded = np.bincount(group, minlength=GROUPS) > least
    if not crowded.any():
        return np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
    keys, counts = np.unique(hashes[crowded[group]], return_counts=True)
    heavy = counts > least
    keys, counts = keys[heavy], counts[heavy].astype(np.int64)
    order = np.lexsort((keys, -counts))[:most]
    return keys[order], counts[order]
