"""How long saving, moving and restoring state takes."""
