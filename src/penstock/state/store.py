"""Where the state of an instance lives while it runs: in memory, with copies in files.

The copy on the node is what other workers of the executor, and moves to other nodes, read. The copy
in a shared folder is what a restarted driver reads. Either may be missing; what is kept by peers is
the business of whoever called `save`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.model import InvalidValue
from penstock.state.files.filesystem import is_address
from penstock.state.files.local import LocalSegments
from penstock.state.files.remote import RemoteSegments
from penstock.state.table import KeyedTable
from penstock.state.versions import Segment, StateLost, to_merge

#: How state is kept safe: in fragments by peers, in a shared folder, or both.
MODES = ("peers", "checkpoint", "both")

#: Folders of a node: of the state that is in charge, of what is copied there ahead of a move, and,
#: with a name of its own each, of what arrives.
STATE, COMING, ARRIVING = "state", "coming", "arriving-"

#: Versions after which an instance that was not heard of is forgotten.
STALE = 100

#: Part of the memory from which a state is mapped: while it is put in order, it is there twice, and
#: part that what changed may have before it is.
MAPPED_PART, RECENT_PART = 1 / 4, 1 / 8

#: Bytes beyond what a batch changed that are still written when little is to be.
LIGHT_BYTES = 4_000_000

#: State versions that a worker process keeps: the last, and the one before it for a retry.
_CACHE: dict[tuple[str, str, int], dict[int, tuple[KeyedTable, tuple[Segment, ...]]]] = {}


@dataclass(frozen=True)
class StateConfig:
    """How the state of a run is kept.

    Parameters
    ----------
    mode : str
        One of `MODES`.
    shared : str
        Folder that all workers reach, or an address as in `penstock.state.files.filesystem`, for
        ``checkpoint`` and ``both``.
    local : str
        Folder on a node; a relative one lies in the working folder of the executor.
    raw, check : int
        Fragments that hold the state and fragments that may be missing, if there are enough nodes.
    every : int
        Batches that the driver holds the changes of before it gives them to peers; 1: every batch
        ends with peers having them.
    memory_mb : float
        Memory for the state of an instance. One that is larger than a quarter of it is mapped from
        its file instead of held in memory.
    """

    mode: str = "checkpoint"
    shared: str = ""
    local: str = ""
    raw: int = 7
    check: int = 1
    every: int = 8
    memory_mb: float = 256.0

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InvalidValue("state", "a run", "one of " + ", ".join(MODES), self.mode)
        for name, least in (("raw", 1), ("check", 0), ("every", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                allowed = f"a whole number of at least {least}"
                raise InvalidValue(name, "how state is kept", allowed, value)
        if not self.memory_mb > 0:
            raise InvalidValue("memory_mb", "how state is kept", "more than 0", self.memory_mb)

    @property
    def by_peers(self) -> bool:
        """Whether nodes keep copies and fragments."""
        return self.mode != "checkpoint"

    @property
    def in_checkpoint(self) -> bool:
        """Whether a shared folder has it."""
        return self.mode != "peers"


@dataclass(frozen=True, eq=False)
class Saved:
    """A run that was written, and its bytes; `put_off` if more of the state should have been."""

    run: Segment
    content: pa.Buffer
    state: KeyedTable
    put_off: bool = False


class StateStore:
    """Loads and saves the state of instances in one worker process.

    Parameters
    ----------
    state_config : StateConfig
    place : Path
        Folder of the node that the process runs on.
    token : str
        Of the driver: what is remembered for one is nothing to the next.
    """

    def __init__(self, state_config: StateConfig, place: Path, token: str) -> None:
        self.state_config = state_config
        # What is remembered goes with the files beside it.
        self.token = f"{token} {place}"
        near = LocalSegments(str(place / STATE))
        far = is_address(state_config.shared)
        self.local = near if state_config.by_peers or far else None
        self.shared: LocalSegments | RemoteSegments | None = None
        if state_config.in_checkpoint:
            self.shared = (
                RemoteSegments(state_config.shared) if far else LocalSegments(state_config.shared)
            )
        # Where state is worked on.
        self.log = self.local or LocalSegments(state_config.shared)

    def load(self, vertex: str, instance: int, by: tuple[str, ...], version: int) -> KeyedTable:
        """Return the state of a committed version: remembered, or from the files.

        Raises
        ------
        StateLost
            When it is nowhere: an instance never starts with less than it had.
        """
        return self._find(vertex, instance, by, version)[0]

    def save(
        self,
        vertex: str,
        instance: int,
        base: int,
        version: int,
        changed: pa.Table,
        state: KeyedTable,
        *,
        whole: bool = False,
        light: bool = False,
    ) -> Saved:
        """Write what a batch changed, or everything when that is due.

        Parameters
        ----------
        base, version : int
            The version that the batch started from, and the one that it makes.
        changed : Table
        state : KeyedTable
            The new version.
        whole : bool
            Write everything in any case.
        light : bool
            Put off what would write more than `LIGHT_BYTES` that the batch did not change.
        """
        _, known = self._find(vertex, instance, state.by, base)
        run, rows, put_off = Segment(base + 1, version), changed, False
        count = 0 if whole else to_merge(known)
        if light and count:
            sizes = (self.log.size(vertex, instance, run) or 0 for run in known[:count])
            put_off = sum(sizes) > LIGHT_BYTES
        if count and not put_off:
            rows = self.log.merged(vertex, instance, state.by, known[:count], changed)
            run = Segment(known[count - 1].first, version)
        loose = state.recent_bytes() > self.state_config.memory_mb * 1e6 * RECENT_PART
        everything = loose or state.ripe or rows.num_rows > state.size / 2
        if light and everything and state.bytes() > LIGHT_BYTES:
            everything, put_off = False, True
        if whole or everything:
            run, content, state = self._write_all(vertex, instance, version, state)
            # What was only needed to put it in order.
            pa.default_memory_pool().release_unused()
        else:
            content = self.log.write(vertex, instance, run, rows)
        if self.shared is not None and self.local is not None:
            self.shared.write_bytes(vertex, instance, run, content)
        following = (run, *(span for span in known if span.last < run.first))
        self._remember(vertex, instance, base, version, state, following)
        if known:
            for log in (self.local, self.shared):
                if log is not None:
                    log.forget(vertex, instance, base)
        return Saved(run, content, state, put_off)

    @property
    def _mapped_from(self) -> int:
        return int(self.state_config.memory_mb * 1e6 * MAPPED_PART)

    def _write_all(
        self, vertex: str, instance: int, version: int, state: KeyedTable
    ) -> tuple[Segment, pa.Buffer, KeyedTable]:
        run = Segment(0, version)
        if state.bytes() > self._mapped_from:
            content = self.log.write(vertex, instance, run, state)
            path = self.log.path(vertex, instance, run)
            return run, content, KeyedTable.mapped(state.by, path)
        state = state.compact()
        rows = state.base.rows
        content = self.log.write(vertex, instance, run, pa.table({}) if rows is None else rows)
        return run, content, state

    def _find(
        self, vertex: str, instance: int, by: tuple[str, ...], version: int
    ) -> tuple[KeyedTable, tuple[Segment, ...]]:
        if version < 0:
            return KeyedTable(by), ()
        found = _CACHE.get((self.token, vertex, instance), {}).get(version)
        if found is not None:
            return found
        try:
            state = self.log.load(vertex, instance, by, version, self._mapped_from)
        except StateLost:
            if self.shared is None or self.local is None:
                raise
            self._fetch(vertex, instance, version)
            state = self.log.load(vertex, instance, by, version, self._mapped_from)
        known = self.log.chain(vertex, instance, version)
        self._remember(vertex, instance, version, version, state, known)
        return state, known

    def _fetch(self, vertex: str, instance: int, version: int) -> None:
        """Copy a version from the shared folder to the node."""
        assert self.shared is not None
        assert self.local is not None
        for run in self.shared.chain(vertex, instance, version):
            content = self.shared.read_bytes(vertex, instance, run)
            self.local.write_bytes(vertex, instance, run, content)

    def _remember(
        self,
        vertex: str,
        instance: int,
        base: int,
        version: int,
        state: KeyedTable,
        known: tuple[Segment, ...],
    ) -> None:
        key = (self.token, vertex, instance)
        versions = _CACHE.setdefault(key, {})
        versions[version] = (state, known)
        for old in [v for v in versions if v not in (base, version)]:
            del versions[old]
        # Instances that have left this process for good.
        for other in [k for k, v in _CACHE.items() if max(v) < version - STALE]:
            del _CACHE[other]


def forget_all(token: str = "") -> None:
    """Forget what this process remembers, of one driver or of all."""
    for key in [k for k in _CACHE if k[0].startswith(token)]:
        del _CACHE[key]
