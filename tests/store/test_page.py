"""The page of runs on a PostgreSQL server is the page of the same runs in a file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from penstock.testing.page_store import fill_store
from penstock.web.reader import RunReader

#: What the page asks for.
ASKED: tuple[Callable[[RunReader], Any], ...] = (
    lambda reader: reader.runs(),
    lambda reader: reader.run("r1"),
    lambda reader: reader.series("r1"),
    lambda reader: reader.series("r1", since=4),
    lambda reader: reader.frame("r1"),
    lambda reader: reader.frame("r1", t=2.0),
    lambda reader: reader.events("r1"),
    lambda reader: reader.metrics(),
)


def test_a_server_is_read_as_a_file_is(schema_url: str, tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    for one in (place, schema_url):
        fill_store(one, parallelism=3, nodes=2)
    with closing(RunReader(place)) as file, closing(RunReader(schema_url)) as server:
        for ask in ASKED:
            assert ask(server) == ask(file)
