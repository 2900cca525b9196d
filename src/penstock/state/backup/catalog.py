"""The catalog of state that others keep for an instance: which segments, in whose fragments.

The driver has one catalog. Entries are found by topology, operator, instance and version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.common.errors import InvalidValue
from penstock.state.versions import Segment, chain

#: Stands for a backup node whose fragment is gone, and for the driver where it keeps a segment.
LOST, DRIVER = "", "(driver)"


@dataclass(frozen=True)
class FragmentedSegment:
    """A segment of one instance that was cut into fragments.

    Parameters
    ----------
    topology, operator : str
    instance : int
    first, last : int
        The versions that the segment covers.
    r, c : int
        Its code: data and parity fragments.
    backup_nodes : tuple of str
        Backup node of each fragment, by the fragment's number; `LOST` where it is gone.
    size_bytes : int
        Size of the segment before coding; 0 when it is not known.
    """

    topology: str
    operator: str
    instance: int
    first: int
    last: int
    r: int
    c: int
    backup_nodes: tuple[str, ...]
    size_bytes: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last:
            span = (self.first, self.last)
            raise InvalidValue("versions", str(self), "0 <= first <= last", span)
        if len(self.backup_nodes) != self.r + self.c:
            allowed = f"one for each of {self.r + self.c} fragments (Sl eq. 24)"
            raise InvalidValue("backup_nodes", str(self), allowed, self.backup_nodes)

    def __str__(self) -> str:
        return f"{self.topology}/{self.operator}/{self.instance}/{self.first}-{self.last}"

    @property
    def segment(self) -> Segment:
        """The versions that it covers."""
        return Segment(self.first, self.last)

    @property
    def on_driver(self) -> bool:
        """Whether the driver holds the segment, and will give it to backup nodes."""
        return self.backup_nodes == (DRIVER,)


class Catalog:
    """The prefix tree of fragmented segments (Sl fig. 11).

    Examples
    --------
    >>> catalog = Catalog([FragmentedSegment("t", "count", 1, 0, 4, 1, 1, ("a", "b"))])
    >>> [entry.backup_nodes for entry in catalog.find("t", "count", 1, 4)]
    [('a', 'b')]
    >>> catalog.find("t", "split")
    ()
    """

    def __init__(self, entries: Iterable[FragmentedSegment] = ()) -> None:
        # Down to the version that an entry ends at, then by the version that it begins at.
        self._tree: dict[str, dict[str, dict[int, dict[int, dict[int, FragmentedSegment]]]]] = {}
        for entry in entries:
            self.add(entry)

    def add(self, entry: FragmentedSegment) -> FragmentedSegment | None:
        """Add an entry; return the one of the same versions that it replaces, if any."""
        operators = self._tree.setdefault(entry.topology, {})
        versions = operators.setdefault(entry.operator, {}).setdefault(entry.instance, {})
        leaf = versions.setdefault(entry.last, {})
        replaced = leaf.pop(entry.first, None)
        leaf[entry.first] = entry
        return replaced

    def find(
        self,
        topology: str,
        operator: str | None = None,
        instance: int | None = None,
        version: int | None = None,
    ) -> tuple[FragmentedSegment, ...]:
        """Find the entries under a prefix (Sl Alg. 6); none when there is no such prefix.

        Alg. 6 prints the test of its flag the wrong way round: it stops at a level where no child
        matches, and goes on where one does.

        Parameters
        ----------
        version : int, optional
            The version that the entries end at. A state is made of ``chain(find(...), version)``.
        """
        node: object = self._tree
        for part in _prefix(topology, operator, instance, version):
            if not isinstance(node, dict) or part not in node:
                return ()
            node = node[part]
        return tuple(sorted(_leaves(node), key=_order))

    def forget(
        self,
        topology: str,
        operator: str | None = None,
        instance: int | None = None,
        version: int | None = None,
    ) -> tuple[FragmentedSegment, ...]:
        """Remove the entries under a prefix, and return them."""
        gone = self.find(topology, operator, instance, version)
        for entry in gone:
            self._remove(entry)
        return gone

    def retain(
        self, topology: str, operator: str, instance: int, versions: Iterable[int]
    ) -> tuple[FragmentedSegment, ...]:
        """Remove the entries of an instance that no given version needs, and return them."""
        entries = self.find(topology, operator, instance)
        needed = {entry for version in versions for entry in chain(entries, version)}
        gone = tuple(entry for entry in entries if entry not in needed)
        for entry in gone:
            self._remove(entry)
        return gone

    def __iter__(self) -> Iterator[FragmentedSegment]:
        return iter(sorted(_leaves(self._tree), key=_order))

    def __len__(self) -> int:
        return sum(1 for _ in _leaves(self._tree))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Catalog) and self._tree == other._tree

    __hash__ = None  # type: ignore[assignment]

    def _remove(self, entry: FragmentedSegment) -> None:
        """Remove an entry, and the levels above that it leaves empty."""
        operators = self._tree[entry.topology]
        instances = operators[entry.operator]
        versions = instances[entry.instance]
        del versions[entry.last][entry.first]
        if not versions[entry.last]:
            del versions[entry.last]
        if not versions:
            del instances[entry.instance]
        if not instances:
            del operators[entry.operator]
        if not operators:
            del self._tree[entry.topology]


def _prefix(*parts: str | int | None) -> tuple[str | int, ...]:
    given = tuple(part for part in parts if part is not None)
    if given != parts[: len(given)]:
        allowed = "given from the left: topology, operator, instance, version"
        raise InvalidValue("prefix", "a catalog", allowed, parts)
    return given


def _leaves(node: object) -> Iterator[FragmentedSegment]:
    if isinstance(node, FragmentedSegment):
        yield node
    elif isinstance(node, dict):
        for child in node.values():
            yield from _leaves(child)


def _order(entry: FragmentedSegment) -> tuple[str, str, int, int, int]:
    return (entry.topology, entry.operator, entry.instance, entry.last, entry.first)
