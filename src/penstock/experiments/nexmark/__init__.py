"""NEXMark on Spark: the engine and Structured Streaming over the same files."""
