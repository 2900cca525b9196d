"""The state store of a worker process: loads and saves the state of the instances that run there.

An instance works on state in memory. A copy in a file of the node is what other workers of the
executor, and migrations to other nodes, read. A copy in the checkpoint is what a restarted driver
reads. Which of the two there is, `penstock.state.config.StateConfig` says; backup nodes get their
fragments from whoever calls `StateStore.save`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.state.config import STATE, StateConfig
from penstock.state.files.filesystem import is_address
from penstock.state.files.local import LocalSegments
from penstock.state.files.remote import RemoteSegments
from penstock.state.table import KeyedTable
from penstock.state.versions import Segment, StateLost, to_merge

#: The cache drops an instance that this many versions have passed without.
STALE_VERSIONS = 100

#: Part of an instance's memory from which its state is mapped (while it is compacted, the state is
#: in memory twice), and part that recent rows may use before the state is compacted.
MAPPED_PART, RECENT_PART = 1 / 4, 1 / 8

#: Bytes beyond the changes of a batch that a save which is to be short may still write.
SHORT_BYTES = 4_000_000

#: State by driver, operator and instance, and by version: the last one, and the one before it for a
#: retry. With each version goes its chain of segments.
_CACHE: dict[tuple[str, str, int], dict[int, tuple[KeyedTable, tuple[Segment, ...]]]] = {}


@dataclass(frozen=True, eq=False)
class Saved:
    """A segment that was saved.

    Parameters
    ----------
    segment : Segment
    content : Buffer
        The bytes of its file.
    state : KeyedTable
        The new version of the state, which may be mapped from the file now.
    postponed : bool
        Whether more was due to be written: a later save should not have to be short.
    """

    segment: Segment
    content: pa.Buffer
    state: KeyedTable
    postponed: bool = False


class StateStore:
    """Loads and saves the state of instances in one worker process.

    Parameters
    ----------
    state_config : StateConfig
    folder : Path
        Folder of the node that the process runs on.
    token : str
        Identifies the driver: what the process cached for one driver is of no use to the next.
    """

    def __init__(self, state_config: StateConfig, folder: Path, token: str) -> None:
        self.state_config = state_config
        # What is cached belongs to the files that are in the folder.
        self.token = f"{token} {folder}"
        remote = is_address(state_config.shared)
        keeps_local = state_config.by_peers or remote
        self.local = LocalSegments(str(folder / STATE)) if keeps_local else None
        self.shared: LocalSegments | RemoteSegments | None = None
        if state_config.in_checkpoint:
            shared, sync = state_config.shared, state_config.sync
            self.shared = RemoteSegments(shared) if remote else LocalSegments(shared, sync)
        #: The files that instances work on.
        self.files = self.local or LocalSegments(state_config.shared, state_config.sync)

    def load(self, operator: str, instance: int, by: tuple[str, ...], version: int) -> KeyedTable:
        """Return the state at a committed version, from the cache or from files.

        Raises
        ------
        StateLost
            When it is missing or damaged wherever it is kept: no instance starts with less state
            than it had.
        """
        return self._find(operator, instance, by, version)[0]

    def save(
        self,
        operator: str,
        instance: int,
        base: int,
        version: int,
        changed: pa.Table,
        state: KeyedTable,
        *,
        whole: bool = False,
        short: bool = False,
    ) -> Saved:
        """Write the changes of a batch, or all rows when that is due.

        Parameters
        ----------
        base, version : int
            The version that the batch started from, and the one that it makes.
        changed : Table
        state : KeyedTable
            The new version.
        whole : bool
            Write all rows in any case.
        short : bool
            Postpone what would write more than `SHORT_BYTES` that the batch did not change.
        """
        _, known = self._find(operator, instance, state.by, base)
        segment, rows, postponed = Segment(base + 1, version), changed, False
        count = 0 if whole else to_merge(known)
        if short and count:
            sizes = (self.files.size(operator, instance, part) or 0 for part in known[:count])
            postponed = sum(sizes) > SHORT_BYTES
        if count and not postponed:
            rows = self.files.merged(operator, instance, state.by, known[:count], changed)
            segment = Segment(known[count - 1].first, version)
        too_recent = state.recent_bytes() > self.state_config.memory_mb * 1e6 * RECENT_PART
        compact = too_recent or state.due_for_compaction or rows.num_rows > state.size / 2
        if short and compact and state.bytes() > SHORT_BYTES:
            compact, postponed = False, True
        if whole or compact:
            segment, content, state = self._write_whole(operator, instance, version, state)
            # Compaction used memory that nothing needs any more.
            pa.default_memory_pool().release_unused()
        else:
            content = self.files.write(operator, instance, segment, rows)
        if self.shared is not None and self.local is not None:
            self.shared.write_bytes(operator, instance, segment, content)
        following = (segment, *(part for part in known if part.last < segment.first))
        self._cache(operator, instance, base, version, state, following)
        if known:
            for files in (self.local, self.shared):
                if files is not None:
                    files.forget(operator, instance, base)
        return Saved(segment, content, state, postponed)

    @property
    def _mapped_from(self) -> int:
        return int(self.state_config.memory_mb * 1e6 * MAPPED_PART)

    def _write_whole(
        self, operator: str, instance: int, version: int, state: KeyedTable
    ) -> tuple[Segment, pa.Buffer, KeyedTable]:
        segment = Segment(0, version)
        if state.bytes() > self._mapped_from:
            content = self.files.write(operator, instance, segment, state)
            path = self.files.path(operator, instance, segment)
            return segment, content, self.files.map(state.by, path)
        state = state.compact()
        rows = state.base.rows
        rows = pa.table({}) if rows is None else rows
        content = self.files.write(operator, instance, segment, rows)
        return segment, content, state

    def _find(
        self, operator: str, instance: int, by: tuple[str, ...], version: int
    ) -> tuple[KeyedTable, tuple[Segment, ...]]:
        if version < 0:
            return KeyedTable(by), ()
        found = _CACHE.get((self.token, operator, instance), {}).get(version)
        if found is not None:
            return found
        try:
            state = self._load(operator, instance, by, version)
        except StateLost as error:
            named = f"{operator}[{instance}]"
            told = str(error) if str(error).startswith(named) else f"{named}: {error}"
            raise StateLost(told, (operator, instance)) from error
        known = self.files.chain(operator, instance, version)
        self._cache(operator, instance, version, version, state, known)
        return state, known

    def _load(self, operator: str, instance: int, by: tuple[str, ...], version: int) -> KeyedTable:
        """Load from the files of the node; where they are missing or damaged, the checkpoint's."""
        try:
            return self.files.load(operator, instance, by, version, self._mapped_from)
        except StateLost:
            if self.local is None:
                raise
            # So that what is fetched or restored is complete without them.
            self.local.set_aside_damaged(operator, instance)
            if self.shared is None:
                raise
        self._fetch(self.shared, operator, instance, version)
        return self.files.load(operator, instance, by, version, self._mapped_from)

    def _fetch(
        self, shared: LocalSegments | RemoteSegments, operator: str, instance: int, version: int
    ) -> None:
        """Copy the state at a version from the checkpoint to the node."""
        for segment in shared.chain(operator, instance, version):
            content = shared.read_bytes(operator, instance, segment)
            self.files.write_bytes(operator, instance, segment, content)

    def _cache(
        self,
        operator: str,
        instance: int,
        base: int,
        version: int,
        state: KeyedTable,
        known: tuple[Segment, ...],
    ) -> None:
        key = (self.token, operator, instance)
        versions = _CACHE.setdefault(key, {})
        versions[version] = (state, known)
        for old in [v for v in versions if v not in (base, version)]:
            del versions[old]
        # Instances that have left this process for good.
        for other in [k for k, v in _CACHE.items() if max(v) < version - STALE_VERSIONS]:
            del _CACHE[other]


def clear_cache(token: str = "") -> None:
    """Drop the state that this process has cached, of one driver or of all."""
    for key in [k for k in _CACHE if k[0].startswith(token)]:
        del _CACHE[key]
