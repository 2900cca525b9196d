"""Clicks in a Kafka topic, counted by two jobs at once: Spark's, attached, and Penstock's own.

``make kafka-demo`` starts it. A broker of one node runs on this machine, and a producer sends
clicks to it. `kafka_job.py`, a Structured Streaming job over Spark's own connector, runs unchanged
by ``penstock submit``, and `kafka_pipeline.py` by ``penstock run``. Both write their counts to a
topic of their own. This program reads both topics as any consumer does, and says every few seconds
how many clicks each has counted. In the end it compares both with what was sent.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import pyspark
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from penstock.testing.kafka_broker import CONNECTOR, Broker, broker, missing
from penstock.testing.maven import jars

HERE = Path(__file__).parent

#: The command ``penstock``, of the same environment as this program.
PENSTOCK = "from penstock.cli.main import app; app()"

#: Topics: clicks, and the counts of the two jobs.
CLICKS, BY_SPARK, BY_PENSTOCK = "clicks", "counts-spark", "counts-penstock"

#: Partitions of the topic of clicks, and pages that are looked at, some far more often than others.
PARTITIONS, PAGES, SKEW = 4, 500, 1.1

#: Seconds between two lines, for both jobs to count their first click, for the last ones to be
#: counted, and for a job to end.
LINE_S, START_S, CATCH_UP_S, STOP_S = 5.0, 240.0, 120.0, 40.0


def say(text: str) -> None:
    """Write a line to stderr."""
    print(text, file=sys.stderr, flush=True)


@dataclass(eq=False)
class Clicks:
    """Sends clicks at a steady rate, and knows how many of each page it sent."""

    servers: str
    rate: float
    sent: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 20})
        self._random = random.Random(1)
        self._weights = list(accumulate(1 / (1 + n) ** SKEW for n in range(PAGES)))
        self._began = time.monotonic()

    def send(self) -> None:
        """Send what is due by now."""
        due = int((time.monotonic() - self._began) * self.rate) - self.sent.total()
        for page in self._random.choices(range(PAGES), cum_weights=self._weights, k=due):
            name = f"page-{page}"
            user = f"user-{self._random.randrange(10_000)}"
            self._producer.produce(CLICKS, json.dumps({"user": user, "page": name}), key=user)
            self.sent[name] += 1
        self._producer.poll(0)

    def end(self) -> None:
        """Wait until all are in the topic."""
        if left := self._producer.flush(30):
            raise SystemExit(f"{left} clicks were not taken by the broker")


class Counts:
    """The newest count of each page in a topic, as a consumer of committed rows sees it."""

    def __init__(self, servers: str, topic: str) -> None:
        self.latest: dict[str, int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"demo-{topic}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def read(self) -> int:
        """Read what came, and return how many clicks are counted."""
        while messages := self._consumer.consume(1000, 0.05):
            for message in messages:
                if message.error() is None:
                    row = json.loads(message.value())
                    self.latest[row["page"]] = row["n"]
        return sum(self.latest.values())

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


@dataclass(eq=False)
class Job:
    """A command in a process of its own, whose words go to a file."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, name: str, folder: Path, words: Sequence[str], **env: str) -> Job:
        """Start the command ``penstock`` with these words."""
        log = folder / f"{name}.txt"
        report = f"--report={folder / name}.html"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", PENSTOCK, words[0], report, *words[1:]],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **env},
                # Ctrl-C is for this program, which then ends the others.
                start_new_session=True,
            )
        return cls(name, log, process)

    def check(self) -> None:
        """Say why it ended, if it has."""
        if (code := self.process.poll()) is not None:
            said = self.log.read_text(errors="replace")[-2000:]
            raise SystemExit(f"{self.name} ended with code {code}:\n{said}")

    def stop(self) -> None:
        """End it as an operator would, and all that it started."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                say(f"{self.name} did not end within {STOP_S:g} s and is killed")
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


def start_jobs(stack: ExitStack, servers: str, folder: Path) -> list[Job]:
    """Start Spark's job, attached, and the pipeline."""
    connector = ",".join(map(str, sorted(jars(*CONNECTOR, alone=True).glob("*.jar"))))
    spark = "--master local-cluster[2,1,1024] --conf spark.sql.shuffle.partitions=4"
    words = [servers, CLICKS, BY_SPARK, str(folder / "spark")]
    attached = Job.start(
        "attached",
        folder,
        ["submit", str(HERE / "kafka_job.py"), *words],
        PYSPARK_SUBMIT_ARGS=f"{spark} --jars {connector} pyspark-shell",
        SPARK_HOME=str(Path(pyspark.__file__).parent),
    )
    stack.callback(attached.stop)
    sets = [f"--set=servers={servers}", f"--set=into={CLICKS}", f"--set=out={BY_PENSTOCK}"]
    own = ["run", str(HERE / "kafka_pipeline.py"), "--master=local[2]", *sets]
    pipeline = Job.start("pipeline", folder, [*own, f"--checkpoint={folder / 'penstock'}"])
    stack.callback(pipeline.stop)
    return [attached, pipeline]


