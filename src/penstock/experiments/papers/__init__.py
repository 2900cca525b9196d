"""The experiments of the papers' evaluation sections, in the papers' settings, simulated."""
