"""Writes the events of a loop into the metrics store, and completes them as more is known."""

from __future__ import annotations

from collections.abc import Callable

from penstock.control.events import Event
from penstock.store.store import MetricsStore


class Recorder:
    """A listener for `Loop`.

    Parameters
    ----------
    store : MetricsStore
        With the run already in it.
    run : str
    clock : callable
        Seconds since 1970.
    number : callable
        The next free number of the run's events, other kinds included.
    """

    def __init__(
        self,
        store: MetricsStore,
        run: str,
        *,
        clock: Callable[[], float],
        number: Callable[[], int],
    ) -> None:
        self.store = store
        self.run = run
        self._clock = clock
        self._number = number
        self._known: dict[int, tuple[int, float]] = {}

    def __call__(self, event: Event) -> None:
        """Write an event; one that is told again replaces what was written of it."""
        if event.number not in self._known:
            self._known[event.number] = (self._number(), self._clock())
        number, at_s = self._known[event.number]
        self.store.put_event(event.record(self.run, number, at_s))
