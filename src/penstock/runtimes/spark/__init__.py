"""Spark as the engine of pipelines; the only place that imports it."""
