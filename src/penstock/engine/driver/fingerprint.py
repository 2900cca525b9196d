"""What a checkpoint says of the pipeline that wrote it, and whether another one may go on from it.

State belongs to a step by its name, and so do the offsets of a source. A pipeline that was changed
between two runs could take the wrong state, or none, without a word. So each commit holds a
fingerprint of the sources and of the steps with state:

1. What is safe goes on: another strategy, another parallelism, a new source, a new sink, new or
   changed stateless steps.
2. What is not is refused, and the error names the step: a source or a step with state that is gone
   or new, another key, another window, other columns of the state.
3. ``rename={"old": "new"}`` says that a step has another name now; ``forget=["step"]`` says that
   its state or its offset is not wanted any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import pyarrow as pa

from penstock.common.errors import PenstockError
from penstock.common.near_miss import near_miss
from penstock.engine.job_graph import JobGraph, is_source
from penstock.pipeline.keyed.reduce import WorkThenReduce

#: Fields of a step with state that may change: its state means the same.
_SAFE = ("by", "emit", "lateness_us", "ttl_us", "within_us")


class PipelineChanged(PenstockError):
    """The pipeline is not the one that wrote the checkpoint; says what is different."""


@dataclass(frozen=True)
class Fingerprint:
    """What of a pipeline must stay the same for its checkpoint to be of use.

    Parameters
    ----------
    sources : mapping of str to str
        What kind of source each source step reads, or which one, if it says so.
    stateful : mapping of str to mapping
        By step with state: the vertex that it runs in, its key, and what its state means.
    """

    sources: Mapping[str, str] = field(default_factory=dict)
    stateful: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, job_graph: JobGraph) -> Fingerprint:
        """Take the fingerprint of a pipeline.

        Examples
        --------
        >>> from penstock.pipeline import Lines, Memory, Pipeline
        >>> lines = Pipeline("p").source("lines", Lines(["a"])).sink("out", Memory())
        >>> Fingerprint.of(JobGraph.of(lines)).sources
        {'lines': 'Lines'}
        """
        sources, stateful = {}, {}
        for vertex in job_graph.vertices:
            step = job_graph.pipeline[vertex.head]
            if step.source is not None:
                kind = type(step.source).__name__
                # A DataFrame has its columns as attributes, whatever they are called.
                ours = is_source(step.source)
                sources[step.name] = getattr(step.source, "identity", kind) if ours else kind
            if step.keyed is not None:
                stateful[step.name] = {
                    "vertex": vertex.name,
                    "key": list(step.keyed.by),
                    "state": _meaning(step.keyed),
                }
        return cls(sources, stateful)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Fingerprint:
        """Read back what `to_dict` gave."""
        return cls(dict(values["sources"]), dict(values["stateful"]))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the commit log."""
        return {"sources": dict(self.sources), "stateful": dict(self.stateful)}


