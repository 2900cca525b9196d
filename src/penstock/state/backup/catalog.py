"""Which runs of state there are and who keeps them: topology / operator / instance / version.

A run holds what changed over versions `first` to `last`; one that begins at 0 holds everything. The
state at a version is a chain of runs without a gap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from penstock.model import InvalidValue, PenstockError
from penstock.state.versions import Segment, outdated

#: In the place of a keeper whose fragment is gone, and of the driver, which no executor is called.
LOST, DRIVER = "", "(driver)"


class ChainBroken(PenstockError):
    """State at a version cannot be put together, because a run is missing.

    Parameters
    ----------
    version : int
        What was asked for.
    missing : int
        The version that no run ends at.
    """

    def __init__(self, version: int, missing: int) -> None:
        super().__init__(version, missing)
        self.version, self.missing = version, missing

    def __str__(self) -> str:
        return f"version {self.version} cannot be put together: no run ends at {self.missing}"


class Versioned(Protocol):
    """What covers a span of versions, both ends included."""

    @property
    def first(self) -> int:
        """First version."""

    @property
    def last(self) -> int:
        """Last version."""


RunT = TypeVar("RunT", bound=Versioned)


@dataclass(frozen=True)
class FragmentedSegment:
    """A run of one instance that was cut into fragments.

    Parameters
    ----------
    topology, operator : str
    instance : int
    first, last : int
        The versions that it covers.
    r, c : int
        Its code.
    backup_nodes : tuple of str
        Node of each fragment, by its number; `LOST` where it is gone.
    size_bytes : int
        Length before coding; 0 when it is not known.
    digest : int or None
        Tells it from other attempts at the same versions, as the header of its fragments does.
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
    digest: int | None = None

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
    def held(self) -> bool:
        """Whether it is with the driver, which will give it to peers."""
        return self.backup_nodes == (DRIVER,)


def chain(runs: Iterable[RunT], version: int) -> tuple[RunT, ...]:
    """Choose the runs that make up a version, newest first.

    The first one ends at the version and reaches back as far as possible, the next ends right
    before that begins, and so on to 0; runs that lead to a gap are passed over.

    Examples
    --------
    >>> def block(first, last):
    ...     return FragmentedSegment("t", "count", 0, first, last, 1, 0, ("n",))
    >>> runs = [block(0, 0), block(1, 1), block(2, 2), block(0, 2), block(3, 3)]
    >>> print(*chain(runs, 3))
    t/count/0/3-3 t/count/0/0-2

    Raises
    ------
    ChainBroken
        Naming the version that is missing. Version -1, before the first, is an empty chain.
    """
    every = sorted(runs, key=lambda run: (run.last, run.first))
    before: dict[int, RunT] = {}
    widest: dict[int, RunT] = {}
    for run in every:
        widest.setdefault(run.last, run)
        if run.first == 0 or run.first - 1 in before:
            before.setdefault(run.last, run)
    found: list[RunT] = []
    at = version
    while at >= 0:
        if at not in before:
            raise ChainBroken(version, _gap(widest, at))
        found.append(before[at])
        at = before[at].first - 1
    return tuple(found)


def unneeded(runs: Collection[Segment], committed: int) -> set[Segment]:
    """Find the runs that neither a committed version nor a later one needs.

    None is, while not all of that version is there.
    """
    try:
        return outdated(runs, committed, chain(runs, committed))
    except ChainBroken:
        return set()


def _gap(widest: dict[int, RunT], at: int) -> int:
    while at in widest:
        at = widest[at].first - 1
    return at


def retained(runs: Iterable[RunT], versions: Iterable[int]) -> tuple[RunT, ...]:
    """Return the runs that the given versions need; the others may be forgotten."""
    every = list(runs)
    needed = {id(run) for version in versions for run in chain(every, version)}
    return tuple(run for run in every if id(run) in needed)


