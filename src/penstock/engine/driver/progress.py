"""How far a run is: the last committed batch, and what the next batch starts from."""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from penstock.common.key_hashing import HASHING
from penstock.engine.driver.commit_log import FOLDER, CommitLog
from penstock.engine.driver.fingerprint import Adoption, Fingerprint, adopt
from penstock.engine.driver.output import KeyTypes
from penstock.engine.driver.restore_point import restore_point
from penstock.engine.results import Ranges
from penstock.engine.state.handles import StateHandle
from penstock.model import NotAllowed
from penstock.pipeline.steps import PARTITION
from penstock.state.config import StateConfig
from penstock.state.files.rename import copy_operator, remove_operator

#: What a commit says of the release that wrote it: the form of commits, and how keys are hashed.
WRITTEN: Mapping[str, int] = {"format": 2, "hashing": HASHING}

#: By windowed step: event time in microseconds; a step that saw no row yet is left out, or has 0.
Watermarks = dict[str, int]


class Progress:
    """The committed batches of one run, as its commit log has them.

    Parameters
    ----------
    root : Path or str
        Folder, or address, of the checkpoint.
    state_config : StateConfig
        How state is kept: a commit whose state is damaged is not used.
    fingerprint : Fingerprint
        Of the pipeline that starts.
    rename, forget
        As in `penstock.engine.driver.fingerprint.adopt`.

    Attributes
    ----------
    commit_log : CommitLog
    number : int
        Number of the last attempt at anything that saves state; none is used twice.
    batch : int
        The last committed batch; -1 before the first.
    state : dict
        By stateful vertex: its committed state, from which `committed_handles` makes a
        `StateHandle`.
    shares : dict of str to bytes
        By step: shares of split keys; the owners of the keys get them with the next batch.
    watermarks, previous_watermarks : dict of str to int
        As in `BatchSpec`.
    key_types : dict of str to tuple of str
        By step with state: types of the columns of its key.
    clock_us, previous_clock_us : int
        As in `BatchSpec`, of the batch that was begun last.
    next_timer_us : int or None
        When the next key is due by the clock; None if none is.
    """

    def __init__(
        self,
        root: Path | str,
        state_config: StateConfig,
        fingerprint: Fingerprint,
        rename: Mapping[str, str] | None = None,
        forget: Collection[str] = (),
    ) -> None:
        self.commit_log = CommitLog(f"{root}/{FOLDER}", sync=state_config.sync)
        self.commit_log.take_epoch()
        done = restore_point(self.commit_log, state_config)
        self.number = self.commit_log.last_number()
        for name, ours in WRITTEN.items():
            if done and done.get(name) != ours:
                raise NotAllowed(
                    f"the checkpoint {root} was written by another release of Penstock (its {name} "
                    f"is {done.get(name, 1)}, that of this release {ours}) and cannot be gone on "
                    "with. Finish the run with the release that began it, or start with another "
                    "checkpoint"
                )
        self._fingerprint = fingerprint.to_dict()
        if done and "fingerprint" in done:
            before = Fingerprint.from_dict(done["fingerprint"])
            if before != fingerprint:
                done = self._adopt(done, adopt(before, fingerprint, rename, forget), state_config)
        self.batch = int(done.get("batch", -1))
        self.state: dict[str, Any] = done.get("state", {})
        self.shares = {n: b64decode(body) for n, body in done.get("shares", {}).items()}
        self.watermarks: Watermarks = dict(done.get("watermarks", {}))
        self.previous_watermarks: Watermarks = dict(done.get("previous_watermarks", {}))
        self.previous_clock_us = self.clock_us = int(done.get("clock_us", 0))
        self.next_timer_us: int | None = done.get("next_timer_us")
        self.key_types: dict[str, tuple[str, ...]] = {
            name: tuple(types) for name, types in done.get("key_types", {}).items()
        }
        self._positions = {name: tuple(at) for name, at in done.get("positions", {}).items()}

    def _adopt(
        self, done: dict[str, Any], adoption: Adoption, state_config: StateConfig
    ) -> dict[str, Any]:
        """Go on from the commit of a changed pipeline, in the names of the one that starts.

        1. State gets its new name beside the old one.
        2. A commit says so. A start that dies before it begins here again.
        3. The old names of state are removed.
        """
        moved = {old: new for old, new in adoption.vertices.items() if old != new}
        for old, new in moved.items():
            copy_operator(state_config.shared, old, new, sync=state_config.sync)
        pending = self.pending()
        done = adoption.commit(done, None if pending is None else dict(pending))
        done["fingerprint"] = self._fingerprint
        self.number = self.commit_log.begin(self.number + 1, {"adopted": dict(adoption.steps)})
        self.commit_log.commit(self.number, done)
        for old in moved:
            remove_operator(state_config.shared, old)
        return done

    def last_commit(self) -> dict[str, Any]:
        """Return what was written with the last commit; {} before the first."""
        return self.commit_log.committed(self.commit_log.last_commit()) or {}

    @property
    def next_batch(self) -> int:
        """Number of the next batch."""
        return self.batch + 1

    def pending(self) -> Ranges | None:
        """Return the ranges of a batch that was begun and not committed; it must be run first."""
        for number in range(self.number, self.commit_log.last_commit(), -1):
            entry = self.commit_log.begun(number)
            if entry is not None and "ranges" in entry:
                return _ranges(entry["ranges"])
        pending = self.last_commit().get("pending")
        return _ranges(pending) if pending else None

    @property
    def watermark_moved(self) -> bool:
        """Whether the last batch moved a watermark: a batch without data closes windows then.

        It is the watermark of a step that counts, not that of one of two streams that it reads.
        """
        before = self.previous_watermarks
        return any(
            mark > before.get(name, 0) for name, mark in self.watermarks.items() if "/" not in name
        )

    def positions(self) -> dict[str, tuple[int, ...]]:
        """Return what every source has reached in committed batches, in each of its partitions."""
        return dict(self._positions)

    def begin(self, entry: dict[str, Any]) -> int:
        """Write what is going to be done, and return its number."""
        self.number = self.commit_log.begin(self.number + 1, entry)
        return self.number

    def begin_batch(self, ranges: Ranges) -> int:
        """Write which ranges the next batch reads, and return the number of this attempt."""
        cuts = {name: [list(cut) for cut in cuts] for name, cuts in ranges.items()}
        self.clock_us = self._clock_of_attempt() or max(self.previous_clock_us, _clock_us())
        return self.begin({"ranges": cuts, "clock_us": self.clock_us})

    def _clock_of_attempt(self) -> int | None:
        """When the next batch was begun for the first time; None if it was not yet."""
        for number in range(self.number, self.commit_log.last_commit(), -1):
            entry = self.commit_log.begun(number)
            if entry is not None and "clock_us" in entry:
                return int(entry["clock_us"])
        return None

    @property
    def timer_due(self) -> bool:
        """Whether a key is due by the clock: a batch without data calls its timer."""
        return self.next_timer_us is not None and _clock_us() >= self.next_timer_us

    def commit_batch(
        self,
        version: int,
        ranges: Ranges,
        handles: Mapping[str, StateHandle],
        shares: Mapping[str, bytes],
        watermarks: Watermarks,
        key_types: KeyTypes,
        extra: Mapping[str, Any],
        next_timer_us: int | None = None,
    ) -> None:
        """Write that a batch is done: from now on it is never run again.

        Parameters
        ----------
        version : int
            Number of the attempt.
        ranges : mapping
            What it read.
        handles : mapping of str to StateHandle
            State after the batch.
        shares, watermarks, key_types
            As in the attributes, for the next batch.
        extra : mapping
            More to write down.
        next_timer_us : int or None
            When the next key is due by the clock.
        """
        positions = self.positions()
        for name, cuts in ranges.items():
            reached = {at // PARTITION: at for at in positions.get(name, ())}
            reached.update({start // PARTITION: stop for start, stop in cuts})
            positions[name] = tuple(reached[partition] for partition in sorted(reached))
        done = {
            "batch": self.next_batch,
            **WRITTEN,
            "fingerprint": self._fingerprint,
            "positions": positions,
            "state": {name: _plain(handle) for name, handle in handles.items()},
            "shares": {name: b64encode(body).decode() for name, body in shares.items()},
            "watermarks": watermarks,
            "previous_watermarks": self.watermarks,
            "key_types": {name: list(types) for name, types in key_types.items()},
            "clock_us": self.clock_us,
            "next_timer_us": next_timer_us,
        }
        self.commit_log.commit(version, {**done, **extra})
        self.previous_clock_us, self.next_timer_us = self.clock_us, next_timer_us
        self.previous_watermarks, self.watermarks = self.watermarks, watermarks
        self.shares, self.key_types = dict(shares), dict(key_types)
        self.batch, self._positions = self.next_batch, positions

    def commit_state(self, handles: Mapping[str, StateHandle]) -> None:
        """Write the versions that were saved between batches: those before are soon removed."""
        pending, done = self.pending(), self.last_commit()
        done.update(WRITTEN)
        done["fingerprint"] = self._fingerprint
        done["state"] = {name: _plain(handle) for name, handle in handles.items()}
        done["pending"] = None if pending is None else {n: list(c) for n, c in pending.items()}
        self.commit_log.commit(self.number, done)


def _clock_us() -> int:
    return time.time_ns() // 1000


def _plain(handle: StateHandle) -> dict[str, Any]:
    return {
        "partitions": None if handle.table is None else list(handle.table.partitions),
        "versions": [instance.version for instance in handle.instances],
    }


def _ranges(cuts: Mapping[str, Any]) -> Ranges:
    return {name: tuple((a, b) for a, b in found) for name, found in cuts.items()}
