"""How a command ends: one line on stderr and a code, and no traceback but the user's own.

========  ==========================================================================
code      meaning
========  ==========================================================================
0         fine
1         the answer is no: infeasible, rows lost or duplicated, a result that differs
2         bad input, told before anything was started
3         a run that was started and failed
4         not all was begun in the time that was given, and nothing failed
130, 143  stopped by Ctrl-C, by SIGTERM
========  ==========================================================================
"""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from penstock.cli.failure import only_own
from penstock.model import PenstockError

FINE = 0
INFEASIBLE = 1
BAD_INPUT = 2
FAILED = 3
UNFINISHED = 4
INTERRUPTED = 130
TERMINATED = 143


class Terminated(KeyboardInterrupt):
    """The process was asked to end by SIGTERM; cleaned up after like Ctrl-C."""


class RunFailed(Exception):
    """A run that was started failed; holds why."""

    def __init__(self, why: BaseException) -> None:
        super().__init__(str(why))
        self.why = why


def say(text: str) -> None:
    """Write a line to stderr, where it does not mix with results."""
    typer.echo(text, err=True)


def code_of(stop: KeyboardInterrupt) -> int:
    """Return the exit code of a command that was stopped."""
    return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED


def stopped(stop: KeyboardInterrupt) -> typer.Exit:
    """Say that the command was stopped, and with which code it ends; return what to raise."""
    code = code_of(stop)
    what = "terminated" if isinstance(stop, Terminated) else "interrupted"
    say(f"penstock: {what}, exit code {code}")
    return typer.Exit(code)


@contextmanager
def clean_exit(*, verbose: bool = False) -> Iterator[None]:
    """Turn what went wrong, Ctrl-C and SIGTERM into a line and a code.

    Parameters
    ----------
    verbose : bool
        Show the whole traceback of a run that failed, Spark's part included.
    """
    before = None
    in_main = threading.current_thread() is threading.main_thread()
    try:
        if in_main:
            before = signal.signal(signal.SIGTERM, _terminated)
        yield
    except RunFailed as failed:
        _tell(failed.why, verbose)
        raise typer.Exit(FAILED) from None
    except PenstockError as error:
        say(f"penstock: {error}")
        raise typer.Exit(BAD_INPUT) from None
    except KeyboardInterrupt as stop:
        raise stopped(stop) from None
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@contextmanager
def running() -> Iterator[None]:
    """Mark the part of a command in which something runs: what fails here is a failed run."""
    try:
        yield
    except (RunFailed, typer.Exit):
        raise
    except Exception as error:
        raise RunFailed(error) from error


class Stop:
    """Whether somebody asked to stop, for code that must not be interrupted just anywhere."""

    def __init__(self) -> None:
        self.asked: KeyboardInterrupt | None = None

    def check(self) -> None:
        """Raise here if somebody asked to stop."""
        if self.asked is not None:
            raise self.asked


@contextmanager
def deferred() -> Iterator[Stop]:
    """Note the first Ctrl-C or SIGTERM instead of raising; the second raises.

    An exception in the middle of a call to Java would leave the connection to it unusable, and with
    it the way to stop Spark.
    """
    stop = Stop()

    def note(number: int, frame: object) -> None:
        kind = Terminated if number == signal.SIGTERM else KeyboardInterrupt
        if stop.asked is not None:
            raise kind
        stop.asked = kind()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(why: BaseException, verbose: bool) -> None:
    """Show the user's own traceback first, then the failure in a line; all of it if asked for."""
    own = str(getattr(why, "trace", "") or "")
    if own:
        say(only_own(own))
    if verbose:
        say("".join(traceback.format_exception(why)).rstrip())
    text = only_own(str(why)).strip()
    if isinstance(why, PenstockError):
        say(f"penstock: the run failed: {text}")
        return
    if "Traceback (most recent call last)" in text:
        # What a Python worker of Spark reported.
        say(text)
    first = text.splitlines()[0] if text else ""
    more = "" if verbose else "; --verbose shows the whole traceback"
    say(f"penstock: the run failed: {type(why).__name__}: {first}{more}")


def _terminated(number: int, frame: object) -> None:
    """Clean up as after Ctrl-C."""
    raise Terminated
