"""The schema of the API, for scripts: OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import penstock

NUMBER: dict[str, Any] = {"type": "number"}
WHOLE: dict[str, Any] = {"type": "integer"}
TEXT: dict[str, Any] = {"type": "string"}
TRUTH: dict[str, Any] = {"type": "boolean"}
ANY: dict[str, Any] = {"type": "object"}


def _maybe(of: Mapping[str, Any]) -> dict[str, Any]:
    return {**of, "type": [of["type"], "null"]}


def _list(of: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": dict(of)}


def _by_name(of: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": dict(of)}


def _object(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": sorted(properties),
        "properties": dict(properties),
        "additionalProperties": False,
    }


RUN = {
    "id": TEXT,
    "topology": TEXT,
    "strategy": TEXT,
    "status": {"type": "string", "enum": ["running", "finished", "stopped", "failed"]},
    "started_at_s": NUMBER,
    "ended_at_s": _maybe(NUMBER),
    "rows_lost": _maybe(WHOLE),
    "rows_duplicated": _maybe(WHOLE),
    "virtual_time": TRUTH,
}

#: Columns of a series that are always there when it has a row.
COLUMNS = {
    "t": NUMBER,
    "batch": WHOLE,
    "offered_per_s": _maybe(NUMBER),
    "processed_per_s": _maybe(NUMBER),
    "written_per_s": _maybe(NUMBER),
    "late_per_s": _maybe(NUMBER),
    "dropped_per_s": _maybe(NUMBER),
    "p50_ms": _maybe(NUMBER),
    "p95_ms": _maybe(NUMBER),
    "p99_ms": _maybe(NUMBER),
    "queue": WHOLE,
    "nodes": WHOLE,
    "batch_ms": NUMBER,
    "remote_share": _maybe(NUMBER),
    "lin": _maybe(NUMBER),
}

SERIES = {
    "type": "object",
    "required": ["lit", "phases"],
    "properties": {
        **{name: _list(of) for name, of in COLUMNS.items()},
        "lit": _by_name(_list(_maybe(NUMBER))),
        "phases": _by_name(_list(_maybe(NUMBER))),
    },
    "additionalProperties": False,
}

NODE = _object(
    name=TEXT,
    number=WHOLE,
    there=TRUTH,
    kept=TRUTH,
    instances=WHOLE,
    cpu=_maybe(NUMBER),
    mem=_maybe(NUMBER),
    planned=_maybe(NUMBER),
    executors=_list(TEXT),
)

HOT_KEY = _object(hash=TEXT, name=_maybe(TEXT), share=_maybe(NUMBER), split=_list(WHOLE))

STATE = _object(
    size_bytes=WHOLE, data=WHOLE, parity=WHOLE, fragments=_list(TEXT), on_driver_bytes=WHOLE
)

OPERATOR = _object(
    name=TEXT,
    kind=TEXT,
    layer=WHOLE,
    parallelism=WHOLE,
    in_per_s=NUMBER,
    out_per_s=NUMBER,
    lit=_maybe(NUMBER),
    late_rows=WHOLE,
    watermark_s=_maybe(NUMBER),
    node=_list(WHOLE),
    executor=_list(TEXT),
    rate=_list(NUMBER),
    cores=_list(NUMBER),
    busy=_list(NUMBER),
    state=_list(STATE),
    state_bytes=_maybe(WHOLE),
    hot_keys=_list(HOT_KEY),
    split=_list(_object(hash=TEXT, name=_maybe(TEXT), instances=_list(WHOLE))),
)

EDGE = _object(
    source=TEXT,
    target=TEXT,
    grouping=TEXT,
    per_s=_maybe(NUMBER),
    remote_share=_maybe(NUMBER),
)

PLAN = _object(
    from_batch=WHOLE,
    strategy=TEXT,
    feasible=TRUTH,
    breaks=_list(TEXT),
    reasons=_list(TEXT),
    cut_share=NUMBER,
    nodes_used=WHOLE,
)

FRAME = _object(
    batch=WHOLE,
    t=NUMBER,
    detailed=TRUTH,
    nodes=_list(NODE),
    operators=_list(OPERATOR),
    edges=_list(EDGE),
    plan=_maybe(PLAN),
    queue=WHOLE,
    batch_ms=NUMBER,
    lin=_maybe(NUMBER),
    figures=_by_name(NUMBER),
)

EVENT = _object(
    number=WHOLE,
    kind=TEXT,
    t=NUMBER,
    batch=_maybe(WHOLE),
    text=TEXT,
    status=_maybe(TEXT),
    explanation=_maybe(TEXT),
    decision=_maybe(ANY),
)

SCHEMAS: dict[str, dict[str, Any]] = {
    "Runs": _object(runs=_list(_object(**RUN))),
    "Run": _object(
        **RUN,
        config=ANY,
        summary=ANY,
        first_batch=_maybe(WHOLE),
        last_batch=_maybe(WHOLE),
        plans=_list(WHOLE),
    ),
    "Series": SERIES,
    "Frame": FRAME,
    "Events": _object(events=_list(EVENT)),
    "News": _object(status=TEXT, series=SERIES, frame=_maybe(FRAME), events=_list(EVENT)),
    "Error": _object(error=TEXT),
}


def schema() -> dict[str, Any]:
    """Describe the API.

    Examples
    --------
    >>> sorted(schema()["paths"])[0]
    '/api/runs'
    """
    of_run = [{"name": "run", "in": "path", "required": True, "schema": TEXT}]

    def asked(name: str, of: Mapping[str, Any], text: str) -> dict[str, Any]:
        return {"name": name, "in": "query", "schema": dict(of), "description": text}

    points = asked("points", WHOLE, "Rows at the most; each is of an equally long time.")
    after = asked("since", WHOLE, "Only batches after this one, each by itself.")
    batch = asked("batch", WHOLE, "The first batch of at least this number; default: the last.")
    told = {
        "name": "Last-Event-ID",
        "in": "header",
        "schema": WHOLE,
        "description": "The last batch that was told, as browsers send it when they ask again.",
    }
    at = asked("t", NUMBER, "The first batch that ended at this second or later.")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": penstock.__version__,
            "description": "What runs, where, and why. Read only; times in seconds.",
        },
        "paths": {
            "/api/runs": _get("Runs of the store, the newest first.", "Runs"),
            "/api/runs/{run}": _get("One run as a whole.", "Run", of_run),
            "/api/runs/{run}/series": _get(
                "A run over time, as columns.", "Series", [*of_run, points, after]
            ),
            "/api/runs/{run}/frame": _get(
                "Operators, edges and nodes at one batch.", "Frame", [*of_run, batch, at]
            ),
            "/api/runs/{run}/events": _get(
                "What happened; decisions with their explanations.", "Events", of_run
            ),
            "/api/runs/{run}/live": _get(
                "What is new, as server-sent events whose ids are batches.",
                "News",
                [*of_run, after, told],
                "text/event-stream",
            ),
            "/metrics": _get("The latest runs, for Prometheus.", None, media="text/plain"),
        },
        "components": {"schemas": SCHEMAS},
    }


def _get(
    text: str,
    answer: str | None,
    parameters: list[dict[str, Any]] | None = None,
    media: str = "application/json",
) -> dict[str, Any]:
    content: dict[str, Any] = {media: {"schema": TEXT}}
    if answer is not None:
        content = {media: {"schema": {"$ref": f"#/components/schemas/{answer}"}}}
    wrong = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        "get": {
            "summary": text,
            "parameters": parameters or [],
            "responses": {
                "200": {"description": "Fine.", "content": content},
                "400": {"description": "What was asked for makes no sense.", "content": wrong},
                "404": {"description": "There is no such run, or no store.", "content": wrong},
            },
        }
    }
