"""Driver and broker are killed while rows go from topic to topic: each row comes once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kafka.counting import WORDS, Read, assert_each_once

from penstock.testing.kafka_broker import Broker

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


class Running:
    """A driver in a process of its own, and the batches that it has told of."""

    def __init__(self, log: Path, *words: str) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def told(self) -> str:
        return self.log.read_text(errors="replace")

    def await_more(self, batches: int, timeout_s: float = 150.0) -> None:
        """Wait until so many more batches are committed, or it has ended."""
        wanted, give_up = self.told.count("BATCH") + batches, time.monotonic() + timeout_s
        while self.told.count("BATCH") < wanted and self.process.poll() is None:
            assert time.monotonic() < give_up, self.told[-3000:]
            time.sleep(0.01)

    def kill(self) -> None:
        """End the driver and all that it started, as a machine that goes away does."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


def test_a_killed_driver_and_a_killed_broker(
    broker: Broker,
    topic: Callable[..., str],
    send: Callable[..., None],
    committed: Read,
    tmp_path: Path,
) -> None:
    into, rows, counts = topic(3), topic(2), topic(1)
    for partition in range(3):
        send(into, WORDS[partition::3], partition)
    job = ("tests.kafka.local_job", broker.servers, into, rows, counts, str(tmp_path / "run"))
    pauses, killed, failed = random.Random(3), 0, 0
    for turn in range(20):
        running = Running(tmp_path / f"{turn}.txt", *job)
        try:
            if turn == 2:
                # The broker goes first; the driver says so, or waits until it is back.
                running.await_more(3)
                broker.kill()
                running.process.wait(120)
                failed += 1
                # It knows that Kafka does not answer, and takes that for nothing else.
                assert "Kafka" in running.told, running.told[-3000:]
                assert "TopicChanged" not in running.told, running.told[-3000:]
                broker.start()
            elif turn < 5:
                running.await_more(pauses.randint(1, 6))
                time.sleep(pauses.uniform(0.0, 0.1))
                killed += running.process.poll() is None
            elif running.process.wait(120) == 0:
                break
        finally:
            running.kill()
    assert (killed, failed) == (4, 1)
    assert running.process.returncode == 0, running.told[-3000:]
    assert_each_once(committed, rows, counts)
