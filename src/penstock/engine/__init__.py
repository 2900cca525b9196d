"""Runs the batches of a pipeline on any backend. Nothing here imports Spark."""
