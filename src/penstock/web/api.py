"""The page, its JSON API, what is new as server-sent events, and Prometheus' metrics."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp

from penstock.common.errors import InvalidValue, PenstockError
from penstock.store.errors import StoreError
from penstock.store.prometheus import CONTENT_TYPE
from penstock.web import STATIC
from penstock.web.address import is_loopback
from penstock.web.guard import Guard
from penstock.web.openapi import schema
from penstock.web.reader import NoBatch, RunReader

#: Files that are served, and nothing else.
FILES = {"/": "index.html", "/app.js": "app.js", "/app.css": "app.css", "/icon.svg": "icon.svg"}

#: Seconds between two looks for what is new.
LOOK_S = 1.0

#: Parts of that time after which it is seen that the server ends.
SLICES = 10

#: Milliseconds until a browser that lost the connection asks again.
RETRY_MS = 2000

#: Digits of the largest batch number that is believed.
MOST_DIGITS = 18

#: Points of a series that may be asked for.
LEAST_POINTS, LARGEST_POINTS = 10, 5_000


def create_app(
    reader: RunReader,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    look_s: float = LOOK_S,
    ending: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """Make the ASGI application.

    Parameters
    ----------
    reader : RunReader
    host : str
        Name or address that it is bound to: says which Host headers are answered.
    token : str or None
        What readers must know; needed where others than this machine reach `host`.
    look_s : float
        Seconds between two looks for what is new.
    ending : callable
        Whether the server is to end, so that it says no more of what is new.
    """
    loopback = is_loopback(host)
    if not loopback and not token:
        raise InvalidValue("token", f"a page at {host}", "given: others reach that address", token)
    page = _Page(reader, look_s, ending)
    routes = [
        *(Route(path, _file(name)) for path, name in FILES.items()),
        Route("/metrics", page.metrics),
        Route("/api/openapi.json", page.openapi),
        Route("/api/runs", page.runs),
        Route("/api/runs/{run}", page.run),
        Route("/api/runs/{run}/series", page.series),
        Route("/api/runs/{run}/frame", page.frame),
        Route("/api/runs/{run}/events", page.events),
        Route("/api/runs/{run}/live", page.live),
    ]
    names = {"localhost", host} if loopback else {"localhost", host, socket.gethostname()}
    app = Starlette(routes=routes, exception_handlers={PenstockError: _told})
    return Guard(app, names, loopback=loopback, token=token)


def _file(name: str) -> Callable[[Request], Any]:
    async def answer(_: Request) -> Response:
        return FileResponse(STATIC / name)

    return answer


async def _told(_: Request, error: Exception) -> Response:
    """Say what is wrong with what was asked for."""
    code = 400 if isinstance(error, InvalidValue) else 404
    return JSONResponse({"error": str(error)}, code)


class _Page:
    """Answers from one reader."""

    def __init__(self, reader: RunReader, look_s: float, ending: Callable[[], bool]) -> None:
        self._reader, self._look_s, self._ending = reader, look_s, ending

    async def openapi(self, _: Request) -> Response:
        return JSONResponse(schema())

    async def metrics(self, _: Request) -> Response:
        text = await run_in_threadpool(self._reader.metrics)
        return PlainTextResponse(text, media_type=CONTENT_TYPE)

    async def runs(self, _: Request) -> Response:
        return JSONResponse({"runs": await run_in_threadpool(self._reader.runs)})

    async def run(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._reader.run, request.path_params["run"]))

    async def series(self, request: Request) -> Response:
        points = _whole(request, "points", 600)
        points = min(max(points, LEAST_POINTS), LARGEST_POINTS)
        since = _whole(request, "since", -1) if "since" in request.query_params else None
        run = request.path_params["run"]
        return JSONResponse(await run_in_threadpool(self._reader.series, run, points, since))

    async def frame(self, request: Request) -> Response:
        asked = request.query_params
        batch = _whole(request, "batch", 0) if "batch" in asked else None
        t = _number(request, "t") if "t" in asked else None
        run = request.path_params["run"]
        made = await run_in_threadpool(lambda: self._reader.frame(run, batch=batch, t=t))
        return JSONResponse(made)

    async def events(self, request: Request) -> Response:
        run = request.path_params["run"]
        return JSONResponse({"events": await run_in_threadpool(self._reader.events, run)})

    async def live(self, request: Request) -> Response:
        run = request.path_params["run"]
        await run_in_threadpool(self._reader.status, run)
        since = _whole(request, "since", -1)
        # A browser that lost the connection says how far it was told, and goes on from there.
        told = request.headers.get("last-event-id", "")
        if told.isascii() and told.isdecimal() and len(told) < MOST_DIGITS:
            since = max(since, int(told))
        kind, headers = "text/event-stream", {"x-accel-buffering": "no"}
        if request.method == "HEAD":
            return Response(media_type=kind, headers=headers)
        return StreamingResponse(self._news(run, since), media_type=kind, headers=headers)

    async def _news(self, run: str, since: int) -> AsyncIterator[str]:
        """Tell what is new, until the run is over or the server ends."""
        known: dict[int, dict[str, Any]] = {}
        yield f"retry: {RETRY_MS}\n\n"
        while True:
            try:
                news, since = await run_in_threadpool(self._new, run, since, known)
            except StoreError as error:
                yield f"event: trouble\ndata: {json.dumps({'error': str(error)})}\n\n"
                return
            if news:
                number = f"id: {since}\n" if since >= 0 else ""
                yield f"{number}data: {json.dumps(news)}\n\n"
            else:
                yield ": nothing new\n\n"
            if news and news["status"] != "running":
                return
            for _ in range(SLICES):
                if self._ending():
                    return
                await asyncio.sleep(self._look_s / SLICES)

    def _new(
        self, run: str, since: int, known: dict[int, dict[str, Any]]
    ) -> tuple[dict[str, Any] | None, int]:
        """Find the batches after one, the frame at the last, and events that are new or changed."""
        reader = self._reader
        status = reader.status(run)
        events = [event for event in reader.events(run) if known.get(event["number"]) != event]
        known.update({event["number"]: event for event in events})
        series = reader.series(run, since=since)
        frame = None
        if series.get("batch"):
            since = series["batch"][-1]
            try:
                frame = reader.frame(run)
            except NoBatch:
                frame = None
        if frame is None and not events and status == "running":
            return None, since
        return {"status": status, "series": series, "frame": frame, "events": events}, since


def _whole(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise InvalidValue(name, "the request", "a whole number", text) from None


def _number(request: Request, name: str) -> float:
    text = request.query_params[name]
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if found != found:
        raise InvalidValue(name, "the request", "a number of seconds", text)
    return found
