"""The loop that keeps a plan fitting: collect, evaluate, decide, apply; on Spark or simulated."""
