"""One task of a batch: what it reads, runs and sends."""
