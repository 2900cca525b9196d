"""Which record goes into which table, and how a field that is no plain value is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import attrgetter
from typing import Any, Generic, TypeVar

from penstock.common.arrays import frozen_ints
from penstock.model import Plan
from penstock.store.edge_record import EdgeRecord
from penstock.store.field_checks import json_text
from penstock.store.histogram import Histogram
from penstock.store.operator_record import OperatorRecord
from penstock.store.records import (
    BatchRecord,
    EventRecord,
    InstanceRecord,
    NodeRecord,
    PlanRecord,
    RunRecord,
    RunStatus,
)

R = TypeVar("R")


@dataclass(frozen=True)
class FieldCodec:
    """How one field is written into a column and read from it."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


JSON = FieldCodec(json_text, json.loads)
STATUS = FieldCodec(lambda status: status.value, RunStatus)
HISTOGRAM = FieldCodec(
    lambda histogram: json_text(histogram.to_dict()),
    lambda text: Histogram.from_dict(json.loads(text)),
)
PLAN = FieldCodec(
    lambda plan: json_text(plan.to_dict()), lambda text: Plan.from_dict(json.loads(text))
)
INTS = FieldCodec(
    lambda array: json_text(array.tolist()),
    lambda text: frozen_ints(json.loads(text)),
)


@dataclass(frozen=True)
class Table(Generic[R]):
    """A table whose columns are the fields of a record.

    Parameters
    ----------
    name : str
    record : type
        The record, a dataclass.
    key : tuple of str
        Columns that tell the rows apart, most significant first.
    codecs : mapping of str to FieldCodec
        Fields that are no plain value.
    """

    name: str
    record: type[R]
    key: tuple[str, ...]
    codecs: Mapping[str, FieldCodec] = field(default_factory=dict)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in the order of the record's fields."""
        return tuple(f.name for f in fields(self.record))  # type: ignore[arg-type]

    @cached_property
    def put(self) -> str:
        """Statement that writes a row, over the one with the same key."""
        names = ", ".join(f'"{c}"' for c in self.columns)
        marks = ", ".join("?" * len(self.columns))
        key = ", ".join(f'"{c}"' for c in self.key)
        rest = [c for c in self.columns if c not in self.key]
        changes = ", ".join(f'"{c}" = excluded."{c}"' for c in rest)
        return (
            f"INSERT INTO {self.name} ({names}) VALUES ({marks}) "
            f"ON CONFLICT ({key}) DO UPDATE SET {changes}"
        )

    @cached_property
    def select(self) -> str:
        """Statement that reads rows, to be followed by conditions."""
        names = ", ".join(f'"{c}"' for c in self.columns)
        return f"SELECT {names} FROM {self.name}"

    def row(self, record: R) -> tuple[Any, ...]:
        """Values of a record's columns."""
        return tuple(
            self.codecs[c].write(getattr(record, c)) if c in self.codecs else getattr(record, c)
            for c in self.columns
        )

    def sorted(self, records: Iterable[R]) -> tuple[R, ...]:
        """Put records in the order of their key, text as Python orders it.

        Servers order text by their locale, so it is not left to them.
        """
        return tuple(sorted(records, key=attrgetter(*self.key)))

    def read(self, row: Sequence[Any]) -> R:
        """Make the record of a row."""
        values = {
            c: self.codecs[c].read(value) if c in self.codecs else value
            for c, value in zip(self.columns, row, strict=True)
        }
        return self.record(**values)


RUNS = Table("penstock_runs", RunRecord, ("id",), {"status": STATUS, "config": JSON})
BATCHES = Table(
    "penstock_batches",
    BatchRecord,
    ("run", "batch"),
    {"lit": JSON, "latency": HISTOGRAM, "figures": JSON},
)
INSTANCES = Table("penstock_instances", InstanceRecord, ("run", "batch", "operator", "index"))
EDGES = Table(
    "penstock_edges",
    EdgeRecord,
    ("run", "batch", "source", "target"),
    {"rows": INTS, "columns": INTS, "tuples": INTS},
)
NODES = Table("penstock_nodes", NodeRecord, ("run", "batch", "node"))
OPERATORS = Table(
    "penstock_operators",
    OperatorRecord,
    ("run", "batch", "operator"),
    {"hot_keys": JSON, "state": JSON},
)
PLANS = Table("penstock_plans", PlanRecord, ("run", "from_batch"), {"plan": PLAN})
EVENTS = Table("penstock_events", EventRecord, ("run", "number"), {"figures": JSON})

#: Tables that hold the detail of batches, which retention drops.
DETAIL: tuple[Table[Any], ...] = (INSTANCES, EDGES, NODES, OPERATORS)

#: All of them, those that others refer to first.
TABLES: tuple[Table[Any], ...] = (RUNS, BATCHES, *DETAIL, PLANS, EVENTS)
