"""Used everywhere: errors, parameters, registries, key hashing, near-miss hints."""
