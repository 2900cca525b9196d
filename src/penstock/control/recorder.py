"""Writes the events of a loop into the metrics store, and completes them as more is known."""

from __future__ import annotations

from collections.abc import Callable

from penstock.control.events import Event
from penstock.store.records import EventRecord


class Recorder:
    """A listener for `Loop`.

    Parameters
    ----------
    run : str
    put : callable
        Writes an event, as `MetricsStore.put_event` does.
    clock : callable
        Seconds since 1970.
    number : callable
        The next free number of the run's events, other kinds included.
    """

    def __init__(
        self,
        run: str,
        put: Callable[[EventRecord], None],
        *,
        clock: Callable[[], float],
        number: Callable[[], int],
    ) -> None:
        self.run = run
        self._put = put
        self._clock = clock
        self._number = number
        self._known: dict[int, tuple[int, float]] = {}

    def __call__(self, event: Event) -> None:
        """Write an event; one that is told again replaces what was written of it."""
        if event.number not in self._known:
            self._known[event.number] = (self._number(), self._clock())
        number, at_s = self._known[event.number]
        self._put(event.record(self.run, number, at_s))
