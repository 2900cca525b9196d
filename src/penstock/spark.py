"""Pipelines on Spark: ``session`` makes a session, ``start`` runs a pipeline on it.

``start_together`` runs several that share its nodes.
"""

from penstock.runtimes.spark.dataframe_sink import Writer
from penstock.runtimes.spark.errors import ExecutorLost
from penstock.runtimes.spark.group import Group, start_together
from penstock.runtimes.spark.options import Options
from penstock.runtimes.spark.query import Query, start
from penstock.runtimes.spark.session import cluster, embedded, session

__all__ = [
    "ExecutorLost",
    "Group",
    "Options",
    "Query",
    "Writer",
    "cluster",
    "embedded",
    "session",
    "start",
    "start_together",
]
