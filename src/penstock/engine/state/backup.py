"""The last layer of a batch: nodes that keep fragments of what instances on other nodes saved."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from penstock.engine.batch import BatchSpec
from penstock.engine.messages import FRAGMENT, Message
from penstock.state.backup.erasure_code import Code
from penstock.state.backup.fragments import FragmentStore, Piece, cut, sweep
from penstock.state.config import INCOMING, PRECOPIED, STATE
from penstock.state.versions import Segment


def fragments(
    spec: BatchSpec, vertex: str, instance: int, run: Segment, content: bytes | pa.Buffer
) -> Iterator[Message]:
    """Code a run part by part, and address each fragment to the node that keeps it."""
    spread = spec.fragment_placements[vertex][instance]
    if not spread.backup_nodes:
        return
    number, layer = list(spec.bases).index(vertex), len(spec.layers)
    code, partitions = (
        Code(spread.r, spread.c),
        [spec.backup_nodes.index(k) for k in spread.backup_nodes],
    )
    for piece in cut(run, memoryview(content)):
        coded = code.encode(piece.content)
        for index, (partition, fragment) in enumerate(zip(partitions, coded, strict=True)):
            body = replace(piece, index=index, content=fragment).pack()
            yield Message(FRAGMENT, layer, partition, number, instance, body)


def keep(
    spec: BatchSpec, partition: int, frames: Iterable[bytes], place: Path
) -> Iterator[tuple[int, bytes]]:
    """Keep the fragments that were sent to this node, and drop those that nothing needs."""
    names = list(spec.bases)
    kept = FragmentStore(str(place / "fragments"))
    for data in frames:
        frame = Message.unpack(data)
        if frame.kind != FRAGMENT:
            yield 0, bytes(data)
            continue
        vertex, instance = names[frame.edge], frame.sender
        kept.put(vertex, instance, Piece.unpack(frame.body))
        if spec.bases[vertex][instance] >= 0 and spec.tidy:
            needed = spec.needed[vertex][instance]
            kept.forget(vertex, instance, spec.backed[vertex][instance], needed)
    if not spec.tidy:
        return
    here = spec.backup_nodes[partition]
    sweep(place / "fragments", {name: range(len(v)) for name, v in spec.bases.items()})
    coming: dict[str, set[int]] = {}
    for name, index in spec.coming:
        coming.setdefault(name, set()).add(index)
    sweep(place / PRECOPIED, coming)
    if not coming:
        for stale in place.glob(f"{INCOMING}*"):
            shutil.rmtree(stale, ignore_errors=True)
    sweep(
        place / STATE,
        {
            name: [i for i, home in enumerate(spec.locations[name]) if home == here]
            for name in spec.bases
        },
    )
