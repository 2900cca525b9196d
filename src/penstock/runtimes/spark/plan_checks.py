"""What a plan must not have, so that Penstock's engine gives the results of Spark.

Spark takes the watermark from the rows at ``withWatermark``; Penstock takes it from the rows that
reach the step with state. They are the same where nothing in between leaves rows out that may be
the newest. A filter that does not look at the time is put before ``withWatermark`` by Spark's
optimizer, so that it makes no difference.
"""

from __future__ import annotations

from typing import Any

from penstock.runtimes.spark.plan_nodes import (
    PlanNotUnderstood,
    delay_of,
    id_of,
    kind_of,
    listed,
)

#: Nodes that neither leave rows out nor join streams.
_KEEPS_ROWS = ("Project", "SubqueryAlias", "Expand", "View")

WATERMARK = "EventTimeWatermark"


def check_equality(node: str, expressions: list[Any]) -> None:
    """Refuse text that equals other text than itself, or is in an order of its own."""
    for e in expressions:
        if " collate " in e.dataType().catalogString():
            raise PlanNotUnderstood(node, f"{e.sql()} has a collation; only Spark compares by it")


def check_emitted(grouping: list[Any], window: object, mode: str) -> None:
    """Refuse to aggregate without a window what only a watermark brings to an end."""
    if window is not None:
        return
    if mode != "update":
        why = f"without a window there is no end to emit at; {mode!r} must be 'update'"
        raise PlanNotUnderstood("Aggregate", why)
    if any(kind_of(e) == "AttributeReference" and delay_of(e) is not None for e in grouping):
        raise PlanNotUnderstood("Aggregate", "it groups by the time of its watermark itself")


def check_watermark(name: str, below: Any) -> None:
    """Refuse a plan whose watermark passes other rows than the step with state gets."""
    why = why_watermarks_differ(below)
    if why:
        raise PlanNotUnderstood(name, why)


def why_watermarks_differ(node: Any) -> str:
    """Say what keeps the watermark at a node with state from being Spark's; empty if nothing does.

    Parameters
    ----------
    node : JavaObject
        What stands below the node with state, in the analysed plan.
    """
    if _count(node) > 1:
        return "there is more than one withWatermark in it; the engine has one for each step"
    between = []
    while node.nodeName() != WATERMARK:
        between.append(node)
        streams = [child for child in listed(node.children()) if child.isStreaming()]
        if len(streams) != 1:
            return f"withWatermark stands before {node.nodeName()}; put it behind"
        node = streams[0]
    times, settled = {id_of(node.eventTime())}, True
    for one in reversed(between):
        name = one.nodeName()
        if name == "Project":
            entries = listed(one.projectList())
            times |= {id_of(e) for e in entries if _refers(e, times)}
            settled = settled and all(e.deterministic() for e in entries)
        elif name == "Filter":
            condition = one.condition()
            if kind_of(condition) == "IsNotNull":
                # A row without a time moves no watermark.
                continue
            if not (settled and condition.deterministic()) or _refers(condition, times):
                return (
                    "a filter by the time, or by chance, stands behind withWatermark, which then "
                    "passes rows that are left out; put withWatermark behind the filter"
                )
        elif not (name in _KEEPS_ROWS or _outer(one)):
            return (
                f"{name} stands behind withWatermark, which then passes rows that are left out; "
                "put withWatermark behind it"
            )
    return ""


def _count(node: Any) -> int:
    here = int(node.nodeName() == WATERMARK)
    return here + sum(_count(child) for child in listed(node.children()))


def _outer(node: Any) -> bool:
    """Whether a node keeps each row of the stream although nothing goes with it."""
    if node.nodeName() == "Generate":
        return bool(node.outer())
    if node.nodeName() != "Join":
        return False
    kept = "LeftOuter" if node.left().isStreaming() else "RightOuter"
    return str(node.joinType().toString()) in (kept, "FullOuter")


def _refers(expression: Any, ids: set[int]) -> bool:
    return any(id_of(e) in ids for e in listed(expression.references().toSeq()))
