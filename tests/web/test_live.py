"""The page over a real run: `examples/shop.py`, watched in a browser from its start to its end."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Page
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.store import MetricsStore
from penstock.web.address import PageAddress
from penstock.web.server import PageProcess

from .browser import VIEWS, chromium, go, opened, picture, serious

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]

#: Length of the stream, and how long anything may take on a busy machine.
SECONDS, PATIENCE_S = 45, 240

#: What is taken down of the page at one moment, in one go.
SEEN = """() => ({
  batch: Number(document.querySelector("main").dataset.batch),
  status: document.querySelector("[data-status]").dataset.status,
  operators: Object.fromEntries([...document.querySelectorAll("[data-operator]")].map(
    (box) => [box.dataset.operator, [box.dataset.placement, box.innerText]])),
  edges: [...document.querySelectorAll("[data-edge]")].map((e) => [e.dataset.edge, e.innerText]),
  nodes: [...document.querySelectorAll("[data-node]")].map(
    (row) => [row.dataset.node, row.dataset.there]),
})"""


class Shop(NamedTuple):
    """The run: where its page is, and its metrics."""

    url: str
    store: Path


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    store = tmp_path_factory.mktemp("shop") / "metrics.sqlite"
    command = [sys.executable, str(ROOT / "examples" / "shop.py"), "--seconds", str(SECONDS)]
    process = subprocess.Popen(
        [*command, "--store", str(store), "--page", "127.0.0.1:0", "--keep-page", str(PATIENCE_S)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=store.parent,
    )
    said: list[str] = []

    def listen() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line.rstrip())  # noqa: PERF401 - others read it meanwhile

    def told() -> str | None:
        found = [line for line in said if line.startswith("page at ")]
        return found[0].removeprefix("page at ") if found else None

    reading = threading.Thread(target=listen, daemon=True)
    reading.start()
    try:
        yield Shop(until(told, "the address of the page"), store)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reading.join(10)
        assert process.stderr is not None
        process.stderr.close()


def until(look: Callable[[], Any], what: str) -> Any:
    """Wait for something to come."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.2)
    raise AssertionError(f"{what} did not come")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def seen(page: Page) -> Any:
    return page.evaluate(SEEN)


def test_a_run_is_watched_live_and_again(shop: Shop, browser: Browser) -> None:
    with opened(browser, shop.url) as page:
        page.set_default_timeout(PATIENCE_S * 1000)
        page.locator("main[data-batch]").wait_for()
        first = seen(page)
        assert first["status"] == "running"
        until(lambda: seen(page)["batch"] > first["batch"] + 2, "the next batches")
        live = seen(page)
        check_that_the_graph_matches_the_plan(shop, live)
        go(page, "decisions")
        page.locator("[data-decision]").first.wait_for()
        assert page.locator("header [data-status=running]").count(), "while the run goes on"
        go(page, "nodes")
        page.locator("[data-node-card][data-there=false]").first.wait_for()
        assert page.locator("header [data-status=running]").count(), "while the run goes on"
        picture(page, "nodes")
        page.locator("header [data-status=finished]").wait_for()
        check_pictures_and_axe(page)
        check_that_explanations_are_those_of_the_command(shop, page)
    replayed(shop, browser, live)


def check_that_the_graph_matches_the_plan(shop: Shop, live: Any) -> None:
    with MetricsStore.open(shop.store, read_only=True) as store:
        run = store.runs()[0].id
        plan = [p.plan for p in store.plans(run) if p.from_batch <= live["batch"]][-1]
        ran = store.instances(run, since=live["batch"], before=live["batch"] + 1)
    assert set(live["operators"]) == set(plan.parallelism)
    names = list(dict.fromkeys(name for name, _ in live["nodes"]))
    assert set(names) >= {one.node for one in ran}
    for operator, (placement, _) in live["operators"].items():
        wanted = [spot.node for spot in plan.placement[operator]]
        assert [one.node for one in ran if one.operator == operator] == wanted
        numbers = [int(n) for n in placement.split(",")]
        assert len(set(zip(numbers, wanted, strict=True))) == len(set(wanted)), "a node, a number"


def check_that_explanations_are_those_of_the_command(shop: Shop, page: Page) -> None:
    go(page, "decisions")
    numbers = [
        int(one.get_attribute("data-decision") or -1)
        for one in page.locator("[data-decision]").all()
    ]
    assert numbers
    for number in numbers[:5]:
        shown = page.locator(f"[data-explanation='{number}']").text_content() or ""
        arguments = ["explain", "latest", str(number), "--store", str(shop.store)]
        told = CliRunner().invoke(app, arguments)
        if "left out" in told.output or told.exit_code:
            continue  # A note, which the command does not list.
        assert plain(shown) == plain(told.stdout)


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def check_pictures_and_axe(page: Page) -> None:
    for view in VIEWS[:-1]:
        go(page, view)
        if view == "decisions":
            page.locator(".decision summary").first.click()
        page.wait_for_timeout(300)
        picture(page, view)
        assert serious(page) == [], view
    page.get_by_role("button", name="Use dark colours").click()
    go(page, "topology")
    page.wait_for_timeout(300)
    picture(page, "dark")


def replayed(shop: Shop, browser: Browser, live: Any) -> None:
    """Go back to a moment that was seen live, on a page that was started afterwards."""
    with MetricsStore.open(shop.store, read_only=True) as store:
        run = store.runs()[0]
        batch = next(b for b in store.batches(run.id) if b.batch == live["batch"])
    with (
        PageProcess(shop.store, PageAddress("127.0.0.1", 0)) as process,
        opened(browser, process.url) as page,
    ):
        page.locator("main[data-batch]").wait_for()
        slider = page.locator("[data-slider]")
        slider.fill(str(round(batch.ended_at_s - run.started_at_s, 3)))
        page.locator(f"main[data-mode=replay][data-batch='{live['batch']}']").wait_for()
        again = seen(page)
        for part in ("operators", "edges", "nodes"):
            assert again[part] == live[part], f"{part} as they were seen live"
        picture(page, "replay")
