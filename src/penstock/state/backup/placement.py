"""Which nodes keep an instance's fragments, and what losses that survives (Sl eq. 24)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.model import InvalidValue


class Fragmented(Protocol):
    """Anything that was cut into fragments: fragment i lies on keeper i, any r rebuild it."""

    @property
    def r(self) -> int:
        """Fragments that rebuild it."""

    @property
    def backup_nodes(self) -> tuple[str, ...]:
        """Nodes by the number of the fragment that they keep."""


def state_key(topology: str, operator: str, index: int) -> str:
    """Name an instance's state, for `spread`: whoever lays out state has to call it the same."""
    return f"{topology}/{operator}/{index}"


@dataclass(frozen=True)
class FragmentPlacement:
    """A code and the nodes that keep its fragments.

    Parameters
    ----------
    r, c : int
        Raw and check fragments; both 0 when there is no other node.
    backup_nodes : tuple of str
        r + c nodes; the i-th keeps fragment i.
    """

    r: int
    c: int
    backup_nodes: tuple[str, ...]


def spread(
    home: str,
    instance_key: str,
    nodes: Iterable[str],
    r: int = 7,
    c: int = 3,
    domains: Mapping[str, str] | None = None,
) -> FragmentPlacement:
    """Choose a node for every fragment of an instance's state.

    Examples
    --------
    >>> spread("a", "count/0", ["a", "b", "c", "d"], r=2, c=1)
    FragmentPlacement(r=2, c=1, backup_nodes=('d', 'c', 'b'))
    >>> spread("a", "count/0", ["a", "b", "c"], r=7, c=3)
    FragmentPlacement(r=1, c=1, backup_nodes=('c', 'b'))

    Parameters
    ----------
    home : str
        Node of the instance; it has the state itself and keeps no fragment.
    instance_key : str
        Turns the choice, so that all nodes keep about as much.
    nodes : iterable of str
        Nodes that may keep fragments. Where there are fewer than r + c besides the home, c stays as
        asked as long as r is at least 1.
    domains : mapping of str to str, optional
        Failure domain of a node, such as its rack; a node that is not named is one of its own.

    Notes
    -----
    The domains of the other nodes get equally many fragments as far as they have nodes. The home's
    own comes last: state is lost only together with its home, so a fragment there is the first to
    go; putting it elsewhere never makes fewer failing domains fatal.
    """
    for name, value, least in (("r", r, 1), ("c", c, 0)):
        if value < least:
            raise InvalidValue(name, "a spread", f"at least {least}", value)
    order = sorted(set(nodes) - {home}, key=lambda node: _draw(instance_key, node))
    if domains:
        order = _by_domains(home, instance_key, order, domains)
    r, c = fitted(r, c, len(order))
    return FragmentPlacement(r, c, tuple(order[: r + c]))


def _by_domains(home: str, key: str, nodes: list[str], domains: Mapping[str, str]) -> list[str]:
    peers: dict[str, list[str]] = {}
    for node in nodes:
        peers.setdefault(domains.get(node, node), []).append(node)
    own = domains.get(home, home)
    turn = sorted(peers, key=lambda domain: _draw(key, domain))
    # Round after round, one node of each foreign domain; then what the home's domain has.
    rounds = [
        (domain == own, place, nth, node)
        for nth, domain in enumerate(turn)
        for place, node in enumerate(peers[domain])
    ]
    return [node for *_, node in sorted(rounds)]


def fitted(r: int, c: int, peers: int) -> tuple[int, int]:
    """Reduce a code to so many keepers: r + c = u (Sl eq. 24), c before r.

    Examples
    --------
    >>> [fitted(7, 3, peers) for peers in (12, 10, 6, 4, 3, 1, 0)]
    [(7, 3), (7, 3), (3, 3), (1, 3), (1, 2), (1, 0), (0, 0)]
    """
    if not peers:
        return 0, 0
    c = min(c, peers - 1)
    return min(r, peers - c), c


