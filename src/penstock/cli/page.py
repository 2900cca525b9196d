"""``--page``: the live page beside a run, and ``penstock serve``: the page of finished ones."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from penstock.cli.exits import clean_exit, say
from penstock.common.errors import InvalidValue
from penstock.store.store import MetricsStore
from penstock.web.address import HOST, PORT, PageAddress
from penstock.web.server import PageProcess, require_page, serve

HELP = f"""Serve a page with the runs of a metrics store, live or finished, until Ctrl-C.

The page shows what ran where and why, at any time of a run, and two runs side by side. It only
reads, and is served to this machine alone unless HOST says otherwise; then readers need the token
that is printed, or the one in PENSTOCK_PAGE_TOKEN. Scripts find the JSON API in /api/openapi.json,
Prometheus its metrics in /metrics.

\b
Examples:
  penstock run wordcount --store metrics.sqlite
  penstock serve metrics.sqlite
  penstock serve postgresql://me@db/metrics --page :{PORT + 1}
"""

#: What the address of a page looks like; anything else after ``--page`` is not its value.
LOOKS_LIKE = re.compile(r"^(\[[0-9a-fA-F:]+\]|[\w.-]*):\d+$")

Page = Annotated[
    str | None,
    typer.Option(
        "--page",
        metavar="[HOST:PORT]",
        help=f"Serve the live page; by default at {HOST}:{PORT}, or the next free port.",
        show_default=False,
    ),
]

KeepPage = Annotated[
    float | None,
    typer.Option(
        "--keep-page",
        metavar="S",
        help="Seconds that the page stays when the run is over; by default until Ctrl-C in a "
        "terminal, and not at all elsewhere.",
        show_default=False,
    ),
]


class PageCommand(TyperCommand):
    """A command whose ``--page`` may be given without an address."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put in the address where it was left out."""
        own_only = not ctx.allow_interspersed_args
        return super().parse_args(ctx, with_address(args, own_only=own_only))


def with_address(args: Sequence[str], *, own_only: bool = False) -> list[str]:
    """Give every ``--page`` an address.

    Parameters
    ----------
    args : sequence of str
    own_only : bool
        Whether what follows a script belongs to the script.

    Examples
    --------
    >>> with_address(["job", "--page", "--json"])
    ['job', '--page', '127.0.0.1', '--json']
    >>> with_address(["--page", ":9000", "job"])
    ['--page', ':9000', 'job']
    """
    given = list(args)
    found: list[str] = []
    for at, argument in enumerate(given):
        if own_only and argument.endswith(".py"):
            return [*found, *given[at:]]
        found.append(argument)
        following = given[at + 1] if at + 1 < len(given) else ""
        if argument == "--page" and not LOOKS_LIKE.match(following):
            found.append(HOST)
    return found


@contextmanager
def paged(page: str | None, keep_s: float | None, store: str | None) -> Iterator[str | None]:
    """Serve the page of what happens inside, and for a while after it.

    Parameters
    ----------
    page : str or None
        Where; None: there is no page.
    keep_s : float or None
        As `KeepPage` says.
    store : str or None
        The metrics store that was asked for.

    Yields
    ------
    str or None
        The metrics store to write: one that is thrown away in the end if none was asked for.
    """
    if keep_s is not None and not keep_s >= 0:
        raise InvalidValue("keep-page", "a run", "at least 0", keep_s)
    if page is None:
        yield store
        return
    with tempfile.TemporaryDirectory(prefix="penstock-page-") as folder:
        place = store or str(Path(folder) / "metrics.sqlite")
        with PageProcess(place, PageAddress.parse(page)) as process:
            say(f"page at {process.url}")
            yield place
            _keep(process.url, keep_s)


def _keep(url: str, keep_s: float | None) -> None:
    """Wait for Ctrl-C, or for some seconds."""
    if keep_s is None:
        if not sys.stdin.isatty():
            return
        keep_s = float("inf")
        say(f"the run is over; the page stays at {url} until Ctrl-C")
    until = time.monotonic() + keep_s
    try:
        while time.monotonic() < until:
            time.sleep(min(0.5, max(0.0, until - time.monotonic())))
    except KeyboardInterrupt:
        say("page closed")


def serve_command(
    place: Annotated[
        str, typer.Argument(metavar="STORE", help="A SQLite file or a postgresql:// URL.")
    ],
    page: Page = HOST,
) -> None:
    """Serve a page; see `HELP`."""
    with clean_exit():
        require_page()
        # What is wrong with the store is said before a port is taken.
        MetricsStore.open(place, read_only=True).close()
        serve(place, PageAddress.parse(page or HOST), lambda url: say(f"page at {url}"))
