"""Migration of state: pre-copy, with a batch, between two batches; and its restoration."""
