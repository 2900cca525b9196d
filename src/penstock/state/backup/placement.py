"""Which nodes keep the fragments of an instance's state, and what that survives (Sl eq. 24)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from penstock.common.errors import InvalidValue


class Fragmented(Protocol):
    """Anything that was cut into fragments: backup node i has fragment i, any r restore it."""

    @property
    def r(self) -> int:
        """Fragments that restore it."""

    @property
    def backup_nodes(self) -> tuple[str, ...]:
        """Nodes, by the number of the fragment that they keep."""


def state_key(topology: str, operator: str, index: int) -> str:
    """Name an instance's state for `place_fragments`; engine and simulator use the same name."""
    return f"{topology}/{operator}/{index}"


@dataclass(frozen=True)
class FragmentPlacement:
    """A code and the nodes that keep its fragments.

    Parameters
    ----------
    r, c : int
        Data and parity fragments; both 0 when there is no other node.
    backup_nodes : tuple of str
        r + c nodes; the i-th keeps fragment i.
    """

    r: int
    c: int
    backup_nodes: tuple[str, ...]


def place_fragments(
    node: str, instance_key: str, nodes: Iterable[str], r: int = 7, c: int = 3
) -> FragmentPlacement:
    """Choose a backup node for every fragment of an instance's state.

    Examples
    --------
    >>> place_fragments("a", "count/0", ["a", "b", "c", "d"], r=2, c=1)
    FragmentPlacement(r=2, c=1, backup_nodes=('d', 'c', 'b'))
    >>> place_fragments("a", "count/0", ["a", "b", "c"], r=7, c=3)
    FragmentPlacement(r=1, c=1, backup_nodes=('c', 'b'))

    Parameters
    ----------
    node : str
        Node of the instance. It has the state itself and gets no fragment.
    instance_key : str
        Varies the order of the nodes, so that all of them keep about as much.
    nodes : iterable of str
        Nodes that may keep fragments. Where there are fewer than r + c besides the instance's own,
        r is reduced first, down to 1, and then c.
    """
    for name, value, least in (("r", r, 1), ("c", c, 0)):
        if value < least:
            raise InvalidValue(name, "a fragment placement", f"at least {least}", value)
    order = sorted(set(nodes) - {node}, key=lambda other: _draw(instance_key, other))
    r, c = fit_code(r, c, len(order))
    return FragmentPlacement(r, c, tuple(order[: r + c]))


def fit_code(r: int, c: int, peers: int) -> tuple[int, int]:
    """Reduce a code to the number of backup nodes: r + c = u (Sl eq. 24), r before c.

    Examples
    --------
    >>> [fit_code(7, 3, peers) for peers in (12, 10, 6, 4, 3, 1, 0)]
    [(7, 3), (7, 3), (3, 3), (1, 3), (1, 2), (1, 0), (0, 0)]
    """
    if not peers:
        return 0, 0
    c = min(c, peers - 1)
    return min(r, peers - c), c


@dataclass(frozen=True)
class Tolerance:
    """What losses of nodes some state survives, whichever nodes they are.

    Parameters
    ----------
    nodes : int
        Nodes that may be lost at once; -1 when the state cannot be restored even now.
    asked : int
        Nodes that the user asked for.
    more_nodes : int
        Nodes that the cluster lacks for that.
    """

    nodes: int
    asked: int = 0
    more_nodes: int = 0

    def __str__(self) -> str:
        if self.nodes < 0:
            return "cannot be restored: its node and too many backup nodes are lost"
        said = "survives " + (_any(self.nodes, "node") if self.nodes else "the loss of no node")
        if self.nodes >= self.asked:
            return said
        said += f"; {self.asked} {'was' if self.asked == 1 else 'were'} asked for: "
        if not self.more_nodes:
            return said + "what was saved before there were enough nodes is still in use"
        more = "more node is" if self.more_nodes == 1 else "more nodes are"
        return said + f"{self.more_nodes} {more} needed"


def tolerance(
    node: str, segments: Iterable[Fragmented], nodes: Collection[str], asked: int = 0
) -> Tolerance:
    """Work out which losses the fragments of an instance's segments survive where they really are.

    State is lost when the node of the instance is, and fewer than r fragments are left of any
    segment that it needs.

    Examples
    --------
    >>> nodes = ["a", "b", "c"]
    >>> print(tolerance("a", [place_fragments("a", "count/0", nodes)], nodes, asked=3))
    survives any 2 nodes; 3 were asked for: 1 more node is needed

    Parameters
    ----------
    node : str
        Node of the instance, which has the whole state; it need not be alive.
    segments : iterable of Fragmented
        All segments that the state is made of.
    nodes : collection of str
        Nodes that are alive; fragments on others are lost already.
    asked : int
        Losses that should be survived.
    """
    alive = set(nodes)
    fatal = min((_fatal(node, part, alive) for part in segments), default=int(node in alive))
    # The instance's own node and `asked` backup nodes: a code of 1 + (asked - 1) at least.
    return Tolerance(fatal - 1, asked, max(0, asked + 1 - len(alive)))


def under_replicated(
    node: str, segments: Iterable[Fragmented], wanted: FragmentPlacement, nodes: Collection[str]
) -> bool:
    """Whether an instance's fragments survive less than they could, so they are to be stored again.

    Examples
    --------
    >>> nodes = ["a", "b", "c", "d"]
    >>> now = place_fragments("a", "count/0", nodes, r=2, c=1)
    >>> moved = place_fragments("d", "count/0", nodes, r=2, c=1)
    >>> under_replicated("a", [now], now, nodes), under_replicated("d", [now], moved, nodes)
    (False, True)

    Parameters
    ----------
    node : str
        Node that the instance is on now.
    segments : iterable of Fragmented
        What backup nodes have of it. Without any, every backup is an improvement.
    wanted : FragmentPlacement
        The placement that would be chosen now.
    nodes : collection of str
        Nodes that are alive.
    """
    kept = list(segments)
    if not kept:
        return bool(wanted.backup_nodes)
    return tolerance(node, kept, nodes).nodes < tolerance(node, [wanted], nodes).nodes


def worst(tolerances: Iterable[Tolerance]) -> Tolerance:
    """Return what all of several instances survive."""
    known = list(tolerances)
    if not known:
        raise InvalidValue("tolerances", "worst", "at least one", ())
    return Tolerance(
        min(one.nodes for one in known),
        max(one.asked for one in known),
        max(one.more_nodes for one in known),
    )


def _fatal(node: str, segment: Fragmented, alive: set[str]) -> int:
    """Return the smallest number of nodes whose loss leaves neither the node nor r fragments."""
    kept = Counter(name for name in segment.backup_nodes if name in alive)
    left, lost = sum(kept.values()), 0
    if node in alive:
        lost = 1
        left -= kept.pop(node, 0)
    # Those with the most fragments first.
    for _, fragments in kept.most_common():
        if left < segment.r or not segment.r:
            break
        left -= fragments
        lost += 1
    return lost


def _draw(key: str, name: str) -> bytes:
    """Draw a number for a name that differs from key to key and is the same on every machine."""
    return hashlib.blake2b(f"{key}\0{name}".encode(), digest_size=8).digest()


def _any(count: int, what: str) -> str:
    return f"any {count} {what}{'' if count == 1 else 's'}"
