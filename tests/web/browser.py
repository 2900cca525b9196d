"""A real browser for the tests of the page: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

VIEWS = ("topology", "nodes", "time", "skew", "state", "decisions", "compare")

#: Where the pictures of the documents go, if asked for.
PICTURES = Path(__file__).parents[2] / "docs" / "images"

#: Environment variable that asks for them; ``make pictures`` sets it.
ASKED = "PENSTOCK_PICTURES"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser; without one, tests are skipped, but not in CI."""
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail("Chromium is needed in CI: make chromium", pytrace=False)
        pytest.skip("Chromium was not found: make chromium, or apt install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """Open the page, and see in the end that it made no error and asked nobody else."""
    context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **options})
    context.set_default_timeout(20_000)
    page = context.new_page()
    trouble: list[str] = []
    hosts: set[str] = set()
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda m: trouble.append(m.text) if m.type == "error" else None)
    page.on("dialog", lambda dialog: trouble.append(f"dialog {dialog.message}"))
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    try:
        page.goto(url)
        yield page
    finally:
        context.close()
    assert not trouble, trouble
    assert hosts <= {urlsplit(url).netloc, ""}, "a request left the machine"


def go(page: Page, view: str) -> None:
    """Choose a view as a reader does."""
    page.locator(f"nav.views a[href$='/{view}']").click()
    page.locator(f"main[data-view={view}]").wait_for()


def serious(page: Page) -> list[str]:
    """Return what axe finds that is serious or worse, in one line each."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {node['target']} {node.get('failureSummary', '')}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]


def picture(page: Page, name: str) -> None:
    """Take a picture for the documents, if pictures were asked for."""
    if os.environ.get(ASKED):
        PICTURES.mkdir(exist_ok=True)
        page.screenshot(path=PICTURES / f"page-{name}.png")
