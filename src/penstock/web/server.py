"""Serves the page: in this process, or beside a run in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from penstock.common.errors import PenstockError
from penstock.web.address import TOKEN_VARIABLE, PageAddress

if TYPE_CHECKING:
    import uvicorn

#: Seconds to wait for the address of a page in another process.
PATIENCE_S = 30.0

#: Seconds that readers have to close their connections at the end.
GRACE_S = 1


def require_page() -> None:
    """Raise unless what serves the page is installed."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise PenstockError(
            f"the page needs {error.name}; install it with: pip install 'penstock[page]'"
        ) from None


def serve(
    place: str | Path,
    address: PageAddress,
    ready: Callable[[str], None],
    made: Callable[[uvicorn.Server], None] = lambda _: None,
) -> None:
    """Serve the page of a metrics store until the process is asked to end.

    Parameters
    ----------
    place : str or Path
        The metrics store.
    address : PageAddress
    ready : callable
        Called with what to open in a browser, once it is there.
    made : callable
        Called with the server before it starts, for who wants to end it.
    """
    require_page()
    import uvicorn

    from penstock.web.api import create_app
    from penstock.web.reader import RunReader

    reader = RunReader(place)
    bound = address.bind()
    try:
        app = create_app(
            reader,
            host=address.host,
            token=address.token,
            ending=lambda: server.should_exit,
        )
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        made(server)
        # From now on who connects is answered, if only when the server runs.
        bound.listen(128)
        threading.Thread(target=reader.warm, name="penstock-page-warm", daemon=True).start()
        ready(address.url(bound))
        with suppress(KeyboardInterrupt):
            server.run(sockets=[bound])
    finally:
        bound.close()
        reader.close()


class PageProcess:
    """The page of a run, in a process of its own, so that batches do not wait for readers.

    It ends with this process, or with the ``with`` block.

    Parameters
    ----------
    place : str or Path
        The metrics store that the run writes.
    address : PageAddress

    Attributes
    ----------
    url : str
        What to open in a browser; "" before it is started.
    """

    def __init__(self, place: str | Path, address: PageAddress) -> None:
        require_page()
        self._place, self._address = place, address
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in __exit__
        self.url = ""

    @property
    def pid(self) -> int:
        """Number of the process; only inside the ``with`` block."""
        if self._process is None:
            raise PenstockError("the page does not run")
        return self._process.pid

    def __enter__(self) -> PageProcess:
        address = self._address
        port = "" if address.port is None else str(address.port)
        environment = dict(os.environ)
        environment.pop(TOKEN_VARIABLE, None)
        if address.token is not None:
            environment[TOKEN_VARIABLE] = address.token
        host = f"[{address.host}]" if ":" in address.host else address.host
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock.web", str(self._place), f"{host}:{port}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
            # Ctrl-C is for the run; the page ends when its input does.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        slow = threading.Timer(PATIENCE_S, self._process.kill)
        slow.start()
        self.url = self._process.stdout.readline().strip()
        slow.cancel()
        if not self.url:
            self._process.wait()
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or ["it did not answer"])[-1]
            raise PenstockError(f"the page could not be started: {last}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process, self._process = self._process, None
        self._errors.close()
        if process is None:
            return
        try:
            process.communicate("", timeout=GRACE_S + 4)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
