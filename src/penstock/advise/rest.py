"""Read an application from Spark's REST interface: that of a running one, or a history server's.

A history server hands out event logs, which are read as such. A running application tells of jobs,
stages, tasks and executors, and of no more: its answers are put into the form of events, so that
one parser reads both.
"""

from __future__ import annotations

import io
import json
import re
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from penstock.advise.application import Application
from penstock.advise.event_log import read_logs
from penstock.advise.fields import Record, inner, items, number, text, time_ms, whole
from penstock.advise.parse import BATCH, QUERY, RUN, STREAMING, application_of
from penstock.files import FileError

#: How long an answer may take.
TIMEOUT_S = 30.0

#: What Spark writes as the description of a streaming query's jobs.
DESCRIBED = re.compile(r"id = (\S+)\s+runId = (\S+)\s+batch = (\d+)")

#: An address that names an application already.
NAMED = re.compile(r"^(?P<base>.*?)/(?:api/v1/applications|history)/(?P<id>[^/]+)")

#: What a running application does not tell.
NOTE = (
    "a running application does not tell of offsets, planning, logs and state: for those, read its "
    "event log"
)

#: Answers of the interface: the path after the address of the application, and what it holds.
Get = Callable[[str], Any]


def is_address(path: str) -> bool:
    """Whether this is an address and not a file."""
    return path.startswith(("http://", "https://"))


def read_address(address: str) -> tuple[Application, ...]:
    """Read the application at an address, such as ``http://driver:4040``.

    Raises
    ------
    FileError
        When nothing answers there, when the answer is not Spark's, or when the address is that of
        several applications.
    """
    base = _application(address)
    logged = _logged(address, base)
    if logged is not None:
        return logged
    made = application_of(events(lambda path: _json(address, f"{base}/{path}")), address)
    return (made.noting((NOTE,)),)


def _application(address: str) -> str:
    """Return the address of one application in the interface."""
    plain = address.split("?")[0].split("#")[0].rstrip("/")
    if not urlsplit(plain).netloc:
        raise FileError(address, "is not an address such as http://driver:4040")
    named = NAMED.match(plain)
    if named:
        return f"{named['base']}/api/v1/applications/{named['id']}"
    listed = _json(address, f"{plain}/api/v1/applications")
    ids = (
        [text(a, "id") for a in listed if isinstance(a, Mapping)]
        if isinstance(listed, list)
        else []
    )
    if len(ids) != 1:
        few = ", ".join(ids[:5]) or "none"
        raise FileError(
            address,
            f"has {len(ids)} applications ({few}); name one as {plain}/api/v1/applications/ID",
        )
    return f"{plain}/api/v1/applications/{quote(ids[0])}"


def _logged(address: str, base: str) -> tuple[Application, ...] | None:
    """Read the event log that a history server has; None from a running application."""
    try:
        packed = zipfile.ZipFile(io.BytesIO(_get(address, f"{base}/logs")))
    except (FileError, zipfile.BadZipFile):
        return None
    names = [n for n in packed.namelist() if not n.endswith("/") and "appstatus_" not in n]
    if not names:
        return None
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            (Path(folder) / Path(name).name).write_bytes(packed.read(name))
        return tuple(replace(made, origin=address) for made in read_logs(folder))


def events(get: Get) -> Iterator[Record]:
    """Put the answers of a running application into the form of events.

    Parameters
    ----------
    get : callable
        Returns the answer to a path below the application's address, as plain values.
    """
    application = get("")
    attempts = tuple(items(application, "attempts"))
    yield {
        "Event": "SparkListenerLogStart",
        "Spark Version": text(attempts[0], "appSparkVersion") if attempts else "",
    }
    yield {
        "Event": "SparkListenerApplicationStart",
        "App ID": text(application, "id"),
        "App Name": text(application, "name"),
        "Timestamp": time_ms(attempts[0].get("startTime")) if attempts else None,
    }
    pairs = get("environment").get("sparkProperties")
    found = {p[0]: p[1] for p in pairs if len(p) == 2} if isinstance(pairs, list) else {}
    yield {"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": found}
    yield from _executors({"all": get("allexecutors")})
    stages = {"all": get("stages?details=true&status=complete")}
    yield from _stages(sorted(items(stages, "all"), key=lambda s: whole(s, "stageId")))
    yield from _progress({"all": get("jobs?status=succeeded")}, stages)


def _executors(answer: Record) -> Iterator[Record]:
    listed = list(items(answer, "all"))
    alone = len(listed) == 1  # in local mode the driver runs the tasks
    for executor in listed:
        if text(executor, "id") == "driver" and not alone:
            continue
        yield {
            "Event": "SparkListenerExecutorAdded",
            "Timestamp": time_ms(executor.get("addTime")),
            "Executor ID": text(executor, "id"),
            "Executor Info": {
                "Host": text(executor, "hostPort").split(":")[0],
                "Total Cores": whole(executor, "totalCores", 1),
            },
        }
        if executor.get("removeTime"):
            yield {
                "Event": "SparkListenerExecutorRemoved",
                "Timestamp": time_ms(executor.get("removeTime")),
                "Executor ID": text(executor, "id"),
            }


