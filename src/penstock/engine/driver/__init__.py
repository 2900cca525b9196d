"""The driver: runs and commits batches in order, and changes from one plan to the next."""