def follow(
    given: argparse.Namespace, clicks: Clicks, jobs: list[Job], read: dict[str, Counts]
) -> None:
    """Send clicks until both have counted for so long, and say how many; then wait for the rest."""
    began = line = time.monotonic()
    until, told = began + START_S, dict.fromkeys(read, 0)
    counting = sending = True
    while counting:
        now = time.monotonic()
        sending = sending and now < until
        if sending:
            clicks.send()
        else:
            clicks.end()
        if now >= line:
            line = now + (LINE_S if sending else 1.0)
            first, told = not all(told.values()), {name: at.read() for name, at in read.items()}
            sent = clicks.sent.total()
            counted = ", ".join(f"{name} {rows:,}" for name, rows in told.items())
            say(f"{now - began:4.0f} s: {sent:,} clicks sent; counted by {counted}")
            for job in jobs:
                job.check()
            if first and all(told.values()):
                until = now + given.seconds
            counting = sending or set(told.values()) != {sent}
        if now > until + CATCH_UP_S:
            raise SystemExit(f"{CATCH_UP_S:g} s after the last click not all were counted")
        time.sleep(0.02)


def run(given: argparse.Namespace, stack: ExitStack, made: Broker, folder: Path) -> None:
    """Run the jobs beside the producer, and compare in the end."""
    made.create(CLICKS, PARTITIONS)
    for topic in (BY_SPARK, BY_PENSTOCK):
        made.create(topic)
    say(f"the broker listens at {made.servers}; starting Spark for each job")
    jobs = start_jobs(stack, made.servers, folder)
    read = {
        "Spark's job, attached": Counts(made.servers, BY_SPARK),
        "Penstock's pipeline": Counts(made.servers, BY_PENSTOCK),
    }
    for counts in read.values():
        stack.callback(counts.close)
    clicks = Clicks(made.servers, given.rate)
    follow(given, clicks, jobs, read)
    for name, counts in read.items():
        equal = counts.latest == dict(clicks.sent)
        verdict = "equal" if equal else "NOT EQUAL"
        say(f"{name}: counts of {len(counts.latest)} pages, {verdict} to what was sent")
        if not equal:
            raise SystemExit(1)


def main() -> None:
    """Run it; Ctrl-C ends it early."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="clicks after both count")
    parser.add_argument("--rate", type=float, default=500.0, help="clicks a second")
    given = parser.parse_args()
    if why := missing():
        raise SystemExit(f"no Kafka broker can be started here: {why}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder, ExitStack() as stack:
            say("starting a Kafka broker")
            made = stack.enter_context(broker())
            run(given, stack, made, Path(folder))
            say("ending both jobs and the broker")
    except KeyboardInterrupt:
        say("interrupted: both jobs and the broker were ended")
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