def _stages(stages: list[Record]) -> Iterator[Record]:
    wrote: dict[str, list[int]] = {}
    for stage in stages:
        described = DESCRIBED.search(text(stage, "description"))
        if described is None:
            yield {"Event": "SparkListenerStageSubmitted", "Stage Info": {}, "Properties": {}}
            continue
        query, run, batch = described.groups()
        reads = number(stage, "shuffleReadBytes") > 0
        # Which stage reads which is not told: one that reads a shuffle reads the last one written.
        before = wrote.setdefault(f"{run} {batch}", [])
        info = {
            "Stage ID": whole(stage, "stageId"),
            "Stage Attempt ID": whole(stage, "attemptId"),
            "Submission Time": time_ms(stage.get("submissionTime")),
            "Completion Time": time_ms(stage.get("completionTime")),
            "Parent IDs": before[-1:] if reads else [],
        }
        yield {
            "Event": "SparkListenerStageSubmitted",
            "Stage Info": info,
            "Properties": {QUERY: query, RUN: run, BATCH: batch},
        }
        for task in inner(stage, "tasks").values():
            if isinstance(task, Mapping) and text(task, "status") == "SUCCESS":
                yield _task(task, info)
        yield {"Event": "SparkListenerStageCompleted", "Stage Info": info}
        if number(stage, "shuffleWriteBytes") > 0:
            before.append(whole(stage, "stageId"))


def _task(task: Record, stage: Record) -> Record:
    metrics = inner(task, "taskMetrics")
    read, write = inner(metrics, "shuffleReadMetrics"), inner(metrics, "shuffleWriteMetrics")
    source = inner(metrics, "inputMetrics")
    start_ms = time_ms(task.get("launchTime")) or 0.0
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage["Stage ID"],
        "Stage Attempt ID": stage["Stage Attempt ID"],
        "Task End Reason": {"Reason": "Success"},
        "Task Info": {
            "Partition ID": whole(task, "partitionId", whole(task, "index")),
            "Executor ID": text(task, "executorId"),
            "Launch Time": start_ms,
            "Finish Time": start_ms + number(task, "duration"),
        },
        "Task Metrics": {
            "Executor Run Time": number(metrics, "executorRunTime"),
            "Executor CPU Time": number(metrics, "executorCpuTime"),
            "JVM GC Time": number(metrics, "jvmGcTime"),
            "Disk Bytes Spilled": number(metrics, "diskBytesSpilled"),
            "Input Metrics": {
                "Records Read": number(source, "recordsRead"),
                "Bytes Read": number(source, "bytesRead"),
            },
            "Shuffle Read Metrics": {
                "Fetch Wait Time": number(read, "fetchWaitTime"),
                "Total Records Read": number(read, "recordsRead"),
                "Remote Bytes Read": number(read, "remoteBytesRead"),
                "Local Bytes Read": number(read, "localBytesRead"),
            },
            "Shuffle Write Metrics": {
                "Shuffle Records Written": number(write, "recordsWritten"),
                "Shuffle Bytes Written": number(write, "bytesWritten"),
            },
        },
    }


def _progress(jobs: Record, stages: Record) -> Iterator[Record]:
    """Make a batch of the jobs that were run for it."""
    spans: dict[tuple[str, str, int], list[float]] = {}
    rows: dict[tuple[str, str, int], float] = {}
    for stage in items(stages, "all"):
        described = DESCRIBED.search(text(stage, "description"))
        if described:
            key = (described[1], described[2], int(described[3]))
            rows[key] = rows.get(key, 0.0) + number(stage, "inputRecords")
    for job in items(jobs, "all"):
        described = DESCRIBED.search(text(job, "description"))
        start, end = time_ms(job.get("submissionTime")), time_ms(job.get("completionTime"))
        if described and start is not None and end is not None:
            key = (described[1], described[2], int(described[3]))
            spans.setdefault(key, []).extend((start, end))
    for (query, run, batch), times in sorted(spans.items(), key=lambda item: min(item[1])):
        took_ms = max(times) - min(times)
        yield {
            "Event": f"{STREAMING}QueryProgressEvent",
            "progress": {
                "id": query,
                "runId": run,
                "batchId": batch,
                "timestamp": min(times),
                "durationMs": {"addBatch": took_ms, "triggerExecution": took_ms},
                "sources": [{"numInputRows": rows.get((query, run, batch), 0.0)}],
            },
        }


def _json(address: str, url: str) -> Any:
    data = _get(address, url)
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise FileError(address, "does not answer as Spark's REST interface does") from None


def _get(address: str, url: str) -> bytes:
    try:
        with urllib.request.urlopen(url.rstrip("/"), timeout=TIMEOUT_S) as answer:
            data: bytes = answer.read()
    except urllib.error.HTTPError as error:
        raise FileError(
            address, f"does not answer as Spark's REST interface does: {error.code} {error.reason}"
        ) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise FileError(
            address, f"cannot be read: {why}; is the application running, and its UI enabled?"
        ) from None
    return data
