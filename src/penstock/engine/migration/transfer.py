"""The tasks that send state from executor to executor, and those that receive it.

None of them changes which state is in force: the driver does that, once all state is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.engine.backend import Backend, Stage
from penstock.engine.batch import BatchSpec
from penstock.engine.messages import (
    DRIVER,
    Address,
    FragmentMessage,
    MovedRows,
    SegmentMessage,
    StateReceived,
    StateSaved,
    TaskError,
    address_of,
    encode,
    pack,
    raise_error,
    unpack,
)
from penstock.engine.repartition import Participant
from penstock.engine.state.handles import InstanceState
from penstock.engine.state.incoming import Expected, IncomingState
from penstock.engine.state.task_state import TaskState
from penstock.state.backup.fragments import FragmentStore, cut
from penstock.state.config import STATE
from penstock.state.files.local import LocalSegments
from penstock.state.store import StateStore
from penstock.state.versions import Copied, Segment, StateLost


@dataclass(frozen=True, eq=False)
class StateMove:
    """An instance whose state migrates.

    Parameters
    ----------
    vertex : str
    instance : int
    state : InstanceState
        Its committed state, with the executor that has it.
    executor : str
        The executor that gets it.
    """

    vertex: str
    instance: int
    state: InstanceState
    executor: str

    @property
    def key(self) -> tuple[str, int]:
        """Vertex and instance."""
        return self.vertex, self.instance


@dataclass(frozen=True)
class Transfer:
    """What one executor sends of one instance's state.

    Parameters
    ----------
    vertex : str
    instance : int
    version : int
    to : Address
        The task that receives it.
    fragments : tuple of (Segment, int), optional
        Fragments to send, by segment and number; None to send the segments of the version.
    precopied : tuple of (Segment, int)
        Segments that need not be sent: they were pre-copied.
    """

    vertex: str
    instance: int
    version: int
    to: Address
    fragments: tuple[tuple[Segment, int], ...] | None = None
    precopied: Copied = ()


@dataclass(frozen=True, eq=False)
class SendState:
    """Sends segments or fragments of state; files that an executor does not have are left out.

    Parameters
    ----------
    transfers : tuple of tuple of Transfer
        By partition.
    """

    transfers: tuple[tuple[Transfer, ...], ...]

    def __call__(
        self, partition: int, messages: Iterable[bytes], folder: Path
    ) -> Iterator[tuple[int, bytes]]:
        """Pass on what the driver sends, and read the files of this executor."""
        for data in messages:
            yield address_of(data).partition, bytes(data)
        for transfer in self.transfers[partition]:
            for message in self._pieces(transfer, folder):
                yield transfer.to.partition, pack(message, transfer.to)

    def _pieces(
        self, transfer: Transfer, folder: Path
    ) -> Iterator[FragmentMessage | SegmentMessage]:
        key = (transfer.vertex, transfer.instance)
        if transfer.fragments is not None:
            store = FragmentStore(str(folder / "fragments"))
            for segment, index in transfer.fragments:
                for piece in store.get(*key, segment, index=index):
                    yield FragmentMessage(0, transfer.instance, piece)
            return
        files = LocalSegments(str(folder / STATE))
        try:
            segments = files.chain(*key, transfer.version)
        except StateLost:
            return
        for segment in sorted(set(segments) - {segment for segment, _ in transfer.precopied}):
            try:
                content = files.read_bytes(*key, segment)
            except StateLost:
                # It is damaged, or batches that run at the same time have merged it into another.
                continue
            for piece in cut(segment, content):
                yield SegmentMessage(0, transfer.instance, piece)


@dataclass(frozen=True, eq=False)
class ReceiveState:
    """Writes the state of one instance on its new executor, and tells the driver what is missing.

    Parameters
    ----------
    expected : tuple of Expected
        By partition.
    name : str
        Folder of the executor that it writes to.
    """

    expected: tuple[Expected, ...]
    name: str = STATE

    def __call__(
        self, partition: int, messages: Iterable[bytes], folder: Path
    ) -> Iterator[tuple[int, bytes]]:
        """Receive all pieces, then put the segments together."""
        with IncomingState(self.expected[partition], folder, self.name) as incoming:
            for data in messages:
                message = unpack(data)
                if not isinstance(message, FragmentMessage | SegmentMessage):
                    raise TypeError(f"expected a piece of state, got {type(message).__name__}")
                incoming.add(message)
            received = incoming.finish()
        yield DRIVER.partition, pack(received, DRIVER)


@dataclass(frozen=True, eq=False)
class SendRows:
    """Sends the rows of state that leave an instance to the instances that own them.

    Parameters
    ----------
    spec : BatchSpec
    participants : tuple of Participant
        By partition: the instance that gives rows.
    to : mapping of (str, int) to Address
        The tasks of the instances that take rows.
    """

    spec: BatchSpec
    participants: tuple[Participant, ...]
    to: Mapping[tuple[str, int], Address]

    def __call__(
        self, partition: int, messages: Iterable[bytes], folder: Path
    ) -> Iterator[tuple[int, bytes]]:
        """Load the state of the instance, and send the rows that leave it."""
        for _ in messages:
            pass
        one, spec = self.participants[partition], self.spec
        store = StateStore(spec.state_config, folder, spec.token)
        try:
            state = store.load(*one.key, one.by, one.base)
        except StateLost as error:
            yield DRIVER.partition, pack(TaskError(error), DRIVER)
            return
        rows = state.where(one.leaving)
        if rows is None:
            return
        owners = one.owners(rows)
        for target in np.unique(owners).tolist():
            to = self.to[one.vertex, target]
            body = encode(rows.filter(pa.array(owners == target)))
            message = MovedRows(spec.state_numbers[one.vertex], one.instance, body)
            yield to.partition, pack(message, to)


@dataclass(frozen=True, eq=False)
class SaveRows:
    """Saves a new version of an instance's state: without rows that left, with rows that came.

    Parameters
    ----------
    spec : BatchSpec
    participants : tuple of Participant
        By partition.
    """

    spec: BatchSpec
    participants: tuple[Participant, ...]

    def __call__(
        self, partition: int, messages: Iterable[bytes], folder: Path
    ) -> Iterator[tuple[int, bytes]]:
        """Do with the state what a task of a batch does with it, without any tuples."""
        participant = self.participants[partition]
        state, failed = TaskState(self.spec, *participant.key, folder), False
        for data in messages:
            if address_of(data) == DRIVER:
                yield DRIVER.partition, bytes(data)
                failed = True
            else:
                state.receive(unpack(data))
        if failed:
            return
        table, changed = state.load(participant.by)
        for to, message in state.save(changed, table):
            yield to.partition, pack(message, to)
        received = 0 if state.migrated is None else state.migrated.received
        done = StateSaved(*participant.key, state.saved, received)
        yield DRIVER.partition, pack(done, DRIVER)


def send_stage(
    transfers: Mapping[str, Sequence[Transfer]], inputs: Mapping[str, Sequence[bytes]] | None = None
) -> Stage:
    """Return the stage in which each executor sends its transfers, and what the driver gave it."""
    inputs = inputs or {}
    executors = tuple(dict.fromkeys((*transfers, *inputs)))
    return Stage(
        executors,
        SendState(tuple(tuple(transfers.get(executor, ())) for executor in executors)),
        tuple(tuple(inputs.get(executor, ())) for executor in executors),
    )


def send_rows_stage(
    spec: BatchSpec, senders: Sequence[Participant], to: Mapping[tuple[str, int], Address]
) -> Stage:
    """Return the stage in which instances send the rows that leave them."""
    return Stage(tuple(one.executor for one in senders), SendRows(spec, tuple(senders), to))


def copy_segments(
    backend: Backend,
    name: str,
    moves: Sequence[StateMove],
    precopied: Mapping[tuple[str, int], Copied],
    *,
    to_folder: str = STATE,
    background: bool = False,
) -> list[StateReceived]:
    """Run the job that copies state from executors that have it to others.

    Parameters
    ----------
    backend : Backend
    name : str
        Of the job.
    moves : sequence of StateMove
    precopied : mapping of (str, int) to tuple of (Segment, int)
        Segments that are there already.
    to_folder : str
        Folder of the new executors. Only in `STATE` must the version be complete in the end.
    background : bool
        As in `Backend.job`.
    """
    transfers: dict[str, list[Transfer]] = {}
    expected = []
    for partition, move in enumerate(moves):
        # The latest version that there is: segments of an older one may be gone by now.
        version, there = move.state.version, precopied.get(move.key, ())
        transfer = Transfer(*move.key, version, Address(1, partition), precopied=there)
        transfers.setdefault(move.state.executor, []).append(transfer)
        whole = Expected(*move.key, version=version, precopied=there)
        expected.append(whole if to_folder == STATE else Expected(*move.key))
    stages = (
        send_stage(transfers),
        Stage(tuple(move.executor for move in moves), ReceiveState(tuple(expected), to_folder)),
    )
    return received(run_job(backend, name, stages, background=background))


def run_job(
    backend: Backend, name: str, stages: Sequence[Stage], *, background: bool = False
) -> list[object]:
    """Run a job, and return its messages to the driver; raise what one of its tasks failed with."""
    messages = [unpack(bytes(data)) for data in backend.job(name, stages, background=background)]
    raise_error(messages)
    return messages


def received(messages: Iterable[object]) -> list[StateReceived]:
    """Return what the tasks that received state told the driver."""
    return [message for message in messages if isinstance(message, StateReceived)]
