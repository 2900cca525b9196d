"""Faults as values, their grammar, and random schedules of them."""
