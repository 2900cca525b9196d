"""Kafka: a source whose offsets are positions, and a sink that writes each batch once."""
