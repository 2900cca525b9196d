"""Penstock: streaming topologies on Spark, planned, placed, measured, moved and never lost."""

__version__ = "0.1.0"
