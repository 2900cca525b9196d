"""Where the state of a simulation lies: laid out by the code that lays it out in the engine."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.model import Plan, Topology
from penstock.state.backup.catalog import FragmentedSegment
from penstock.state.backup.placement import fit_code, place_fragments, state_key, under_replicated
from penstock.state.backup.recovery import Recovery, plan_recovery
from penstock.state.config import StateConfig


def place_of(node: str) -> str:
    """Return the process of a node that keeps fragments: its first, as in the engine."""
    return f"{node}/0"


def node_of(place: str) -> str:
    """Return the node of a process."""
    return place.rpartition("/")[0]


class Fragments:
    """Which nodes keep which fragment of each instance's state.

    The choice is `penstock.state.backup.placement.place_fragments`, what makes an instance save its
    state again is `penstock.state.backup.placement.under_replicated`, and who sends what is
    `penstock.state.backup.recovery.plan_recovery`; the engine calls the same three. The state of an
    instance is one block here, where the engine has a chain of them.

    Parameters
    ----------
    topology : Topology
        Parallelism as declared.
    state_config : StateConfig
    """

    def __init__(self, topology: Topology, state_config: StateConfig) -> None:
        self.state_config = state_config
        self._topology = topology
        self._blocks: dict[tuple[str, int], FragmentedSegment] = {}

    @property
    def blocks(self) -> Mapping[tuple[str, int], FragmentedSegment]:
        """What peers have, by operator and number of the instance; backup nodes are hosts."""
        return self._blocks

    def settle(self, plan: Plan, nodes: Collection[str]) -> None:
        """Spread what is new, and what survives less than it could, over the nodes that are there.

        The state of an instance whose own node is gone stays as it is until it is recovered.
        """
        if not self.state_config.by_peers:
            return
        places = {place_of(node) for node in nodes}
        code = fit_code(self.state_config.data, self.state_config.parity, len(places) - 1)
        found: dict[tuple[str, int], FragmentedSegment] = {}
        for name, spots in plan.placement.items():
            state_mb = self._topology[name].state_mb
            if state_mb <= 0:
                continue
            size = round(state_mb / len(spots) * 1e6)
            for index, spot in enumerate(spots):
                owner, known = place_of(spot.node), self._blocks.get((name, index))
                if known is not None and known.size_bytes != size:
                    # Keys were repartitioned: it is saved whole.
                    known = None
                if known is None or (
                    owner in places and not self._untouched(known, owner, places, code)
                ):
                    known = self._spread(name, index, owner, size, places, known)
                found[name, index] = known
        self._blocks = found

    def recovery(self, name: str, index: int, nodes: Collection[str], target: str) -> Recovery:
        """Plan who sends which fragment of an instance's state to another node.

        Raises
        ------
        Unrecoverable
            When too few fragments are left on the nodes that are there.
        """
        known = self._blocks.get((name, index))
        alive = [place_of(node) for node in nodes]
        return plan_recovery([known] if known is not None else [], alive, place_of(target))

    def _untouched(
        self, known: FragmentedSegment, owner: str, places: set[str], code: tuple[int, int]
    ) -> bool:
        """Whether it is clear without looking closer that no other spread survives more."""
        return (
            (known.r, known.c) == code
            and owner not in known.backup_nodes
            and places.issuperset(known.backup_nodes)
        )

    def _spread(
        self,
        name: str,
        index: int,
        owner: str,
        size: int,
        places: set[str],
        known: FragmentedSegment | None,
    ) -> FragmentedSegment:
        topology = self._topology.name
        key = state_key(topology, name, index)
        wanted = place_fragments(
            owner, key, places, r=self.state_config.data, c=self.state_config.parity
        )
        if known is not None and not under_replicated(owner, [known], wanted, places):
            return known
        return FragmentedSegment(
            topology, name, index, 0, 0, wanted.r, wanted.c, wanted.backup_nodes, size
        )
