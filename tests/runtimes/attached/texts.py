"""What Spark's listener tells of a batch, made by hand: a join whose rows are then aggregated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

CHECKPOINT, RUN = "file:/checkpoint/state", "00000000-0000-0000-0000-000000000001"
JOIN_STORES = "left-keyToNumValues,left-keyWithIndexToValue,right-keyToNumValues"
JOIN, SAVE = "symmetricHashJoin-1", "stateStoreSave-0"


def progress(batch: int, rows: int = 600, **more: Any) -> dict[str, Any]:
    """Make Spark's own report of a batch."""
    return {
        "timestamp": f"2026-01-01T00:00:{batch:02d}.000Z",
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 800, "addBatch": 700},
        "stateOperators": [],
        "sources": [],
        **more,
    }


def task(stage: int, partition: int, executor: str, run_ms: int = 100, **more: int) -> str:
    """Make the line of a task."""
    known = {"rows_read": 50, "rows_written": 20, "state_bytes": 1000, "load_ms": 0, **more}
    numbers = (run_ms, 10**6, 1, 0, 64, known["rows_read"], 300, 700, known["rows_written"], 900)
    state = (5, known["state_bytes"], 1, 2, known["load_ms"], 0)
    fields = ("task", stage, 0, partition, executor, "host", "true", "PROCESS_LOCAL", 0, 100)
    return "\t".join(map(str, (*fields, *numbers, *state)))


def executors(*ids: str) -> list[str]:
    """Make the lines of executors, with the driver that runs no tasks."""
    return [f"executor\t{id}\thost\t1\t1000000000\t5000\t7" for id in (*ids, "driver")]


def batch(
    number: int = 0,
    *,
    ran: Mapping[str, tuple[str, ...]] | None = None,
    ids: tuple[str, ...] = ("0", "1", "2"),
    segments: bool = True,
    report: Mapping[str, Any] | None = None,
    run_ms: Mapping[tuple[str, int], int] | None = None,
) -> str:
    """Make a batch of two sources, a join and an aggregation, with two partitions each.

    Parameters
    ----------
    ran : mapping of str to tuple of str
        Executor of each partition of a stage.
    """
    where = {JOIN: ("0", "1"), SAVE: ("1", "2"), **(ran or {})}
    first, shuffle = number * 4, number * 3
    lines = []
    if segments:
        lines += [
            f"segment\t\t{shuffle + 2},\tstateStoreSave|0|2|{CHECKPOINT}|{RUN}|default;",
            f"segment\t{shuffle + 2}\t{shuffle},{shuffle + 1},\t"
            f"symmetricHashJoin|1|2|{CHECKPOINT}|{RUN}|{JOIN_STORES};",
            f"segment\t{shuffle}\t\t",
            f"segment\t{shuffle + 1}\t\t",
        ]
    reads = f"{first},{first + 1}"
    stages = [("", shuffle), ("", shuffle + 1), (reads, shuffle + 2), (str(first + 2), "")]
    for at, (parents, writes) in enumerate(stages):
        lines.append(f"stage\t{first + at}\t0\t{parents}\t{writes}\t2\t{at > 1}")
    for at in (0, 1):
        lines += [task(first + at, p, str(p), 50, rows_read=0) for p in (0, 1)]
    for at, name in ((2, JOIN), (3, SAVE)):
        for p, executor in enumerate(where[name]):
            lines.append(task(first + at, p, executor, (run_ms or {}).get((name, p), 100)))
    told = json.dumps(report or progress(number))
    return "\n".join(["progress", f"query\t{number}", told, *lines, *executors(*ids)])
