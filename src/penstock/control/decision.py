"""What was decided, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from penstock.control.gain import Expectation
from penstock.control.rollout import RolloutStage
from penstock.model import Cost, Diff, Plan, Reason

#: Keys of decisions that are not about a plan.
SPARE_NODES, RELEASE, LOST = "more nodes", "release idle nodes", "nodes lost"


class Choice(str, Enum):
    """What was decided; a change that a guard holds back for a while is kept, not refused."""

    KEEP = "keep"
    REFUSE = "refuse"
    CHANGE = "change"


@dataclass(frozen=True, eq=False)
class Decision:
    """What is to be done, and why.

    Parameters
    ----------
    choice : Choice
    reasons : tuple of Reason
        Never empty.
    key : str
        What kind of change it is, to know it again; empty when nothing is to change.
    forced : bool
        The running plan cannot stay, so that no guard was asked.
    before, after : Cost or None
        Cost now, and as predicted.
    target : Plan or None
        The plan to come, on nodes that may still be spare.
    change : Diff
    stages : tuple of RolloutStage
        One for each batch boundary.
    nodes : int
        Nodes that must be there before the first stage.
    spares : tuple of str
        Spare nodes of the target.
    release : tuple of str
        Nodes to give up at the end.
    expected : Expectation or None
    """

    choice: Choice
    reasons: tuple[Reason, ...]
    key: str = ""
    forced: bool = False
    before: Cost | None = None
    after: Cost | None = None
    target: Plan | None = None
    change: Diff = field(default_factory=Diff)
    stages: tuple[RolloutStage, ...] = ()
    nodes: int = 0
    spares: tuple[str, ...] = ()
    release: tuple[str, ...] = ()
    expected: Expectation | None = None

    @property
    def changes(self) -> bool:
        """Whether anything is to be done."""
        return self.choice is Choice.CHANGE
