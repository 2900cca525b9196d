"""Random schedules of faults for tests, as `penstock chaos` runs them."""

from penstock.faults.schedules import EVERY, ONCE, Schedule, matrix, schedules

__all__ = ["EVERY", "ONCE", "Schedule", "matrix", "schedules"]
