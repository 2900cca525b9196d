"""``JOB.py[:pipeline]``: a pipeline of the user's own, from a script."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.cli.failure import only_own
from penstock.common.near_miss import near_miss
from penstock.model import InvalidValue, NotAllowed, PenstockError
from penstock.pipeline.builder import Pipeline

#: Name that is looked up when none is given.
DEFAULT = "pipeline"


class ScriptFailed(PenstockError):
    """A script of the user's raised; holds its traceback."""


@dataclass(frozen=True)
class JobFile:
    """A script, and the name in it of a pipeline or of a function that returns one.

    A function may have keywords, which ``--set`` gives. If one of them is called ``spark``, it gets
    the session, and is called when that has been started; otherwise it is called before.
    """

    path: Path
    name: str = DEFAULT

    @classmethod
    def of(cls, text: str) -> JobFile | None:
        """Read the argument of the command; None if it names an application.

        Examples
        --------
        >>> JobFile.of("jobs/words.py:counts")
        JobFile(path=PosixPath('jobs/words.py'), name='counts')
        >>> JobFile.of("wordcount") is None
        True
        """
        path, _, name = text.partition(".py:")
        if name:
            return cls(Path(f"{path}.py"), name)
        return cls(Path(text)) if text.endswith(".py") else None

    def load(self) -> Pipeline | Callable[..., Any]:
        """Run the script, and return the pipeline, or the function that makes it.

        Raises
        ------
        InvalidValue
            When there is no such file, or no such name in it.
        ScriptFailed
            When the script raised.
        """
        if not self.path.is_file():
            raise InvalidValue("JOB.py", "a run", "a file", str(self.path))
        module = _loaded(self.path)
        found = getattr(module, self.name, None)
        if isinstance(found, Pipeline) or inspect.isfunction(found):
            return found
        names = [n for n, v in vars(module).items() if isinstance(v, Pipeline)]
        names += [n for n, v in vars(module).items() if _own_function(v, module)]
        if not names:
            allowed = f"with a Pipeline, or a function that returns one, called {self.name!r}"
            raise InvalidValue("JOB.py", "a run", f"a file {allowed}", str(self.path))
        allowed = "one of " + ", ".join(names)
        hint = near_miss(self.name, names)
        raise InvalidValue("pipeline", str(self.path), allowed, self.name, hint)


def wants_spark(found: Pipeline | Callable[..., Any]) -> bool:
    """Whether a pipeline can only be made when Spark runs."""
    return not isinstance(found, Pipeline) and "spark" in inspect.signature(found).parameters


def made(found: Pipeline | Callable[..., Any], **values: Any) -> Pipeline:
    """Return the pipeline, or call the function that makes it."""
    if isinstance(found, Pipeline):
        return found
    missing = [
        p.name
        for p in inspect.signature(found).parameters.values()
        if p.default is p.empty
        and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        and p.name not in values
    ]
    if missing:
        raise NotAllowed(
            f"{found.__name__}() needs a value for {missing[0]!r}; give it with "
            f"--set {missing[0]}=..."
        )
    try:
        built = found(**values)
    except PenstockError:
        raise
    except Exception as error:
        raise _failed(error) from error
    if not isinstance(built, Pipeline):
        raise InvalidValue("the result", f"{found.__name__}()", "a Pipeline", built)
    return built


def _loaded(path: Path) -> ModuleType:
    """Run a script as a module; its folder can be imported from, as when Python runs it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InvalidValue("JOB.py", "a run", "a Python file", str(path))
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except PenstockError:
        raise
    except Exception as error:
        raise _failed(error) from error
    return module


def _failed(error: Exception) -> ScriptFailed:
    trace = only_own("".join(traceback.format_exception(error)).rstrip())
    return ScriptFailed(f"the script failed\n{trace}")


def _own_function(value: Any, module: ModuleType) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__
