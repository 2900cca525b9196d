"""Costs of a live Spark, for the simulator."""
