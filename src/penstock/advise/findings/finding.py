"""A finding: one cause, what it costs, what shows it, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Protocol

from penstock.advise.evidence import Evidence
from penstock.common.registry import registry

#: Findings that would gain less are not worth a sentence.
LEAST_SHARE = 0.05


class Gain(str, Enum):
    """What would become less without the cause."""

    TIME = "batch time"
    COST = "executor time"
    RISK = "executor memory"


@dataclass(frozen=True)
class Setting:
    """A setting to change: of Spark, of a source, or of the query."""

    name: str
    now: str
    to: str

    def __str__(self) -> str:
        return f"{self.name} = {self.to} (now {self.now})"


@dataclass(frozen=True)
class Finding:
    """One cause.

    Parameters
    ----------
    rule : str
        Name of the rule that found it.
    gain : Gain
    share : float
        Part of it that goes away at the most, from 0 to 1; findings are ranked by it. For a risk
        it is the part that is taken up.
    text : str
        The cause in a sentence.
    evidence : tuple of str
        Figures that show it, in sentences.
    settings : tuple of Setting
    actions : tuple of str
        What else to do.
    figures : mapping of str to float
        The same figures for programs.
    """

    rule: str
    gain: Gain
    share: float
    text: str
    evidence: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    actions: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "rule": self.rule,
            "gain": self.gain.value,
            "share": round(self.share, 4),
            "text": self.text,
            "evidence": list(self.evidence),
            "settings": [{"name": s.name, "now": s.now, "to": s.to} for s in self.settings],
            "actions": list(self.actions),
            "figures": {name: round(value, 4) for name, value in self.figures.items()},
        }


class Rule(Protocol):
    """Something that looks for one cause."""

    name: ClassVar[str]
    summary: ClassVar[str]

    def find(self, evidence: Evidence) -> Finding | None:
        """Return the cause, or None when it is not there."""
        ...


rules, register = registry("rule", "penstock.advise.findings", "penstock.rules")


def found(evidence: Evidence) -> tuple[Finding, ...]:
    """Ask every rule; the finding that would gain most comes first."""
    if not evidence.batches:
        return ()
    made: list[Finding] = []
    for name in rules.names():
        finding = rules.make(name).find(evidence)
        if finding is not None and finding.share >= LEAST_SHARE:
            made.append(finding)
    return tuple(sorted(made, key=lambda f: (-f.share, f.rule)))
