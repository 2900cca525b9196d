"""Which backup node sends which fragment when state is restored on another node (Sl Alg. 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from penstock.common.errors import PenstockError
from penstock.state.backup.catalog import LOST, FragmentedSegment


@dataclass(frozen=True)
class Pull:
    """One fragment to fetch from one backup node.

    Parameters
    ----------
    segment : FragmentedSegment
    index : int
        Number of the fragment.
    backup_node : str
        Node that has it.
    """

    segment: FragmentedSegment
    index: int
    backup_node: str


@dataclass(frozen=True)
class Missing:
    """A segment of which too few fragments are left.

    Parameters
    ----------
    segment : FragmentedSegment
    left : tuple of int
        Fragments that are left.
    lost_with : tuple of str
        Nodes that are lost with their fragment, or whose fragment is damaged.
    """

    segment: FragmentedSegment
    left: tuple[int, ...]
    lost_with: tuple[str, ...]

    def __str__(self) -> str:
        segment = self.segment
        gone = ", ".join(self.lost_with) or "nodes that are not known any more"
        if not segment.r:
            return f"{segment} was not kept by any other node"
        return (
            f"{segment} has {len(self.left)} of {segment.r + segment.c} fragments left and needs "
            f"{segment.r}; lost with {gone}"
        )


class Unrecoverable(PenstockError):
    """State cannot be restored from fragments, because too few are left of some segments.

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
    """The fragments to fetch to the node where some state is restored.

    Parameters
    ----------
    target : str
        The node where the state is restored.
    pulls : tuple of Pull
        Exactly r fragments of every segment, in the order of the segments.
    spares : tuple of Pull
        The other fragments that are left, in the order in which to try them.
    """

    target: str
    pulls: tuple[Pull, ...]
    spares: tuple[Pull, ...]

    def by_sender(self) -> Mapping[str, tuple[Pull, ...]]:
        """Group the pulls by the node that sends them; all nodes can send at once."""
        senders: dict[str, list[Pull]] = {}
        for pull in self.pulls:
            senders.setdefault(pull.backup_node, []).append(pull)
        return {node: tuple(pulls) for node, pulls in senders.items()}


def plan_recovery(
    segments: Iterable[FragmentedSegment],
    alive: Collection[str],
    target: str,
    bad: Collection[Pull] = (),
) -> Recovery:
    """Choose r fragments of every segment, so that the backup nodes send about as much each.

    Examples
    --------
    >>> segment = FragmentedSegment("t", "count", 0, 0, 4, 2, 1, ("a", "b", "c"))
    >>> plan = plan_recovery([segment], alive=["b", "c", "d"], target="d")
    >>> [(pull.index, pull.backup_node) for pull in plan.pulls]
    [(1, 'b'), (2, 'c')]

    Parameters
    ----------
    segments : iterable of FragmentedSegment
        The chain of the version that is wanted.
    alive : collection of str
        Nodes that can send.
    target : str
        The node where the state is restored. Fragments that it has itself are taken first.
    bad : collection of Pull
        Fragments that turned out to be damaged or gone, and are not asked for again.

    Raises
    ------
    Unrecoverable
        When fewer than r fragments are left of a segment (Alg. 5 prints ``b > r``; r are enough).
    """
    chain, up, broken = tuple(segments), set(alive), set(bad)
    left = {
        segment: [p for p in _pulls(segment) if p.backup_node in up and p not in broken]
        for segment in chain
    }
    missing = tuple(
        _missing(segment, pulls)
        for segment, pulls in left.items()
        if len(pulls) < segment.r or not segment.r
    )
    if missing:
        raise Unrecoverable(missing)
    # Large fragments first, each from the nodes that send least so far; then data before parity.
    sends: Counter[str] = Counter()
    order: dict[FragmentedSegment, list[Pull]] = {}
    for segment in sorted(left, key=_fragment_bytes, reverse=True):
        order[segment] = sorted(
            left[segment], key=lambda p: (p.backup_node != target, sends[p.backup_node], p.index)
        )
        for pull in order[segment][: segment.r]:
            sends[pull.backup_node] += _fragment_bytes(segment)
    return Recovery(
        target,
        tuple(pull for segment in left for pull in order[segment][: segment.r]),
        tuple(pull for segment in left for pull in order[segment][segment.r :]),
    )


def _pulls(segment: FragmentedSegment) -> list[Pull]:
    return [Pull(segment, i, node) for i, node in enumerate(segment.backup_nodes) if node != LOST]


def _missing(segment: FragmentedSegment, left: list[Pull]) -> Missing:
    kept = tuple(pull.index for pull in left)
    gone = (k for i, k in enumerate(segment.backup_nodes) if i not in kept and k != LOST)
    return Missing(segment, kept, tuple(gone))


def _fragment_bytes(segment: FragmentedSegment) -> int:
    """Return the size of a fragment; that of the smallest where it is not known."""
    return max(1, segment.size_bytes // max(1, segment.r))
