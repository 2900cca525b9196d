"""What a task measures: the tuples that it sends, and the memory and disks that its process uses.

Of tuples it counts router partitions, hot keys, event times and late rows. Memory and disks are as
the kernel counts them.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.common.arrays import IntArray
from penstock.common.arrow_keys import normal
from penstock.common.key_hashing import HashArray, key_hashes, modulo
from penstock.model import Grouping, RoutingTable
from penstock.pipeline.keyed.protocols import EventTimed, Keyed, Process
from penstock.pipeline.steps import Link
from penstock.strategies.route.heavy import heaviest

#: A key is reported if it has more than this part of what an instance would get of the sender's
#: tuples if all got the same.
HOT_SHARE = 0.02

#: Keys that are reported for each target, at the most: a plan splits as many as make up a fifth of
#: the stream.
MAX_HOT_KEYS = 32

#: Of these, the first so many are reported with their names, for people.
NAMED_KEYS = 5

#: Characters of a name that are reported.
NAME_LENGTH = 60

#: Resident memory of a process when its first task began, by process id: what its interpreter and
#: libraries take, wherever instances run.
_AT_FIRST: dict[int, int] = {}

#: Where the kernel tells what this process takes.
_MEMORY, _DISKS = Path("/proc/self/statm"), Path("/proc/self/io")


class TaskMetrics:
    """Counts of one task in one batch, by target.

    Attributes
    ----------
    partitions : dict of str to array
        By target vertex: rows of each router partition.
    late : dict of str to int
        By step that follows event time: rows that came too late.
    event_times : dict of str to int
        By stream of such a step: the latest event time, in microseconds.
    key_types : dict of str to set of tuple of str
        By step with state: types of the columns of the keys that it is sent.
    key_names : dict of str to dict of int to str
        By target vertex and key hash: how the hottest keys read.
    """

    def __init__(self) -> None:
        self.partitions: dict[str, IntArray] = {}
        self.late: dict[str, int] = {}
        self.event_times: dict[str, int] = {}
        self.key_types: dict[str, set[tuple[str, ...]]] = {}
        self.key_names: dict[str, dict[int, str]] = {}
        self._hot: dict[str, dict[int, int]] = {}

    def partial(
        self,
        name: str,
        keyed: Keyed | Process,
        batch: pa.RecordBatch,
        watermark_us: int | None,
        side: int,
    ) -> pa.RecordBatch | pa.Table | None:
        """Reduce what is sent to a keyed step, and note event times if it follows them.

        Parameters
        ----------
        name : str
            The step.
        keyed : Keyed or Process
        batch : RecordBatch
        watermark_us : int or None
            What is older is late.
        side : int
            Which of the streams that the step reads the batch belongs to.
        """
        if not isinstance(keyed, EventTimed):
            return keyed.partial(batch)
        arrived = keyed.arrive(batch, watermark_us, side)
        if arrived.late:
            self.late[name] = self.late.get(name, 0) + arrived.late
        if arrived.latest_us is not None:
            streams = list(keyed.latenesses(name))
            stream = streams[side] if len(streams) > 1 else streams[0]
            known = self.event_times.get(stream, arrived.latest_us)
            self.event_times[stream] = max(known, arrived.latest_us)
        return arrived.parts

    def keys_sent(self, step: str, table: pa.Table, by: Sequence[str]) -> None:
        """Note the types of keys that are sent to a step with state."""
        types = tuple(_key_type(table.schema.field(name).type) for name in by)
        self.key_types.setdefault(step, set()).add(types)

    def hashes(
        self,
        target: str,
        link: Link,
        table: pa.Table,
        routing: RoutingTable | None,
        instances: int,
        *,
        single: bool,
    ) -> HashArray | None:
        """Hash the keys of what is sent, and count router partitions and hot keys.

        Parameters
        ----------
        target : str
            Vertex that the rows go to.
        link : Link
        table : pyarrow.Table
        routing : RoutingTable or None
        instances : int
            Of the target.
        single : bool
            Whether rows are single tuples. Reduced rows have each key once, so that none is hot.

        Returns
        -------
        array or None
            None if the rows are not routed by key.
        """
        by_table = routing is not None and link.grouping is Grouping.FIELDS
        if not link.by_key or not (by_table or instances > 1):
            return None
        hashes = key_hashes(table, link.by)
        if routing is not None and link.grouping is Grouping.FIELDS:
            size = len(routing.partitions)
            counts = np.bincount(modulo(hashes, size), minlength=size)
            self.partitions[target] = self.partitions.get(target, 0) + counts
        if single and instances > 1:
            found = self._hot.setdefault(target, {})
            keys, times = heaviest(hashes, HOT_SHARE / instances, MAX_HOT_KEYS)
            for key, count in zip(keys.tolist(), times.tolist(), strict=True):
                found[key] = found.get(key, 0) + count
            self._name(target, link, table, hashes, keys[:NAMED_KEYS])
        return hashes

    def _name(
        self, target: str, link: Link, table: pa.Table, hashes: HashArray, keys: HashArray
    ) -> None:
        """Note how some keys read, from the first row of each."""
        names = self.key_names.setdefault(target, {})
        for key in keys.tolist():
            if key not in names:
                row = int((hashes == key).argmax())
                parts = [str(table.column(name)[row].as_py()) for name in link.by]
                names[key] = ", ".join(parts)[:NAME_LENGTH]

    def hot_keys(self) -> dict[str, dict[int, int]]:
        """Return, by target vertex and key hash, the rows of the most frequent keys."""
        hot = {}
        for target, found in self._hot.items():
            first = sorted(found, key=lambda key: (-found[key], key))[:MAX_HOT_KEYS]
            if first:
                hot[target] = {key: found[key] for key in first}
        return hot


@cache
def _key_type(kind: pa.DataType) -> str:
    """Name a type without its encoding, which makes no difference to a key."""
    return str(normal(pa.nulls(0, kind)).type)


class ProcessUse:
    """What this process takes, from the begin of a task on.

    One process runs the tasks of several instances, one after the other: what it has `grown` by is
    for its reader to share among them.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        if self.process not in _AT_FIRST:
            _AT_FIRST[self.process] = resident_bytes()
        self._disk = disk_bytes()

    def grown(self, now: int) -> int:
        """Of so many bytes of memory, those beyond what the process took before its first task."""
        return max(0, now - _AT_FIRST[self.process])

    def disk(self) -> int | None:
        """Bytes read from and written to disks since the task began; None where nobody counts."""
        now = disk_bytes()
        return None if now is None or self._disk is None else max(0, now - self._disk)


def resident_bytes() -> int:
    """Memory that this process takes now; where the kernel does not tell, the most so far."""
    try:
        return int(_MEMORY.read_bytes().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def disk_bytes() -> int | None:
    """Bytes that this process has read from and written to disks; None where nobody counts."""
    try:
        counts = dict(line.split(b": ") for line in _DISKS.read_bytes().splitlines())
    except OSError:
        return None
    return int(counts[b"read_bytes"]) + int(counts[b"write_bytes"])
