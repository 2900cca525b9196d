"""The part of a traceback that is about the user's own code."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import penstock

#: A line of a traceback that names a file.
FRAME = re.compile(r'^(\s*)File "([^"]+)", line \d+')

#: Lines that Java adds.
JAVA = re.compile(
    r"^\s*(at [\w.$/]+\(|\.\.\. \d+ more|Caused by: |JVM stacktrace|Driver stacktrace)"
)

#: Folders whose frames say nothing about the user's code.
FOREIGN = (str(Path(penstock.__file__).parent), "/pyspark/", "/py4j/", "<frozen runpy>")


def users_part(error: BaseException) -> str:
    """Return a traceback without the frames of Penstock, PySpark and Java.

    What a Python worker of Spark reports, as text in the error, is kept likewise.

    Examples
    --------
    >>> try:
    ...     int("x")
    ... except ValueError as error:
    ...     print(users_part(error).splitlines()[-1])
    ValueError: invalid literal for int() with base 10: 'x'
    """
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__, chain=False))
    return only_own(text)


def only_own(text: str) -> str:
    """Leave out frames and lines that are not the user's.

    Examples
    --------
    >>> spark, mine = '  File "/x/pyspark/worker.py", line 1', '  File "/home/me/job.py", line 7'
    >>> lines = ["Traceback:", spark, "    f()", mine, "    1 / 0", "ZeroDivisionError", "  at A("]
    >>> print(only_own(chr(10).join(lines)))
    Traceback:
      File "/home/me/job.py", line 7
        1 / 0
    ZeroDivisionError
    """
    kept: list[str] = []
    indent: int | None = None  # of a frame that is left out, with the lines below it
    for line in text.splitlines():
        if JAVA.match(line):
            continue
        frame = FRAME.match(line)
        if frame is not None:
            foreign = any(part in frame[2] for part in FOREIGN)
            indent = len(frame[1]) if foreign else None
        elif indent is not None and len(line) - len(line.lstrip()) <= indent:
            indent = None
        if indent is None and (line.strip() or (kept and kept[-1].strip())):
            kept.append(line)
    return "\n".join(kept).rstrip()
