"""What the loop remembers so that it does not act too soon, or twice in vain. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.control.decision import SPARE_NODES

#: Cool-downs for which a change is refused that brought nothing, unless the settings say otherwise.
BACK_OFF = 4

#: The back-off grows no further than this many doublings.
DOUBLINGS = 6


@dataclass(frozen=True)
class Disappointment:
    """How often a change failed, or brought nothing, and until when it is refused."""

    times: int
    until_batch: int
    why: str


@dataclass(frozen=True)
class Guards:
    """Memory of the loop between evaluations.

    Parameters
    ----------
    quiet_until : int
        Batch until which nothing is decided after a change.
    wanted_rounds : int
        Evaluations in a row that wanted a change.
    wanted_since_s : float
        Stream time of the first of them.
    idle_rounds : int
        Evaluations in a row in which the plan left nodes idle.
    disappointments : mapping of str to Disappointment
        By what kind of change they are of, see `Decision.key`.
    fixed_nodes : bool
        The runtime cannot add or remove nodes.
    burdened : frozenset of str
        Nodes of which others took much at the last evaluation.
    """

    quiet_until: int = -1
    wanted_rounds: int = 0
    wanted_since_s: float = 0.0
    idle_rounds: int = 0
    disappointments: Mapping[str, Disappointment] = field(default_factory=dict)
    fixed_nodes: bool = False
    burdened: frozenset[str] = frozenset()

    def seeing(self, burdened: frozenset[str]) -> Guards:
        """Take note of nodes of which others take much, and forget what was in vain before.

        A node that becomes slow while a change is judged makes it look like one that brought
        nothing, and what was in vain on sound nodes need not be on these.
        """
        if burdened == self.burdened:
            return self
        if not burdened - self.burdened:
            return replace(self, burdened=burdened)
        # That nodes do not come has nothing to do with those that are there.
        kept = {key: one for key, one in self.disappointments.items() if key == SPARE_NODES}
        return replace(self, burdened=burdened, disappointments=kept)

    def wanting(self, now_s: float) -> Guards:
        """Count one more evaluation that wants a change."""
        since_s = self.wanted_since_s if self.wanted_rounds else now_s
        return replace(self, wanted_rounds=self.wanted_rounds + 1, wanted_since_s=since_s)

    def after_change(self, batch: int, cooldown: int) -> Guards:
        """Be quiet for a while."""
        return replace(self, quiet_until=batch + cooldown, wanted_rounds=0, idle_rounds=0)

    def disappointed(
        self, key: str, batch: int, cooldown: int, why: str, back_off: int = BACK_OFF
    ) -> Guards:
        """Refuse a change for a time that doubles with every disappointment.

        Parameters
        ----------
        key : str
            What kind of change it was, as in `Decision.key`.
        batch, cooldown : int
        why : str
        back_off : int
            Cool-downs that the first time lasts; 0 refuses nothing.
        """
        known = self.disappointments.get(key)
        times = known.times + 1 if known else 1
        wait = max(cooldown, 1) * back_off * 2 ** min(times - 1, DOUBLINGS)
        found = {**self.disappointments, key: Disappointment(times, batch + wait, why)}
        return replace(self, disappointments=found)

    def satisfied(self, key: str) -> Guards:
        """Forget earlier disappointments: the change brought what it should."""
        left = {k: d for k, d in self.disappointments.items() if k != key}
        return replace(self, disappointments=left)

    def refuses(self, key: str, batch: int) -> Disappointment | None:
        """Return why a change is refused now; None when it is not."""
        known = self.disappointments.get(key)
        return known if known is not None and batch < known.until_batch else None
