"""What the live page costs, measured: ``make bench-page``.

``batches``
    One run on an embedded cluster, in turns of some seconds: without the page, and with the page in
    its process and a reader that follows it as a browser does. The start of each turn is left out.
    Time of a batch in each, and the quotient of the medians.
``long``
    A run of 24 hours at five batches a second, as retention leaves it: seconds until all that the
    page asks for first is there, and until Chromium shows it, where it is installed.
``large``
    1,000 instances on 100 nodes: the same, and the size of what is sent for each update.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

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


@contextmanager
def followed(url: str) -> Iterator[None]:
    """Follow the latest run in a thread, as a browser does."""
    over = threading.Event()

    def follow() -> None:
        run = fetch(f"{url}api/runs")["runs"][0]["id"]
        with urllib.request.urlopen(f"{url}api/runs/{run}/live?since=-1", timeout=60) as stream:
            for _ in stream:
                if over.is_set():
                    return

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    try:
        yield
    finally:
        over.set()
        reader.join(5)


def batches(asked: argparse.Namespace) -> dict[str, Any]:
    """Compare batches with the page and without it, in turn."""
    from penstock import spark as engine
    from penstock.runtimes.spark.monitor import Observed
    from penstock.runtimes.spark.options import Options
    from penstock.runtimes.spark.query import Query, launch

    app = CommCount()
    pipeline = app.pipeline(app.source(Profile.parse("5000")), {"counts": Discard()})
    took: dict[bool, list[float]] = {False: [], True: []}
    turn: list[bool | None] = [None]

    def watch(observed: Observed) -> None:
        if turn[0] is not None:
            took[turn[0]].append(observed.batch.duration_ms)

    with tempfile.TemporaryDirectory() as folder, engine.cluster(engine.embedded(2)) as spark:
        place = Path(folder) / "metrics.sqlite"
        options = Options(store=place, control=None)
        with Query(launch(pipeline, spark, "even", options, watch)):
            time.sleep(asked.warm)
            for number in range(2 * asked.turns):
                # Without, with, with, without: what drifts slowly cancels out.
                shown = number % 4 in (1, 2)
                if shown:
                    address = PageAddress("127.0.0.1", 0)
                    with PageProcess(place, address) as page, followed(page.url):
                        one_turn(turn, shown, asked)
                else:
                    one_turn(turn, shown, asked)
    without, with_page = (statistics.median(took[shown]) for shown in (False, True))
    return {
        "batches": [len(took[False]), len(took[True])],
        "median_ms_without": round(without, 2),
        "median_ms_with": round(with_page, 2),
        "quotient": round(with_page / without, 4),
    }


def one_turn(turn: list[bool | None], shown: bool, asked: argparse.Namespace) -> None:
    """Let batches count for some seconds, once all has settled."""
    time.sleep(asked.settle)
    turn[0] = shown
    time.sleep(asked.seconds)
    turn[0] = None


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
    parser.add_argument("--turns", type=int, default=6, help="turns with the page")
    parser.add_argument("--seconds", type=float, default=12.0, help="that count in a turn")
    parser.add_argument("--settle", type=float, default=3.0, help="that do not count before")
    parser.add_argument("--warm", type=float, default=30.0, help="before the first turn")
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
