"""Which sessions and queries can be attached, and in one sentence why the others cannot."""

from __future__ import annotations

from typing import Any

import pyspark

#: Releases of Spark on which attaching is tested.
TESTED = ("4.3",)


def why_not_session(spark: Any) -> str:
    """Say why the queries of a session cannot be attached; empty when they can."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return (
            "Penstock does not attach over Spark Connect, whose client cannot reach the driver; "
            "the query runs as it is"
        )
    release = ".".join(pyspark.__version__.split(".")[:2])
    if release not in TESTED:
        return (
            f"Penstock attaches to Spark {', '.join(TESTED)}, on which it is tested, and this is "
            f"Spark {pyspark.__version__}; the query runs as it is"
        )
    return ""


def why_not_query(query: Any) -> str:
    """Say why a query cannot be attached; empty when it can."""
    if type(query).__module__.startswith("pyspark.sql.connect"):
        return why_not_session(query)
    trigger = _trigger(query)
    if trigger.startswith("Continuous"):
        return (
            f"Penstock attaches to queries that run in batches, and {query.name or 'it'} has the "
            f"trigger {trigger}; the query runs as it is"
        )
    return ""


def in_real_time(query: Any) -> bool:
    """Whether the tasks of a query run for as long as its batches last, all stages at once."""
    return _trigger(query).startswith("RealTime")


def _trigger(query: Any) -> str:
    return str(query._jsq.streamingQuery().trigger().getClass().getSimpleName())
