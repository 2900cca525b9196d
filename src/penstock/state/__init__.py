"""Keyed state: its table, its versions, its store, its files and its backup by peers."""
