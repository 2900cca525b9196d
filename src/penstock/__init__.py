"""Penstock: streaming topologies on Spark, planned, placed, measured, moved and never lost.

What people need first is here: `Pipeline` and `functions` to write a pipeline, `run_locally` to
try it in this process, `spark` to run it on Spark, `plan` to plan a topology.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock import functions, spark
    from penstock.pipeline import Pipeline
    from penstock.planning import plan
    from penstock.runtimes.local import run_locally

__version__ = "0.1.0"

__all__ = ["Pipeline", "__version__", "functions", "plan", "run_locally", "spark"]

#: Names that are loaded when they are asked for, so that `import penstock.model` loads no strategy
#: and nothing but `penstock.spark` loads Spark.
_LAZY = {
    "Pipeline": "penstock.pipeline",
    "plan": "penstock.planning",
    "run_locally": "penstock.runtimes.local",
}
_MODULES = ("functions", "spark")

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(f"penstock.{name}")
        if name in _LAZY:
            return getattr(importlib.import_module(_LAZY[name]), name)
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
