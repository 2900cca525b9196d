"""Several queries planned as one."""
