"""Percentiles from counts of values in buckets that grow by a factor.

A bucket holds the values between two powers of ``gamma = (1 + accuracy) / (1 - accuracy)``, so that
its middle is off by at most `accuracy` times the value (DDSketch: Masson, Rim, Lee, VLDB 2019).
Counts are added up in any order with the same result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.arrays import FloatArray, IntArray
from penstock.model import NotAllowed
from penstock.pipeline.keyed.aggregates import Aggregate, Ask
from penstock.pipeline.keyed.groups import Groups, whole
from penstock.pipeline.keyed.numbers import values_of

#: Added to the number of a bucket, so that its sign is that of the values; buckets of what is
#: infinite and of NaN, which is larger than any number.
_ZERO, _INFINITE, _NAN = 1 << 24, 1 << 30, (1 << 30) + 1

_BUCKETS = pa.list_(pa.struct([("bucket", pa.int64()), ("count", pa.int64())]))


@dataclass(frozen=True)
class ApproxPercentile(Aggregate):
    """The value that a part of the values are not larger than."""

    column: str
    parts: tuple[float, ...]
    several: bool
    accuracy: float

    @property
    def _log_gamma(self) -> float:
        return math.log1p(self.accuracy) - math.log1p(-self.accuracy)

    def fields(self, name: str) -> list[pa.Field]:
        """One column of lists."""
        return [pa.field(name, _BUCKETS)]

    def make(self, table: pa.Table) -> Ask:
        """Count tuples in buckets."""
        values = whole(values_of(table, self.column, None))
        if not (
            pa.types.is_integer(values.type)
            or pa.types.is_floating(values.type)
            or pa.types.is_decimal(values.type)
        ):
            raise NotAllowed(
                f"approx_percentile({self.column!r}) needs numbers, and the column has type "
                f"{values.type}; cast it"
            )
        there = np.flatnonzero(np.asarray(values.is_valid()))
        numbers = np.asarray(values.take(pa.array(there)).cast(pa.float64()), dtype=np.float64)
        return self._counted(self._buckets(numbers), np.ones(len(there), np.int64), there, table)

    def merge(self, name: str, table: pa.Table) -> Ask:
        """Add up the counts of several states."""
        lists = whole(table.column(name))
        owner = np.asarray(pc.list_parent_indices(lists), dtype=np.int64)
        bucket, count = (np.asarray(part) for part in pc.list_flatten(lists).flatten())
        return self._counted(bucket, count, owner, table)

    def finish(self, name: str, state: pa.Table) -> Any:
        """Find the bucket of each part; null where there are no values."""
        lists = whole(state.column(name))
        sizes = np.asarray(pc.list_value_length(lists).fill_null(0), dtype=np.int64)
        bucket, count = (np.asarray(part) for part in pc.list_flatten(lists).flatten())
        ends = np.cumsum(sizes)
        upto = np.concatenate(([0], np.cumsum(count)))
        before, total = upto[ends - sizes], upto[ends] - upto[ends - sizes]
        found = []
        for part in self.parts:
            rank = before + np.maximum(np.ceil(part * total).astype(np.int64), 1)
            at = np.searchsorted(upto, rank, side="left") - 1
            values = self._values(bucket[np.where(total > 0, at, 0)]) if len(bucket) else rank * 0.0
            found.append(pa.array(values, pa.float64(), mask=total == 0))
        if not self.several:
            return found[0]
        flat = pa.array(np.stack([np.asarray(column.fill_null(0)) for column in found], 1).ravel())
        made = pa.FixedSizeListArray.from_arrays(flat, len(self.parts)).cast(pa.list_(pa.float64()))
        return pc.if_else(pa.array(total > 0), made, pa.nulls(len(total), made.type))

    def _buckets(self, numbers: FloatArray) -> IntArray:
        """Bucket of each number; those of larger numbers are larger."""
        size = np.abs(numbers)
        finite = np.isfinite(numbers) & (size > 0)
        number = np.ceil(np.log(size, where=finite, out=np.zeros_like(size)) / self._log_gamma)
        buckets = np.where(finite, np.sign(numbers) * (number + _ZERO), 0)
        infinite = np.isinf(numbers)
        buckets[infinite] = np.sign(numbers[infinite]) * _INFINITE
        buckets[np.isnan(numbers)] = _NAN
        return np.asarray(buckets, dtype=np.int64)

    def _values(self, buckets: IntArray) -> FloatArray:
        """Middle of each bucket."""
        # The middle of a bucket is as far from both ends, as a part of each.
        middle = math.log(2 / (1 + math.exp(self._log_gamma)))
        plain = np.abs(buckets) < _INFINITE
        exponent = np.where(plain, (np.abs(buckets) - _ZERO) * self._log_gamma + middle, 0.0)
        values = np.sign(buckets) * np.exp(np.where(buckets == 0, 0.0, exponent))
        values[~plain] = np.sign(buckets[~plain]) * np.inf
        values[buckets == _NAN] = np.nan
        return np.asarray(values, dtype=np.float64)

    def _counted(self, bucket: IntArray, count: IntArray, owner: IntArray, table: pa.Table) -> Ask:
        def build(answers: list[Any]) -> list[Any]:
            groups = Groups.of(answers[0], table.num_rows)
            group = groups.of_row[owner]
            order = np.lexsort((bucket, group))
            key, ordered = group[order], bucket[order]
            new = np.ones(len(order), dtype=bool)
            new[1:] = (key[1:] != key[:-1]) | (ordered[1:] != ordered[:-1])
            first = np.flatnonzero(new)
            added = np.add.reduceat(count[order], first) if len(first) else count[:0]
            ends = np.cumsum(np.bincount(key[first], minlength=groups.size))
            offsets = pa.array(np.concatenate(([0], ends)).astype(np.int32))
            structs = pa.StructArray.from_arrays(
                [pa.array(ordered[first], pa.int64()), pa.array(added, pa.int64())],
                fields=list(_BUCKETS.value_type),
            )
            return [pa.ListArray.from_arrays(offsets, structs)]

        return Ask([(pa.array(np.arange(table.num_rows)), "list")], build)
