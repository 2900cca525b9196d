"""Array types of the model and the one way to make an array read-only."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def frozen_floats(values: Any) -> FloatArray:
    """Copy `values` into a read-only float array."""
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


def frozen_ints(values: Any) -> IntArray:
    """Copy `values` into a read-only integer array."""
    array = np.array(values, dtype=np.int64)
    array.setflags(write=False)
    return array


def group_sums(groups: IntArray, values: FloatArray, count: int) -> FloatArray:
    """Sum of `values` in each of `count` groups.

    Examples
    --------
    >>> group_sums(np.array([0, 1, 1]), np.array([1.0, 2.0, 3.0]), 3)
    array([1., 5., 0.])
    """
    # The stubs of NumPy say that a weighted bincount holds integers.
    sums: Any = np.bincount(groups, weights=values, minlength=count)
    return np.asarray(sums, dtype=np.float64)


def group_counts(groups: IntArray, count: int) -> IntArray:
    """Count the members of each of `count` groups."""
    return np.bincount(groups, minlength=count).astype(np.int64)
