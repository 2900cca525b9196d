"""What a step must keep to, checked when the pipeline is built."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.common.arrow_keys import check_key_type
from penstock.common.near_miss import near_miss
from penstock.model import Grouping, InvalidValue, NotAllowed
from penstock.pipeline.expressions import Filter, Select
from penstock.pipeline.file_sinks import Files
from penstock.pipeline.steps import Link, Sink, Step, as_key

#: Longest name in bytes: folders of a step have some characters more, and 255 at most.
LONGEST = 200


def check_name(kind: str, name: Any) -> None:
    """Refuse a name that could not name a folder: state and results are kept by name.

    Examples
    --------
    >>> check_name("step", "a/b")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    penstock.common.errors.NotAllowed: the name of a step must be usable as the name of a ...
    """
    fine = (
        isinstance(name, str)
        and name not in ("", ".", "..")
        and not any(c in "/\\" or ord(c) < 32 or ord(c) == 127 for c in name)
        and len(name.encode("utf-8", "surrogatepass")) <= LONGEST
    )
    if not fine:
        raise NotAllowed(
            f"the name of a {kind} must be usable as the name of a folder: not empty, not '.' or "
            "'..', without '/', '\\' and control characters, and at most "
            f"{LONGEST} bytes; got {name!r}"
        )


def check_count(parameter: str, owner: str, count: Any) -> None:
    """Refuse a number of instances that is not one."""
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise InvalidValue(parameter, owner, "a whole number of at least 1", count)


def check_key(owner: str, by: Any) -> tuple[str, ...]:
    """Columns of a key: at least one, each once."""
    key = as_key(by) if isinstance(by, (str, Sequence)) else ()
    if not key or not all(isinstance(name, str) and name for name in key):
        raise InvalidValue("by", owner, "a column, or a sequence of columns", by)
    twice = [name for name in key if key.count(name) > 1]
    if twice:
        raise NotAllowed(f"{owner} has the column {twice[0]!r} twice in its key; name it once")
    return key


def check_step(pipeline: str, steps: Sequence[Step], step: Step) -> None:
    """Refuse a step that does not fit those that there are."""
    owner = f"step {step.name!r}"
    check_name("step", step.name)
    known = {s.name: s for s in steps}
    if step.name in known:
        raise NotAllowed(
            f"pipeline {pipeline!r} has a step {step.name!r} already; give this one another name"
        )
    for link in step.links:
        if link.source not in known:
            hint = near_miss(link.source, known) or f"; the steps are {', '.join(known)}"
            raise NotAllowed(f"{owner} reads from {link.source!r}, which is no step{hint}")
        if known[link.source].sink is not None:
            raise NotAllowed(
                f"{owner} reads from {link.source!r}, which is a sink and sends nothing on; name "
                "the step before it with 'after'"
            )
        check_columns(owner, link, columns_of(known, link.source))
    check_count("parallelism", owner, step.parallelism)
    if isinstance(step.function, (Select, Filter)):
        columns_of({**known, step.name: step}, step.name)


def check_columns(owner: str, link: Link, schema: pa.Schema | None) -> None:
    """Refuse keys that are not there, or whose type has no equality."""
    if schema is None or not (link.by_key or link.grouping is Grouping.DIRECT):
        return
    for name in link.by:
        if name not in schema.names:
            hint = near_miss(name, schema.names) or f"; its columns are {', '.join(schema.names)}"
            raise NotAllowed(
                f"{owner} is grouped by {name!r}, which {link.source!r} does not have{hint}"
            )
        if link.by_key:
            check_key_type(schema.field(name).type, name, owner)


def columns_of(steps: dict[str, Step], name: str) -> pa.Schema | None:
    """Columns that a step sends on, if that is known before it runs."""
    step = steps[name]
    if step.source is not None:
        schema = getattr(step.source, "schema", None)
        return schema if isinstance(schema, pa.Schema) else None
    emits = getattr(step.keyed, "emits", None)
    if emits is not None:
        came = [columns_of(steps, link.source) for link in step.links]
        return None if any(schema is None for schema in came) else emits(*came)
    made = getattr(step.function, "schema", None)
    if isinstance(made, pa.Schema):
        return made
    if not isinstance(step.function, (Select, Filter)) or len(step.links) != 1:
        return None
    before = columns_of(steps, step.links[0].source)
    if before is None:
        return None
    empty = pa.RecordBatch.from_pylist([], schema=before)
    try:
        return step.function(empty).schema
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError) as error:
        raise NotAllowed(f"step {name!r} does not fit the columns that it gets: {error}") from error


def check_own_folder(name: str, sink: Sink, steps: Sequence[Step]) -> None:
    """Refuse a second sink in a folder: each would take the files of the other for its own."""
    if not isinstance(sink, Files):
        return
    for step in steps:
        if isinstance(step.sink, Files) and _folder(step.sink) == _folder(sink):
            raise NotAllowed(
                f"the sinks {step.name!r} and {name!r} write to one folder, {sink.path}; give each "
                "a folder of its own"
            )


def _folder(sink: Files) -> Path:
    return Path(sink.path).resolve()
