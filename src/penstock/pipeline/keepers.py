"""The last layer of a batch: nodes that keep fragments of what instances on other nodes saved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from penstock.pipeline.frames import FRAGMENT, Frame
from penstock.pipeline.wave import Wave
from penstock.state.codec import Code
from penstock.state.fragments import FragmentStore, labelled, sweep, unlabelled
from penstock.state.home import COMING, STATE
from penstock.state.runs import Span


def fragments(
    wave: Wave, vertex: str, instance: int, run: Span, content: bytes | pa.Buffer
) -> Iterator[Frame]:
    """Code a run, and address each fragment to the node that keeps it."""
    spread = wave.spreads[vertex][instance]
    if not spread.keepers:
        return
    number, layer = list(wave.bases).index(vertex), len(wave.layers)
    coded = Code(spread.r, spread.c).encode(memoryview(content))
    for index, (keeper, fragment) in enumerate(zip(spread.keepers, coded, strict=True)):
        body = labelled(run, index, fragment)
        partition = wave.keepers.index(keeper)
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
        run, index, content = unlabelled(frame.body)
        kept.put(vertex, instance, run, index, content)
        base, floor = wave.bases[vertex][instance], wave.floors[vertex][instance]
        if base >= 0 and wave.tidy:
            kept.forget(vertex, instance, wave.backed[vertex][instance], floor)
    if not wave.tidy:
        return
    here = wave.keepers[partition]
    sweep(place / "fragments", {name: range(len(v)) for name, v in wave.bases.items()})
    coming: dict[str, set[int]] = {}
    for name, index in wave.coming:
        coming.setdefault(name, set()).add(index)
    sweep(place / COMING, coming)
    sweep(
        place / STATE,
        {
            name: [i for i, home in enumerate(wave.homes[name]) if home == here]
            for name in wave.bases
        },
    )
