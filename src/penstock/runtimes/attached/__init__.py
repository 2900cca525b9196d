"""Structured Streaming queries that run unchanged: measured, explained, placed and scaled."""
