"""Steps with state by key: reductions, functions of the user, windows."""
