"""A simulation on the page: the same views, in virtual time."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.web.openapi import SCHEMAS
from penstock.web.reader import RunReader


def simulated(place: Path, *more: str) -> dict[str, object]:
    words = ["simulate", "wordcount", "--nodes", "4", "--rate", "20000", "--seconds", "40"]
    words += ["--fault", "kill-node@t=20", "--store", str(place), "--json", *more]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.splitlines()[0])
    assert isinstance(found, dict)
    return found


def test_a_simulation_is_shown_as_a_run(tmp_path: Path) -> None:
    place = tmp_path / "sim.sqlite"
    summary = simulated(place)
    reader = RunReader(place)
    run = reader.runs()[0]
    assert run["virtual_time"]
    assert run["status"] == "finished"
    series = reader.series(run["id"])
    jsonschema.validate(series, SCHEMAS["Series"])
    mean = sum(series["processed_per_s"]) / len(series["processed_per_s"])
    assert mean == pytest.approx(summary["throughput_per_s"], rel=0.01)
    before, after = reader.frame(run["id"], t=15.0), reader.frame(run["id"])
    jsonschema.validate(after, SCHEMAS["Frame"])
    assert sum(node["there"] for node in before["nodes"]) == 4
    assert sum(node["there"] for node in after["nodes"]) == 3, "the killed one is gone"
    assert all(edge["per_s"] for edge in after["edges"])
    kinds = {event["kind"] for event in reader.events(run["id"])}
    assert {"fault", "decision"} <= kinds


def test_a_page_beside_a_simulation_ends_with_it(tmp_path: Path) -> None:
    place = tmp_path / "sim.sqlite"
    simulated(place, "--page", "127.0.0.1:0", "--keep-page", "0")
    assert RunReader(place).runs()
