"""What the live page costs, measured: ``make bench-page``.

``batches``
    One run on an embedded cluster, in many short turns: with the page in its process and a reader
    in another that follows it as a browser does, and with both stopped (`SIGSTOP`), which is as if
    they were not there. Two turns are a pair, in changing order, so that what drifts slowly cancels
    out. Of each pair the quotient of the median times of a batch; of all pairs the geometric mean
    and its 95 % interval (bootstrap over pairs). And the CPU that the page took while it was shown.
``long``
    A run of 24 hours at five batches a second, as retention leaves it: seconds until all that the
    page asks for first is there, and until Chromium shows it, where it is installed.
``large``
    1,000 instances on 100 nodes: the same, and the size of what is sent for each update.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock.apps.commcount import CommCount
from penstock.pipeline import Discard
from penstock.pipeline.sources.rates import Profile
from penstock.store import Histogram, MetricsStore
from penstock.testing.page_store import STARTED_S, example_batch, fill_store
from penstock.web.address import PageAddress
from penstock.web.server import PageProcess

#: Rows that 24 hours at five batches a second leave: single, by ten, by a hundred; see `Retention`.
KEPT = ((100, 4_020), (10, 2_700), (1, 3_000))


def fetch(url: str) -> Any:
    """Get a JSON answer."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.loads(answer.read())


#: What follows a run in a process of its own, as a browser does.
FOLLOWER = """
import json, sys, urllib.request
url = sys.argv[1]
run = json.load(urllib.request.urlopen(url + "api/runs"))["runs"][0]["id"]
with urllib.request.urlopen(url + "api/runs/" + run + "/live?since=-1") as stream:
    print("following", flush=True)
    for line in stream:
        if line.startswith(b"data: "):
            json.loads(line[6:])
"""


class Turns:
    """Collects the times of batches, turn by turn."""

    def __init__(self) -> None:
        self._more = threading.Condition()
        self._took: list[float] = []

    def add(self, took_ms: float) -> None:
        """Note a batch."""
        with self._more:
            self._took.append(took_ms)
            self._more.notify()

    def next(self, count: int, settle: int) -> float:
        """Wait for so many batches after those that settle, and return their median time."""
        with self._more:
            self._took.clear()
            if not self._more.wait_for(lambda: len(self._took) >= settle + count, timeout=120):
                raise TimeoutError("batches no longer come")
            return statistics.median(self._took[settle : settle + count])


class Watched:
    """The page of a store and a reader of it, which stand still or go on; notes the page's CPU."""

    def __init__(self, page: int, reader: int) -> None:
        self._page, self._reader = page, reader
        self._since: tuple[float, float] | None = None
        self.cpu_s = self.shown_s = 0.0

    def show(self, on: bool) -> None:
        """Let both go on, or stop them."""
        now = time.monotonic(), cpu_s(self._page)
        if self._since is not None:
            self.shown_s += now[0] - self._since[0]
            self.cpu_s += now[1] - self._since[1]
        self._since = now if on else None
        for process in (self._page, self._reader):
            os.kill(process, signal.SIGCONT if on else signal.SIGSTOP)


