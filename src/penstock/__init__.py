"""Penstock: streaming topologies on Spark, planned, placed, measured, moved and never lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.planning import plan

__version__ = "0.1.0"

__all__ = ["__version__", "plan"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        # Lazy, so that `import penstock.model` does not load every strategy.
        if name == "plan":
            from penstock.planning import plan

            return plan
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
