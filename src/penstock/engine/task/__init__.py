"""The body of a task: an instance part of one micro-batch."""
