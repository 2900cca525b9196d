"""A decision as an event that a person can read, from what was measured to what it gained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any

from penstock.control.decision import Choice, Decision
from penstock.control.evaluate import Assessment
from penstock.control.gain import Gained
from penstock.model import Cost, InvalidValue, Reason
from penstock.store.records import DECISION, EventRecord

FORMAT = 1

#: Kind of the events that are no decision but good to know.
NOTE = "note"

#: Moves that an event names one by one; of more it keeps the number.
NAMED_MOVES = 100


class DecisionStatus(str, Enum):
    """How far a decision is."""

    RECOMMENDED = "recommended"
    REFUSED = "refused"
    DECIDED = "decided"
    WAITING = "waiting for nodes"
    MOVING = "moving"
    RELEASING = "releasing nodes"
    VERIFYING = "verifying"
    DONE = "done"
    FAILED = "failed"
    GIVEN_UP = "given up"
    NOTED = "noted"


@dataclass(frozen=True)
class StepTaken:
    """One step of a decision as it was made.

    Parameters
    ----------
    what : str
        In words.
    batch : int
        The last batch before it.
    seconds : float
        Time that the stream stood still for it.
    state_bytes, precopied_bytes : int
        State that was migrated in that time, and state that was pre-copied.
    inband_bytes : int
        State that came with the next batch, about.
    failed : str
        Why it did not work; empty when it did.
    """

    what: str
    batch: int
    seconds: float = 0.0
    state_bytes: int = 0
    failed: str = ""
    precopied_bytes: int = 0
    inband_bytes: int = 0


@dataclass(frozen=True)
class Event:
    """One decision of the loop.

    Parameters
    ----------
    number : int
        Decisions of one loop are counted from 1.
    batch, now_s
        The last committed batch, and stream time, when it was made.
    status : DecisionStatus
    text : str
        What changes and the reason that decided, in a line.
    reasons : tuple of Reason
    measured : mapping of str to float
        What the assessment said.
    key : str
        What kind of change it is.
    before, predicted : Cost or None
        Cost of the old plan and of the new one, at the rate of then.
    nodes_before, nodes_after : int
        Nodes that the plans keep.
    moves : tuple of str
        At most `NAMED_MOVES` of them.
    moved, partitions : int
        Instances and router partitions that move.
    woken, released : tuple of str
    planning_s : float
        Time that it took to decide.
    steps : tuple of StepTaken
    gained : Gained or None
        None until it was looked at.
    """

    number: int
    batch: int
    now_s: float
    status: DecisionStatus
    text: str
    reasons: tuple[Reason, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict)
    key: str = ""
    before: Cost | None = None
    predicted: Cost | None = None
    nodes_before: int = 0
    nodes_after: int = 0
    moves: tuple[str, ...] = ()
    moved: int = 0
    partitions: int = 0
    woken: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    planning_s: float = 0.0
    steps: tuple[StepTaken, ...] = ()
    gained: Gained | None = None

    def taking(self, step: StepTaken) -> Event:
        """Add a step."""
        return replace(self, steps=(*self.steps, step))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `from_dict` reads them back."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            **plain,
            "format": FORMAT,
            "status": self.status.value,
            "reasons": [{"text": r.text, "figures": dict(r.figures)} for r in self.reasons],
            "measured": dict(self.measured),
            "before": self.before.to_dict() if self.before else None,
            "predicted": self.predicted.to_dict() if self.predicted else None,
            "moves": list(self.moves),
            "woken": list(self.woken),
            "released": list(self.released),
            "steps": [{f.name: getattr(step, f.name) for f in fields(step)} for step in self.steps],
            "gained": self.gained.to_dict() if self.gained else None,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Event:
        """Read back what `to_dict` wrote."""
        if values.get("format") != FORMAT:
            raise InvalidValue("format", "an event", str(FORMAT), values.get("format"))
        plain = {k: v for k, v in values.items() if k != "format"}
        return cls(
            **{
                **plain,
                "status": DecisionStatus(values["status"]),
                "reasons": tuple(Reason(r["text"], r["figures"]) for r in values["reasons"]),
                "before": Cost.from_dict(values["before"]) if values["before"] else None,
                "predicted": Cost.from_dict(values["predicted"]) if values["predicted"] else None,
                "moves": tuple(values["moves"]),
                "woken": tuple(values["woken"]),
                "released": tuple(values["released"]),
                "steps": tuple(StepTaken(**step) for step in values["steps"]),
                "gained": Gained.from_dict(values["gained"]) if values["gained"] else None,
            }
        )

    def record(self, run: str, number: int, at_s: float) -> EventRecord:
        """Make what the metrics store keeps.

        Parameters
        ----------
        run : str
        number : int
            Within the run, where other events are counted too.
        at_s : float
            Seconds since 1970.
        """
        kind = NOTE if self.status is DecisionStatus.NOTED else DECISION
        batch = self.batch if self.batch >= 0 else None
        return EventRecord(run, number, at_s, kind, self.text, self.to_dict(), batch)

    @classmethod
    def of_record(cls, record: EventRecord) -> Event:
        """Read an event from what the metrics store keeps."""
        try:
            return cls.from_dict(record.figures)
        except (KeyError, TypeError, ValueError) as error:
            owner = f"event {record.number} of run {record.run!r}"
            raise InvalidValue("figures", owner, "those of a decision", error) from error


def event_of(
    number: int,
    decision: Decision,
    assessment: Assessment,
    nodes: tuple[int, int],
    planning_s: float,
    *,
    recommended: bool = False,
) -> Event:
    """Tell a decision that was just made.

    Parameters
    ----------
    nodes : tuple of int
        Nodes that the running plan keeps, and the one to come.
    """
    status = DecisionStatus.RECOMMENDED if recommended else DecisionStatus.DECIDED
    if decision.choice is Choice.REFUSE:
        status = DecisionStatus.REFUSED
    change = decision.change
    return Event(
        number,
        assessment.observation.batch,
        assessment.observation.now_s,
        status,
        _summary(decision, nodes),
        decision.reasons,
        assessment.figures(),
        decision.key,
        decision.before,
        decision.after,
        nodes[0],
        nodes[1],
        tuple(str(move) for move in change.moves[:NAMED_MOVES]),
        len(change.moves),
        len(change.partitions),
        change.woken,
        decision.release,
        planning_s,
    )


def _summary(decision: Decision, nodes: tuple[int, int]) -> str:
    change, reason = decision.change, decision.reasons[0]
    if not decision.changes:
        return f"refused ({decision.key}): {reason}"
    parts = []
    if nodes[0] != nodes[1]:
        parts.append(f"{nodes[0]} -> {nodes[1]} nodes")
    if change.moves:
        parts.append(f"{len(change.moves)} instances move")
    if change.partitions:
        parts.append(f"{len(change.partitions)} router partitions move")
    if change.split_changed:
        parts.append(f"hot keys of {', '.join(change.split_changed)} are split anew")
    if not parts:
        parts.append(decision.key)
    return f"{', '.join(parts)}: {reason}"
