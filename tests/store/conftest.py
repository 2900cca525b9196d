"""A PostgreSQL server of the tests' own: started once, in a temporary folder, and stopped."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest

from penstock.store import MetricsStore
from penstock.testing.metrics_examples import Opener

REQUIRED = "PENSTOCK_REQUIRE_POSTGRES"

#: Seconds for each step: making the cluster, the first answer, the stop.
PATIENCE_S = 60


def binaries() -> Path | None:
    """Folder of the newest server that is installed."""
    found = [p.parent for p in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    on_path = shutil.which("postgres")
    if on_path:
        found.append(Path(on_path).resolve().parent)
    found += [Path("/opt/homebrew/bin"), Path("/usr/local/pgsql/bin")]
    usable = [f for f in found if (f / "postgres").exists() and (f / "initdb").exists()]
    return max(usable, key=_version, default=None)


def _version(folder: Path) -> list[int]:
    return [int(part) for part in folder.parent.name.split(".") if part.isdigit()]


def unprivileged() -> str | None:
    """Return the user that the server runs as: it refuses root. None is who runs the tests."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise LookupError("there is no user to run a server as")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def skip_or_fail(reason: str) -> None:
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{REQUIRED}=1, but {reason}", pytrace=False)
    pytest.skip(reason)


def started(folder: Path, server: Path, user: str | None) -> tuple[subprocess.Popen[bytes], str]:
    """Make a cluster, start a server on it, and wait for its first answer."""
    import psycopg

    data, log = folder / "data", folder / "log"
    own = {"user": user, "extra_groups": []} if user else {}
    quiet = {"stdin": subprocess.DEVNULL, "cwd": folder, "env": {"LC_ALL": "C", "PATH": os.defpath}}
    subprocess.run(
        [server / "initdb", "-D", data, "-U", "penstock", "-A", "trust", "-E", "UTF8", "--no-sync"],
        check=True,
        timeout=PATIENCE_S,
        capture_output=True,
        **own,  # type: ignore[call-overload]
        **quiet,
    )
    problem: object = None
    for _ in range(3):  # another process may take the port before the server does
        port = free_port()
        settings = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": folder,
            "fsync": "off",
            "shared_buffers": "16MB",
            "max_connections": 30,
        }
        options = [f"--{key}={value}" for key, value in settings.items()]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [server / "postgres", "-D", data, *options],
                stdout=output,
                stderr=output,
                **own,  # type: ignore[call-overload]
                **quiet,
            )
        url = f"postgresql://penstock@127.0.0.1:{port}/postgres"
        until = time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < until:
            try:
                psycopg.connect(url, connect_timeout=2).close()
            except psycopg.Error as error:
                problem = error
                time.sleep(0.1)
            else:
                return process, url
        stop(process)
    raise RuntimeError(f"no answer: {problem}; the server said {log.read_text()[-2000:]}")


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)  # ends the sessions, then the server
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of a server that only these tests use."""
    if importlib.util.find_spec("psycopg") is None:
        skip_or_fail("the PostgreSQL driver is not installed (pip install 'penstock[postgres]')")
    server = binaries()
    if server is None:
        skip_or_fail("no PostgreSQL server is installed (apt install postgresql)")
    assert server is not None
    user = unprivileged()
    # Not pytest's folder: its parents are closed to the user that the server runs as.
    folder = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
    process: subprocess.Popen[bytes] | None = None
    try:
        if user:
            shutil.chown(folder, user)
        process, url = started(folder, server, user)
        yield url
    finally:
        if process is not None:
            stop(process)
        shutil.rmtree(folder, ignore_errors=True)


_numbers = count()


@pytest.fixture
def schema_url(postgres_url: str) -> str:
    """URL of an empty schema on the server."""
    import psycopg

    name = f"s{next(_numbers)}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{postgres_url}?options={quote(f'-csearch_path={name}')}"


@pytest.fixture(params=["sqlite", "postgresql"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Open one and the same database, empty at first."""
    if request.param == "sqlite":
        return partial(MetricsStore.open, tmp_path / "metrics.db")
    return partial(MetricsStore.open, request.getfixturevalue("schema_url"))


@pytest.fixture
def run_as_nobody() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Give up the rights of root for a while, so that permissions of files count."""

    @contextlib.contextmanager
    def changed() -> Iterator[None]:
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
        try:
            yield
        finally:
            os.seteuid(0)

    return changed
