"""The driver of a pipeline: batches in order, each planned, run, committed; on any backend."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.common.key_hashing import HASHING
from penstock.engine.backend import NO_SENDERS, Backend
from penstock.engine.batch import BatchSpec
from penstock.engine.driver.transition import Planned
from penstock.engine.errors import SinkFailed, StepFailed
from penstock.engine.job_graph import MOST_INSTANCES
from penstock.engine.messages import RUN, SHARED, SINK, STATS, Message, decode, decode_json, encode
from penstock.engine.results import (
    BatchResult,
    InstanceStats,
    MigrationResult,
    Ranges,
    raise_error,
    stats_of,
)
from penstock.engine.task.hot_keys import merged_shares
from penstock.model import PenstockError
from penstock.pipeline.keyed.windowed import advanced_watermarks
from penstock.pipeline.steps import Attempt, StagedFile, Step
from penstock.state.backup.fragments import Piece
from penstock.state.versions import StateLost

__all__ = ["Backend", "BatchResult", "Driver", "InstanceStats", "MigrationResult", "Ranges"]


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
        Fenced
            When another driver has taken over the checkpoint.
        """
        try:
            return self._run_batch(ranges, extra or {})
        except Exception:
            # What fails because another driver has taken over is told as that.
            self.commit_log.check_epoch()
            raise

    def _run_batch(self, ranges: Ranges, extra: dict[str, Any]) -> BatchResult:
        spec, frames, inband = self._frames(ranges)
        stats = tuple(stats_of(decode_json(f.body)) for f in frames if f.kind == STATS)
        merged, shares = self._shares(frames)
        self.commit_log.check_epoch()
        written = self._sinks(spec.attempt, frames, stats, merged)
        positions = self.position()
        positions.update({name: cuts[-1][1] for name, cuts in ranges.items() if cuts})
        result = BatchResult(spec.batch_id, spec, ranges, stats, written)
        self._note_saved(spec, frames, stats)
        if self._inband is not None:
            self._inband.land()
            inband = self._inband.came(result)
            self._take_effect(self.plan, self._inband.tables)
        following = advanced_watermarks(
            self.job_graph.pipeline.steps, self.watermarks, [one.event_times for one in stats]
        )
        done = {
            "batch": spec.batch_id,
            "hashing": HASHING,
            "positions": positions,
            "state": {name: held.to_dict() for name, held in self.handles.items()},
            "shares": {name: b64encode(body).decode() for name, body in shares.items()},
            "watermarks": following,
            "passed": self.watermarks,
        }
        self.commit_log.commit(spec.version, {**done, **extra})
        self._inband = None
        self.passed, self.watermarks = self.watermarks, following
        self.shares = shares
        self.batch = spec.batch_id
        self._hand_over()
        return replace(result, inband=inband)

    def _frames(self, ranges: Ranges) -> tuple[BatchSpec, list[Message], MigrationResult | None]:
        """Run the tasks of a batch.

        State that does not come with it is carried first. Where that fails, too, the plan before
        stays in charge, and what went wrong is returned.
        """
        cuts = {name: [list(cut) for cut in cuts] for name, cuts in ranges.items()}
        told: MigrationResult | None = None
        while True:
            self._clear_attempt()
            spec, inband = self.spec(ranges, self._begin({"ranges": cuts})), self._inband
            senders = NO_SENDERS if inband is None else inband.senders(spec)
            frames = [
                Message.unpack(bytes(b)) for b in self.backend.run(self.job_graph, spec, senders)
            ]
            try:
                raise_error(frames)
            except StateLost as error:
                if inband is None:
                    raise
                told = self._carry_instead(str(error))
            else:
                return spec, frames, told

    def _carry_instead(self, why: str) -> MigrationResult:
        """Carry the state of a ride between batches after all, or stay with the plan before."""
        try:
            return replace(self.settle(), not_precopied=why)
        except StateLost as error:
            # Some of it may be elsewhere already.
            self.adopt(self.plan)
            self.failed_migration = (self.next_batch, str(error))
            return MigrationResult(failed=str(error))

    def _clear_attempt(self) -> None:
        """Remove what another attempt at the batch gave to sinks: it may be of other instances."""
        if self.attempted == self.next_batch:
            for step in self.job_graph.sinks():
                assert step.sink is not None
                step.sink.recover(self.batch)
        self.attempted = self.next_batch

    def _note_saved(
        self, spec: BatchSpec, frames: Iterable[Message], stats: Iterable[InstanceStats]
    ) -> None:
        """Take note of what instances saved, and hold what they sent of it."""
        names = list(spec.bases)
        sent = {
            (names[f.edge], f.sender): Piece.unpack(f.body).content for f in frames if f.kind == RUN
        }
        saved = {(one.vertex, one.instance): one.saved for one in stats if one.saved is not None}
        for key, values in saved.items():
            block = self.registry.record_saved(spec, *key, values)
            if block is not None and block.on_driver:
                self._migrator.async_backup.hold(block, bytes(sent[key]))
        self._migrator.async_backup.note(saved.values())

    def _hand_over(self) -> None:
        """Give what the driver holds to peers when that is due and no state is on the move."""
        async_backup = self._migrator.async_backup
        if async_backup.due() and not self._migrator.ahead.coming:
            async_backup.begin(self.spec({}, self.number, backup=True))

    def pop_backup_failure(self) -> str:
        """Say, once, why peers did not take what the driver holds; empty if they did."""
        async_backup = self._migrator.async_backup
        why, async_backup.failure = async_backup.failure, ""
        return why

    def close(self) -> None:
        """End what is done beside the batches."""
        self._migrator.ahead.end()
        self._migrator.async_backup.end()

    def _shares(self, frames: Iterable[Message]) -> tuple[dict[str, pa.Table], dict[str, bytes]]:
        """Merge split keys: what is emitted of them, and what their homes are to get; by step."""
        sent: dict[str, list[pa.Table]] = {}
        for frame in sorted(frames, key=lambda frame: frame.sender):
            if frame.kind == SHARED:
                name = self.job_graph.pipeline.steps[frame.edge].name
                sent.setdefault(name, []).append(decode(frame.body))
        merged: dict[str, pa.Table] = {}
        shares: dict[str, bytes] = {}
        for name, tables in sent.items():
            try:
                out, left = merged_shares(self.job_graph.pipeline[name].keyed, tables)
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
        attempt: Attempt,
        frames: list[Message],
        stats: tuple[InstanceStats, ...],
        merged: Mapping[str, pa.Table],
    ) -> dict[str, int]:
        """Hand what tasks made, and what was merged of split keys, to the sinks."""
        rows: dict[str, list[pa.Table]] = {}
        for frame in frames:
            if frame.kind == SINK:
                name = self.job_graph.pipeline.steps[frame.edge].name
                rows.setdefault(name, []).append(decode(frame.body))
        written = {}
        for step in self.job_graph.sinks():
            assert step.sink is not None
            own = [merged[link.source] for link in step.links if link.source in merged]
            staged = [StagedFile(**s.staged[step.name]) for s in stats if step.name in s.staged]
            if step.sink.on_workers:
                for number, part in enumerate(own, len(self.job_graph.vertices) * MOST_INSTANCES):
                    # Files of the driver's own, numbered after those of all instances.
                    file = step.sink.stage(attempt, number, part)
                    staged += [] if file is None else [file]
            tables = [*rows.get(step.name, ()), *(() if step.sink.on_workers else own)]
            table = pa.concat_tables(tables, promote_options="permissive") if tables else None
            _commit(step, attempt, table, staged)
            told = sum(s.sinks.get(step.name, 0) for s in stats)
            written[step.name] = told + sum(part.num_rows for part in own)
        return written


def _commit(
    step: Step, attempt: Attempt, table: pa.Table | None, staged: Sequence[StagedFile]
) -> None:
    """Have a sink take a batch, and say which one when it fails."""
    assert step.sink is not None
    try:
        step.sink.commit(attempt, table, staged)
    except PenstockError:
        raise
    except Exception as error:
        raise SinkFailed(step.name, attempt.batch_id, f"{type(error).__name__}: {error}") from error
