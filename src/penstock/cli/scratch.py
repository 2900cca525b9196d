"""A folder for everything temporary of a command, removed with the command."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Characters of a temporary folder from which on sockets in it, of at most 107, would not fit.
LONG = 40


@contextmanager
def scratch() -> Iterator[Path]:
    """Let this process and those it starts put temporary files into one folder, and remove it.

    Spark, its workers and the Java libraries that unpack themselves leave files of many names
    behind, above all when they are killed: all of them honour one of these variables.
    """
    parent = tempfile.gettempdir()
    folder = Path(
        tempfile.mkdtemp(prefix="penstock-", dir=parent if len(parent) <= LONG else "/tmp")
    )
    java = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Djava.io.tmpdir={folder}".strip()
    changed = {
        "TMPDIR": str(folder),
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_SUBMIT_OPTS": java,
    }
    # SPARK_HOME may be set to a folder in here meanwhile.
    before = {name: os.environ.get(name) for name in (*changed, "SPARK_HOME")}
    cached = tempfile.tempdir
    os.environ.update(changed)
    tempfile.tempdir = None
    try:
        yield folder
    finally:
        tempfile.tempdir = cached
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)
