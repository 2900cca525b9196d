"""An unchanged script, with ``penstock submit`` and with ``spark-submit``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.store.store import MetricsStore

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

JOB = """
import sys
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.config("spark.sql.shuffle.partitions", "2")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
counts = rows.groupBy((rows.value % 10).alias("k")).count()
query = (
    counts.writeStream.format("noop").outputMode("update").queryName("counts")
    .option("checkpointLocation", sys.argv[1]).start()
)
while (query.lastProgress or {}).get("batchId", 0) < 3 and query.isActive:
    query.awaitTermination(1)
query.stop()
print("ARGUMENTS", *sys.argv[2:])
"""


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    folder = str(Path(sys.executable).parent)
    path = os.pathsep.join([folder, os.environ.get("PATH", "")])
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**{k: v for k, v in os.environ.items() if not k.startswith("SPARK")}, "PATH": path},
    )


def test_a_script_runs_unchanged_and_is_measured(tmp_path: Path) -> None:
    job, store, report = (tmp_path / name for name in ("job.py", "metrics.sqlite", "report.html"))
    job.write_text(JOB)
    code = "from penstock.cli.main import app; app()"
    options = ["--json", "--store", str(store), "--report", str(report)]
    arguments = [str(tmp_path / "checkpoint"), "--its", "own"]
    done = run([sys.executable, "-c", code, "submit", *options, str(job), *arguments])
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert "ARGUMENTS --its own" in lines
    (query,) = json.loads(lines[-1])["queries"]
    assert (query["topology"], query["strategy"]) == ("counts", "penstock")
    assert query["batches"] >= 2
    assert query["rows_in"] >= 200
    assert report.read_text().startswith("<!")


def test_spark_submit_attaches_with_a_line_of_configuration(tmp_path: Path) -> None:
    job, store, driver = (tmp_path / name for name in ("job.py", "metrics.sqlite", "driver"))
    job.write_text(JOB)
    # What the installed command penstock-python is.
    start = "from penstock.runtimes.attached.submit import python\npython()\n"
    driver.write_text(f"#!{sys.executable}\n{start}")
    driver.chmod(0o755)
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    settings = {
        "spark.pyspark.driver.python": str(driver),
        "spark.penstock.strategy": "even",
        "spark.penstock.store": str(store),
    }
    conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    done = run([submit, "--master", "local[2]", *conf, str(job), str(tmp_path / "state"), "a"])
    assert done.returncode == 0, done.stderr[-3000:]
    assert "ARGUMENTS a" in done.stdout.splitlines()
    with MetricsStore.open(store) as opened:
        (found,) = opened.runs()
        assert (found.topology, found.strategy) == ("counts", "even")
        assert len(opened.read(found.id).batches) >= 2
