"""The engine on a standalone master with two workers, all processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pyspark = pytest.importorskip("pyspark")

WORKERS = 2
HOST = "127.0.0.1"

pytestmark = pytest.mark.spark


def test_a_plan_is_honoured_on_a_standalone_master(tmp_path: Path) -> None:
    with standalone(tmp_path) as master:
        checks = "tests.runtimes.cluster_checks"
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                checks,
                "pinned",
                "--master",
                master,
                "--executors",
                str(WORKERS),
            ],
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
            cwd=Path(__file__).parents[2],
            env={k: v for k, v in os.environ.items() if not k.startswith("SPARK")},
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout[-3000:] + done.stderr[-6000:]
    found = json.loads(lines[-1].removeprefix("RESULT "))["pinned"]
    assert all(found["equal"].values())
    assert found["honoured"] == found["tasks"] > 0
    assert len(found["executors"]) == WORKERS
    # Both executors are on one host, so Spark reads the other's blocks from its disk and calls them
    # local. Each stands for a node: they crossed nodes.
    assert found["near_bytes"] > 0
    assert found["remote_bytes"] > 0
    assert found["local_bytes"] > 0
    assert (found["lost"], found["duplicated"]) == (0, 0)


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """Run a master and its workers for a ``with`` block; they are gone afterwards in any case."""
    home = Path(pyspark.__file__).parent
    port = _free_port()
    master = f"spark://{HOST}:{port}"
    # Small heaps: nothing but book-keeping happens in these processes.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SPARK")} | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    wanted = [
        ("master.Master", "--port", str(port)),
        *(
            ("worker.Worker", "--cores", "1", "--memory", "600m", "--work-dir", f"{folder}/{i}")
            for i in range(WORKERS)
        ),
    ]
    with contextlib.ExitStack() as undo:
        for number, (name, *options) in enumerate(wanted):
            log = undo.enter_context((folder / f"{number}.log").open("w"))
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
            command += ["--host", HOST, "--webui-port", "0", *options]
            command += [master] if number else []
            # The script ends by becoming the JVM, so that its process is the one to stop.
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            undo.callback(_end, process)
            if number == 0:
                _await_port(port, process, Path(log.name))
        yield master


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        time.sleep(0.1)
    pytest.fail(f"the master did not come up: {log.read_text()[-2000:]}")
