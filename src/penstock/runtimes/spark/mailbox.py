"""Actions that one thread asks of another, which does them where they do no harm."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as NotInTime
from typing import Any, TypeVar

from penstock.control.runtime import ActionFailed
from penstock.model import PenstockError

T = TypeVar("T")


class Over(PenstockError):
    """The thread that was to act has ended."""


class Stuck(PenstockError):
    """An action that began did not come to its end in time; nobody knows what it did."""


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
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._over: str | None = None
        self._owner: threading.Thread | None = None

    def own(self) -> None:
        """Make the calling thread the owner: what it asks for itself is done at once."""
        self._owner = threading.current_thread()

    @property
    def owned(self) -> bool:
        """Whether the calling thread is the owner."""
        return threading.current_thread() is self._owner

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
        if self.owned:
            return action()
        future: Future[T] = Future()
        with self._lock:
            if self._over is not None:
                raise Over(self._over)
            self._waiting.append((future, action))
        try:
            return future.result(begin_s)
        except NotInTime:
            # An action may raise the same error; it has then come to its end.
            if future.done():
                raise
            if future.cancel():
                raise ActionFailed(f"no batch came to its end within {begin_s:g} s") from None
        except CancelledError:
            raise Over(self._over or "the run is over") from None
        try:
            return future.result(end_s)
        except NotInTime:
            if future.done():
                raise
            raise Stuck(f"an action did not come to its end within {end_s:g} s") from None

    def serve(self) -> None:
        """Do all that is asked for; called by the owner, between its batches."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                future, action = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(action())
            except BaseException as error:  # noqa: BLE001 - raised where it was asked for
                future.set_exception(error)

    def close(self, why: str) -> None:
        """Refuse all that is and will be asked for; called by the owner at its end."""
        with self._lock:
            self._over = why
            left, self._waiting = list(self._waiting), deque()
        for future, _ in left:
            future.cancel()
