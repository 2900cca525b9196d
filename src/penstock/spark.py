"""Pipelines on Spark: ``session`` makes a session, ``start`` runs a pipeline on it.

``start_together`` runs several that share its nodes. ``attach`` measures, places and scales a
Structured Streaming query that runs unchanged.
"""

from penstock.runtimes.attached.attach import AttachedSession, NotAttached, attach
from penstock.runtimes.attached.query import AttachedQuery
from penstock.runtimes.spark.dataframe_sink import Writer
from penstock.runtimes.spark.errors import ExecutorLost
from penstock.runtimes.spark.group import Group
from penstock.runtimes.spark.options import QueueOptions, RecoveryOptions, Settings, StateOptions
from penstock.runtimes.spark.plan_nodes import PlanNotUnderstood
from penstock.runtimes.spark.query import Query, QueryStatus, start
from penstock.runtimes.spark.session import cluster, embedded, session
from penstock.runtimes.spark.start_together import start_together

__all__ = [
    "AttachedQuery",
    "AttachedSession",
    "ExecutorLost",
    "Group",
    "NotAttached",
    "PlanNotUnderstood",
    "Query",
    "QueryStatus",
    "QueueOptions",
    "RecoveryOptions",
    "Settings",
    "StateOptions",
    "Writer",
    "attach",
    "cluster",
    "embedded",
    "session",
    "start",
    "start_together",
]
