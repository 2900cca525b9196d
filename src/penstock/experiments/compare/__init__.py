"""One scenario under several strategies, on Spark or simulated."""
