"""The report: the page in one file, with its data, that loads nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from penstock.common.errors import PenstockError
from penstock.report import summarise
from penstock.store import MetricsStore, RunRecord, RunRecords
from penstock.testing.metrics_examples import ODD_NAMES
from penstock.testing.page_store import fill_store
from penstock.web.openapi import SCHEMAS
from penstock.web.reader import RunReader
from penstock.web.report import MOST_FRAMES, render_report, write_report

from .browser import VIEWS, chromium, go, opened, serious

DATA = re.compile(r'<script type="application/json" id="penstock-data">(.*?)</script>', re.DOTALL)


def held(text: str) -> dict[str, object]:
    found = DATA.findall(text)
    assert len(found) == 1
    data = json.loads(found[0])
    assert isinstance(data, dict)
    return data


def records_of(place: Path, run: str = "r1") -> RunRecords:
    with MetricsStore.open(place, read_only=True) as store:
        return store.read(run)


def test_the_report_holds_what_the_page_would_be_told(store: Path) -> None:
    records = records_of(store)
    data = held(render_report(records))
    reader = RunReader(store)
    assert data["series"] == json.loads(json.dumps(reader.series("r1")))
    assert data["events"] == json.loads(json.dumps(reader.events("r1")))
    assert data["run"] == json.loads(json.dumps(reader.run("r1")))
    frames = data["frames"]
    assert isinstance(frames, list)
    assert frames == [json.loads(json.dumps(reader.frame("r1", batch=n))) for n in range(10)]
    jsonschema.validate(frames[-1], SCHEMAS["Frame"])
    assert data["run"]["summary"] == json.loads(json.dumps(summarise(records)))  # type: ignore[index]


def test_it_loads_nothing_and_its_policy_allows_its_own_script_alone(store: Path) -> None:
    text = render_report(records_of(store))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    assert "default-src" in policy[1]
    assert "unsafe" not in policy[1]
    assert policy[1].count("sha256-") == 2
    head = DATA.sub("", text).partition("<style>")[0]
    assert "src=" not in head
    assert "href=" not in head


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_do_not_end_the_data(tmp_path: Path, name: str) -> None:
    place = tmp_path / "m.sqlite"
    fill_store(place, topology_name=f"</script><!--{name}", batches=2)
    text = render_report(records_of(place))
    assert text.count("</script>") == 2
    assert held(text)["run"]["topology"] == f"</script><!--{name}"  # type: ignore[index]


def test_a_long_run_stays_small(tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    fill_store(place, batches=1500, detail=1000)
    text = render_report(records_of(place))
    frames = held(text)["frames"]
    assert isinstance(frames, list)
    assert len(frames) <= MOST_FRAMES + 1
    assert len(text) < 800_000


def test_a_run_without_anything_and_a_folder_that_is_not_there(tmp_path: Path) -> None:
    nothing = RunRecords(RunRecord("r", "t", "s", 1.0))
    assert held(render_report(nothing))["frames"] == []
    write_report(nothing, tmp_path / "report.html")
    with pytest.raises(PenstockError, match="cannot be written"):
        write_report(nothing, tmp_path / "no" / "report.html")


@pytest.mark.slow
def test_a_browser_shows_it_from_the_disk(store: Path, tmp_path: Path) -> None:
    records = records_of(store)
    run = replace(records.run, topology="<b>shop</b>")
    write_report(replace(records, run=run), tmp_path / "report.html")
    with (
        chromium() as browser,
        opened(browser, (tmp_path / "report.html").as_uri()) as page,
    ):
        page.locator("main[data-batch='9']").wait_for()
        assert page.get_by_text("<b>shop</b> under even").count() == 1
        for view in VIEWS[:-1]:
            go(page, view)
        assert page.locator("nav.views a[href$=compare]").count() == 0
        assert serious(page) == []
        page.locator("[data-slider]").focus()
        page.keyboard.press("Home")
        page.locator("main[data-mode=replay][data-batch='0']").wait_for()
