"""The keywords of `Pipeline.join`, checked against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.near_miss import near_miss
from penstock.model import Grouping, InvalidValue, NotAllowed
from penstock.pipeline.checks import check_key
from penstock.pipeline.keyed.join import HOW, Join
from penstock.pipeline.keyed.join_columns import JoinColumns
from penstock.pipeline.keyed.rows_by_key import LEFT
from penstock.pipeline.keyed.time_bound import TimeBound
from penstock.pipeline.static_join import HOW as TABLE_HOW
from penstock.pipeline.static_join import Static, StaticJoin
from penstock.pipeline.steps import Link, Step

_SIDES = ("left", "right")


def join_keys(name: str, on: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Columns of the key: the name on the left, and the name on the right.

    Examples
    --------
    >>> join_keys("j", ["id", "day"])
    {'id': 'id', 'day': 'day'}
    """
    owner = f"step {name!r}"
    named = dict(on) if isinstance(on, Mapping) else {key: key for key in check_key(owner, on)}
    check_key(owner, tuple(named))
    check_key(owner, tuple(named.values()))
    return named


def joined(
    name: str,
    on: Mapping[str, str],
    schemas: Sequence[pa.Schema | None],
    *,
    how: str,
    time: Any,
    where: Any,
    suffix: str,
) -> Join:
    """Make what joins, from the keywords of `Pipeline.join` and the columns that are known."""
    owner = f"step {name!r}"
    if how not in HOW:
        raise InvalidValue("how", owner, "one of " + ", ".join(HOW), how)
    if time is not None and not isinstance(time, TimeBound):
        raise InvalidValue("time", owner, "made by between", time)
    _check_condition(owner, where, suffix)
    for side, schema in enumerate(schemas):
        if time is not None and schema is not None and time.columns[side] not in schema.names:
            hint = near_miss(time.columns[side], schema.names)
            hint = hint or f"; its columns are {', '.join(schema.names)}"
            raise NotAllowed(
                f"{owner} is bound by the time {time.columns[side]!r}, which its {_SIDES[side]} "
                f"side does not have{hint}"
            )
    kept: tuple[pa.Schema, ...] = ()
    for side in HOW[how]:
        if time is None or time.limit_us(side, 0) is None:
            needed = "upper" if side == LEFT else "lower"
            raise NotAllowed(
                f"{owner} is a {how} join, which emits rows of the {_SIDES[side]} side when no "
                f"match can come any more; bound it: time=between(..., {needed}=...)"
            )
        if schemas[1 - side] is None:
            raise NotAllowed(
                f"{owner} is a {how} join, which puts nulls in the place of the columns of the "
                f"{_SIDES[1 - side]} side, and these are not known before it runs; put a step with "
                "a schema before it, such as rows"
            )
        kept = tuple(pa.schema([]) if schema is None else schema for schema in schemas)
    return Join(JoinColumns(tuple(on.items()), suffix, kept), how, time, where)


def joined_with_table(
    name: str,
    on: Mapping[str, str],
    table: pa.Table | Static,
    how: str,
    time: Any,
    where: Any,
    suffix: str,
) -> StaticJoin:
    """Make what joins a stream with a table."""
    owner = f"step {name!r}"
    if how not in TABLE_HOW:
        raise InvalidValue("how", owner, "inner or left with a table", how)
    if time is not None:
        raise NotAllowed(
            f"{owner} joins with a table, which has no event time; leave 'time' out, and put "
            "conditions into 'where'"
        )
    _check_condition(owner, where, suffix)
    if isinstance(table, pa.Table):
        for column in on.values():
            if column not in table.column_names:
                hint = near_miss(column, table.column_names)
                hint = hint or f"; its columns are {', '.join(table.column_names)}"
                raise NotAllowed(f"{owner} joins by {column!r}, which the table lacks{hint}")
    return StaticJoin(table, JoinColumns(tuple(on.items()), suffix), how, where)


def _check_condition(owner: str, where: Any, suffix: str) -> None:
    if where is not None and not isinstance(where, pc.Expression):
        allowed = "a pyarrow expression, such as pc.field('n') > 3"
        raise InvalidValue("where", owner, allowed, where)
    if not isinstance(suffix, str) or not suffix:
        raise InvalidValue("suffix", owner, "a text that is not empty", suffix)


def check_joined(name: str, links: Sequence[Link], steps: Mapping[str, Step]) -> None:
    """Refuse more than two streams, and a grouping under which rows with one key do not meet."""
    if len(links) != 2:
        raise NotAllowed(
            f"step {name!r} joins one stream with one other, and reads "
            f"{', '.join(link.source for link in links)}; join them one after the other"
        )
    for link in links:
        if link.source not in steps:
            hint = near_miss(link.source, steps) or f"; the steps are {', '.join(steps)}"
            raise NotAllowed(f"step {name!r} reads from {link.source!r}, which is no step{hint}")
        if link.grouping is not Grouping.FIELDS:
            raise NotAllowed(
                f"step {name!r} joins by key, and reads {link.source!r} grouped by "
                f"{link.grouping.value}, which sends rows with one key to several instances; group "
                "by fields, or name the step alone"
            )
