"""State is loaded on its next executor while the query goes on, so that a move costs little.

Compare the warm-up replicas of Kafka Streams: a partition moves when its new owner is nearly there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from penstock.runtimes.attached.placement import Partition

#: Time that loading a partition must take, in ms, for a warm-up to be worth its own cost.
WORTH_MS = 500.0

#: Does something with stores, one a line, and returns with how many.
Warm = Callable[[str, str], int]

LOAD, HAND_OVER, DROP = "load", "hand over", "drop"


def worthwhile(
    moves: Mapping[Partition, str],
    cost_ms: Mapping[Partition, float],
    experienced: Collection[str],
) -> dict[Partition, str]:
    """Keep the moves of partitions that take long to load, and all to executors that are new.

    The first store that an executor opens takes long whatever is in it.

    Parameters
    ----------
    experienced : collection of str
        Executors that have opened stores before.
    """
    return {
        one: to
        for one, to in moves.items()
        if cost_ms.get(one, 0.0) >= WORTH_MS or to not in experienced
    }


class Warmup:
    """Warms up the partitions of one plan at a time, in a thread of its own.

    Parameters
    ----------
    warm : callable
        As `Watch.warm`, for one query.
    """

    def __init__(self, warm: Warm) -> None:
        self._warm = warm
        self._lines = ""
        self._thread: threading.Thread | None = None
        self.warmed = 0
        self.failed = ""

    def begin(self, lines: str) -> bool:
        """Have stores loaded, once; return whether that is over."""
        if lines != self._lines:
            self.drop()
            self._lines = lines
            if lines:
                self._start(LOAD, lines)
        return self._thread is None or not self._thread.is_alive()

    def hand_over(self) -> None:
        """Give Spark what is loaded, after it was told where the stores are."""
        if self._lines:
            lines, self._lines = self._lines, ""
            self._start(HAND_OVER, lines)

    def drop(self) -> None:
        """Close what was loaded for a plan that does not come."""
        if self._lines:
            lines, self._lines = self._lines, ""
            self._start(DROP, lines)

    def take_failure(self) -> str:
        """Return what failed, once; empty when nothing did."""
        failed, self.failed = self.failed, ""
        return failed

    def _start(self, action: str, lines: str) -> None:
        before = self._thread
        self._thread = threading.Thread(
            target=self._run, args=(before, action, lines), name="penstock-warm-up", daemon=True
        )
        self._thread.start()

    def _run(self, before: threading.Thread | None, action: str, lines: str) -> None:
        if before is not None:
            before.join()
        try:
            count = self._warm(action, lines)
            self.warmed += count if action == HAND_OVER else 0
        except Exception as error:  # noqa: BLE001 - the batch loads what was not loaded ahead
            self.failed = f"state could not be loaded ahead: {type(error).__name__}: {error}"
