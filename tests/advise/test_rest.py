"""A running application and a history server are read by their addresses."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.advise import advise, read_address
from penstock.files import FileError

LOGS = Path(__file__).parents[1] / "data" / "event_logs"
API = "/api/v1/applications"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@contextmanager
def serving(answers: dict[str, bytes]) -> Iterator[str]:
    """Answer at an address with what is given, by path, and 404 to all else."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path)
            self.send_response(200 if answer is not None else 404)
            self.end_headers()
            self.wfile.write(answer or b"no such thing")

        def log_message(self, format: str, *args: Any) -> None:
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def at(ms: float) -> str:
    minutes, rest = divmod(ms / 1e3, 60)
    return f"2026-01-01T10:{minutes:02.0f}:{rest:06.3f}GMT"


def stage(number: int, batch: int, start_ms: float, took_ms: list[float]) -> dict[str, Any]:
    reads = number % 2 == 1
    return {
        "status": "COMPLETE",
        "stageId": number,
        "attemptId": 0,
        "submissionTime": at(start_ms),
        "completionTime": at(start_ms + max(took_ms)),
        "description": f"\nid = query\nrunId = run\nbatch = {batch}",
        "inputRecords": 0 if reads else 1000,
        "shuffleReadBytes": 100 if reads else 0,
        "shuffleWriteBytes": 0 if reads else 100,
        "tasks": {
            str(100 * number + i): {
                "partitionId": i,
                "launchTime": at(start_ms),
                "duration": took,
                "executorId": str(i % 2),
                "status": "SUCCESS",
                "taskMetrics": {
                    "executorRunTime": took,
                    "executorCpuTime": took * 9e5,
                    "inputMetrics": {"recordsRead": 0 if reads else 500},
                    "shuffleReadMetrics": {"recordsRead": 10 * took if reads else 0},
                },
            }
            for i, took in enumerate(took_ms)
        },
    }


def running() -> dict[str, bytes]:
    """Answers of an application whose first state partition has most to do."""
    stages, jobs = [], []
    for batch in range(8):
        start = batch * 1000.0
        stages.append(stage(2 * batch, batch, start, [50, 50]))
        stages.append(stage(2 * batch + 1, batch, start + 60, [800, 50, 50, 50]))
        jobs.append(
            {
                "description": f"\nid = query\nrunId = run\nbatch = {batch}",
                "submissionTime": at(start),
                "completionTime": at(start + 900),
            }
        )
    executors = [
        {"id": name, "hostPort": f"host-{name}:1", "totalCores": 2, "addTime": at(0)}
        for name in ("driver", "0", "1")
    ]
    about = {"id": "app-1", "name": "words", "attempts": [{"appSparkVersion": "4.3.0"}]}
    values = {
        "": [about],
        "/app-1": about,
        "/app-1/environment": {"sparkProperties": [["spark.executor.memory", "2g"]]},
        "/app-1/allexecutors": executors,
        "/app-1/stages?details=true&status=complete": stages[::-1],
        "/app-1/jobs?status=succeeded": jobs[::-1],
    }
    return {API + path: json.dumps(value).encode() for path, value in values.items()}


def test_a_running_application_is_read() -> None:
    with serving(running()) as address:
        (application,) = read_address(address)
    assert (application.name, application.spark, application.origin) == ("words", "4.3.0", address)
    assert [e.id for e in application.executors] == ["0", "1"]
    (query,) = application.queries
    assert [b.rows for b in query.batches] == [1000.0] * 8
    assert [s.parents for s in query.stages[:2]] == [(), (0,)]
    assert any("does not tell" in note for note in application.notes)
    assert advise(application).queries[0].findings[0].rule == "skew"


def test_an_address_may_name_the_application() -> None:
    with serving(running()) as address:
        (application,) = read_address(f"{address}{API}/app-1/")
    assert application.id == "app-1"


@pytest.mark.parametrize("name", ["skew.zstd", "eventlog_v2_source"])
def test_a_history_server_hands_out_the_event_log(name: str) -> None:
    packed = io.BytesIO()
    place = LOGS / name
    with zipfile.ZipFile(packed, "w") as archive:
        for file in place.iterdir() if place.is_dir() else [place]:
            archive.write(file, f"{name}/{file.name}" if place.is_dir() else file.name)
    with serving({f"{API}/app-1/logs": packed.getvalue()}) as address:
        (application,) = read_address(f"{address}/history/app-1/jobs/")
        assert application.origin == f"{address}/history/app-1/jobs/"
    assert len(application.queries[0].batches) >= 10


def test_several_applications_are_refused_with_their_ids() -> None:
    two = json.dumps([{"id": "app-1"}, {"id": "app-2"}]).encode()
    with (
        serving({API: two}) as address,
        pytest.raises(FileError, match=r"has 2 applications \(app-1, app-2\); name one as"),
    ):
        read_address(address)


@pytest.mark.parametrize("answer", [None, b"<html>"])
def test_something_else_at_the_address_is_refused(answer: bytes | None) -> None:
    answers = {API: answer} if answer is not None else {}
    with (
        serving(answers) as address,
        pytest.raises(FileError, match="does not answer as Spark's REST interface does"),
    ):
        read_address(address)


def test_nothing_at_the_address_is_refused() -> None:
    with serving({}) as address:
        pass
    with pytest.raises(FileError, match="is the application running"):
        read_address(address)
    with pytest.raises(FileError, match="is not an address"):
        read_address("http://")


LIVE = """
import json, sys, time
from penstock.advise import advise, read_address
from penstock.runtimes.spark.session import cluster

conf = {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.sql.shuffle.partitions": "2"}
with cluster("local[2]", conf=conf) as spark:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    writer = rows.groupBy("value").count().writeStream.format("noop").outputMode("update")
    query = writer.option("checkpointLocation", sys.argv[1]).start()
    while query.lastProgress is None or query.lastProgress["batchId"] < 5:
        time.sleep(0.1)
    (application,) = read_address(spark.sparkContext.uiWebUrl)
    query.stop()
print(json.dumps({"run": str(query.runId), **advise(application).to_dict()}))
"""


@pytest.mark.spark
def test_a_live_query_is_read(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIVE, str(tmp_path)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    (query,) = found["queries"]
    assert query["run_id"] == found["run"]
    assert query["batches"] >= 4
    assert query["cores"] == 2
    assert query["rows_per_s"] > 0
