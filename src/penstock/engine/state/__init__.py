"""Which state there is, the state of a task, and its backup."""
