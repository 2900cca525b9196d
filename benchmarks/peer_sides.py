"""The sides of ``benchmarks/peers.py``: how each is installed, set up and started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

from penstock.testing.kafka_broker import CONNECTOR
from penstock.testing.maven import Artifact, NotResolved, cache_folder, jars

JOBS = Path(__file__).parent / "peer_jobs"

#: What is installed, by name and version: the newest that could be had and fit together.
BYTEWAX = ("bytewax==0.21.1", "confluent-kafka>=2.6")
FLINK = ("apache-flink==2.3.0",)
FLINK_JARS: tuple[Artifact, ...] = (
    ("org.apache.flink", "flink-connector-kafka", "5.0.0-2.2"),
    ("org.apache.flink", "flink-connector-base", "2.2.0"),
    ("org.apache.kafka", "kafka-clients", "4.1.0"),
)
STORM_JARS: tuple[Artifact, ...] = (
    ("org.apache.storm", "storm-server", "2.8.3"),
    ("org.apache.storm", "storm-client", "2.8.3"),
    ("org.apache.storm", "storm-kafka-client", "2.8.3"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
)
#: Seconds for an environment to be installed, and for a side to end.
INSTALL_S, STOP_S = 1200.0, 10.0


class Failed(Exception):
    """A side could not be installed or run; says why."""


Place = tuple[str, str, str, str, Path]
Commands = Callable[[Place], list[list[str]]]


@dataclass(frozen=True)
class Side:
    """One system in one set-up: the commands of its processes, and what is set for them."""

    commands: Commands
    env: Callable[[Place], dict[str, str]] = field(default=lambda place: {})


@dataclass(eq=False)
class Running:
    """The processes of a side."""

    processes: list[subprocess.Popen[bytes]]
    log: Path
    _used: dict[tuple[int, float], float] = field(default_factory=dict)

    def cpu_s(self) -> float:
        """Seconds of CPU that all its processes used, those that have ended as far as was seen."""
        for process in self.processes:
            with suppress(psutil.NoSuchProcess):
                root = psutil.Process(process.pid)
                for one in [root, *root.children(recursive=True)]:
                    with suppress(psutil.NoSuchProcess):
                        times = one.cpu_times()
                        self._used[one.pid, one.create_time()] = times.user + times.system
        return sum(self._used.values())

    def check(self) -> None:
        """Raise if one of its processes has ended."""
        for process in self.processes:
            if process.poll() is not None:
                said = self.log.read_text(errors="replace")
                telling = [line for line in said.splitlines() if "Error" in line or "Exc" in line]
                raise Failed(" | ".join(telling[-3:])[-700:] or said[-700:])


@contextmanager
def started(
    side: Side, servers: str, into: str, out: str, workload: str, folder: Path
) -> Iterator[Running]:
    """Start a side in a folder of its own, and end it, whatever happens."""
    place = (servers, into, out, workload, folder)
    try:
        commands, more = side.commands(place), side.env(place)
    except (NotResolved, subprocess.SubprocessError) as error:
        raise Failed(f"not installed: {error}") from error
    log = folder / "log.txt"
    running = Running([], log)
    try:
        with log.open("wb") as output:
            for command in commands:
                running.processes.append(
                    subprocess.Popen(
                        command,
                        cwd=folder,
                        stdout=output,
                        stderr=output,
                        stdin=subprocess.DEVNULL,
                        env={**os.environ, **more},
                        start_new_session=True,
                    )
                )
        yield running
    finally:
        for process in running.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_S)


def environment(name: str, packages: Sequence[str]) -> str:
    """Return the Python of an environment with these packages, which is made if it is not there."""
    folder = cache_folder() / "peers" / name
    python = folder / "bin" / "python"
    ready = folder / "-".join(["ready", *packages]).replace("/", "-")
    if not ready.exists():
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [str(python), "-m", "pip", "install", "-q", *packages],
        ):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=INSTALL_S)
        ready.touch()
    return str(python)


def _files(*artifacts: Artifact) -> list[str]:
    return sorted(map(str, jars(*artifacts, alone=True).glob("*.jar")))


def _penstock(guarantee: str) -> Commands:
    def commands(place: Place) -> list[list[str]]:
        *words, folder = place
        script = str(JOBS / "penstock_job.py")
        return [[sys.executable, script, *words, str(folder / "checkpoint"), guarantee]]

    return commands


def _spark(trigger: str) -> Commands:
    def commands(place: Place) -> list[list[str]]:
        *words, folder = place
        script = str(JOBS / "spark_job.py")
        return [[sys.executable, script, *words, str(folder / "checkpoint"), trigger]]

    return commands


def _spark_env(cores: int) -> Callable[[Place], dict[str, str]]:
    def env(place: Place) -> dict[str, str]:
        arguments = f"--master local[{cores}] --jars {','.join(_files(*CONNECTOR))} pyspark-shell"
        home = str(Path(pyspark.__file__).parent)
        return {"PYSPARK_SUBMIT_ARGS": arguments, "SPARK_HOME": home}

    return env


def _bytewax(place: Place) -> list[list[str]]:
    """Two processes, as one cannot use two cores."""
    python = environment("bytewax", BYTEWAX)
    folder = place[4]
    recovery = folder / "recovery"
    recovery.mkdir()
    subprocess.run([python, "-m", "bytewax.recovery", str(recovery), "2"], check=True)
    ports = [2101 + os.getpid() % 400 * 2 + n for n in (0, 1)]
    addresses = ";".join(f"127.0.0.1:{port}" for port in ports)
    run = [python, "-m", "bytewax.run", f"{JOBS / 'bytewax_job.py'}:flow", "-r", str(recovery)]
    return [[*run, "-s", "5", "-b", "0", "-i", str(n), "-a", addresses] for n in (0, 1)]


def _bytewax_env(place: Place) -> dict[str, str]:
    names = ("PEER_SERVERS", "PEER_INTO", "PEER_OUT", "PEER_WORKLOAD")
    return dict(zip(names, place[:4], strict=True))


def _flink(place: Place) -> list[list[str]]:
    *words, folder = place
    python = environment("flink", FLINK)
    script = str(JOBS / "flink_job.py")
    return [[python, script, *words, str(folder / "checkpoint"), *_files(*FLINK_JARS)]]


def _storm(place: Place) -> list[list[str]]:
    *words, folder = place
    libraries = f"{jars(*STORM_JARS)}/*"
    classes = folder / "classes"
    made = ["javac", "-nowarn", "-cp", libraries, "-d", str(classes), str(JOBS / "StormJob.java")]
    subprocess.run(made, check=True, capture_output=True)
    return [["java", "-Xmx1g", "-cp", f"{classes}:{libraries}", "StormJob", *words]]


SIDES: dict[str, Side] = {
    "penstock": Side(_penstock("once")),
    "penstock-at-least-once": Side(_penstock("at-least-once")),
    "spark-micro-batch": Side(_spark("micro"), _spark_env(2)),
    "spark-real-time": Side(_spark("real-time"), _spark_env(6)),
    "bytewax": Side(_bytewax, _bytewax_env),
    "flink": Side(_flink),
    "storm": Side(_storm),
}
