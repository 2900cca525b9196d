"""Batches in order, committed; and the change from one plan to the next."""
