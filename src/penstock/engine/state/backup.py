"""The last layer of a batch: nodes that keep fragments of what instances on other nodes saved."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from penstock.engine.batch import Wave
from penstock.engine.messages import FRAGMENT, Frame
from penstock.state.backup.erasure_code import Code
from penstock.state.backup.fragments import FragmentStore, Piece, cut, sweep
from penstock.state.store import ARRIVING, COMING, STATE
from penstock.state.versions import Span


def fragments(
    wave: Wave, vertex: str, instance: int, run: Span, content: bytes | pa.Buffer
) -> Iterator[Frame]:
    """Code a run part by part, and address each fragment to the node that keeps it."""
    spread = wave.spreads[vertex][instance]
    if not spread.keepers:
        return
    number, layer = list(wave.bases).index(vertex), len(wave.layers)
    code, partitions = Code(spread.r, spread.c), [wave.keepers.index(k) for k in spread.keepers]
    for piece in cut(run, memoryview(content)):
        coded = code.encode(piece.content)
        for index, (partition, fragment) in enumerate(zip(partitions, coded, strict=True)):
            body = replace(piece, index=index, content=fragment).pack()
            yield Frame(FRAGMENT, layer, partition, number, instance, body)


def keep(
    wave: Wave, partition: int, frames: Iterable[bytes], place: Path
) -> Iterator[tuple[int, bytes]]:
    """Keep the fragments that were sent to this node, and drop those that nothing needs."""
    names = list(wave.bases)
    kept = FragmentStore(str(place / "fragments"))
    for data in frames:
        frame = Frame.unpack(data)
        if frame.kind != FRAGMENT:
            yield 0, bytes(data)
            continue
        vertex, instance = names[frame.wire], frame.sender
        kept.put(vertex, instance, Piece.unpack(frame.body))
        if wave.bases[vertex][instance] >= 0 and wave.tidy:
            needed = wave.needed[vertex][instance]
            kept.forget(vertex, instance, wave.backed[vertex][instance], needed)
    if not wave.tidy:
        return
    here = wave.keepers[partition]
    sweep(place / "fragments", {name: range(len(v)) for name, v in wave.bases.items()})
    coming: dict[str, set[int]] = {}
    for name, index in wave.coming:
        coming.setdefault(name, set()).add(index)
    sweep(place / COMING, coming)
    if not coming:
        for stale in place.glob(f"{ARRIVING}*"):
            shutil.rmtree(stale, ignore_errors=True)
    sweep(
        place / STATE,
        {
            name: [i for i, home in enumerate(wave.homes[name]) if home == here]
            for name in wave.bases
        },
    )
