"""Sources, and what made-up streams are made of."""
