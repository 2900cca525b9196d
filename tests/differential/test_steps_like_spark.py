"""Steps over drawn tables and cuts: the last row of each key is what Spark's query gives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from penstock import functions as F
from penstock.pipeline import Pipeline, Split
from penstock.testing.differential import SEED, Sides, examples, require_equal
from penstock.testing.tables import KEYS, columns

#: Types that Parquet and Spark share, without the number of bits that Spark does not have.
SHARED = [
    *("int8", "int16", "int32", "int64", "float", "double", "bool", "string", "large_string"),
    *("binary", "decimal128(20, 2)", "date32[day]", "timestamp[us, tz=UTC]", "dictionary"),
    *(
        "dictionary of floats",
        "struct",
        "struct of one",
        "list",
        "list of structs",
        "list of lists",
    ),
]

#: Sums of these are exact however they are cut.
NUMBERS = {
    pa.int32(): (0, 1, -7, 2**31 - 1),
    pa.int64(): (0, 3, -9, 2**40),
    pa.float32(): (0.5, -0.25, math.nan, math.inf, -math.inf, -0.0),
    pa.float64(): (1.5, -2.25, math.nan, -math.inf, 0.0),
    pa.decimal128(9, 2): (Decimal("0.01"), Decimal("-99.99"), Decimal("1234567.89")),
    pa.decimal128(38, 6): (Decimal("0.000001"), Decimal(10**27), Decimal("-5.5")),
}
ORDERED = {
    **NUMBERS,
    **{KEYS[name][0]: KEYS[name][1] for name in ("string", "binary", "bool", "date32[day]")},
    pa.timestamp("us", "UTC"): KEYS["timestamp[us, tz=UTC]"][1],
}


@st.composite
def cut(draw: Any, table: pa.Table) -> list[pa.Table]:
    """Cut a table into batches, some of them empty."""
    size = table.num_rows
    inner = sorted(draw(st.lists(st.integers(0, size), max_size=4)))
    bounds = [0, *inner, size]
    return [table.slice(a, b - a) for a, b in itertools.pairwise(bounds)]


@st.composite
def keyed(draw: Any, types: Sequence[Any]) -> list[pa.Table]:
    """Draw batches of a skewed key ``k``, a position ``o`` and a column ``v0``... for each type."""
    size = draw(st.integers(1, 40))
    named = {"k": draw(columns(pa.string(), KEYS["string"][1], size)), "o": np.arange(size)}
    for number, (kind, pool) in enumerate(types):
        named[f"v{number}"] = draw(columns(kind, pool, size))
    drawn: list[pa.Table] = draw(cut(pa.table(named)))
    return drawn


@pytest.mark.parametrize("name", SHARED)
@examples(1)
@seed(SEED)
@given(st.data())
def test_keys(spark: Any, tmp_path_factory: Any, name: str, data: Any) -> None:
    kind, pool = KEYS[name]
    keys = data.draw(columns(kind, pool, 30))
    tables = data.draw(cut(pa.table({"k": keys, "v": np.arange(30)})))
    sides = Sides(spark, tmp_path_factory.mktemp("keys"), tables)
    found = sides.final(lambda rows: rows.aggregate("n", by="k", n=F.count(), t=F.sum("v")), by="k")
    require_equal(found, sides.query("select k, count(*) as n, sum(v) as t from rows group by k"))
    sides.close()


@examples(4)
@seed(SEED)
@given(st.data())
def test_functions(spark: Any, tmp_path_factory: Any, data: Any) -> None:
    """Every function over every type that has it, in one query."""
    types = list(ORDERED.items())
    made: dict[str, Any] = {"n": F.count()}
    sql = ["count(*) as n"]
    for number, (kind, _) in enumerate(types):
        column = f"v{number}"
        there = f"filter (where {column} is not null)"
        made |= {f"{column}_low": F.min(column), f"{column}_high": F.max(column)}
        sql += [f"min({column}) as {column}_low", f"max({column}) as {column}_high"]
        made |= {f"{column}_first": F.first(column), f"{column}_last": F.last(column, "o")}
        sql += [
            f"min_by({column}, o) {there} as {column}_first",
            f"max_by({column}, o) {there} as {column}_last",
        ]
        made[f"{column}_top"] = F.top(2, column)
        listed = f"collect_list(named_struct('{column}', {column})) {there}"
        sql.append(f"slice(sort_array({listed}, false), 1, 2) as {column}_top")
        if kind in NUMBERS:
            made |= {f"{column}_sum": F.sum(column), f"{column}_avg": F.avg(column)}
            sql += [f"sum({column}) as {column}_sum", f"avg({column}) as {column}_avg"]
    sides = Sides(spark, tmp_path_factory.mktemp("functions"), data.draw(keyed(types)))
    found = sides.final(lambda rows: rows.aggregate("all", by="k", reduce=made), by="k")
    require_equal(found, sides.query(f"select k, {', '.join(sql)} from rows group by k"))
    sides.close()


@examples(2)
@seed(SEED)
@given(st.data())
def test_different_values(spark: Any, tmp_path_factory: Any, data: Any) -> None:
    """Exactly counted; estimated where there are few values, which is exact, too."""
    types = [(kind, ORDERED[kind]) for kind in (pa.string(), pa.float64(), pa.decimal128(9, 2))]
    sides = Sides(spark, tmp_path_factory.mktemp("different"), data.draw(keyed(types)))
    made: dict[str, Any] = {}
    for number in range(len(types)):
        made[f"n{number}"] = F.count_distinct(f"v{number}")
        made[f"m{number}"] = F.approx_count_distinct(f"v{number}")
    sql = ", ".join(
        f"count(distinct v{n}) as n{n}, count(distinct v{n}) as m{n}" for n in range(len(types))
    )
    wanted = sides.query(f"select k, {sql} from rows group by k")
    for split in (False, True):

        def build(rows: Pipeline, split: bool = split) -> Pipeline:
            return rows.aggregate("d", by="k", reduce=made, split=split)

        require_equal(sides.final(build, by="k"), wanted)
    sides.close()


def running(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Count and add up by a function of the user's own."""
    known = {row["k"]: [row["n"], row["t"]] for row in state.to_pylist()}
    touched = dict.fromkeys(rows.column("k").to_pylist())
    for row in rows.to_pylist():
        held = known.setdefault(row["k"], [0, 0])
        held[0], held[1] = held[0] + 1, held[1] + (row["v0"] or 0)
    made = pa.table(
        {
            "k": pa.array(touched, pa.string()),
            "n": pa.array([known[key][0] for key in touched], pa.int64()),
            "t": pa.array([known[key][1] for key in touched], pa.int64()),
        }
    )
    return made, made


