from __future__ import annotations

import numpy as np
import pytest

from penstock.common.arrays import frozen_floats, frozen_ints, group_counts, group_sums


def test_frozen_arrays_are_copies_of_one_type() -> None:
    mine = np.array([1, 2])
    floats, ints = frozen_floats(mine), frozen_ints([3, 4])
    mine[0] = 9
    assert floats.tolist() == [1.0, 2.0]
    assert (str(floats.dtype), str(ints.dtype)) == ("float64", "int64")
    for array in (floats, ints):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_groups_without_members_are_there() -> None:
    groups = np.array([2, 0, 2])
    assert group_sums(groups, np.array([1.0, 2.0, 3.0]), 4).tolist() == [2, 0, 4, 0]
    assert group_counts(groups, 4).tolist() == [1, 0, 2, 0]
    nobody = np.array([], dtype=np.int64)
    assert group_sums(nobody, np.array([]), 2).tolist() == [0, 0]
    assert group_counts(nobody, 2).tolist() == [0, 0]
