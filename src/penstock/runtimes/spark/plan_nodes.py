"""Small questions to the nodes and the expressions of Spark's plans, and their refusal."""

from __future__ import annotations

import re
from typing import Any

from penstock.common.errors import NotAllowed


class PlanNotUnderstood(NotAllowed):
    """A node of a plan that Penstock's engine has no step for."""

    def __init__(self, node: str, why: str) -> None:
        super().__init__(
            f"Penstock cannot run the node {node} of this query: {why}. Write that part with "
            "penstock.pipeline, or let Spark run the whole query and steer it with "
            "penstock.spark.attach"
        )
        self.node = node


def listed(sequence: Any) -> list[Any]:
    """Return a sequence of Scala's as a list."""
    return [sequence.apply(i) for i in range(sequence.size())]


def kind_of(expression: Any) -> str:
    """Return the name of an expression's class."""
    return str(expression.getClass().getSimpleName())


def type_of(expression: Any) -> str:
    """Return the name of an expression's type; that of text tells of a collation, too."""
    return str(expression.dataType().typeName())


def id_of(expression: Any) -> int:
    """Return the number by which a plan refers to a column."""
    return int(expression.exprId().id())


def delay_of(attribute: Any) -> float | None:
    """Return how late rows may be by the watermark of a column, in seconds; None without one."""
    found = re.search(r'"spark\.watermarkDelayMs":(\d+)', attribute.metadata().json())
    return None if found is None else int(found[1]) / 1000.0
