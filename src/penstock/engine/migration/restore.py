"""Restore: the state of instances whose executor was lost is put together from its backup.

1. For each instance, `plan_recovery` chooses as few fragments as are needed, as near as possible.
   Segments that no backup node has yet come from the driver.
2. A job of two stages sends them to the new executor, which decodes the segments and writes them.
3. Where a fragment was corrupt or missing, the instance is tried again with all of its fragments,
   and is marked as damaged, so that the next batch backs it up again.
4. What cannot be restored is read from the checkpoint by the next task of the instance. Without a
   checkpoint `StateLost` is raised, and nothing has changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from penstock.engine.backend import Backend, Stage
from penstock.engine.messages import Address, SegmentMessage, StateReceived, pack
from penstock.engine.migration.transfer import (
    ReceiveState,
    StateMove,
    Transfer,
    received,
    run_job,
    send_stage,
)
from penstock.engine.results import MigrationResult
from penstock.engine.state.incoming import Expected
from penstock.engine.state.registry import StateRegistry
from penstock.state.backup.catalog import DRIVER, FragmentedSegment
from penstock.state.backup.fragments import Piece
from penstock.state.backup.recovery import Pull, Unrecoverable, plan_recovery
from penstock.state.versions import Segment, StateLost

Key = tuple[str, int]


def restore(
    registry: StateRegistry,
    backend: Backend,
    pending: Mapping[FragmentedSegment, bytes],
    lost: Sequence[StateMove],
) -> MigrationResult:
    """Restore the state of instances on their new executors.

    Parameters
    ----------
    registry : StateRegistry
    backend : Backend
    pending : mapping of FragmentedSegment to bytes
        Segments that the driver has.
    lost : sequence of StateMove
        Instances whose executor was lost.

    Raises
    ------
    StateLost
        When there are too few fragments, and no checkpoint.
    """
    if not lost:
        return MigrationResult()
    alive, size, left = backend.alive(), 0, list(lost)
    why: dict[Key, str] = {}
    for use_spares in (False, True):
        pulls = _plan(registry, alive, left, why, use_spares=use_spares)
        tried = [move for move in left if pulls.get(move.key)]
        found = _pull(backend, pending, tried, pulls) if tried else []
        missing = missing_of(found)
        size += sum(one.size_bytes for one in found)
        why.update(missing)
        for move in tried:
            move.state.damaged = move.state.damaged or move.key in missing
        done = {move.key for move in tried} - set(missing)
        left = [move for move in left if move.key not in done]
    if left and not registry.state_config.in_checkpoint:
        told = "; ".join(f"{m.vertex}[{m.instance}]: {why.get(m.key, 'no backup')}" for m in left)
        raise StateLost(f"state cannot be restored from its backup: {told}")
    for move in left:
        move.state.backed_up = -1
        registry.catalog.forget(registry.topology, *move.key)
    for move in lost:
        move.state.executor = move.executor
    return MigrationResult(state_bytes=size, restored=len(lost))


def missing_of(found: Collection[StateReceived]) -> dict[Key, str]:
    """Return what instances did not receive, in words."""
    return {
        (one.vertex, one.instance): "; ".join(f"versions {s}: {w}" for s, w in one.missing.items())
        for one in found
        if one.missing
    }


def _plan(
    registry: StateRegistry,
    alive: frozenset[str],
    lost: Sequence[StateMove],
    why: dict[Key, str],
    *,
    use_spares: bool,
) -> dict[Key, tuple[Pull, ...]]:
    """Choose the fragments of each instance; note in `why` what cannot be restored."""
    pulls: dict[Key, tuple[Pull, ...]] = {}
    for move in lost:
        if move.state.backed_up < move.state.version:
            # There was no backup node when it changed last: an older version would lose changes.
            why[move.key] = f"its backup is of version {move.state.backed_up}"
            continue
        try:
            segments = registry.segments(*move.key)
            plan = plan_recovery(segments, alive | {DRIVER}, move.executor)
        except Unrecoverable as error:
            why[move.key] = str(error)
        else:
            pulls[move.key] = plan.pulls + (plan.spares if use_spares else ())
    return pulls


def _pull(
    backend: Backend,
    pending: Mapping[FragmentedSegment, bytes],
    moves: Sequence[StateMove],
    pulls: Mapping[Key, tuple[Pull, ...]],
) -> list[StateReceived]:
    """Run the job that sends fragments to the new executors."""
    transfers: dict[str, list[Transfer]] = {}
    inputs: dict[str, list[bytes]] = {}
    expected = []
    for partition, move in enumerate(moves):
        to, version = Address(1, partition), move.state.backed_up
        segments = set()
        for pull in pulls[move.key]:
            segment = Segment(pull.segment.first, pull.segment.last)
            segments.add(segment)
            if pull.segment.on_driver:
                piece = Piece(segment, 0, pending[pull.segment])
                data = pack(SegmentMessage(0, move.instance, piece), to)
                inputs.setdefault(move.executor, []).append(data)
            else:
                transfer = Transfer(*move.key, version, to, ((segment, pull.index),))
                transfers.setdefault(pull.backup_node, []).append(transfer)
        expected.append(Expected(*move.key, tuple(segments)))
    stages = (
        send_stage(transfers, inputs),
        Stage(tuple(move.executor for move in moves), ReceiveState(tuple(expected))),
    )
    return received(run_job(backend, "restore state", stages))
