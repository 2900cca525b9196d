"""The page in a process of its own: ``python -m penstock.web STORE HOST:PORT``.

It prints its address, and ends when its standard input does.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from penstock.common.errors import PenstockError
from penstock.web.address import PageAddress
from penstock.web.server import serve

if TYPE_CHECKING:
    import uvicorn


def main() -> int:
    """Serve until the standard input ends."""
    place, address = sys.argv[1], PageAddress.parse(sys.argv[2])

    def watch(server: uvicorn.Server) -> None:
        def wait() -> None:
            sys.stdin.read()
            server.should_exit = True

        threading.Thread(target=wait, name="penstock-page-end", daemon=True).start()

    try:
        serve(place, address, lambda url: print(url, flush=True), watch)
    except PenstockError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
