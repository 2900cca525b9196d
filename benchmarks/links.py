"""``penstock state-bench`` where links are the limit: every node is a network namespace.

Needs root, ``ip`` and ``tc``. The namespaces hang on a bridge in one of their own; each has one
link that a token bucket (``tc tbf``) holds to the given rate, first both ways, then upwards only.
Spark's master and the driver run beside the bridge, each worker in its namespace, and so does a
server for files that stands for the checkpoint's shared folder. Everything is removed at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socketserver
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copyfileobj

import pyspark

HUB, STORE = "10.77.0.1", "10.77.0.2"
PORT, FILES = 7077, 8000

#: What is limited: what nodes send and what they receive, or only what they send.
LIMITS = ("both", "sent")

#: Bytes that may pass at once, and the longest that a packet waits.
BURST, LATENCY = "256kb", "200ms"


def run(*words: str) -> None:
    """Run a command; raise if it fails."""
    subprocess.run(words, check=True, capture_output=True)


@contextlib.contextmanager
def namespace(name: str) -> Iterator[str]:
    """Make a network namespace; with it go its links."""
    run("ip", "netns", "add", name)
    try:
        run("ip", "-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        run("ip", "netns", "del", name)


def bridge(hub: str) -> None:
    """Make the bridge that all links end at."""
    run("ip", "-n", hub, "link", "add", "br0", "type", "bridge")
    run("ip", "-n", hub, "addr", "add", f"{HUB}/24", "dev", "br0")
    run("ip", "-n", hub, "link", "set", "br0", "up")


def link(hub: str, name: str, address: str, rate: str) -> str:
    """Link a namespace to the bridge, with a limit to what it sends; return the bridge's end."""
    near = f"v{address.rpartition('.')[2]}"
    run("ip", "-n", hub, "link", "add", near, "type", "veth", "peer", "eth0", "netns", name)
    run("ip", "-n", hub, "link", "set", near, "master", "br0", "up")
    run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
    run("ip", "-n", name, "link", "set", "eth0", "up")
    limit(name, "eth0", rate)
    return near


def limit(where: str, device: str, rate: str) -> None:
    """Limit what leaves through a device."""
    shape = ("root", "tbf", "rate", rate, "burst", BURST, "latency", LATENCY)
    run("tc", "-n", where, "qdisc", "add", "dev", device, *shape)


@contextlib.contextmanager
def limited(hub: str, devices: list[str], rate: str) -> Iterator[None]:
    """Limit what nodes receive, too, for a ``with`` block."""
    for device in devices:
        limit(hub, device, rate)
    try:
        yield
    finally:
        for device in devices:
            run("tc", "-n", hub, "qdisc", "del", "dev", device, "root")


@contextlib.contextmanager
def inside(name: str, command: list[str], log: Path, **environment: str) -> Iterator[None]:
    """Run a process in a namespace for a ``with`` block."""
    with log.open("w") as out:
        process = subprocess.Popen(
            ["ip", "netns", "exec", name, *command],
            stdout=out,
            stderr=out,
            env={**os.environ, **environment},
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def lab(nodes: int, rate: str) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Start the cluster; give the namespace of the driver, all links and an environment."""
    home = Path(pyspark.__file__).parent
    spark = str(home / "bin" / "spark-class")
    common = {"SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "128m"}
    prefix = f"ps{os.getpid()}"
    with contextlib.ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="penstock-links-")))
        hub = undo.enter_context(namespace(f"{prefix}-hub"))
        bridge(hub)
        store = undo.enter_context(namespace(f"{prefix}-store"))
        ends = [link(hub, store, STORE, rate)]
        serving = [sys.executable, __file__, "serve", str(folder / "files")]
        undo.enter_context(inside(store, serving, folder / "store.log"))
        master = ["org.apache.spark.deploy.master.Master", "--host", HUB, "--port", str(PORT)]
        undo.enter_context(
            inside(hub, [spark, *master, "--webui-port", "0"], folder / "master.log", **common)
        )
        time.sleep(10.0)
        for number in range(nodes):
            address = f"10.77.0.{10 + number}"
            name = undo.enter_context(namespace(f"{prefix}-{number}"))
            ends.append(link(hub, name, address, rate))
            worker = ["org.apache.spark.deploy.worker.Worker", "--host", address]
            worker += ["--cores", "1", "--memory", "2g", "--webui-port", "0"]
            worker += ["--work-dir", str(folder / f"work-{number}"), f"spark://{HUB}:{PORT}"]
            log = folder / f"worker-{number}.log"
            local = {"SPARK_LOCAL_IP": address, "SPARK_LOCAL_DIRS": str(folder / f"tmp-{number}")}
            undo.enter_context(inside(name, [spark, *worker], log, **common, **local))
        yield hub, ends, {**common, "SPARK_LOCAL_IP": HUB}


class Files(BaseHTTPRequestHandler):
    """Takes and gives files."""

    root = Path()
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        """Take a file."""
        path = self.root / self.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        left = int(self.headers["Content-Length"])
        with path.open("wb") as out:
            while left:
                piece = self.rfile.read(min(left, 1 << 20))
                if not piece:
                    break
                out.write(piece)
                left -= len(piece)
        self.send_response(500 if left else 204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        """Give a file."""
        path = self.root / self.path.lstrip("/")
        self.send_response(200)
        self.send_header("Content-Length", str(path.stat().st_size))
        self.end_headers()
        with path.open("rb") as source:
            copyfileobj(source, self.wfile, 1 << 20)


class Server(ThreadingHTTPServer):
    """One thread for each connection."""

    daemon_threads = True

    def server_bind(self) -> None:
        """Bind without asking for the name of the host, which a namespace has no server for."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = STORE, FILES


def main() -> None:
    """Start the lab, and the benchmark in it; options that are not ours are passed on."""
    if sys.argv[1:2] == ["serve"]:
        Files.root = Path(sys.argv[2])
        Server((STORE, FILES), Files).serve_forever()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=11)
    parser.add_argument("--rate", default="200mbit", help="of every link, as tc spells it")
    parser.add_argument("--limits", nargs="+", choices=LIMITS, default=LIMITS)
    asked, others = parser.parse_known_args()
    # Also when it is told to end: what is not removed here stays.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    command = [sys.executable, "-c", "from penstock.cli.main import app; app()", "state-bench"]
    command += ["--master", f"spark://{HUB}:{PORT}", "--nodes", str(asked.nodes)]
    command += ["--server", f"http://{STORE}:{FILES}", *others]
    with lab(asked.nodes, asked.rate) as (hub, ends, environment):
        for limits in asked.limits:
            print(f"limited: {limits}", flush=True)
            with limited(hub, ends if limits == "both" else [], asked.rate):
                subprocess.run(
                    ["ip", "netns", "exec", hub, *command],
                    env={**os.environ, **environment},
                    check=True,
                )


if __name__ == "__main__":
    main()
