"""How often the loop looks, how careful it is, and how many nodes it may have."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.common.parameters import Checked, param
from penstock.model import InvalidValue


@dataclass(frozen=True)
class Settings(Checked):
    """Settings of the loop; the defaults work.

    Examples
    --------
    >>> Settings(every=0)
    Traceback (most recent call last):
    ...
    penstock.common.errors.InvalidValue: parameter every of Settings must be \
a whole number from 1 to 10000, got 0

    Parameters
    ----------
    recommend_only : bool
        Compute and show every decision, and change nothing.
    """

    every: int = param(
        5, "Batches from one evaluation to the next.", least=1, most=10_000, unit="batches"
    )
    cooldown: int = param(
        10, "Batches after a change in which nothing is decided.", least=0, unit="batches"
    )
    stable_rounds: int = param(
        2, "Evaluations in a row that must want a change.", least=1, most=1000, unit="rounds"
    )
    patience: int = param(
        10,
        "Batches that a rate may go on moving before a change is made all the same; 0: none.",
        least=0,
        unit="batches",
    )
    back_off: int = param(
        4,
        "Cool-downs, of at least a batch, for which a change that brought nothing is refused, "
        "twice as many each time; 0: it is not.",
        least=0,
        most=1000,
        unit="cool-downs",
    )
    max_moves: int = param(
        64,
        "Instances that one decision may always move to another spot.",
        least=1,
        unit="instances",
    )
    max_moves_share: float = param(
        0.5,
        "Part of them that it may move where that is more.",
        least=0,
        most=1,
        unit="of all instances",
    )
    min_nodes: int = param(
        0,
        "Nodes that are never released; 0: as many as state by peers needs.",
        least=0,
        unit="nodes",
    )
    max_nodes: int = param(
        0, "Nodes that are never exceeded; 0: as many as at the start.", least=0, unit="nodes"
    )
    node_wait: int = param(
        100, "Batches that nodes asked for may take to come.", least=1, unit="batches"
    )
    verify: int = param(
        2, "Evaluations until what a decision gained is judged.", least=1, most=1000, unit="rounds"
    )
    recommend_only: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.recommend_only, bool):
            raise InvalidValue("recommend_only", "Settings", "True or False", self.recommend_only)
        if self.max_nodes and self.max_nodes < self.min_nodes:
            allowed = f"0 or at least min_nodes, {self.min_nodes}"
            raise InvalidValue("max_nodes", "Settings", allowed, self.max_nodes)

    def moves_of(self, instances: int) -> int:
        """Count the instances that one decision may move, of so many.

        Examples
        --------
        >>> Settings().moves_of(100), Settings().moves_of(5_000)
        (64, 2500)
        """
        return max(self.max_moves, int(self.max_moves_share * instances))

    def starting_with(self, nodes: int, losses: int = 0) -> Settings:
        """Fill in bounds that were left open.

        Parameters
        ----------
        nodes : int
            Nodes that are there at the start.
        losses : int
            Nodes that may be lost without a loss of state: one more must never be released.
        """
        most = self.max_nodes or max(nodes, self.min_nodes)
        return replace(self, min_nodes=self.min_nodes or min(most, losses + 1), max_nodes=most)
