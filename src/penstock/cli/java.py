"""Whether Java and PySpark are there, told before Spark fails in its own words."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.model import PenstockError

#: Oldest release that Spark 4.3 runs on.
LEAST = 17

_ADVICE = (
    f"Spark needs Java {LEAST} or newer. On Debian or Ubuntu: apt install openjdk-17-jre-headless; "
    "on macOS: brew install openjdk@17. Then put its 'java' on the PATH or set JAVA_HOME"
)


def require_java() -> None:
    """Raise with advice unless Java is there and new enough."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if command is None:
        raise PenstockError(f"Java was not found. {_ADVICE}")
    try:
        told = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=30, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise PenstockError(f"{command} does not run ({error}). {_ADVICE}") from None
    version = version_of(told)
    if version is None or version < LEAST:
        raise PenstockError(f"{command} is Java {version or 'of an unknown version'}. {_ADVICE}")


@contextmanager
def pyspark_needed() -> Iterator[None]:
    """Say how to install PySpark if what is imported here finds it missing."""
    try:
        yield
    except ImportError as error:
        raise PenstockError(
            f"PySpark is missing ({error}); install it with: pip install 'penstock[spark]'"
        ) from None


def version_of(told: str) -> int | None:
    """Read the release from what ``java -version`` prints.

    Examples
    --------
    >>> version_of('openjdk version "17.0.15" 2025-04-15'), version_of('java version "1.8.0_371"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else None