@dataclass(frozen=True)
class Tolerance:
    """What losses some state survives, whichever they are.

    Parameters
    ----------
    nodes : int
        Nodes that may be lost at once; -1 when the state cannot be rebuilt even now.
    domains : int or None
        Whole failure domains that may be lost at once; None when domains are not known.
    asked : int
        Nodes that should be.
    more_nodes : int
        Nodes that the cluster lacks for that.
    """

    nodes: int
    domains: int | None = None
    asked: int = 0
    more_nodes: int = 0

    def __str__(self) -> str:
        if self.nodes < 0:
            return "cannot be rebuilt: its home and too many keepers are lost"
        said = "survives " + (_any(self.nodes, "node") if self.nodes else "the loss of no node")
        if self.domains is not None:
            within = _any(self.domains, "failure domain") if self.domains else "no failure domain"
            said += f" and {within}"
        if self.nodes >= self.asked:
            return said
        said += f"; {self.asked} {'was' if self.asked == 1 else 'were'} asked for: "
        if not self.more_nodes:
            return said + "what was saved before there were enough nodes is still in use"
        more = "more node is" if self.more_nodes == 1 else "more nodes are"
        return said + f"{self.more_nodes} {more} needed"


def tolerance(
    home: str,
    runs: Iterable[Fragmented],
    nodes: Collection[str],
    asked: int = 0,
    domains: Mapping[str, str] | None = None,
) -> Tolerance:
    """Work out what the actual spread of an instance's runs survives.

    State is lost when its home is, and of any run that it needs fewer than r fragments are left.

    Examples
    --------
    >>> nodes = ["a", "b", "c"]
    >>> print(tolerance("a", [spread("a", "count/0", nodes)], nodes, asked=3))
    survives any 2 nodes; 3 were asked for: 1 more node is needed

    Parameters
    ----------
    home : str
        Where the whole state is; it need not be alive.
    runs : iterable of Fragmented
        All runs that the state is made of, such as a chain of blocks.
    nodes : collection of str
        Nodes that are alive; fragments on others are lost already.
    asked : int
        Losses that should be survived.
    """
    chain, alive = list(runs), set(nodes)
    apart = {node: node for node in alive}
    by_node = min((_fatal(home, run, alive, apart) for run in chain), default=int(home in alive))
    by_domain = None
    if domains is not None:
        grouped = {node: domains.get(node, node) for node in alive}
        by_domain = min(
            (_fatal(home, run, alive, grouped) for run in chain), default=int(home in alive)
        )
    return Tolerance(
        by_node - 1,
        None if by_domain is None else max(0, by_domain - 1),
        asked,
        # The home and `asked` keepers: a code of 1 + (asked - 1) at least.
        max(0, asked + 1 - len(alive)),
    )


def thin(
    home: str, runs: Iterable[Fragmented], wanted: FragmentPlacement, nodes: Collection[str]
) -> bool:
    """Whether an instance's fragments survive less than they could, so that it is spread anew.

    Examples
    --------
    >>> nodes = ["a", "b", "c", "d"]
    >>> now = spread("a", "count/0", nodes, r=2, c=1)
    >>> thin("a", [now], now, nodes), thin("d", [now], spread("d", "count/0", nodes, 2, 1), nodes)
    (False, True)

    Parameters
    ----------
    home : str
        Where the instance now is.
    runs : iterable of Fragmented
        What peers have of it; none: whatever is wanted is more.
    wanted : FragmentPlacement
        As it would be spread now.
    nodes : collection of str
        Nodes that are alive.
    """
    kept = list(runs)
    if not kept:
        return bool(wanted.backup_nodes)
    return tolerance(home, kept, nodes).nodes < tolerance(home, [wanted], nodes).nodes


def worst(tolerances: Iterable[Tolerance]) -> Tolerance:
    """Return what all of several instances survive."""
    every = list(tolerances)
    if not every:
        raise InvalidValue("tolerances", "worst", "at least one", ())
    known = [one.domains for one in every if one.domains is not None]
    return Tolerance(
        min(one.nodes for one in every),
        min(known) if known else None,
        max(one.asked for one in every),
        max(one.more_nodes for one in every),
    )


def _fatal(home: str, run: Fragmented, alive: set[str], groups: Mapping[str, str]) -> int:
    """Fewest groups of nodes whose loss leaves neither the home nor r fragments."""
    held = Counter(groups[backup_node] for backup_node in run.backup_nodes if backup_node in alive)
    left, lost = sum(held.values()), 0
    if home in alive:
        lost = 1
        left -= held.pop(groups[home], 0)
    # Groups do not overlap, so the largest first is the fewest.
    for _, fragments in held.most_common():
        if left < run.r or not run.r:
            break
        left -= fragments
        lost += 1
    return lost


def _draw(key: str, name: str) -> bytes:
    """Draw a number for a name that differs from key to key and is the same on every machine."""
    return hashlib.blake2b(f"{key}\0{name}".encode(), digest_size=8).digest()


def _any(count: int, what: str) -> str:
    return f"any {count} {what}{'' if count == 1 else 's'}"
