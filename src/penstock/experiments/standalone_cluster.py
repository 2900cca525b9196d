"""A standalone cluster on this machine: a master and workers, all processes of their own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import penstock
from penstock.model import PenstockError

#: Address that the cluster listens at.
HOST = "127.0.0.1"

#: Seconds for the master to come up, and for a process to end.
UP_S, END_S = 60.0, 10.0


@contextlib.contextmanager
def standalone(folder: Path, workers: int, memory_mb: int = 600) -> Iterator[str]:
    """Run a master and its workers for a ``with`` block; they are gone afterwards in any case.

    Parameters
    ----------
    folder : Path
        For their logs, and the working folders of the executors.
    workers : int
    memory_mb : int
        Of each worker, for its executors.

    Yields
    ------
    str
        The master's address.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PenstockError("there is no pyspark to take a standalone cluster from")
    home, port = Path(spec.origin).parent, _free_port()
    master = f"spark://{HOST}:{port}"
    worker = ("worker.Worker", "--cores", "1", "--memory", f"{memory_mb}m", "--work-dir")
    wanted = [
        ("master.Master", "--port", str(port)),
        *((*worker, f"{folder}/{number}", master) for number in range(workers)),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as undo:
        for number, (name, *options) in enumerate(wanted):
            log = undo.enter_context((folder / f"{number}.log").open("w"))
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
            command += ["--host", HOST, "--webui-port", "0", *options]
            # The script ends by becoming the JVM, so that its process is the one to stop.
            process = subprocess.Popen(command, env=_environment(home), stdout=log, stderr=log)
            undo.callback(_end, process)
            if number == 0:
                _await_port(port, process, Path(log.name))
        yield master


def _environment(home: Path) -> dict[str, str]:
    # Small heaps: nothing but book-keeping happens in these processes.
    return {k: v for k, v in os.environ.items() if not k.startswith("SPARK")} | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "PYTHONPATH": str(Path(penstock.__file__).parents[1]),
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + UP_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        time.sleep(0.1)
    raise PenstockError(f"the standalone master did not come up: {log.read_text()[-2000:]}")
