"""One decision in plain words. Pure text."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.control.events import DecisionStatus, Event
from penstock.model import Cost

#: Moves that are named before the rest is only counted.
MOST_MOVES = 12

#: How each status ends the first sentence.
ENDINGS = {
    DecisionStatus.RECOMMENDED: "recommended only, nothing was changed",
    DecisionStatus.REFUSED: "refused",
    DecisionStatus.DECIDED: "decided, not begun",
    DecisionStatus.WAITING: "waiting for nodes",
    DecisionStatus.MOVING: "moving",
    DecisionStatus.RELEASING: "releasing nodes",
    DecisionStatus.VERIFYING: "made, not judged yet",
    DecisionStatus.DONE: "done",
    DecisionStatus.FAILED: "failed, the plan that it had reached stayed",
    DecisionStatus.GIVEN_UP: "given up",
    DecisionStatus.NOTED: "for information",
}


def explain(event: Event, number: int | None = None) -> str:
    """Tell a decision: what was seen, why, what was to come, what was done, what it gained.

    Parameters
    ----------
    number : int or None
        Under which it is kept; None: that of the loop.
    """
    return "\n".join(_lines(event, event.number if number is None else number))


def headline(event: Event) -> str:
    """Tell a decision in a line."""
    gained = ""
    if event.gained is not None and event.gained.came is not None:
        gained = ", gained" if event.gained.came else ", gained nothing"
    return f"{event.text} ({event.status.value}{gained})"


def _lines(event: Event, number: int) -> Iterator[str]:
    where = f"after batch {event.batch}, at {event.now_s:.1f} s"
    yield f"Decision {number} {where}: {ENDINGS[event.status]}."
    yield f"  {event.text}"
    if event.reasons:
        yield "Why:"
        yield from (f"  - {reason.text}" for reason in event.reasons)
    measured = list(_measured(event))
    if measured:
        yield "Measured:"
        yield from (f"  {line}" for line in measured)
    if event.before is not None and event.predicted is not None and event.moved + event.partitions:
        yield "Predicted:"
        yield from (f"  {line}" for line in _predicted(event.before, event.predicted))
    if event.moved or event.partitions or event.woken or event.released:
        yield "To move:"
        yield from (f"  {line}" for line in _moved(event))
    if event.steps:
        yield "Done:"
        yield from (f"  {line}" for line in _steps(event))
    if event.gained is not None:
        verdict = {True: "as predicted", False: "not as predicted", None: "cannot be told"}
        yield f"Gained: {verdict[event.gained.came]}; {event.gained.text}."
    if event.planning_s:
        yield f"Deciding took {event.planning_s * 1000:.0f} ms."


def _measured(event: Event) -> Iterator[str]:
    seen = event.measured
    if "arriving_per_s" in seen:
        yield (
            f"{seen['arriving_per_s']:,.0f} tuples/s came, "
            f"{seen.get('throughput_per_s', 0.0):,.0f} were processed, "
            f"{seen.get('queue_length', 0.0):,.0f} waited"
        )
    if "latency_p95_ms" in seen:
        yield f"95 % of the tuples took at most {seen['latency_p95_ms']:,.0f} ms"
    if "max_node_load" in seen:
        yield (
            f"{seen.get('nodes_used', 0.0):.0f} of {seen.get('nodes', 0.0):.0f} nodes in use, "
            f"the busiest at {seen['max_node_load']:.2f} of its capacity, LIN {seen['lin']:.2f}"
        )
    for name, value in seen.items():
        if name.startswith("lit_"):
            yield f"imbalance (LIT) of {name[4:]}: {value:.2f}"
        if name.startswith("taken_"):
            yield f"others take {value:.0%} of the CPU of {name[6:]}"


def _predicted(before: Cost, after: Cost) -> Iterator[str]:
    yield f"busiest node {before.max_node_load:.2f} -> {after.max_node_load:.2f}"
    yield f"nodes in use {before.nodes_used} -> {after.nodes_used}"
    yield f"tuples that cross nodes {before.cut_share:.0%} -> {after.cut_share:.0%}"
    costs = before.communication_us_per_s, after.communication_us_per_s
    yield f"communication {costs[0]:,.0f} -> {costs[1]:,.0f} us a second"


def _moved(event: Event) -> Iterator[str]:
    if event.moved:
        yield f"{event.moved} instances:"
        yield from (f"  {move}" for move in event.moves[:MOST_MOVES])
        if event.moved > MOST_MOVES:
            yield f"  and {event.moved - MOST_MOVES} more"
    if event.partitions:
        yield f"{event.partitions} router partitions, with their state"
    if event.woken:
        yield f"nodes that join: {', '.join(event.woken)}"
    if event.released:
        yield f"nodes that go: {', '.join(event.released)}"


def _steps(event: Event) -> Iterator[str]:
    for step in event.steps:
        cost = "".join(
            f", {size / 1e6:.1f} MB of state {how}"
            for size, how in (
                (step.precopied_bytes, "pre-copied"),
                (step.inband_bytes, "with the next batch"),
                (step.state_bytes, f"while the stream stood still for {step.seconds:.2f} s"),
            )
            if size
        )
        failed = f"; it failed: {step.failed}" if step.failed else ""
        yield f"after batch {step.batch}: {step.what}{cost}{failed}"
