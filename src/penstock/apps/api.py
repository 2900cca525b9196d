"""What an application is: data of the right shape, a pipeline, and what must come out of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.common.near_miss import near_miss
from penstock.common.parameters import Checked
from penstock.common.registry import registry
from penstock.model import InvalidValue, NotAllowed
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.sinks import Memory
from penstock.pipeline.sources.files import Replay
from penstock.pipeline.sources.generator import Content, Generator
from penstock.pipeline.sources.rates import Profile
from penstock.pipeline.sources.readers import Reader
from penstock.pipeline.steps import Sink

#: Applications by name. A new one is a class with the decorator `register`.
apps, register = registry("application", "penstock.apps", "penstock.apps")


class App(Checked, ABC):
    """An application.

    Its result does not depend on how the stream is cut into batches: a sink gets rows that replace
    earlier ones of the same key, and what counts is the last row of each key.

    Examples
    --------
    >>> from penstock.pipeline import Lines
    >>> from penstock.runtimes.local import run_locally
    >>> app = apps.make("wordcount")
    >>> words = app.pipeline(Lines(["to be or", "not to be"]))
    >>> _ = run_locally(words, cuts=[1])
    >>> app.result("counts", words["counts"].sink.table()).to_pylist()[:2]
    [{'word': 'be', 'n': 2}, {'word': 'not', 'n': 1}]

    Attributes
    ----------
    name, summary : str
    keys : mapping of str to tuple of str
        For each sink, the columns that tell its rows apart.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    keys: ClassVar[Mapping[str, tuple[str, ...]]]

    @abstractmethod
    def content(self, zipf: float) -> Content:
        """Say what generated rows hold."""

    @abstractmethod
    def reader(self, path: str | Path) -> Reader:
        """Say how real files are read: a file, a folder or a pattern."""

    @abstractmethod
    def build(self, source: Any, out: Mapping[str, Sink], many: Instances) -> Pipeline:
        """Build the pipeline.

        Parameters
        ----------
        source : Source or streaming DataFrame
        out : mapping of str to Sink
            A sink for each name in `keys`.
        many : Instances
            How many instances each step gets.
        """

    @abstractmethod
    def expected(self, table: pa.Table) -> dict[str, pa.Table]:
        """Work out each sink's result from all rows of the source, without the operators."""

    def pipeline(
        self,
        source: Any,
        sinks: Mapping[str, Sink] | None = None,
        *,
        parallelism: int | Mapping[str, int] | None = None,
        chain: bool = True,
    ) -> Pipeline:
        """Build the pipeline, with its sinks and its number of instances.

        Parameters
        ----------
        source : Source or streaming DataFrame
            From `source`, `read`, or any other with the same columns.
        sinks : mapping of str to Sink, optional
            Where results go, by the names in `keys`; memory for those that are not given. They are
            found again as ``pipeline["counts"].sink``.
        parallelism : int or mapping of str to int, optional
            Instances of every step, or of each by name; by default as many as there are nodes.
        chain : bool
            False gives stateless steps instances of their own, as in the papers; more traffic, and
            more for a planner to place.
        """
        many = Instances(parallelism, chain)
        return many.checked(self.build(source, self._sinks(sinks), many))

    def source(
        self,
        profile: Profile | str | float = 1000.0,
        *,
        zipf: float = 1.0,
        seed: int = 0,
        rows: int | None = None,
    ) -> Generator:
        """Make rows of the right shape.

        Parameters
        ----------
        profile : Profile, str or float
            Rows a second.
        zipf : float
            Skew of the keys, 0.0 to 2.0.
        seed : int
        rows : int, optional
            Where the stream ends.
        """
        return Generator(profile, self.content(zipf), seed, rows)

    def read(
        self, path: str | Path, *, speed: Profile | str | float = 1000.0, rows: int | None = None
    ) -> Replay:
        """Read real files; the error says what a file must look like.

        Parameters
        ----------
        path : str or Path
            A file, a folder or a pattern.
        speed : Profile, str or float
            Rows a second.
        rows : int, optional
            Where to end, if before the end of the files.
        """
        return Replay(path, self.reader(path), speed, rows).checked()

    def result(self, sink: str, emitted: pa.Table) -> pa.Table:
        """Reduce all rows that a sink got, in their order, to the result, sorted by key."""
        if sink not in self.keys:
            raise InvalidValue(
                "sink", f"application {self.name!r}", "one of " + ", ".join(self.keys), sink
            )
        by = self.keys[sink]
        found = latest(emitted, by) if emitted.num_columns else emitted
        return found.sort_by([(name, "ascending") for name in by]) if found.num_rows else found

    def _sinks(self, given: Mapping[str, Sink] | None) -> dict[str, Sink]:
        unknown = sorted(set(given or {}) - set(self.keys))
        if unknown:
            hint = near_miss(unknown[0], self.keys) or f"; the sinks are {', '.join(self.keys)}"
            raise NotAllowed(f"application {self.name!r} has no sink {unknown[0]!r}{hint}")
        return {name: (given or {}).get(name) or Memory() for name in self.keys}


@dataclass(frozen=True)
class Instances:
    """How many instances the steps of an application get."""

    parallelism: int | Mapping[str, int] | None
    chain: bool

    def of(self, step: str) -> int | None:
        """Instances of a step with state, or of a source."""
        if isinstance(self.parallelism, Mapping):
            return self.parallelism.get(step)
        return self.parallelism

    def stateless(self, step: str) -> int | None:
        """Instances of a step that may be chained; None chains it."""
        if isinstance(self.parallelism, Mapping) or not self.chain:
            return self.of(step)
        return None

    def checked(self, pipeline: Pipeline) -> Pipeline:
        """Return the pipeline, unless instances were given for steps that it does not have."""
        if isinstance(self.parallelism, Mapping):
            names = [step.name for step in pipeline.steps if step.sink is None]
            for unknown in sorted(set(self.parallelism) - set(names)):
                hint = near_miss(unknown, names) or f"; the steps are {', '.join(names)}"
                raise NotAllowed(
                    f"'parallelism' names {unknown!r}, which is no step of application "
                    f"{pipeline.name!r}{hint}"
                )
        return pipeline


def rate_of(source: Any) -> float | None:
    """Rate of a source, for the first plan, if it knows it."""
    return getattr(source, "rate_per_s", None)


def latest(table: pa.Table, by: tuple[str, ...]) -> pa.Table:
    """Last row of each key.

    Examples
    --------
    >>> latest(pa.table({"word": ["a", "b", "a"], "n": [1, 1, 2]}), ("word",)).to_pylist()
    [{'word': 'b', 'n': 1}, {'word': 'a', 'n': 2}]
    """
    numbered = table.append_column("__row", pa.array(np.arange(table.num_rows)))
    last = numbered.group_by(list(by), use_threads=False).aggregate([("__row", "max")])
    return table.take(last.column("__row_max").combine_chunks().sort())