class Catalog:
    """The prefix tree of blocks (Sl fig. 11).

    Examples
    --------
    >>> catalog = Catalog([FragmentedSegment("t", "count", 1, 0, 4, 1, 1, ("a", "b"))])
    >>> [block.backup_nodes for block in catalog.find("t", "count", 1, 4)]
    [('a', 'b')]
    >>> catalog.find("t", "split"), catalog.without_node("a").find("t")[0].backup_nodes
    ((), ('', 'b'))
    """

    def __init__(self, blocks: Iterable[FragmentedSegment] = ()) -> None:
        # Down to the version that a block ends at, then by the one that it begins at.
        self._tree: dict[str, dict[str, dict[int, dict[int, dict[int, FragmentedSegment]]]]] = {}
        for block in blocks:
            self.add(block)

    def add(self, block: FragmentedSegment) -> FragmentedSegment | None:
        """Enter a block; return the one of the same versions whose place it takes, if any."""
        operators = self._tree.setdefault(block.topology, {})
        versions = operators.setdefault(block.operator, {}).setdefault(block.instance, {})
        leaf = versions.setdefault(block.last, {})
        replaced = leaf.pop(block.first, None)
        leaf[block.first] = block
        return replaced

    def find(
        self,
        topology: str,
        operator: str | None = None,
        instance: int | None = None,
        version: int | None = None,
    ) -> tuple[FragmentedSegment, ...]:
        """Find the blocks under a prefix (Sl Alg. 6); none when there is no such prefix.

        Alg. 6 prints the test of its flag the wrong way round: it gives up at a level where no
        child matches, and goes on where one does.

        Parameters
        ----------
        version : int, optional
            The version that the blocks end at. What a version is made of: ``chain(find(...), v)``.
        """
        node: object = self._tree
        for part in _prefix(topology, operator, instance, version):
            assert isinstance(node, dict)
            if part not in node:
                return ()
            node = node[part]
        return tuple(sorted(_leaves(node), key=_place))

    def forget(
        self,
        topology: str,
        operator: str | None = None,
        instance: int | None = None,
        version: int | None = None,
    ) -> tuple[FragmentedSegment, ...]:
        """Remove the blocks under a prefix and return them, so that keepers can be told."""
        gone = self.find(topology, operator, instance, version)
        for block in gone:
            self._remove(block)
        return gone

    def retain(
        self, topology: str, operator: str, instance: int, versions: Iterable[int]
    ) -> tuple[FragmentedSegment, ...]:
        """Remove the blocks of an instance that no given version needs, and return them."""
        every = self.find(topology, operator, instance)
        kept = set(retained(every, versions))
        gone = tuple(block for block in every if block not in kept)
        for block in gone:
            self._remove(block)
        return gone

    def without_node(self, name: str) -> Catalog:
        """Return a catalogue in which all that the node kept is lost."""
        return Catalog(
            replace(block, backup_nodes=tuple(LOST if k == name else k for k in block.backup_nodes))
            for block in self
        )

    def __iter__(self) -> Iterator[FragmentedSegment]:
        return iter(sorted(_leaves(self._tree), key=_place))

    def __len__(self) -> int:
        return sum(1 for _ in _leaves(self._tree))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Catalog) and self._tree == other._tree

    __hash__ = None  # type: ignore[assignment]

    def _remove(self, block: FragmentedSegment) -> None:
        """Remove a block, and the levels above that it leaves empty."""
        operators = self._tree[block.topology]
        instances = operators[block.operator]
        versions = instances[block.instance]
        del versions[block.last][block.first]
        if not versions[block.last]:
            del versions[block.last]
        if not versions:
            del instances[block.instance]
        if not instances:
            del operators[block.operator]
        if not operators:
            del self._tree[block.topology]


def _prefix(*parts: str | int | None) -> tuple[str | int, ...]:
    given = tuple(part for part in parts if part is not None)
    if given != parts[: len(given)]:
        allowed = "without a hole: topology, operator, instance, version"
        raise InvalidValue("prefix", "a catalogue", allowed, parts)
    return given


def _leaves(node: object) -> Iterator[FragmentedSegment]:
    if isinstance(node, FragmentedSegment):
        yield node
    elif isinstance(node, dict):
        for child in node.values():
            yield from _leaves(child)


def _place(block: FragmentedSegment) -> tuple[str, str, int, int, int]:
    return (block.topology, block.operator, block.instance, block.last, block.first)
