"""What one thread asks of another."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("pyspark")

from penstock.control.runtime import ActionFailed
from penstock.runtimes.spark.mailbox import Mailbox, Over, Stuck


@contextmanager
def served(mailbox: Mailbox) -> Iterator[threading.Thread]:
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            mailbox.serve()
            time.sleep(0.001)

    owner = threading.Thread(target=serve)
    owner.start()
    yield owner
    ended.set()
    owner.join()


def test_the_owner_acts_and_the_asker_gets_what_came_of_it() -> None:
    mailbox = Mailbox()
    with served(mailbox) as owner:
        assert mailbox.ask(threading.current_thread) is owner
        with pytest.raises(ZeroDivisionError):
            mailbox.ask(lambda: 1 // 0)
        assert mailbox.ask(lambda: 3) == 3


def test_what_does_not_begin_in_time_never_does() -> None:
    mailbox, done = Mailbox(), list[int]()
    with pytest.raises(ActionFailed, match="no batch"):
        mailbox.ask(lambda: done.append(1), begin_s=0.01)
    mailbox.serve()
    assert done == []


def test_what_began_may_take_longer_but_not_for_ever() -> None:
    mailbox, released = Mailbox(), threading.Event()
    with served(mailbox):
        began = time.monotonic()
        mailbox.ask(lambda: time.sleep(1.2), begin_s=1.0, end_s=60.0)
        assert time.monotonic() - began >= 1.2
        with pytest.raises(Stuck):
            mailbox.ask(released.wait, begin_s=1.0, end_s=0.01)
        released.set()


def test_an_owner_that_ends_refuses_what_waits_and_what_comes() -> None:
    mailbox = Mailbox()
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            mailbox.ask(lambda: None)
        except Over as error:
            errors.append(error)

    asker = threading.Thread(target=ask)
    asker.start()
    while not mailbox._waiting:
        time.sleep(0.001)
    mailbox.close("the run failed")
    asker.join()
    with pytest.raises(Over, match="the run failed"):
        mailbox.ask(lambda: None)
    assert len(errors) == 1
