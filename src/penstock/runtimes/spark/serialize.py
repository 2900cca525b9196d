"""A layout as bytes for the workers, with the user's own functions inside."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from penstock.engine.job_graph import JobGraph

_PATHS = sysconfig.get_paths()
_INSTALLED = tuple(Path(_PATHS[k]).resolve() for k in ("stdlib", "purelib", "platlib"))


def packed(job_graph: JobGraph) -> bytes:
    """Pickle what the tasks need.

    Functions and classes of modules that are not installed, a script's or a notebook's own, go by
    value: a worker could not import them. What those modules import themselves must be there, or
    be sent with `SparkContext.addPyFile`.
    """
    reduced = job_graph.for_workers()
    pickler: Any = cloudpickle
    with ExitStack() as undo:
        for module in set(_modules(reduced)):
            if not installed(module):
                pickler.register_pickle_by_value(module)
                undo.callback(pickler.unregister_pickle_by_value, module)
        data: bytes = pickler.dumps(reduced)
    return data


def installed(module: ModuleType) -> bool:
    """Whether a worker can be expected to have a module."""
    name = module.__name__.partition(".")[0]
    if name in ("penstock", "__main__") or name in sys.stdlib_module_names:
        return True
    file = getattr(module, "__file__", None)
    return file is None or any(Path(file).resolve().is_relative_to(folder) for folder in _INSTALLED)


def _modules(job_graph: JobGraph) -> Iterator[ModuleType]:
    for step in job_graph.pipeline.steps:
        for part in _parts((step.function, step.source, step.sink, step.keyed, step.links)):
            name = getattr(part, "__module__", None) or type(part).__module__
            module = sys.modules.get(name)
            if module is not None:
                yield module


def _parts(value: Any) -> Iterator[Any]:
    """List what a step is made of: functions stand in fields of fields, or in partial calls."""
    if isinstance(value, (tuple, list)):
        for one in value:
            yield from _parts(one)
    elif isinstance(value, partial):
        yield from _parts((value.func, value.args, tuple(value.keywords.values())))
    elif value is not None:
        yield value
        if is_dataclass(value) and not isinstance(value, type):
            for one in fields(value):
                yield from _parts(getattr(value, one.name))
