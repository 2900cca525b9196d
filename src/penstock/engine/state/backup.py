"""Backup of state: coding what an instance saved, and storing the fragments on other nodes.

Backup with a batch goes as follows.

1. An instance saves what it changed as a segment, and cuts the segment into parts.
2. It codes each part into data and parity fragments, and sends each fragment to the backup node
   that the `FragmentPlacement` of the instance names.
3. The layer after the last one of the job has one task on each backup node. It stores the
   fragments, and removes files of versions and instances that nothing needs any more.
4. The driver commits the batch, and enters the fragments in the `StateRegistry`.

With `BatchSpec.async_backup` an instance sends its segment to the driver instead, and
`penstock.engine.state.async_backup` does steps 2 and 3 later.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from penstock.engine.batch import BatchSpec
from penstock.engine.messages import (
    DRIVER,
    Address,
    FragmentMessage,
    SegmentMessage,
    address_of,
    unpack,
)
from penstock.state.backup.erasure_code import Code
from penstock.state.backup.fragments import FragmentStore, Piece, cut, sweep
from penstock.state.config import INCOMING, PRECOPIED, STATE
from penstock.state.store import Saved
from penstock.state.versions import Segment


def backup_messages(
    spec: BatchSpec, vertex: str, instance: int, saved: Saved
) -> Iterator[tuple[Address, FragmentMessage | SegmentMessage]]:
    """Send what an instance saved to the driver, or to the backup nodes part by part."""
    if spec.async_backup:
        piece = Piece(saved.segment, 0, memoryview(saved.content))
        yield DRIVER, SegmentMessage(spec.state_numbers[vertex], instance, piece)
    elif spec.backup_nodes:
        yield from fragment_messages(spec, vertex, instance, saved.segment, saved.content)


def fragment_messages(
    spec: BatchSpec, vertex: str, instance: int, segment: Segment, content: bytes | pa.Buffer
) -> Iterator[tuple[Address, FragmentMessage]]:
    """Code a segment part by part, and address each fragment to the node that stores it."""
    placement = spec.fragment_placements[vertex][instance]
    if not placement.backup_nodes:
        return
    code = Code(placement.r, placement.c)
    layer = len(spec.layers)
    addresses = [Address(layer, spec.backup_nodes.index(k)) for k in placement.backup_nodes]
    for piece in cut(segment, memoryview(content)):
        fragments = code.encode(piece.content)
        for index, (to, fragment) in enumerate(zip(addresses, fragments, strict=True)):
            coded = replace(piece, index=index, content=fragment)
            yield to, FragmentMessage(spec.state_numbers[vertex], instance, coded)


@dataclass(frozen=True, eq=False)
class StoreFragments:
    """The body of the tasks on backup nodes: store fragments, and remove what is not needed."""

    spec: BatchSpec

    def __call__(
        self, partition: int, messages: Iterable[bytes], folder: Path
    ) -> Iterator[tuple[int, bytes]]:
        """Store the fragments that were sent to this node, and pass on messages for the driver."""
        spec, vertices = self.spec, list(self.spec.bases)
        store = FragmentStore(str(folder / "fragments"))
        for data in messages:
            if address_of(data) == DRIVER:
                yield DRIVER.partition, bytes(data)
                continue
            message = unpack(data)
            if not isinstance(message, FragmentMessage):
                raise TypeError(f"a backup node stores fragments, got {type(message).__name__}")
            vertex, instance = vertices[message.vertex], message.instance
            store.put(vertex, instance, message.piece)
            if spec.clean_up and spec.bases[vertex][instance] >= 0:
                needed = spec.backup_segments[vertex][instance]
                store.forget(vertex, instance, spec.backed_up[vertex][instance], needed)
        if spec.clean_up:
            _remove_stale(spec, spec.backup_nodes[partition], folder)


def _remove_stale(spec: BatchSpec, here: str, folder: Path) -> None:
    """Remove the files of instances that have no business on a node any more."""
    sweep(folder / "fragments", {name: range(len(v)) for name, v in spec.bases.items()})
    precopying: dict[str, set[int]] = {}
    for name, instance in spec.precopying:
        precopying.setdefault(name, set()).add(instance)
    sweep(folder / PRECOPIED, precopying)
    if not precopying:
        for stale in folder.glob(f"{INCOMING}*"):
            shutil.rmtree(stale, ignore_errors=True)
    local = {
        name: [i for i, location in enumerate(spec.locations[name]) if location == here]
        for name in spec.bases
    }
    sweep(folder / STATE, local)