def made_by_hand(batch: pa.RecordBatch) -> pa.Table:
    table = (
        pa.Table.from_batches([batch]).group_by("k").aggregate([([], "count_all"), ("v0", "sum")])
    )
    return pa.table(
        {"k": table["k"], "n": table["count_all"], "t": pc.fill_null(table["v0_sum"], 0)}
    )


def merged_by_hand(parts: pa.Table) -> pa.Table:
    table = parts.group_by("k").aggregate([("n", "sum"), ("t", "sum")])
    return pa.table({"k": table["k"], "n": table["n_sum"], "t": table["t_sum"]})


TWO = pa.schema([("n", pa.int64()), ("t", pa.int64())])
ADDED = {"n": F.count(), "t": F.sum("v0")}
PARTIAL, HOT = Split("partial-key"), Split("hot-key")


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


WAYS = {
    "aggregate": lambda rows: rows.aggregate("a", by="k", reduce=ADDED),
    "work": lambda rows: rows.aggregate("a", by="k", reduce=ADDED, work=same),
    "split": lambda rows: rows.aggregate("a", by="k", reduce=ADDED, split=True),
    "partial key": lambda rows: rows.aggregate("a", by="k", reduce=ADDED, split=PARTIAL),
    "hot key": lambda rows: rows.aggregate("a", by="k", reduce=ADDED, split=HOT),
    "stateful": lambda rows: rows.stateful("a", by="k", update=running, state=TWO),
    "custom": lambda rows: rows.aggregate(
        "a", by="k", reduce=F.custom(made_by_hand, merged_by_hand, TWO)
    ),
}


@examples(2)
@seed(SEED)
@given(keyed([(pa.int64(), (1, 5, -3))]))
def test_ways_to_aggregate(spark: Any, tmp_path_factory: Any, tables: list[pa.Table]) -> None:
    sides = Sides(spark, tmp_path_factory.mktemp("ways"), tables)
    by_hand = sides.query("select k, count(*) n, coalesce(sum(v0), 0) t from rows group by k")
    wanted = sides.query("select k, count(*) n, sum(v0) t from rows group by k")
    for name, build in WAYS.items():
        found = sides.final(build, by="k")
        require_equal(found, by_hand if name in ("stateful", "custom") else wanted, name)
    sides.close()


def doubled(row: dict[str, Any]) -> list[dict[str, Any]] | None:
    return None if row["v0"] is None else [{"k": row["k"], "d": row["v0"] * 2}] * 2


STEPS: dict[str, tuple[Any, str]] = {
    "filter": (
        lambda rows: rows.filter("f", pc.field("v0") > 1),
        "select * from rows where v0 > 1",
    ),
    "select": (
        lambda rows: rows.select("s", {"k": "k", "m": pc.field("v0") + 1, "b": pc.field("v1") < 0}),
        "select k, v0 + 1 as m, v1 < 0D and not isnan(v1) as b from rows",
    ),
    "map": (
        lambda rows: rows.map("m", lambda batch: batch.select(["o", "k"])),
        "select o, k from rows",
    ),
    "rows": (
        lambda rows: rows.rows("r", doubled, pa.schema([("k", pa.string()), ("d", pa.int64())])),
        "select k, v0 * 2 as d from rows, (select explode(array(1, 2))) where v0 is not null",
    ),
}


@examples(2)
@seed(SEED)
@given(keyed([(pa.int64(), (1, 5, -3)), (pa.float64(), (0.5, -1.0))]))
def test_steps_without_state(spark: Any, tmp_path_factory: Any, tables: list[pa.Table]) -> None:
    sides = Sides(spark, tmp_path_factory.mktemp("steps"), tables)
    for name, (build, sql) in STEPS.items():
        require_equal(sides.rows(build), sides.query(sql), name)
    sides.close()


@pytest.mark.slow
def test_rows_of_fifty_megabytes(spark: Any, tmp_path: Path) -> None:
    texts = [letter * 50_000_000 for letter in "ab"]
    table = pa.table({"k": [1, 1, 2], "s": [*texts, None]})
    sides = Sides(spark, tmp_path, [table.slice(0, 1), table.slice(1)])

    def build(rows: Pipeline) -> Pipeline:
        return rows.aggregate("a", by="k", s=F.max("s"), n=F.count()).select(
            "short", {"k": "k", "n": "n", "size": pc.utf8_length(pc.field("s"))}
        )

    sql = "select k, count(*) as n, length(max(s)) as size from rows group by k"
    require_equal(sides.final(build, by="k"), sides.query(sql))
    by_text = sides.final(
        lambda rows: rows.aggregate("a", by="s", n=F.count()).select(
            "short", {"n": "n", "size": pc.utf8_length(pc.field("s"))}
        ),
        by="size",
    )
    assert by_text.total() == 2
