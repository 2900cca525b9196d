"""Pipelines on Spark: ``session`` makes a session, ``start`` runs a pipeline on it."""

from penstock.runtimes.spark.backend import ExecutorLost
from penstock.runtimes.spark.run import Options, Run, start
from penstock.runtimes.spark.session import cluster, embedded, session
from penstock.runtimes.spark.writer import Writer

__all__ = ["ExecutorLost", "Options", "Run", "Writer", "cluster", "embedded", "session", "start"]
