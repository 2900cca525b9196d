"""A session in a script that spark-submit runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pyspark = pytest.importorskip("pyspark")

pytestmark = pytest.mark.spark

SCRIPT = """
from penstock.spark import session
spark = session(name="mine", conf={"spark.sql.shuffle.partitions": "3"})
names = ("spark.master", "spark.app.name", "spark.locality.wait", "spark.sql.shuffle.partitions",
    "spark.sql.adaptive.enabled")
print("FOUND", *(spark.sparkContext.getConf().get(name) for name in names))
spark.stop()
"""


def test_what_spark_submit_was_given_is_used(tmp_path: Path) -> None:
    """Its master, not an embedded cluster, and its settings before the engine's own."""
    (tmp_path / "job.py").write_text(SCRIPT)
    conf = ["spark.locality.wait=7s", "spark.sql.shuffle.partitions=5", "spark.driver.memory=512m"]
    ran = subprocess.run(
        [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]"]
        + [word for one in conf for word in ("--conf", one)]
        + [str(tmp_path / "job.py")],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=150,
        cwd=tmp_path,
    )
    assert "FOUND local[1] mine 7s 3 false" in ran.stdout, ran.stdout + ran.stderr[-3000:]
