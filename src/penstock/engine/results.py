"""What a committed batch did, and what a change of plan took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engine.batch import BatchSpec
from penstock.engine.messages import TaskStats

#: By source: the ranges of positions that belong to a batch.
Ranges = Mapping[str, tuple[tuple[int, int], ...]]


@dataclass(frozen=True, eq=False)
class BatchResult:
    """What a committed batch did.

    Parameters
    ----------
    batch_id : int
    spec : BatchSpec
    ranges : mapping
        What it read of each source.
    stats : tuple of TaskStats
        One for each instance.
    rows_to_sinks : mapping of str to int
    inband : MigrationResult or None
        The state that migrated with the batch; None if none did.
    """

    batch_id: int
    spec: BatchSpec
    ranges: Ranges
    stats: tuple[TaskStats, ...]
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
        Time for which no batch could run.
    state_bytes : int
        State that was migrated in that time.
    moved, restored, repartitioned : int
        Instances whose state was copied from another executor, was restored from fragments, or
        was given other keys.
    precopied_bytes : int
        State that had been copied to its new executor before, while batches ran.
    inband_bytes : int
        State that migrates with a batch instead: an estimate before that batch, by the size of the
        backups; what was received after it.
    not_precopied : str
        Why state that should have been pre-copied or migrated with a batch was migrated between
        two batches; empty if there was no such state.
    failed : str
        Why the plan before is still in force; empty if it is not.
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
