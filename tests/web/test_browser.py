"""The page in a browser, over runs that are made up: look, keyboard, names, sizes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from penstock.store import EventRecord, MetricsStore
from penstock.store.records import RunStatus
from penstock.testing.page_store import STARTED_S, fill_store
from penstock.web.address import PageAddress
from penstock.web.server import PageProcess

from .browser import VIEWS, chromium, go, opened, serious

pytestmark = pytest.mark.slow

EVIL = '"><img src=x onerror="alert(1)"><script>alert(2)</script>'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("page") / "m.sqlite"
    fill_store(place, run="large", parallelism=334, nodes=100, batches=5)
    fill_store(place, run="evil", topology_name=EVIL, batches=30)
    fill_store(place, run="small", parallelism=4, nodes=3, batches=60)
    with PageProcess(place, PageAddress("127.0.0.1", 0)) as page:
        yield page.url


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_is_found_by_axe(browser: Browser, url: str, scheme: str) -> None:
    with opened(browser, f"{url}#/small/topology", color_scheme=scheme) as page:
        for view in VIEWS:
            go(page, view)
            page.wait_for_timeout(300)
            assert serious(page) == [], (view, scheme)


def test_it_fits_a_telephone(browser: Browser, url: str) -> None:
    with opened(browser, f"{url}#/small/topology", viewport={"width": 360, "height": 740}) as page:
        for view in VIEWS:
            go(page, view)
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{view} is wider than the screen by {wide}"


def test_it_is_used_by_keyboard(browser: Browser, url: str) -> None:
    with opened(browser, f"{url}#/small/topology") as page:
        page.locator("main[data-view=topology]").wait_for()
        page.locator("[data-operator=count]").focus()
        page.keyboard.press("Enter")
        page.locator("[data-detail=count]").wait_for()
        page.locator("[data-slider]").focus()
        page.keyboard.press("Home")
        page.locator("main[data-mode=replay][data-batch='0']").wait_for()
        page.locator("[data-live]").focus()
        page.keyboard.press("Enter")
        page.locator("main[data-mode=live][data-batch='59']").wait_for()


def test_names_of_users_are_shown_as_text(browser: Browser, url: str) -> None:
    with opened(browser, f"{url}#/evil/topology") as page:
        for view in VIEWS:
            go(page, view)
        assert page.locator("img").count() == 0
        assert EVIL in page.locator("[data-runs]").inner_text()


def test_two_runs_are_compared(browser: Browser, url: str) -> None:
    with opened(browser, f"{url}#/small/compare") as page:
        page.locator("main[data-view=compare]").wait_for()
        page.locator("main[data-view=compare] select").select_option("evil")
        row = page.locator("[data-compare] tr", has_text="Rows in")
        row.get_by_text("60.0 k").wait_for()
        assert "240 k" in row.inner_text()
        assert page.locator("[aria-label='The other'] [data-operator]").count() == 3


def test_a_thousand_instances_stay_readable(browser: Browser, url: str) -> None:
    began = time.monotonic()
    with opened(browser, f"{url}#/large/topology") as page:
        page.locator("main[data-view=topology]").wait_for()
        assert page.locator("[data-operator]").count() == 3
        assert page.locator(".operator .instance").count() == 0, "added up by node"
        assert page.locator(".operator .stack").count() == 3
        took_s = time.monotonic() - began
        page.locator("[data-operator=count]").click()
        assert page.locator("[data-detail=count] tbody tr").count() == 200
        page.get_by_label("Close").click()
        page.get_by_role("link", name="all 100 nodes").click()
        page.locator("main[data-view=nodes]").wait_for()
        assert page.locator("tr[data-node-card]").count() == 100, "a line each, not a card each"
        for view in VIEWS:
            go(page, view)
    assert took_s < 10, "on a busy machine; benchmarks/page.py measures it"


def test_a_page_without_a_run_waits_for_one(browser: Browser, tmp_path: Path) -> None:
    place = tmp_path / "later.sqlite"
    with (
        PageProcess(place, PageAddress("127.0.0.1", 0)) as process,
        opened(browser, process.url) as page,
    ):
        page.get_by_text("No run yet").wait_for()
        fill_store(place, batches=3, status=RunStatus.RUNNING)
        page.locator("main[data-batch='2']").wait_for()
        fill_store(place, batches=5, status=RunStatus.FINISHED)
        page.locator("main[data-batch='4']").wait_for()
        page.locator("[data-status=finished]").wait_for()


def test_a_connection_that_was_lost_is_taken_up_again(browser: Browser, tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    fill_store(place, batches=3, status=RunStatus.RUNNING)
    with PageProcess(place, PageAddress("127.0.0.1", 0)) as process:
        port = int(process.url.rstrip("/").rpartition(":")[2])
        context = browser.new_context()
        page = context.new_page()
        page.goto(process.url)
        page.locator("main[data-batch='2']").wait_for()
    page.get_by_text("connection lost").wait_for()
    fill_store(place, batches=7, status=RunStatus.RUNNING)
    with PageProcess(place, PageAddress("127.0.0.1", port)):
        page.locator("main[data-batch='6'][data-points='7']").wait_for()
        page.get_by_text("connection lost").wait_for(state="hidden")
        show(page, hidden=True)
        fill_store(place, batches=9, status=RunStatus.RUNNING)
        page.wait_for_timeout(1500)
        assert page.locator("main").get_attribute("data-batch") == "6", "nobody looks at it"
        show(page, hidden=False)
        page.locator("main[data-batch='8'][data-points='9']").wait_for()
        context.close()


def show(page: Page, *, hidden: bool) -> None:
    """Let the page believe that another tab is in front of it, or no longer."""
    word = json.dumps(hidden)
    page.evaluate(
        f"Object.defineProperty(document, 'hidden', {{value: {word}, configurable: true}});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )


def test_a_run_that_failed_says_why(browser: Browser, tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    fill_store(place, batches=0, status=RunStatus.FAILED)
    why = "ValueError: <b>no number</b>"
    with MetricsStore.open(place) as store:
        store.put_event(EventRecord("r1", 1, STARTED_S + 3, "failure", why))
    with (
        PageProcess(place, PageAddress("127.0.0.1", 0)) as process,
        opened(browser, process.url) as page,
    ):
        page.get_by_text("The run ended before its first batch").wait_for()
        assert page.locator("[data-failure]").inner_text() == f"The run failed: {why}"
        assert serious(page) == []


def test_a_run_of_which_nothing_comes_says_so(browser: Browser, tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    fill_store(place, batches=3, status=RunStatus.RUNNING)
    with (
        PageProcess(place, PageAddress("127.0.0.1", 0)) as process,
        opened(browser, process.url) as page,
    ):
        page.locator("[data-silent]").wait_for()
        assert "no batch for" in page.locator("[data-silent]").inner_text()
        page.locator("[data-slider]").focus()
        page.keyboard.press("ArrowLeft")
        page.locator("main[data-mode=replay][data-batch='1']").wait_for()
        page.keyboard.press("ArrowRight")
        page.locator("main[data-mode=live][data-batch='2']").wait_for()


def test_advice_stands_beside_the_plan(browser: Browser, tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    fill_store(place, batches=3)
    text = "advice: use <8> state partitions"
    with MetricsStore.open(place) as store:
        for number in (1, 2):
            store.put_event(EventRecord("r1", number, STARTED_S + 0.5, "attached", text))
    with (
        PageProcess(place, PageAddress("127.0.0.1", 0)) as process,
        opened(browser, process.url) as page,
    ):
        page.locator("[data-advice] li").wait_for()
        assert page.locator("[data-advice]").inner_text() == "use <8> state partitions"
