"""How far a run is: the last committed batch, and what the next batch starts from."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from penstock.common.key_hashing import HASHING
from penstock.engine.driver.commit_log import FOLDER, CommitLog
from penstock.engine.driver.fingerprint import Adoption, Fingerprint, adopt
from penstock.engine.driver.restore_point import restore_point
from penstock.engine.results import Ranges
from penstock.engine.state.handles import StateHandle
from penstock.model import InvalidValue
from penstock.state.config import StateConfig
from penstock.state.files.rename import copy_operator, remove_operator

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
        By stateful vertex: its committed state, as `StateHandle.to_dict` wrote it.
    shares : dict of str to bytes
        By step: shares of split keys; the owners of the keys get them with the next batch.
    watermarks, previous_watermarks : dict of str to int
        As in `BatchSpec`.
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
        if done and done.get("hashing") != HASHING:
            raise InvalidValue(
                "checkpoint",
                "a run",
                f"of a release that hashes keys as this one does ({HASHING})",
                done.get("hashing", 1),
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
        """Whether the last batch moved a watermark: a batch without data closes windows then."""
        before = self.previous_watermarks
        return any(mark > before.get(name, 0) for name, mark in self.watermarks.items())

    def position(self) -> dict[str, int]:
        """Return the position that every source has reached in committed batches."""
        return {name: int(at) for name, at in self.last_commit().get("positions", {}).items()}

    def begin(self, entry: dict[str, Any]) -> int:
        """Write what is going to be done, and return its number."""
        self.number = self.commit_log.begin(self.number + 1, entry)
        return self.number

    def begin_batch(self, ranges: Ranges) -> int:
        """Write which ranges the next batch reads, and return the number of this attempt."""
        cuts = {name: [list(cut) for cut in cuts] for name, cuts in ranges.items()}
        return self.begin({"ranges": cuts})

    def commit_batch(
        self,
        version: int,
        ranges: Ranges,
        handles: Mapping[str, StateHandle],
        shares: Mapping[str, bytes],
        watermarks: Watermarks,
        extra: Mapping[str, Any],
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
        shares, watermarks
            As in the attributes, for the next batch.
        extra : mapping
            More to write down.
        """
        positions = self.position()
        positions.update({name: cuts[-1][1] for name, cuts in ranges.items() if cuts})
        done = {
            "batch": self.next_batch,
            "hashing": HASHING,
            "fingerprint": self._fingerprint,
            "positions": positions,
            "state": {name: handle.to_dict() for name, handle in handles.items()},
            "shares": {name: b64encode(body).decode() for name, body in shares.items()},
            "watermarks": watermarks,
            "previous_watermarks": self.watermarks,
        }
        self.commit_log.commit(version, {**done, **extra})
        self.previous_watermarks, self.watermarks = self.watermarks, watermarks
        self.shares = dict(shares)
        self.batch = self.next_batch

    def commit_state(self, handles: Mapping[str, StateHandle]) -> None:
        """Write the versions that were saved between batches: those before are soon removed."""
        pending, done = self.pending(), self.last_commit()
        done["hashing"] = HASHING
        done["fingerprint"] = self._fingerprint
        done["state"] = {name: handle.to_dict() for name, handle in handles.items()}
        done["pending"] = None if pending is None else {n: list(c) for n, c in pending.items()}
        self.commit_log.commit(self.number, done)


def _ranges(cuts: Mapping[str, Any]) -> Ranges:
    return {name: tuple((a, b) for a, b in found) for name, found in cuts.items()}
