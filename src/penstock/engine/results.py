"""What a batch, and a change of plan, left behind: read from the frames that reach the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.engine.batch import BatchSpec
from penstock.engine.errors import StepFailed
from penstock.engine.messages import ERROR, Message, decode_json
from penstock.state.versions import StateLost

Ranges = Mapping[str, tuple[tuple[int, int], ...]]


@dataclass(frozen=True, eq=False)
class InstanceStats:
    """What one instance did in one batch."""

    vertex: str
    instance: int
    rows_in: int
    sent: Mapping[int, Mapping[int, int]]
    sinks: Mapping[str, int]
    partitions: Mapping[str, list[int]]
    skipped: int
    sample: Any
    stamps: Mapping[int, int]
    cpu_s: float
    wall_s: float
    rss_bytes: int
    saved: Mapping[str, Any] | None = None
    arrived: Mapping[str, int] | None = None
    hot_keys: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    event_times: Mapping[str, int] = field(default_factory=dict)
    staged: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def rows_out(self) -> int:
        """Rows sent on all wires and to all sinks."""
        sent = sum(sum(targets.values()) for targets in self.sent.values())
        return sent + sum(self.sinks.values())


@dataclass(frozen=True, eq=False)
class BatchResult:
    """What a committed batch did.

    Parameters
    ----------
    batch_id, wave, ranges, stats, rows_to_sinks
    inband : MigrationResult or None
        What moved with it; None: nothing did.
    """

    batch_id: int
    spec: BatchSpec
    ranges: Ranges
    stats: tuple[InstanceStats, ...]
    rows_to_sinks: Mapping[str, int]
    inband: MigrationResult | None = None

    @property
    def rows_in(self) -> int:
        """Rows that the sources read."""
        first = set(self.spec.layers[0])
        return sum(s.rows_in for s in self.stats if s.vertex in first)

    @property
    def skipped(self) -> int:
        """Rows that were left out because a function failed on them."""
        return sum(s.skipped for s in self.stats)


@dataclass(frozen=True)
class MigrationResult:
    """What a change of plan took.

    Parameters
    ----------
    seconds : float
        Time that the stream stood still.
    state_bytes, precopied_bytes : int
        State that was carried in that time, and state that was copied ahead and taken over.
    inband_bytes : int
        State that comes with a batch instead: before it, by what peers keep; after it, what came.
    moved, restored, repartitioned : int
        Instances whose state was copied, was put together from fragments, or changed its keys.
    not_precopied : str
        Why state was carried that was to be copied ahead; empty when there is nothing to tell.
    failed : str
        Why the plan before is still in charge; empty when it is not.
    """

    seconds: float = 0.0
    state_bytes: int = 0
    moved: int = 0
    restored: int = 0
    repartitioned: int = 0
    precopied_bytes: int = 0
    inband_bytes: int = 0
    not_precopied: str = ""
    failed: str = ""


def stats_of(values: dict[str, Any]) -> InstanceStats:
    """Read what an instance told of itself; numbers that are keys of JSON come as text."""
    values["sent"] = {
        int(edge): {int(target): rows for target, rows in targets.items()}
        for edge, targets in values["sent"].items()
    }
    values["hot_keys"] = {
        target: {int(key): rows for key, rows in found.items()}
        for target, found in values["hot_keys"].items()
    }
    values["stamps"] = {int(step): count for step, count in values["stamps"].items()}
    return InstanceStats(**values)


def raise_error(frames: Iterable[Message]) -> None:
    """Raise what a task failed with, if one did."""
    for frame in frames:
        if frame.kind == ERROR and frame.edge == 1:
            raise StateLost(decode_json(frame.body))
        if frame.kind == ERROR:
            raise StepFailed(**decode_json(frame.body))
