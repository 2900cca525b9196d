"""How a command ends: one line on stderr and a code, never a traceback for bad input."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from penstock.model import PenstockError

FINE = 0
INFEASIBLE = 1
BAD_INPUT = 2
INTERRUPTED = 130


def say(text: str) -> None:
    """Write a line to stderr, where it does not mix with results."""
    typer.echo(text, err=True)


@contextmanager
def clean_exit() -> Iterator[None]:
    """Turn errors of the user's input, Ctrl-C and a polite kill into a line and a code."""
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _interrupted)
        yield
    except PenstockError as error:
        say(f"penstock: {error}")
        raise typer.Exit(BAD_INPUT) from None
    except KeyboardInterrupt:
        say("penstock: interrupted")
        raise typer.Exit(INTERRUPTED) from None


def _interrupted(number: int, frame: object) -> None:
    """Clean up as after Ctrl-C."""
    raise KeyboardInterrupt
