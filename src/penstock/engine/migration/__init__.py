"""State that moves: copied ahead, with a batch, or between two."""
