"""A sign of life on stderr when planning, or simulating, takes long."""

from __future__ import annotations

import threading
from types import TracebackType

from rich.console import Console
from rich.progress import MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

#: Shorter work shows nothing.
PATIENCE_S = 2.0


class ProgressBar:
    """Shows the strategy at work once `PATIENCE_S` have passed, and leaves nothing behind.

    Nothing is shown when stderr is not a terminal.
    """

    def __init__(self, count: int, patience_s: float = PATIENCE_S, doing: str = "planning") -> None:
        console = Console(stderr=True)
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._doing = doing
        self._task = self._bar.add_task(doing, total=count)
        self._begun = False
        self._timer = threading.Timer(patience_s, self._bar.start)
        self._timer.daemon = True
        self._visible = console.is_terminal

    def __enter__(self) -> ProgressBar:
        if self._visible:
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._visible:
            return
        self._timer.cancel()
        self._timer.join()
        if self._bar.live.is_started:
            self._bar.stop()

    def now(self, name: str) -> None:
        """Say which strategy plans now; those before it are done."""
        self._bar.update(self._task, description=f"{self._doing}: {name}", advance=int(self._begun))
        self._begun = True

    def detail(self, text: str) -> None:
        """Say how far the strategy at work has come."""
        self._bar.update(self._task, description=f"{self._doing}: {text}")
