"""The deployment guide, tried: ``python benchmarks/two_hosts.py``, as root, in three minutes.

Two hosts are network namespaces with an address each, on a bridge; both see one disk, which stands
for the shared folder. A standalone master runs on the first host, a worker on each. Penstock is
installed from its wheel. What is tried: ``spark-submit`` in client mode with two pipelines in one
session, cluster mode, ``penstock run --master`` ended by SIGTERM and gone on, and an attached job.
The command ends with an error if anything is not as the guide says.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import pyspark
from links import inside, namespace, run

ROOT = Path(__file__).parents[1]
HOME = Path(pyspark.__file__).parent
HOSTS = ("10.78.0.1", "10.78.0.2")
MASTER = f"spark://{HOSTS[0]}:7077"

ATTACHED = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
query = (
    rows.groupBy((rows.value % 10).alias("key")).count().writeStream.outputMode("update")
    .format("noop").option("checkpointLocation", sys.argv[1]).start()
)
while query.lastProgress is None or query.lastProgress["batchId"] < 6:
    if not query.isActive:
        raise SystemExit("the query ended")
    query.awaitTermination(1)
query.stop()
"""


def say(text: str) -> None:
    """Write a line."""
    print(text, flush=True)


def check(fine: bool, what: str, said: str) -> None:
    """Say what was seen, or end."""
    if not fine:
        raise SystemExit(f"NOT SEEN: {what}\n{said[-4000:]}")
    say(f"seen: {what}")


