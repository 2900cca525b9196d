"""The driver of a pipeline: batches in order, each planned, run, committed; on any backend."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.common.key_hashing import HASHING
from penstock.engine.backend import NOBODY, Backend
from penstock.engine.batch import Wave
from penstock.engine.driver.transition import Planned
from penstock.engine.errors import StepFailed
from penstock.engine.job_graph import MOST_INSTANCES
from penstock.engine.messages import RUN, SHARED, SINK, STATS, Frame, decode, decode_json, encode
from penstock.engine.results import (
    BatchResult,
    Carried,
    InstanceStats,
    Ranges,
    raise_error,
    stats_of,
)
from penstock.engine.task.hot_keys import merged_shares
from penstock.pipeline.keyed.windowed import advanced_watermarks
from penstock.state.backup.fragments import Piece
from penstock.state.versions import StateLost

__all__ = ["Backend", "BatchResult", "Carried", "Driver", "InstanceStats", "Ranges"]


@dataclass(eq=False)
class Driver(Planned):
    """Runs the batches of one pipeline in order.

    Its parameters are those of `Planned`.
    """

    def run_batch(self, ranges: Ranges, extra: dict[str, Any] | None = None) -> BatchResult:
        """Run and commit the next batch.

        Parameters
        ----------
        ranges : mapping
            Positions of each source that belong to it.
        extra : dict, optional
            More to write down with the commit.

        Raises
        ------
        StepFailed
            When a function failed and `on_error` is ``stop``. Nothing of the batch remains.
        """
        wave, frames, ride = self._frames(ranges)
        stats = tuple(stats_of(decode_json(f.body)) for f in frames if f.kind == STATS)
        merged, shares = self._shares(frames)
        written = self._sinks(wave.batch_id, frames, stats, merged)
        positions = self.position()
        positions.update({name: cuts[-1][1] for name, cuts in ranges.items() if cuts})
        result = BatchResult(wave.batch_id, wave, ranges, stats, written)
        self._note_saved(wave, frames, stats)
        if self._ride is not None:
            self._ride.land()
            ride = self._ride.came(result)
            self._take_effect(self.plan, self._ride.tables)
        following = advanced_watermarks(
            self.layout.pipeline.steps, self.watermarks, [one.event_times for one in stats]
        )
        done = {
            "batch": wave.batch_id,
            "hashing": HASHING,
            "positions": positions,
            "state": {name: held.to_dict() for name, held in self.held.items()},
            "shares": {name: b64encode(body).decode() for name, body in shares.items()},
            "watermarks": following,
            "passed": self.watermarks,
        }
        self.journal.commit(wave.version, {**done, **(extra or {})})
        self._ride = None
        self.passed, self.watermarks = self.watermarks, following
        self.shares = shares
        self.batch = wave.batch_id
        self._hand_over()
        return replace(result, ride=ride)

    def _frames(self, ranges: Ranges) -> tuple[Wave, list[Frame], Carried | None]:
        """Run the tasks of a batch.

        State that does not come with it is carried first. Where that fails, too, the plan before
        stays in charge, and what went wrong is returned.
        """
        cuts = {name: [list(cut) for cut in cuts] for name, cuts in ranges.items()}
        told: Carried | None = None
        while True:
            self._clear_attempt()
            wave, ride = self.wave(ranges, self._begin({"ranges": cuts})), self._ride
            riders = NOBODY if ride is None else ride.riders(wave)
            frames = [Frame.unpack(bytes(b)) for b in self.backend.run(self.layout, wave, riders)]
            try:
                raise_error(frames)
            except StateLost as error:
                if ride is None:
                    raise
                told = self._carry_instead(str(error))
            else:
                return wave, frames, told

    def _carry_instead(self, why: str) -> Carried:
        """Carry the state of a ride between batches after all, or stay with the plan before."""
        try:
            return replace(self.settle(), not_ahead=why)
        except StateLost as error:
            # Some of it may be elsewhere already.
            self.adopt(self.plan)
            self.not_moved = (self.next_batch, str(error))
            return Carried(failed=str(error))

    def _clear_attempt(self) -> None:
        """Remove what another attempt at the batch gave to sinks: it may be of other instances."""
        if self.attempted == self.next_batch:
            for step in self.layout.sinks():
                assert step.sink is not None
                step.sink.recover(self.batch)
        self.attempted = self.next_batch

    def _note_saved(
        self, wave: Wave, frames: Iterable[Frame], stats: Iterable[InstanceStats]
    ) -> None:
        """Take note of what instances saved, and hold what they sent of it."""
        names = list(wave.bases)
        sent = {
            (names[f.wire], f.sender): Piece.unpack(f.body).content for f in frames if f.kind == RUN
        }
        saved = {(one.vertex, one.instance): one.saved for one in stats if one.saved is not None}
        for key, values in saved.items():
            block = self.ledger.note_saved(wave, *key, values)
            if block is not None and block.held:
                self._mover.handover.hold(block, bytes(sent[key]))
        self._mover.handover.note(saved.values())

    def _hand_over(self) -> None:
        """Give what the driver holds to peers when that is due and no state is on the move."""
        handover = self._mover.handover
        if handover.due() and not self._mover.ahead.coming:
            handover.begin(self.wave({}, self.number, backup=True))

    def not_given(self) -> str:
        """Say, once, why peers did not take what the driver holds; empty if they did."""
        handover = self._mover.handover
        why, handover.failure = handover.failure, ""
        return why

    def close(self) -> None:
        """End what is done beside the batches."""
        self._mover.ahead.end()
        self._mover.handover.end()

    def _shares(self, frames: Iterable[Frame]) -> tuple[dict[str, pa.Table], dict[str, bytes]]:
        """Merge split keys: what is emitted of them, and what their homes are to get; by step."""
        sent: dict[str, list[pa.Table]] = {}
        for frame in sorted(frames, key=lambda frame: frame.sender):
            if frame.kind == SHARED:
                name = self.layout.pipeline.steps[frame.wire].name
                sent.setdefault(name, []).append(decode(frame.body))
        merged: dict[str, pa.Table] = {}
        shares: dict[str, bytes] = {}
        for name, tables in sent.items():
            try:
                out, left = merged_shares(self.layout.pipeline[name].keyed, tables)
            except Exception as error:
                cause = f"{type(error).__name__}: {error} (while split keys were merged)"
                raise StepFailed(name, 0, self.next_batch, cause, "[]") from error
            if out is not None:
                merged[name] = out
            if left is not None:
                shares[name] = bytes(encode(left))
        return merged, shares

    def _sinks(
        self,
        batch_id: int,
        frames: list[Frame],
        stats: tuple[InstanceStats, ...],
        merged: Mapping[str, pa.Table],
    ) -> dict[str, int]:
        """Hand what tasks made, and what was merged of split keys, to the sinks."""
        rows: dict[str, list[pa.Table]] = {}
        for frame in frames:
            if frame.kind == SINK:
                name = self.layout.pipeline.steps[frame.wire].name
                rows.setdefault(name, []).append(decode(frame.body))
        written = {}
        for step in self.layout.sinks():
            assert step.sink is not None
            own = [merged[link.source] for link in step.links if link.source in merged]
            if step.sink.on_workers:
                for number, part in enumerate(own, len(self.layout.vertices) * MOST_INSTANCES):
                    # Files of the driver's own, numbered after those of all instances.
                    step.sink.stage(batch_id, number, part)
            tables = [*rows.get(step.name, ()), *(() if step.sink.on_workers else own)]
            table = pa.concat_tables(tables, promote_options="permissive") if tables else None
            step.sink.commit(batch_id, table)
            told = sum(s.sinks.get(step.name, 0) for s in stats)
            written[step.name] = told + sum(part.num_rows for part in own)
        return written
