"""Pipelines of steps that follow event time, with two streams to read, for tests of the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import functions as F
from penstock.pipeline import Pipeline, Rows, Sink, between, sliding
from penstock.pipeline import session as sessions

SECOND = 1_000_000
ROWS = 400


def rows(seed: int, value: str) -> pa.Table:
    """Rows of some keys whose times go forward, a second or so out of order."""
    rng = np.random.default_rng(seed)
    times = np.arange(ROWS) * SECOND // 4 + rng.integers(0, 2 * SECOND, ROWS)
    keys = [f"w{k}" for k in rng.zipf(1.5, ROWS) % 23]
    return pa.table({"k": keys, "t": times // 1000 * 1000, value: np.arange(ROWS)})


def join(streams: Pipeline) -> Pipeline:
    time = between("t", "t", "-2 s", "5 s", lateness="2 s")
    return streams.join("step", "right", after="left", on="k", time=time)


def full_join(streams: Pipeline) -> Pipeline:
    time = between("t", "t", "-100 ms", "100 ms", lateness="2 s")
    return streams.join("step", "right", after="left", on="k", how="full", time=time)


def join_for_good(streams: Pipeline) -> Pipeline:
    return streams.join("step", "right", after="left", on="k")


def deduplicate(streams: Pipeline) -> Pipeline:
    return streams.deduplicate("step", after="left", by="k", time="t", within="5 s")


def session(streams: Pipeline) -> Pipeline:
    window = sessions("t", "1 s", lateness="2 s")
    return streams.aggregate(
        "step", after="left", by="k", window=window, n=F.count(), v=F.sum("v"), low=F.min("v")
    )


def slide(streams: Pipeline) -> Pipeline:
    window = sliding("t", "5 s", "2 s", lateness="2 s")
    return streams.aggregate("step", after="left", by="k", window=window, n=F.count(), m=F.avg("v"))


def last_seen(batch: pa.Table, state: pa.Table) -> tuple[None, pa.Table]:
    """Keep the latest time of a key, and when it will have been silent for three seconds."""
    known = state.select(["k", "t", "n"])
    new = batch.select(["k", "t"]).append_column("n", pa.array([1] * batch.num_rows))
    both = pa.concat_tables([known, new]).group_by("k", use_threads=False)
    rows = both.aggregate([("t", "max"), ("n", "sum")]).rename_columns(["k", "t", "n"])
    return None, rows.append_column("due", pc.add(rows["t"], 3 * SECOND))


def silent(state: pa.Table) -> tuple[pa.Table, None, pa.Table]:
    """Tell of the keys that have been silent, and forget them."""
    return state.select(["k", "t", "n"]), None, state.select(["k"])


def timers(streams: Pipeline) -> Pipeline:
    schema = pa.schema([("t", pa.int64()), ("n", pa.int64()), ("due", pa.int64())])
    return streams.stateful(
        "step",
        after="left",
        by="k",
        update=last_seen,
        state=schema,
        time="t",
        lateness="2 s",
        on_timer=silent,
        event_timer="due",
        ttl="1 d",
    )


#: What is added behind the sources ``left`` and ``right``; the step is called ``step``.
STEPS: Mapping[str, Callable[[Pipeline], Pipeline]] = {
    "join": join,
    "full join": full_join,
    "join for good": join_for_good,
    "deduplicate": deduplicate,
    "session": session,
    "sliding": slide,
    "timers": timers,
}


def sources(name: str, size: int = ROWS) -> Pipeline:
    """Begin a pipeline with both streams."""
    return (
        Pipeline(name.replace(" ", "-"))
        .source("left", Rows(rows(1, "v").slice(0, size)), parallelism=2)
        .source("right", Rows(rows(2, "w").slice(0, size)), parallelism=2)
    )


def pipeline(name: str, sink: Sink) -> Pipeline:
    """Build one of them."""
    return STEPS[name](sources(name)).sink("out", sink)


def all_steps(sinks: Mapping[str, Sink], size: int = ROWS) -> Pipeline:
    """Build several of them behind the same sources, each with its sink."""
    made = sources("streams", size)
    for number, (name, sink) in enumerate(sinks.items()):
        made = STEPS[name](made)
        step = replace(made.steps[-1], name=f"step{number}")
        made = replace(made, steps=(*made.steps[:-1], step)).sink(f"out{number}", sink)
    return made
