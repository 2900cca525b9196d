"""Logs are found, read line by line, and refused in one sentence."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.advise import Application, advise, read_logs
from penstock.advise.event_log import Counts, EventLog, find_logs, read_log, records
from penstock.advise.parse import STREAMING, application_of
from penstock.advise.what_if import elastic_of
from penstock.advise.workload import recorded
from penstock.files import FileError
from penstock.model import Refused

LOGS = Path(__file__).parents[1] / "data" / "event_logs"
START = '{"Event":"SparkListenerLogStart","Spark Version":"4.3.0"}\n'


def lines_of(name: str) -> list[dict[str, Any]]:
    (log,) = find_logs(LOGS / name)
    return list(records(log, Counts()))


SOURCE_LOG = lines_of("eventlog_v2_source")


def written(folder: Path, text: str) -> Path:
    file = folder / "log"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_folder_gives_every_application_once() -> None:
    found = read_logs(LOGS)
    assert sorted(a.name for a in found) == [
        "batch",
        "commit",
        "idle",
        "partitions",
        "skew",
        "source",
    ]
    assert all(len(a.queries) == 1 for a in found if a.name != "batch")


def test_a_rolling_log_is_read_in_the_order_of_its_parts() -> None:
    (application,) = read_logs(LOGS / "eventlog_v2_source")
    (query,) = application.queries
    assert [b.id for b in query.batches] == list(range(len(query.batches)))
    assert len(query.batches) >= 10
    assert {s.batch for s in query.stages} >= {b.id for b in query.batches}


def test_a_compacted_part_stands_for_those_before_it(tmp_path: Path) -> None:
    for name in ("events_1_app", "events_2_app", "events_2_app.compact", "events_10_app"):
        (tmp_path / name).write_text(START, encoding="utf-8")
    (log,) = find_logs(tmp_path)
    assert [f.name for f in log.files] == ["events_2_app.compact", "events_10_app"]


def test_a_folder_leaves_out_what_is_no_log(tmp_path: Path) -> None:
    shutil.copy(LOGS / "skew.zstd", tmp_path)
    (tmp_path / "readme.txt").write_text("hello\n", encoding="utf-8")
    (tmp_path / ".crc").write_bytes(b"x")
    assert [a.name for a in read_logs(tmp_path)] == ["skew"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("hello\n", "first line is not JSON"),
        ("hello", "first line is not JSON"),
        ('{"Event":', "first line is not JSON"),
        ("[1]\n", "first line is not JSON"),
        ('{"a": 1}\n', "first line is not an event"),
    ],
)
def test_what_is_no_event_log_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(FileError, match=why):
        read_logs(written(tmp_path, text))


def test_a_path_that_is_not_there_is_refused_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "app-1.zstd").touch()
    with pytest.raises(FileError, match=r"does not exist; did you mean 'app-1.zstd'\?"):
        read_logs(tmp_path / "app-2.zstd")


def test_a_folder_without_logs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="without event logs"):
        read_logs(tmp_path)
    (tmp_path / "a").write_text("hello\n", encoding="utf-8")
    (tmp_path / "b").write_text("hello\n", encoding="utf-8")
    with pytest.raises(FileError, match="holds no event log of Spark"):
        read_logs(tmp_path)


def test_a_torn_last_line_is_told_of(tmp_path: Path) -> None:
    (made,) = read_logs(written(tmp_path, START + '{"Event":"SparkListenerAppl'))
    assert made.spark == "4.3.0"
    assert any("middle of a line" in note for note in made.notes)


def test_a_last_line_without_its_end_is_read(tmp_path: Path) -> None:
    line = '{"Event":"SparkListenerApplicationStart","App Name":"words","App ID":"a"}'
    (made,) = read_logs(written(tmp_path, START + line))
    assert (made.name, made.notes) == ("words", ())


def test_broken_lines_and_unknown_events_are_counted(tmp_path: Path) -> None:
    file = written(tmp_path, START + '{"Event":"New"}\nbroken\n{"Event" : "New", "a": 1}\n[]\n')
    counts = Counts()
    assert len(list(records(EventLog("log", (file,)), counts))) == 1
    assert (counts.skipped["New"], counts.broken, counts.torn) == (2, 2, False)
    assert "2 lines" in read_log(EventLog("log", (file,))).notes[0]


def test_a_restart_in_one_application_is_a_second_run() -> None:
    again = [json.loads(json.dumps(e).replace(_run(SOURCE_LOG), "another")) for e in SOURCE_LOG]
    made = application_of([*SOURCE_LOG, *again], "log")
    assert len(made.queries) == 2
    assert made.queries[0].id == made.queries[1].id


def _run(events: list[dict[str, Any]]) -> str:
    started = next(e for e in events if e["Event"] == f"{STREAMING}QueryStartedEvent")
    return str(started["runId"])


@pytest.mark.slow
@given(st.data())
def test_any_part_of_a_log_can_be_read(data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.sampled_from(range(len(SOURCE_LOG))), max_size=80))
    advise(application_of([SOURCE_LOG[i] for i in sorted(kept)], "log"))


#: What a field may hold instead of what it should.
JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**70,
    -(2**70),
    1e300,
    float("nan"),
    float("inf"),
    "",
    "x",
    [],
    {},
    [{}],
)


def spoiled(value: Any, draw: random.Random) -> Any:
    """Take a field out of one record in ten, or put something odd in its place."""
    if isinstance(value, dict):
        made = {key: spoiled(inner, draw) for key, inner in value.items()}
        names = [key for key in made if key != "Event"]
        if names and draw.random() < 0.1:
            name = draw.choice(names)
            if draw.random() < 0.5:
                del made[name]
            else:
                made[name] = draw.choice(JUNK)
        return made
    return [spoiled(inner, draw) for inner in value] if isinstance(value, list) else value


@pytest.mark.slow
@given(st.integers(0, 2**32))
def test_missing_and_odd_fields_do_no_harm(seed: int) -> None:
    draw = random.Random(seed)
    events = [*SOURCE_LOG[:8], *(spoiled(event, draw) for event in SOURCE_LOG[8:])]
    made = application_of(events, "log")
    assert isinstance(made, Application)
    json.dumps(advise(made).to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("seconds", "cycle_s", "said"),
    [(3.2e9, 5.0, "days"), (86_400.0, 0.1, "batches in 1.0 days"), (1.0, 1e9, "less than one")],
)
def test_times_beyond_reason_are_not_simulated(seconds: float, cycle_s: float, said: str) -> None:
    made = application_of(SOURCE_LOG, "log")
    work = recorded(made)
    assert work is not None
    with pytest.raises(Refused, match=said):
        elastic_of(made, replace(work, seconds=seconds, cycle_s=cycle_s))
