"""A figure of a paper next to ours: values, improvements, and whether the order is the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Values closer than this part are the same.
TIE = 0.02


@dataclass(frozen=True)
class Figure:
    """One figure, or the part of one that has a number for each system.

    Parameters
    ----------
    where : str
        Where it stands in the paper, as in ``Fig. 9``.
    what : str
    unit : str
    own : str
        The paper's system.
    here : mapping of str to float
        Our value of each system.
    paper : mapping of str to float
        The values that the text prints; those that are only drawn are left out.
    beats : tuple of str
        Systems that the text says the paper's does better than, without a number for them.
    higher_is_better : bool
    why : str
        What we think where the order is another.
    drawing : str
        SVG.
    note : str
        What else is to be said.
    same : bool
        Whether the values themselves are compared with the paper's, each with its own, and not the
        order of systems.
    """

    where: str
    what: str
    unit: str
    own: str
    here: Mapping[str, float]
    paper: Mapping[str, float] = field(default_factory=dict)
    beats: tuple[str, ...] = ()
    higher_is_better: bool = False
    why: str = ""
    drawing: str = ""
    note: str = ""
    same: bool = False

    @property
    def claims(self) -> tuple[tuple[str, str], ...]:
        """Pairs of systems of which the paper has the first before the second.

        Where values are compared, each is paired with itself.
        """
        if self.same:
            return tuple((name, name) for name in self.paper if name in self.here)
        sign = -1.0 if self.higher_is_better else 1.0
        ranked = sorted(self.paper, key=lambda name: sign * self.paper[name])
        pairs = [(a, b) for i, a in enumerate(ranked) for b in ranked[i + 1 :]]
        told = [(self.own, other) for other in self.beats if other not in self.paper]
        return tuple((a, b) for a, b in [*pairs, *told] if a in self.here and b in self.here)

    @property
    def wrong(self) -> tuple[tuple[str, str], ...]:
        """Claims that do not hold here: the second is ahead, or they are the same.

        Where values are compared: those that are not the paper's.
        """
        if self.same:
            return tuple(
                (name, name)
                for name, _ in self.claims
                if abs(self.here[name] - self.paper[name]) > TIE * abs(self.paper[name])
            )
        found = []
        for better, worse in self.claims:
            a, b = self.here[better], self.here[worse]
            ahead = a - b if self.higher_is_better else b - a
            if ahead <= TIE * max(abs(a), abs(b)):
                found.append((better, worse))
        return tuple(found)

    @property
    def verdict(self) -> str:
        """In words, whether the order is the paper's."""
        if not self.claims:
            return "no order in the paper"
        if not self.wrong:
            return "as in the paper"
        if self.same:
            return f"{len(self.claims) - len(self.wrong)} of {len(self.claims)} as in the paper"
        lost = [b for a, b in self.wrong if a == self.own and not self._tied(a, b)]
        if lost:
            return f"behind {', '.join(lost)} here"
        level = [b for a, b in self.wrong if a == self.own]
        return f"level with {', '.join(level)} here" if level else "differs among the others"

    def improvement(self, values: Mapping[str, float], baseline: str) -> float | None:
        """How many times better the paper's system is than a baseline."""
        mine, other = values.get(self.own), values.get(baseline)
        if mine is None or other is None or mine <= 0 or other <= 0:
            return None
        return mine / other if self.higher_is_better else other / mine

    def _tied(self, one: str, other: str) -> bool:
        a, b = self.here[one], self.here[other]
        return abs(a - b) <= TIE * max(abs(a), abs(b))
