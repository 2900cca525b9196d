"""Actions that one thread asks of another, which does them where they do no harm."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

from penstock.control.runtime import ActionFailed
from penstock.model import PenstockError

T = TypeVar("T")


class Over(PenstockError):
    """The thread that was to act has ended."""


class Stuck(PenstockError):
    """An action that began did not come to its end in time; nobody knows what it did."""


class _State(Enum):
    WAITING = "waiting"
    BEGUN = "begun"
    DONE = "done"
    DROPPED = "dropped"


class _Request:
    def __init__(self, action: Callable[[], Any]) -> None:
        self.action = action
        self.state = _State.WAITING
        self.answer: Any = None
        self.error: BaseException | None = None
        self.ended = threading.Event()


class Mailbox:
    """A queue of actions of one thread, the owner, which serves it between its batches.

    Examples
    --------
    >>> mailbox = Mailbox()
    >>> asking = threading.Thread(target=lambda: print(mailbox.ask(lambda: 6 * 7)))
    >>> asking.start()
    >>> while asking.is_alive():
    ...     mailbox.serve()
    42
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[_Request] = deque()
        self._over: str | None = None

    def ask(self, action: Callable[[], T], *, begin_s: float = 60.0, end_s: float = 300.0) -> T:
        """Have the owner act, wait for it, and return what came of it or raise what it raised.

        Parameters
        ----------
        action : callable
        begin_s, end_s : float
            How long it may take until it begins, and from then to its end.

        Raises
        ------
        ActionFailed
            When it did not begin in time; it never will.
        Stuck
            When it began and did not end in time.
        Over
            When the owner has ended.
        """
        request = _Request(action)
        with self._lock:
            if self._over is not None:
                raise Over(self._over)
            self._waiting.append(request)
        if not request.ended.wait(begin_s):
            with self._lock:
                begun = request.state is not _State.WAITING
                if not begun:
                    request.state = _State.DROPPED
                    self._waiting.remove(request)
            if not begun:
                raise ActionFailed(f"no batch came to its end within {begin_s:g} s")
            if not request.ended.wait(end_s):
                raise Stuck(f"an action did not come to its end within {end_s:g} s")
        if request.error is not None:
            raise request.error
        answer: T = request.answer
        return answer

    def serve(self) -> None:
        """Do all that is asked for; called by the owner, between its batches."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                request = self._waiting.popleft()
                request.state = _State.BEGUN
            try:
                request.answer = request.action()
            except BaseException as error:  # noqa: BLE001 - raised where it was asked for
                request.error = error
            request.state = _State.DONE
            request.ended.set()

    def close(self, why: str) -> None:
        """Refuse all that is and will be asked for; called by the owner at its end."""
        with self._lock:
            self._over = why
            left, self._waiting = list(self._waiting), deque()
        for request in left:
            request.error = Over(why)
            request.state = _State.DROPPED
            request.ended.set()
