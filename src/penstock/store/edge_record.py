"""The record of an edge: tuples between the instances of two operators, as pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.common.arrays import FloatArray, IntArray, frozen_floats, frozen_ints
from penstock.common.errors import InvalidValue
from penstock.store.field_checks import LARGEST, FieldChecks


@dataclass(frozen=True, eq=False)
class EdgeRecord:
    """Tuples between the instances of two operators in one batch, zero pairs left out.

    Parameters
    ----------
    run : str
    batch : int
    source, target : str
        Names of the operators.
    source_instances, target_instances : int
        Shape of the matrix.
    rows, columns, tuples : array of int
        Source instance, target instance and tuples of each pair that had any.
    """

    run: str
    batch: int
    source: str
    target: str
    source_instances: int
    target_instances: int
    rows: IntArray
    columns: IntArray
    tuples: IntArray

    def __post_init__(self) -> None:
        owner = "an edge's record"
        check = FieldChecks(self, owner)
        check.names("run", "source", "target")
        check.counts("batch", "source_instances", "target_instances")
        for name in ("rows", "columns", "tuples"):
            object.__setattr__(self, name, frozen_ints(getattr(self, name)))
        if not self.rows.shape == self.columns.shape == self.tuples.shape or self.rows.ndim != 1:
            shapes = (self.rows.shape, self.columns.shape, self.tuples.shape)
            raise InvalidValue("rows, columns and tuples", owner, "equally long", shapes)
        bounds = (("rows", self.source_instances), ("columns", self.target_instances))
        for name, limit in (*bounds, ("tuples", LARGEST)):
            values = getattr(self, name)
            if len(values) and not (values.min() >= 0 and values.max() < limit):
                raise InvalidValue(name, owner, f"from 0 to below {limit}", values.tolist())

    @classmethod
    def of(
        cls, run: str, batch: int, source: str, target: str, matrix: npt.ArrayLike
    ) -> EdgeRecord:
        """Take the pairs of a matrix, source instances in rows.

        Examples
        --------
        >>> edge = EdgeRecord.of("r", 0, "split", "count", [[5, 0], [0, 7]])
        >>> edge.rows.tolist(), edge.columns.tolist(), edge.tuples.tolist()
        ([0, 1], [0, 1], [5, 7])
        """
        counted = np.asarray(matrix)
        if counted.ndim != 2 or not np.equal(counted, np.floor(counted)).all():
            owner = "an edge's record"
            raise InvalidValue("matrix", owner, "two-dimensional, whole numbers", matrix)
        rows, columns = np.nonzero(counted)
        shape = counted.shape
        pairs = (frozen_ints(a) for a in (rows, columns, counted[rows, columns]))
        return cls(run, batch, source, target, shape[0], shape[1], *pairs)

    @property
    def matrix(self) -> FloatArray:
        """Tuples of every pair, source instances in rows."""
        dense = np.zeros((self.source_instances, self.target_instances))
        dense[self.rows, self.columns] = self.tuples
        return frozen_floats(dense)

    def _key(self) -> tuple[object, ...]:
        shape = (self.source_instances, self.target_instances)
        pairs = tuple(a.tobytes() for a in (self.rows, self.columns, self.tuples))
        return (self.run, self.batch, self.source, self.target, shape, pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EdgeRecord) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())
