"""Three queries over Kafka on Penstock and on its peers: ``python benchmarks/peers.py``.

Workloads
---------
``keys``
    Count by key, 1,000 keys. First rows at a low, steady rate, for latency and the CPU of a row;
    then a backlog.
``words``
    Count words of lines of ten words with Zipf frequencies; a backlog only.
``q5``
    NEXMark's fifth query: the auctions with most bids, in windows of 10 s that begin every 2 s, by
    event time that may be 60 s late; a backlog of 50 s. A row that is later than all windows closes
    them.

Every side is a process of its own, started anew in each repetition, in the other order every second
time. All read one topic of two partitions, committed rows only, and write the running count of each
key to another. The backlog is written in one transaction: it is there for all readers at once, and
the rate is that at which it is counted, until the last row of it is. Latency is from when a row is
due until a reader of committed rows has a count that includes it. CPU is that of all processes of a
side, without the broker. Counts are compared with what was sent, to the row.

Peers are installed below the user's cache folder, each in an environment of its own. What cannot be
installed or run is told, with the error. ``--keep FILE`` writes a line for each side and repetition
as soon as it is measured and goes on from there; ``--limit-s`` begins nothing new after so long.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from peer_sides import SIDES, Failed, Side, started
from rich.console import Console
from tables import show

from penstock.testing.kafka_broker import Broker, broker, missing

NOTE = Console(stderr=True)
#: Partitions of the topic that is read, keys, distinct words, words of a line.
PARTITIONS, KEYS, WORDS, LINE = 2, 1000, 10_000, 10
#: Of q5: milliseconds that a window lasts and is moved by, that a backlog spans, until the row that
#: closes its windows, and until the next one; where time begins, the auctions of closing rows, and
#: how many these are.
SIZE_MS, SLIDE_MS, SPAN_MS, FLUSH_MS, NEXT_MS = 10_000, 2_000, 50_000, 120_000, 300_000
BEGIN_MS, FLUSH, CLOSING = 1_700_000_000_000, "flush", 32
#: Seconds for a side to count its first row, and to count a backlog.
START_S, BACKLOG_S = 120.0, 90.0
#: Rows that make a side warm before anything is measured.
WARM_ROWS = 20_000


@dataclass(eq=False)
class Feed:
    """Writes rows of a workload to a topic, and knows what must be counted."""

    servers: str
    topic: str
    workload: str
    counted: Counter[str] = field(default_factory=Counter)
    #: For each key the moments at which its rows were due, oldest first, and how many came before.
    due: dict[str, deque[tuple[int, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(7)
        weights = 1.0 / np.arange(1, WORDS + 1)
        self._weights = weights / weights.sum()
        self._clock = BEGIN_MS

    def backlog(self, rows: int) -> float:
        """Write rows in one transaction, and return when they were there for readers."""
        producer = self._producer(**{"transactional.id": uuid.uuid4().hex})
        producer.init_transactions(60)
        values = self._values(rows)
        if self.workload == "q5":
            self._expect_hot(values)
            # So many that each partition and each instance gets one.
            values += [f"{n}-{FLUSH} {self._clock + FLUSH_MS}" for n in range(CLOSING)]
            self._clock += NEXT_MS
        else:
            self.counted.update(word for value in values for word in value.split(" "))
        producer.begin_transaction()
        self._write(producer, values)
        producer.commit_transaction(60)
        return time.monotonic()

    def steady(self, rate: float, seconds: float, read: Any) -> None:
        """Write keys when they are due, and let `read` read meanwhile."""
        producer = self._producer(**{"linger.ms": 0})
        values = self._values(int(rate * seconds))
        began, sent = time.monotonic(), 0
        while sent < len(values):
            now = time.monotonic()
            due = min(len(values), int((now - began) * rate))
            for number in range(sent, due):
                key = values[number]
                self.counted[key] += 1
                moments = self.due.setdefault(key, deque())
                moments.append((self.counted[key], began + number / rate))
                producer.produce(self.topic, key, partition=number % PARTITIONS)
            sent = due
            producer.poll(0)
            read(0.002)
        producer.flush(30)

    def _expect_hot(self, values: list[str]) -> None:
        """Note the auctions with most bids of each window."""
        counts: dict[int, Counter[str]] = {}
        for value in values:
            auction, told = value.split(" ")
            last = int(told) // SLIDE_MS * SLIDE_MS
            for start in range(last, last - SIZE_MS, -SLIDE_MS):
                counts.setdefault(start, Counter())[auction] += 1
        for start, bids in counts.items():
            end_s, most = (start + SIZE_MS) // 1000, max(bids.values())
            self.counted |= Counter({f"{end_s}-{a}": n for a, n in bids.items() if n == most})

    def _values(self, rows: int) -> list[str]:
        if self.workload == "keys":
            return [f"k{n}" for n in self._random.integers(0, KEYS, rows)]
        if self.workload == "q5":
            auctions = self._random.choice(WORDS, rows, p=self._weights)
            times = self._clock + np.arange(rows) * SPAN_MS // rows
            return [f"a{auction} {at}" for auction, at in zip(auctions, times, strict=True)]
        drawn = self._random.choice(WORDS, (rows, LINE), p=self._weights)
        return [" ".join(f"w{n}" for n in line) for line in drawn]

    def _write(self, producer: Any, values: list[str]) -> None:
        for number, value in enumerate(values):
            while True:
                try:
                    producer.produce(self.topic, value, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.05)

    def _producer(self, **more: Any) -> Any:
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": self.servers, **more})


class Reader:
    """Reads counts as a consumer of committed rows."""

    def __init__(self, servers: str, topic: str) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        self.latest: dict[str, int] = {}
        self.total = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def read(self, wait_s: float, feed: Feed | None = None, late: Any = None) -> None:
        """Read what came; note in `late` the latencies of rows that are counted by now."""
        messages = self._consumer.consume(10_000, wait_s)
        now = time.monotonic()
        for message in messages:
            word, told = message.key(), message.value()
            if message.error() is not None or word is None or told is None:
                continue
            key, count = word.decode(), int(told)
            if key.endswith(FLUSH):
                continue
            before = self.latest.get(key, 0)
            # Two writers of one key may come in any order: a count never goes back.
            if count <= before:
                continue
            self.latest[key] = count
            self.total += count - before
            moments = feed.due.get(key) if feed is not None else None
            while moments and moments[0][0] <= count:
                _, due = moments.popleft()
                if late is not None:
                    late.append((due, now - due))

    def until(self, total: int, limit_s: float, alive: Any) -> float:
        """Read until so many were counted, and return when that was."""
        give_up = time.monotonic() + limit_s
        while self.total < total:
            self.read(0.01)
            alive()
            if time.monotonic() > give_up:
                raise Failed(f"{self.total} of {total} were counted within {limit_s:g} s")
        return time.monotonic()

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


def measure(made: Broker, side: Side, workload: str, given: argparse.Namespace) -> dict[str, Any]:
    """Measure one side on one workload."""
    into, out = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("in", "out"))
    made.create(into, PARTITIONS)
    made.create(out)
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-peer-")))
        feed, reader = Feed(made.servers, into, workload), Reader(made.servers, out)
        stack.callback(reader.close)
        running = stack.enter_context(started(side, made.servers, into, out, workload, folder))
        feed.backlog(1000)
        reader.until(feed.counted.total(), START_S, running.check)
        parts = LINE if workload == "words" else 1
        feed.backlog(WARM_ROWS // parts)
        reader.until(feed.counted.total(), BACKLOG_S, running.check)
        if workload == "keys":
            found |= _latency(feed, reader, running, given)
        for rows in (given.rows, given.rows):
            # Twice, and the second counts: the first still compiles.
            lines = rows // parts
            cpu = running.cpu_s()
            began = feed.backlog(lines)
            ended = reader.until(feed.counted.total(), BACKLOG_S, running.check)
            used = running.cpu_s() - cpu
        found |= {"rows_per_s": lines / (ended - began), "backlog_cpu_us": used / lines * 1e6}
        found["equal"] = reader.latest == dict(feed.counted)
    return found


def _latency(feed: Feed, reader: Reader, running: Any, given: argparse.Namespace) -> dict[str, Any]:
    """Send at the low rate; figures are of the rows after the first seconds."""
    late: list[tuple[float, float]] = []

    def read(wait_s: float) -> None:
        reader.read(wait_s, feed, late)

    feed.steady(given.rate, given.warm_s, read)
    cpu, began = running.cpu_s(), time.monotonic()
    feed.steady(given.rate, given.seconds, read)
    used = running.cpu_s() - cpu
    give_up = time.monotonic() + BACKLOG_S
    while reader.total < feed.counted.total():
        read(0.01)
        running.check()
        if time.monotonic() > give_up:
            raise Failed(f"{reader.total} of {feed.counted.total()} were counted")
    waited = np.array([ms for due, ms in late if due >= began]) * 1e3
    return {
        "p50_ms": float(np.quantile(waited, 0.5)),
        "p99_ms": float(np.quantile(waited, 0.99)),
        "steady_cpu_us": used / (given.rate * given.seconds) * 1e6,
    }


def table(found: list[dict[str, Any]], workload: str) -> list[dict[str, Any]]:
    """Put repetitions together: medians, with the smallest and the largest."""
    rows = []
    names = ("p50_ms", "p99_ms", "steady_cpu_us", "rows_per_s", "backlog_cpu_us")
    for side in SIDES:
        mine = [one for one in found if one["side"] == side and one["workload"] == workload]
        ran = [one for one in mine if "error" not in one]
        if not mine:
            continue
        row: dict[str, Any] = {"by": side, "runs": len(ran)}
        for name in names:
            values = [one[name] for one in ran if name in one]
            if values or workload == "keys":
                row[name] = _told(values)
        row["equal"] = all(one["equal"] for one in ran) if ran else "-"
        rows.append(row)
    return rows


def _told(values: list[float]) -> str:
    if not values:
        return "-"
    middle = statistics.median(values)
    return f"{middle:,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def main() -> None:
    """Measure every side on every workload."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", default="keys,words,q5")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rate", type=float, default=500.0, help="the low rate, rows a second")
    parser.add_argument("--warm-s", type=float, default=4.0)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rows", type=int, default=200_000, help="keys or words of the backlog")
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if why := missing():
        raise SystemExit(f"no Kafka broker can be started here: {why}")
    until = time.monotonic() + given.limit_s
    asked = {name: getattr(given, name) for name in ("rate", "warm_s", "seconds", "rows")}
    found: list[dict[str, Any]] = []
    if given.keep is not None and given.keep.exists():
        found = [json.loads(line) for line in given.keep.read_text().splitlines()]
        if any(one["asked"] != asked for one in found):
            raise SystemExit(f"{given.keep} is of other sizes: give the same, or remove it")
    wanted = given.sides.split(",")
    with broker(3600.0) as made:
        for repetition in range(given.repeats):
            for workload in given.workloads.split(","):
                for name in wanted if repetition % 2 == 0 else reversed(wanted):
                    have = [(one["side"], one["workload"]) for one in found]
                    if have.count((name, workload)) > repetition or time.monotonic() > until:
                        continue
                    one = {"side": name, "workload": workload, "asked": asked}
                    try:
                        one |= measure(made, SIDES[name], workload, given)
                    except Failed as error:
                        one["error"] = str(error)
                    found.append(one)
                    NOTE.print({k: v for k, v in one.items() if k != "asked"}, style="dim")
                    if given.keep is not None:
                        with given.keep.open("a") as file:
                            file.write(json.dumps(one) + "\n")
    if given.json:
        json.dump(found, sys.stdout, indent=1)
        return
    for workload in given.workloads.split(","):
        if rows := table(found, workload):
            show(f"{workload}: medians, with the smallest and the largest", rows)
    for one in found:
        if "error" in one:
            NOTE.print(f"{one['side']}, {one['workload']}: {one['error']}")


if __name__ == "__main__":
    main()
