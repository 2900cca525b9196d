"""The keywords of `Pipeline.stateful`, checked against each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.model import InvalidValue, NotAllowed
from penstock.pipeline.keyed.reduce import CustomUpdate
from penstock.pipeline.keyed.timers import TimedUpdate, Timers, positional_parameters
from penstock.pipeline.keyed.windows import microseconds


def stateful_update(
    name: str,
    by: tuple[str, ...],
    update: Callable[..., Any],
    state: pa.Schema,
    *,
    time: str | None,
    lateness: float | str,
    on_timer: Callable[..., Any] | None,
    event_timer: str | None,
    processing_timer: str | None,
    ttl: float | str | None,
) -> CustomUpdate | TimedUpdate:
    """Make what updates the state, with timers and a time to live if they are asked for."""
    owner = f"step {name!r}"
    if not callable(update):
        raise InvalidValue("update", owner, "a function", update)
    if not isinstance(state, pa.Schema):
        raise InvalidValue("state", owner, "a pyarrow.Schema", state)
    late = microseconds(lateness, "lateness", owner)
    if late < 0:
        raise InvalidValue("lateness", owner, "at least 0", lateness)
    if late and time is None:
        raise NotAllowed(f"{owner} has 'lateness', which goes by event time; name it with 'time'")
    live = None if ttl is None else microseconds(ttl, "ttl", owner)
    if live is not None and live < 1:
        raise InvalidValue("ttl", owner, "a positive time", ttl)
    timers = None
    if on_timer is not None:
        if not callable(on_timer):
            raise InvalidValue("on_timer", owner, "a function", on_timer)
        timers = Timers(on_timer, event_timer, processing_timer)
        if not timers.columns:
            raise NotAllowed(
                f"{owner} has 'on_timer' and no timer; name a column of the state that says when a "
                "key is due, as 'event_timer' or 'processing_timer'"
            )
        for column in timers.columns:
            _check_timer(owner, column, state)
    elif event_timer is not None or processing_timer is not None:
        raise NotAllowed(f"{owner} has a timer, and no function to call; give it as 'on_timer'")
    if event_timer is not None and time is None:
        raise NotAllowed(
            f"{owner} has an event timer, which goes by the watermark; name the column with the "
            "event time with 'time'"
        )
    plain = timers is None and time is None and live is None
    if plain and positional_parameters(update) < 3:
        return CustomUpdate(by, state, update)
    return TimedUpdate(by, state, update, time, late, timers, live)


def _check_timer(owner: str, column: str, state: pa.Schema) -> None:
    if column not in state.names:
        raise NotAllowed(
            f"{owner} has the timer {column!r}, which is no column of its state; the state has "
            + ", ".join(state.names)
        )
    kind = state.field(column).type
    if not (pa.types.is_timestamp(kind) or kind == pa.int64()):
        raise NotAllowed(
            f"{owner} has the timer {column!r} of type {kind}; a timer is a timestamp, or int64 "
            "microseconds since 1970"
        )
