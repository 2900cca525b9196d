"""State segments as files, on a local disk or at an address."""