@dataclass(frozen=True)
class Adoption:
    """How names of a checkpoint become names of the pipeline that goes on from it.

    Parameters
    ----------
    vertices, steps : mapping of str to str
        New name by old name, of vertices with state and of steps; equal names included.
    """

    vertices: Mapping[str, str]
    steps: Mapping[str, str]

    def commit(self, done: Mapping[str, Any], pending: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return a commit of the checkpoint in the names of the pipeline that goes on.

        Parameters
        ----------
        done : mapping
            What the last commit says.
        pending : mapping or None
            Ranges, by source, of a batch that was begun and not committed.
        """
        by_step = ("positions", "shares", "watermarks", "previous_watermarks", "key_types")
        new = {**done, **{key: _renamed(done.get(key, {}), self.steps) for key in by_step}}
        new["state"] = _renamed(done.get("state", {}), self.vertices)
        new["pending"] = _renamed(pending, self.steps) if pending else None
        return new


def adopt(
    before: Fingerprint,
    now: Fingerprint,
    rename: Mapping[str, str] | None = None,
    forget: Collection[str] = (),
) -> Adoption:
    """Say how a pipeline goes on from another one's checkpoint, or refuse it.

    Parameters
    ----------
    before, now : Fingerprint
        Of the pipeline that wrote the checkpoint, and of the one that starts.
    rename : mapping of str to str, optional
        New name by old name of steps.
    forget : collection of str
        Steps, by their old or new name, that start without the state or the offset that there is.

    Raises
    ------
    PipelineChanged
        With every step that is different, and what to do about it.
    """
    rename = dict(rename or {})
    known = {*before.sources, *before.stateful, *now.sources, *now.stateful}
    wrong = [name for name in (*rename, *forget) if name not in known]
    wrong += [new for new in rename.values() if new not in {*now.sources, *now.stateful}]
    if wrong:
        name = wrong[0]
        raise PipelineChanged(
            f"rename and forget name the step {name!r}, which is neither a source nor a step with "
            f"state of the checkpoint or the pipeline{near_miss(name, sorted(known))}"
        )
    problems = [
        *_differences("source", before.sources, now.sources, rename, forget),
        *_differences("step with state", before.stateful, now.stateful, rename, forget),
    ]
    if problems:
        raise PipelineChanged(
            "the checkpoint was written by a different pipeline: "
            + "; ".join(problems)
            + '. If a step only got another name, start with rename={"old": "new"}; if its state '
            'is not wanted any more, with forget=["step"]; otherwise use another checkpoint folder'
        )
    kept = {
        old: rename.get(old, old)
        for old in (*before.sources, *before.stateful)
        if old not in forget and rename.get(old, old) not in forget
    }
    kept = {old: new for old, new in kept.items() if new in now.sources or new in now.stateful}
    vertices = {
        str(before.stateful[old]["vertex"]): str(now.stateful[new]["vertex"])
        for old, new in kept.items()
        if old in before.stateful
    }
    swapped = [new for old, new in vertices.items() if old != new and new in vertices]
    if swapped:
        raise PipelineChanged(
            f"the step {swapped[0]!r} would get the state of another step whose state goes "
            "elsewhere; rename in two starts, with a name in between that is not in use"
        )
    return Adoption(vertices, kept)


def _renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Give values their new names; a stream of a step, ``<step>/left``, goes by the step's."""
    made = {}
    for old, value in values.items():
        step, slash, stream = old.partition("/")
        if step in names:
            made[names[step] + slash + stream] = value
    return made


def _differences(
    kind: str,
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    rename: Mapping[str, str],
    forget: Collection[str],
) -> list[str]:
    found = []
    for old, was in before.items():
        new = rename.get(old, old)
        if old in forget or new in forget:
            continue
        if new not in now:
            found.append(f"{kind} {old!r} is gone")
            continue
        found += _difference(f"{kind} {new!r}", was, now[new])
    if kind != "source":
        taken = {rename.get(old, old) for old in before}
        new_ones = [name for name in now if name not in taken and name not in forget]
        found += [f"{kind} {name!r} is new and would miss what came before" for name in new_ones]
    return found


def _difference(owner: str, was: Any, new: Any) -> list[str]:
    if isinstance(was, str):
        return [] if was == new else [f"{owner} was {was} and is {new}"]
    found = []
    if list(was["key"]) != list(new["key"]):
        found.append(f"{owner} had the key {', '.join(was['key'])}, now {', '.join(new['key'])}")
    if was["state"] != new["state"]:
        found.append(f"{owner} had the state {was['state']}, now {new['state']}")
    return found


def _meaning(value: Any) -> str:
    """Describe what a keyed step keeps, from its declared fields; functions count by presence."""
    if isinstance(value, pa.Schema):
        return ", ".join(
            f"{name} {kind}" for name, kind in zip(value.names, value.types, strict=True)
        )
    if isinstance(value, WorkThenReduce):
        # What is done to the tuples before they are aggregated leaves no trace in the state.
        return _meaning(value.reduce)
    if is_dataclass(value) and not isinstance(value, type):
        parts = [
            f"{one.name}={_meaning(getattr(value, one.name))}"
            for one in fields(value)
            if one.name not in _SAFE and getattr(value, one.name) is not None
        ]
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_meaning(one) for one in value) + "]"
    return "function" if callable(value) else str(value)
