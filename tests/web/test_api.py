"""The server: its answers fit its schema, and it answers nobody else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from penstock.common.errors import InvalidValue, PenstockError
from penstock.store.records import RunStatus
from penstock.testing.metrics_examples import ODD_NAMES
from penstock.testing.page_store import fill_store
from penstock.web import STATIC
from penstock.web.address import PageAddress
from penstock.web.api import create_app
from penstock.web.openapi import SCHEMAS, schema
from penstock.web.reader import RunReader

HOME = "http://127.0.0.1:8765"


def client(place: Path, **options: Any) -> TestClient:
    return TestClient(create_app(RunReader(place), look_s=0.01, **options), base_url=HOME)


def fits(answer: object, name: str) -> None:
    jsonschema.validate(answer, SCHEMAS[name])


def test_answers_fit_the_schema(store: Path) -> None:
    with client(store) as page:
        fits(page.get("/api/runs").json(), "Runs")
        fits(page.get("/api/runs/r1").json(), "Run")
        fits(page.get("/api/runs/r1/series?points=50").json(), "Series")
        fits(page.get("/api/runs/r1/frame").json(), "Frame")
        fits(page.get("/api/runs/r1/events").json(), "Events")
        assert page.get("/api/openapi.json").json() == schema()


def test_every_path_of_the_schema_is_served(store: Path) -> None:
    with client(store) as page:
        for path in schema()["paths"]:
            answer = page.get(path.replace("{run}", "r1"))
            assert answer.status_code == 200, path


def test_what_is_wrong_is_said(store: Path) -> None:
    with client(store) as page:
        for path, code, word in (
            ("/api/runs/none", 404, "no run 'none'"),
            ("/api/runs/none/live", 404, "no run 'none'"),
            ("/api/runs/r1/frame?t=soon", 400, "number of seconds"),
            ("/api/runs/r1/frame?t=nan", 400, "number of seconds"),
            ("/api/runs/r1/frame?batch=x", 400, "whole number"),
        ):
            answer = page.get(path)
            assert answer.status_code == code
            fits(answer.json(), "Error")
            assert word in answer.json()["error"]
        assert page.get("/../etc/passwd").status_code == 404


def test_news_come_until_the_run_is_over(tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    fill_store(place, batches=4, status=RunStatus.FINISHED)
    with client(place) as page:
        text = page.get("/api/runs/r1/live?since=1").text
    messages = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert len(messages) == 1
    fits(messages[0], "News")
    assert messages[0]["series"]["batch"] == [2, 3]
    assert messages[0]["frame"]["batch"] == 3
    assert messages[0]["status"] == "finished"


def test_who_lost_the_connection_is_told_what_came_since(tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    fill_store(place, batches=6, status=RunStatus.FINISHED)
    with client(place) as page:
        text = page.get("/api/runs/r1/live?since=1", headers={"last-event-id": "3"}).text
        odd = page.get("/api/runs/r1/live?since=4", headers={"last-event-id": "9" * 5000}).text
    lines = text.splitlines()
    assert "id: 5" in lines, "what the browser says the next time"
    assert any(line.startswith("retry: ") for line in lines)
    told = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert told[0]["series"]["batch"] == [4, 5]
    told = [json.loads(line[6:]) for line in odd.splitlines() if line.startswith("data: ")]
    assert told[0]["series"]["batch"] == [5]


def test_the_head_of_what_is_new_is_answered_at_once(tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    fill_store(place, batches=2, status=RunStatus.RUNNING)
    with client(place) as page:
        answer = page.head("/api/runs/r1/live")
    assert answer.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize(
    "path",
    [
        f"/api/runs/r1/series?points={10**30}",
        f"/api/runs/r1/series?since={10**30}",
        f"/api/runs/r1/frame?batch={10**30}",
        "/api/runs/r1/frame?t=1e999",
        "/api/runs/r1/frame?t=-1e999",
    ],
)
def test_numbers_without_measure_are_answered(store: Path, path: str) -> None:
    with client(store) as page:
        assert page.get(path).status_code == 200


@pytest.mark.parametrize(
    "path", ["/%2e%2e/guard.py", "/static/app.js", "/..%2f..%2fetc/passwd", "//etc/passwd"]
)
def test_only_the_files_of_the_page_are_served(store: Path, path: str) -> None:
    with client(store) as page:
        assert page.get(f"http://127.0.0.1:8765{path}").status_code == 404


def test_a_damaged_store_is_said(tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    place.write_bytes(b"this is no database, but some text " * 100)
    with client(place) as page:
        answer = page.get("/api/runs")
        assert answer.status_code == 404
        assert "m.sqlite" in answer.json()["error"]


def test_metrics_are_read_by_the_parser_of_prometheus(store: Path) -> None:
    with client(store) as page:
        answer = page.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {f.name: f for f in text_string_to_metric_families(answer.text)}
    assert families["penstock_rows_in"].samples[0].value == 20_000
    assert families["penstock_instance_tuples_in"].samples


def test_the_dashboard_asks_for_metrics_that_there_are(store: Path) -> None:
    with client(store) as page:
        families = text_string_to_metric_families(page.get("/metrics").text)
        known = {sample.name for family in families for sample in family.samples}
    dashboard = json.loads((Path(__file__).parents[2] / "examples" / "grafana.json").read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"penstock_\w+", target["expr"])
    }
    assert asked
    assert asked <= known
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in dashboard["panels"]]
    assert len(set(places)) == len(places)


def test_metrics_of_an_empty_store(tmp_path: Path) -> None:
    with client(tmp_path / "none.sqlite") as page:
        assert page.get("/metrics").status_code == 200
        assert page.get("/api/runs").json() == {"runs": []}


def test_only_reading_is_allowed(store: Path) -> None:
    with client(store) as page:
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            refused = page.request(method, "/api/runs")
            assert refused.status_code == 405
            assert refused.headers["allow"] == "GET, HEAD"
        assert page.head("/").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "10.0.0.1", ""])
def test_a_foreign_host_name_is_refused(store: Path, host: str) -> None:
    with client(store) as page:
        assert page.get("/api/runs", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:9", "127.0.0.1", "[::1]:8765", "LOCALHOST"])
def test_names_of_this_machine_are_answered(store: Path, host: str) -> None:
    with client(store) as page:
        assert page.get("/api/runs", headers={"host": host}).status_code == 200


def test_every_answer_forbids_what_is_not_needed(store: Path) -> None:
    with client(store) as page:
        for path in ("/", "/app.js", "/api/runs", "/metrics", "/nothing"):
            headers = page.get(path).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"


def test_elsewhere_a_token_is_needed(store: Path) -> None:
    with pytest.raises(InvalidValue, match="token"):
        create_app(RunReader(store), host="0.0.0.0")
    with client(store, host="0.0.0.0", token="secret") as page:
        assert page.get("/api/runs").status_code == 401
        assert page.get("/api/runs", headers={"authorization": "Bearer wrong"}).status_code == 401
        assert page.get("/?token=wrong").status_code == 401
        good = page.get("/api/runs", headers={"authorization": "Bearer secret"})
        assert good.status_code == 200
        first = page.get("/?token=secret", follow_redirects=False)
        assert first.status_code == 303
        assert first.headers["location"] == "/"
        cookie = first.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert page.get("/api/runs").status_code == 200, "the cookie is enough from then on"


def test_the_token_leaves_the_address_and_nothing_else_does(store: Path) -> None:
    with client(store, host="0.0.0.0", token="a b&c") as page:

        def location(path: str) -> str:
            return page.get(HOME + path, follow_redirects=False).headers["location"]

        assert location("/api/runs/r1/series?points=9&token=a+b%26c") == (
            "/api/runs/r1/series?points=9"
        )
        assert location("//evil.example/?token=a+b%26c") == "/evil.example/"
        assert page.get("/api/runs").status_code == 200, "such a token is kept in the cookie, too"
    with PageAddress("127.0.0.1", 0).bind() as bound:
        url = PageAddress("127.0.0.1", 0, "a b&c").url(bound)
    assert url.endswith("?token=a%20b%26c")


def test_names_of_users_are_data(tmp_path: Path) -> None:
    """Names go through JSON only; no answer that a browser renders contains one."""
    place = tmp_path / "m.sqlite"
    names = [*(n for n in ODD_NAMES if len(n) < 200), "<img src=x onerror=alert(1)>"]
    for number, name in enumerate(names):
        fill_store(place, run=f"run {number}/{name}"[:150], topology_name=name, batches=1)
    with client(place) as page:
        runs = page.get("/api/runs")
        assert runs.headers["content-type"] == "application/json"
        assert {run["topology"] for run in runs.json()["runs"]} == set(names)
        list(text_string_to_metric_families(page.get("/metrics").text))
        assert "onerror" not in page.get("/").text


def test_the_page_loads_nothing_from_elsewhere() -> None:
    text = (STATIC / "index.html").read_text()
    assert "http" not in text
    assert "style=" not in text
    assert text.count("<script") == 1
    assert '<script src="app.js" defer></script>' in text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ("127.0.0.1", None)),
        (":9", ("127.0.0.1", 9)),
        ("localhost", ("localhost", None)),
        ("[::1]:80", ("::1", 80)),
        ("[::1]", ("::1", None)),
    ],
)
def test_addresses(text: str, wanted: tuple[str, int | None]) -> None:
    found = PageAddress.parse(text)
    assert (found.host, found.port) == wanted
    assert found.token is None


def test_an_address_that_others_reach_gets_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    made = PageAddress.parse("0.0.0.0:80").token
    assert made
    assert len(made) >= 24
    assert PageAddress.parse("0.0.0.0:80").token != made
    monkeypatch.setenv("PENSTOCK_PAGE_TOKEN", "mine")
    assert PageAddress.parse("0.0.0.0:80").token == "mine"


def test_a_port_that_is_taken_is_said_or_left_for_the_next(tmp_path: Path) -> None:
    with PageAddress("127.0.0.1", 0).bind() as first:
        port = first.getsockname()[1]
        first.listen()
        with pytest.raises(PenstockError, match="cannot be served"):
            PageAddress("127.0.0.1", port).bind()
    with PageAddress().bind() as one:
        one.listen()
        with PageAddress().bind() as two:
            assert one.getsockname()[1] != two.getsockname()[1]
    with pytest.raises(InvalidValue, match="HOST:PORT"):
        PageAddress.parse("127.0.0.1:99999")