def installed(folder: Path) -> Path:
    """Install the wheel in an environment of its own; return its folder of commands.

    What it needs comes from the environment of this program, to spare a gigabyte.
    """
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps"]
    run(sys.executable, "-m", "pip", "wheel", *quiet, "-w", str(folder), str(ROOT))
    (wheel,) = folder.glob("penstock-*.whl")
    venv.create(folder / "env", with_pip=True)
    commands = folder / "env" / "bin"
    run(str(commands / "python"), "-m", "pip", "install", *quiet, str(wheel))
    (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
    (packages / "needs.pth").write_text(f"{HOME.parent}\n")
    where = [str(commands / "python"), "-c", "import penstock; print(penstock.__file__)"]
    found = subprocess.run(where, capture_output=True, text=True, check=True, cwd=folder).stdout
    check(found.startswith(str(folder)), f"the wheel {wheel.name} is what is imported", found)
    return commands


@contextlib.contextmanager
def hosts(folder: Path, environment: dict[str, str]):  # type: ignore[no-untyped-def]
    """Start the cluster; give the namespace of the driver, which is that of the first host."""
    spark, package = str(HOME / "bin" / "spark-class"), "org.apache.spark.deploy"
    with contextlib.ExitStack() as undo:
        names = [undo.enter_context(namespace(f"two{os.getpid()}-{n}")) for n in (1, 2)]
        first, second = names
        run(
            "ip",
            "-n",
            first,
            "link",
            "add",
            "eth0",
            "type",
            "veth",
            "peer",
            "eth0",
            "netns",
            second,
        )
        for name, address in zip(names, HOSTS, strict=True):
            run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
        words = ["--host", HOSTS[0], "--port", "7077", "--webui-port", "0"]
        local = environment | {"SPARK_LOCAL_IP": HOSTS[0]}
        master = inside(
            first, [spark, f"{package}.master.Master", *words], folder / "m.log", **local
        )
        undo.enter_context(master)
        await_log(folder / "m.log", "I have been elected leader")
        for number, (name, address) in enumerate(zip(names, HOSTS, strict=True)):
            words = ["--host", address, "--webui-port", "0", "--cores", "1", "--memory", "1100m"]
            words += ["--work-dir", str(folder / f"work-{number}"), MASTER]
            local = environment | {"SPARK_LOCAL_IP": address}
            log = folder / f"w{number}.log"
            worker = inside(name, [spark, f"{package}.worker.Worker", *words], log, **local)
            undo.enter_context(worker)
        for number in (0, 1):
            await_log(folder / f"w{number}.log", "Successfully registered with master")
        yield first


def await_log(log: Path, text: str, limit_s: float = 120.0) -> None:
    """Wait until a process has said something."""
    give_up = time.monotonic() + limit_s
    while text not in (said := log.read_text() if log.exists() else ""):
        if time.monotonic() > give_up:
            raise SystemExit(f"{log.name} did not say {text!r}: {said[-2000:]}")
        time.sleep(0.2)


def counted(folder: Path) -> int:
    """Rows that are counted in the newest result of each key."""
    latest: dict[str, int] = {}
    for file in folder.glob("batch=*/[!_]*"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            latest[row["key"]] = max(latest.get(row["key"], 0), row["n"])
    return sum(latest.values())


def tried(driver: str, commands: Path, folder: Path, environment: dict[str, str]) -> None:
    """Do what the guide says."""
    local = {**os.environ, **environment, "SPARK_LOCAL_IP": HOSTS[0]}
    inner = ["ip", "netns", "exec", driver]
    memory = ["--executor-memory", "1g", "--conf", f"spark.driver.host={HOSTS[0]}"]
    submit = [*inner, str(HOME / "bin" / "spark-submit"), "--master", MASTER, *memory]
    job = str(ROOT / "examples" / "deployed.py")

    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env=local, capture_output=True, text=True, timeout=240, cwd=folder
        )

    once = ran(*submit, job, str(folder / "two"))
    check(once.returncode == 0, "spark-submit, client mode, ends with code 0", once.stderr)
    for name in ("one", "two"):
        total = counted(folder / "two" / f"results-{name}")
        check(total == 5000, f"pipeline {name} of one session: 5,000 rows counted", str(total))
    used = {n for n in (0, 1) if any((folder / f"work-{n}").glob("app-*/*/stderr"))}
    check(used == {0, 1}, "executors ran on both hosts", str(used))
    refused = ran(*submit, "--deploy-mode", "cluster", job, str(folder / "no"))
    text = "Cluster deploy mode is currently not supported for python"
    check(text in refused.stderr, "Spark refuses Python in cluster mode there", refused.stderr)

    going = [*inner, str(commands / "penstock"), "run", job, "--master", MASTER]
    going += [f"--set=out={folder / 'results'}", f"--checkpoint={folder / 'run'}"]
    going += [f"--report={folder / 'report.html'}"]
    with (folder / "stopped.log").open("w") as log:
        begun = subprocess.Popen(going, env=local, stdout=log, stderr=log, cwd=folder)
        give_up = time.monotonic() + 180
        while counted(folder / "results") < 2000 and begun.poll() is None:
            if time.monotonic() > give_up:
                break
            time.sleep(0.2)
        begun.send_signal(signal.SIGTERM)
        code = begun.wait(120)
    said = (folder / "stopped.log").read_text()
    there = counted(folder / "results")
    check(
        code == 143 and 2000 <= there < 20_000,
        f"SIGTERM ended it with code 143 at {there:,} rows",
        said,
    )
    again = ran(*going)
    total = counted(folder / "results")
    check(again.returncode == 0 and total == 20_000, "it went on to 20,000 rows", again.stderr)

    (folder / "attached.py").write_text(ATTACHED)
    conf = [f"spark.pyspark.driver.python={commands / 'penstock-python'}"]
    conf += [f"spark.penstock.store={folder / 'attached.sqlite'}"]
    options = [word for one in conf for word in ("--conf", one)]
    attached = ran(*submit, *options, str(folder / "attached.py"), str(folder / "query"))
    check(attached.returncode == 0, "an attached job ends with code 0", attached.stderr)
    listed = ran(
        str(commands / "penstock"), "explain", "latest", "--store", str(folder / "attached.sqlite")
    )
    check(
        listed.returncode == 0 and bool(listed.stdout), "its decisions are explained", listed.stderr
    )


def main() -> None:
    """Try it."""
    if os.geteuid() != 0:
        raise SystemExit("network namespaces need root")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="penstock-hosts-") as name:
        folder = Path(name)
        commands = installed(folder)
        environment = {
            "SPARK_HOME": str(HOME),
            "SPARK_DAEMON_MEMORY": "200m",
            "PYSPARK_PYTHON": str(commands / "python"),
            "SPARK_LOCAL_DIRS": str(folder / "tmp"),
            "PYTHONPATH": "",
        }
        with hosts(folder, environment) as driver:
            tried(driver, commands, folder, environment)


if __name__ == "__main__":
    main()
