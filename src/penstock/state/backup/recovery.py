"""Which keeper sends which fragment when state is rebuilt elsewhere (Sl Alg. 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from penstock.model import PenstockError
from penstock.state.backup.catalog import LOST, FragmentedSegment


@dataclass(frozen=True)
class Pull:
    """One fragment that one keeper has.

    Parameters
    ----------
    block : FragmentedSegment
    index : int
        Number of the fragment.
    backup_node : str
        Node that has it.
    """

    block: FragmentedSegment
    index: int
    backup_node: str


@dataclass(frozen=True)
class Missing:
    """A block of which too little is left.

    Parameters
    ----------
    block : FragmentedSegment
    left : tuple of int
        Fragments that are left.
    lost_with : tuple of str
        Nodes that took fragments with them, or whose fragment is corrupt.
    """

    block: FragmentedSegment
    left: tuple[int, ...]
    lost_with: tuple[str, ...]

    def __str__(self) -> str:
        block, gone = self.block, ", ".join(self.lost_with) or "nodes that are not known any more"
        if not block.r:
            return f"{block} was not kept by any other node"
        return (
            f"{block} has {len(self.left)} of {block.r + block.c} fragments left and needs "
            f"{block.r}; lost with {gone}"
        )


class Unrecoverable(PenstockError):
    """State cannot be rebuilt from fragments; says of which versions too little is left.

    Parameters
    ----------
    missing : tuple of Missing
    """

    def __init__(self, missing: tuple[Missing, ...]) -> None:
        super().__init__(missing)
        self.missing = missing

    def __str__(self) -> str:
        return "; ".join(map(str, self.missing))


@dataclass(frozen=True)
class Recovery:
    """What to fetch to the new home of some state.

    Parameters
    ----------
    home : str
        Where the state is rebuilt.
    pulls : tuple of Pull
        Exactly r fragments of every block, in the order of the blocks.
    spares : tuple of Pull
        The other fragments that are left, in the order in which to fall back on them.
    """

    home: str
    pulls: tuple[Pull, ...]
    spares: tuple[Pull, ...]

    def by_keeper(self) -> Mapping[str, tuple[Pull, ...]]:
        """Group pulls by the node that sends them; all nodes can send at once."""
        senders: dict[str, list[Pull]] = {}
        for pull in self.pulls:
            senders.setdefault(pull.backup_node, []).append(pull)
        return {backup_node: tuple(pulls) for backup_node, pulls in senders.items()}


def plan_recovery(
    blocks: Iterable[FragmentedSegment],
    alive: Collection[str],
    home: str,
    bad: Collection[Pull] = (),
) -> Recovery:
    """Choose r fragments of every block, so that the keepers send about as much each.

    Examples
    --------
    >>> block = FragmentedSegment("t", "count", 0, 0, 4, 2, 1, ("a", "b", "c"))
    >>> plan = plan_recovery([block], alive=["b", "c", "d"], home="d")
    >>> [(pull.index, pull.backup_node) for pull in plan.pulls]
    [(1, 'b'), (2, 'c')]

    Parameters
    ----------
    blocks : iterable of FragmentedSegment
        The chain of the version that is wanted.
    alive : collection of str
        Nodes that can send.
    home : str
        Where the state is rebuilt; fragments that lie there cost nothing and are taken first.
    bad : collection of Pull
        Fragments that turned out to be corrupt or gone: plan again with these to go round them.

    Raises
    ------
    Unrecoverable
        Naming every block of which fewer than r fragments are left (Alg. 5 prints ``b > r``; r
        are enough).
    """
    chain, up, broken = tuple(blocks), set(alive), set(bad)
    left = {block: [p for p in _pulls(block) if p.backup_node in up] for block in chain}
    if broken:
        left = {block: [p for p in pulls if p not in broken] for block, pulls in left.items()}
    missing = tuple(
        _missing(block, pulls)
        for block, pulls in left.items()
        if len(pulls) < block.r or not block.r
    )
    if missing:
        raise Unrecoverable(missing)
    # Large fragments first, each from the keepers that send least so far; ties go to raw ones.
    sends: Counter[str] = Counter()
    order: dict[FragmentedSegment, list[Pull]] = {}
    for block in sorted(left, key=_fragment_bytes, reverse=True):
        order[block] = sorted(
            left[block], key=lambda p: (p.backup_node != home, sends[p.backup_node], p.index)
        )
        for pull in order[block][: block.r]:
            sends[pull.backup_node] += _fragment_bytes(block)
    return Recovery(
        home,
        tuple(pull for block in left for pull in order[block][: block.r]),
        tuple(pull for block in left for pull in order[block][block.r :]),
    )


def _pulls(block: FragmentedSegment) -> list[Pull]:
    return [
        Pull(block, i, backup_node)
        for i, backup_node in enumerate(block.backup_nodes)
        if backup_node != LOST
    ]


def _missing(block: FragmentedSegment, left: list[Pull]) -> Missing:
    kept = tuple(pull.index for pull in left)
    gone = (k for i, k in enumerate(block.backup_nodes) if i not in kept and k != LOST)
    return Missing(block, kept, tuple(gone))


def _fragment_bytes(block: FragmentedSegment) -> int:
    """Size of a fragment; that of the smallest where it is not known."""
    return max(1, block.size_bytes // max(1, block.r))
