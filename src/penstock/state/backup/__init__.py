"""Erasure-coded fragments of state, who keeps them, and how state is restored from them."""
