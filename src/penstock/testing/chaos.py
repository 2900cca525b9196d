"""Random schedules of faults for tests, as `penstock chaos` runs them."""

from penstock.faults.schedules import MATRIX, Schedule, matrix, schedules

__all__ = ["MATRIX", "Schedule", "matrix", "schedules"]
