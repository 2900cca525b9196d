"""Engines that run plans."""