def cpu_s(process: int) -> float:
    """Return the seconds of CPU that a process took, as Linux counts them."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def watched(place: Path) -> Iterator[Watched]:
    """Serve the page with a reader that follows the latest run."""
    with PageProcess(place, PageAddress("127.0.0.1", 0)) as page:
        command = [sys.executable, "-c", FOLLOWER, page.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as follower:
            assert follower.stdout is not None
            follower.stdout.readline()
            found = Watched(page.pid, follower.pid)
            try:
                yield found
                if follower.poll() is not None:
                    raise RuntimeError("the reader ended before the run")
            finally:
                found.show(True)
                follower.kill()


def batches(asked: argparse.Namespace) -> dict[str, Any]:
    """Compare batches with the page and without it, in turn."""
    from penstock import spark as engine
    from penstock.runtimes.spark.options import Options
    from penstock.runtimes.spark.query import Query, launch

    app = CommCount()
    pipeline = app.pipeline(app.source(Profile.parse("5000")), {"counts": Discard()})
    turns = Turns()
    pairs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder, engine.cluster(engine.embedded(2)) as spark:
        place = Path(folder) / "metrics.sqlite"
        options = Options(store=place, control=None)
        loop = launch(pipeline, spark, "even", options, lambda o: turns.add(o.batch.duration_ms))
        with Query(loop):
            time.sleep(asked.warm)
            until = time.monotonic() + asked.minutes * 60.0
            with watched(place) as watch:
                while time.monotonic() < until:
                    medians = {}
                    for shown in (False, True) if len(pairs) % 2 else (True, False):
                        watch.show(shown)
                        medians[shown] = turns.next(asked.count, asked.settle)
                    pairs.append((medians[False], medians[True]))
    return compared(pairs) | {
        "batches": 2 * asked.count * len(pairs),
        "page_cpu_s_per_s": round(watch.cpu_s / watch.shown_s, 4),
    }


def compared(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    """Return the mean quotient of pairs, of a time without and one with, and how sure it is."""
    logs = np.log([with_page / without for without, with_page in pairs])
    draws = np.random.default_rng(1).choice(logs, (10_000, len(logs))).mean(axis=1)
    low, high = np.exp(np.percentile(draws, [2.5, 97.5]))
    return {
        "pairs": len(pairs),
        "median_ms_without": round(statistics.median(a for a, _ in pairs), 2),
        "median_ms_with": round(statistics.median(b for _, b in pairs), 2),
        "quotient": round(float(np.exp(logs.mean())), 4),
        "interval": [round(float(low), 4), round(float(high), 4)],
    }


def long(place: Path) -> None:
    """Write what is left of 24 hours."""
    fill_store(place, batches=0)
    latency = Histogram.of([80.0, 90.0, 120.0, 200.0, 300.0])
    number = 0
    with MetricsStore.open(place) as store:
        for size, rows in KEPT:
            for _ in range(rows):
                number += size
                made = example_batch("r1", number, 2, latency)
                figures = {**made.figures, **({"rolled_up": float(size)} if size > 1 else {})}
                at_s = STARTED_S + 0.2 * number
                store.put_batch(replace(made, figures=figures, started_at_s=at_s))


def opening(place: Path) -> dict[str, Any]:
    """Time until a page that was just started has answered all that is asked for first."""
    with PageProcess(place, PageAddress("127.0.0.1", 0)) as page:
        began = time.perf_counter()
        run = fetch(f"{page.url}api/runs")["runs"][0]["id"]
        for part in ("", "/series", "/events", "/frame"):
            fetch(f"{page.url}api/runs/{run}{part}")
        answered = time.perf_counter() - began
        began = time.perf_counter()
        frame = fetch(f"{page.url}api/runs/{run}/frame")
        again = time.perf_counter() - began
        return {
            "answers_s": round(answered, 3),
            "frame_s": round(again, 3),
            "frame_kb": round(len(json.dumps(frame)) / 1000, 1),
        } | shown(page.url)


def shown(url: str) -> dict[str, float]:
    """Time until Chromium shows the page."""
    path = shutil.which("chromium")
    if path is None:
        return {}
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page()
        began = time.perf_counter()
        page.goto(url)
        page.locator("main[data-batch]").wait_for()
        took = time.perf_counter() - began
        browser.close()
    return {"shown_s": round(took, 3)}


def main() -> None:
    """Measure what was asked for, and print one JSON object each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kinds", nargs="*", default=["long", "large", "batches"])
    parser.add_argument("--minutes", type=float, default=5.0, help="of turns")
    parser.add_argument("--count", type=int, default=10, help="batches that count in a turn")
    parser.add_argument("--settle", type=int, default=2, help="batches before that do not")
    parser.add_argument("--warm", type=float, default=45.0, help="seconds before the first turn")
    asked = parser.parse_args()
    for kind in asked.kinds:
        if kind == "batches":
            found = batches(asked)
        else:
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder) / "metrics.sqlite"
                if kind == "long":
                    long(place)
                else:
                    fill_store(place, parallelism=334, nodes=100, batches=20)
                found = opening(place)
        print(json.dumps({"kind": kind, **found}), flush=True)


if __name__ == "__main__":
    main()
