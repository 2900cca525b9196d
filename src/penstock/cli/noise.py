"""What other processes write to stderr while a view is drawn there."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from types import TracebackType

#: Lines that are kept.
KEPT = 500


class Noise:
    """Holds back what is written to the descriptor of stderr, and shows it if the block fails.

    Java writes there as it likes, and every line of it would tear a view that changes in place.
    """

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=KEPT)
        self._saved = -1

    def __enter__(self) -> Noise:
        sys.stderr.flush()
        self._saved = os.dup(2)
        end, entry = os.pipe()
        os.dup2(entry, 2)
        os.close(entry)
        # Processes that were started meanwhile may go on writing: the pipe is read until the last
        # of them is gone.
        threading.Thread(target=self._read, args=(end,), name="stderr", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.stderr.flush()
        os.dup2(self._saved, 2)
        os.close(self._saved)
        if error is not None and not isinstance(error, KeyboardInterrupt):
            for line in tuple(self.lines):
                sys.stderr.write(line)

    def _read(self, end: int) -> None:
        with os.fdopen(end, encoding="utf-8", errors="replace") as pipe:
            self.lines.extend(pipe)
