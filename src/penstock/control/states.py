"""The states of a decision that is carried out, as a table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from penstock.model import PenstockError


class State(str, Enum):
    """What the loop does with the decision in flight."""

    IDLE = "idle"
    WAITING = "waiting for nodes"
    MOVING = "moving"
    RELEASING = "releasing"
    VERIFYING = "verifying"


#: Every legal transition: state and what happens, to the next state.
TRANSITIONS: Mapping[tuple[State, str], State] = {
    (State.IDLE, "ask for nodes"): State.WAITING,
    (State.IDLE, "move"): State.MOVING,
    (State.IDLE, "release"): State.RELEASING,
    (State.WAITING, "nodes came"): State.MOVING,
    (State.WAITING, "nothing to move"): State.RELEASING,
    (State.WAITING, "give up"): State.IDLE,
    (State.WAITING, "interrupt"): State.IDLE,
    (State.MOVING, "moved"): State.MOVING,
    (State.MOVING, "all moved"): State.RELEASING,
    (State.MOVING, "fail"): State.IDLE,
    (State.MOVING, "interrupt"): State.IDLE,
    (State.RELEASING, "released"): State.VERIFYING,
    (State.RELEASING, "interrupt"): State.IDLE,
    (State.VERIFYING, "judged"): State.IDLE,
    (State.VERIFYING, "interrupt"): State.IDLE,
}


class IllegalTransition(PenstockError):
    """Something happened that the state does not allow; a mistake of the loop's own."""


class StateMachine:
    """The state of the decision in flight, and how it came to be.

    Examples
    --------
    >>> machine = StateMachine()
    >>> machine.on("move").value
    'moving'
    >>> machine.on("give up")
    Traceback (most recent call last):
    ...
    penstock.control.states.IllegalTransition: 'give up' is not possible while moving; so far: \
idle, move -> moving
    """

    #: Transitions that are remembered.
    KEPT = 50

    def __init__(self) -> None:
        self.state = State.IDLE
        self.history: list[str] = [State.IDLE.value]

    def on(self, what: str) -> State:
        """Make a transition.

        Raises
        ------
        IllegalTransition
            With the history, when the table has none.
        """
        following = TRANSITIONS.get((self.state, what))
        if following is None:
            past = ", ".join(self.history)
            raise IllegalTransition(
                f"{what!r} is not possible while {self.state.value}; so far: {past}"
            )
        self.state = following
        self.history = [*self.history, f"{what} -> {following.value}"][-self.KEPT :]
        return following
