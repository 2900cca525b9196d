"""The Kubernetes manifest is what it can be seen to be without a cluster."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "examples" / "kubernetes.yaml"
#: Settings whose names Spark puts together, by their beginnings as its classes have them.
PUT_TOGETHER = {
    "spark.kubernetes.executor.volumes.": "spark.kubernetes.executor.volumes.",
    "spark.kubernetes.executor.secretKeyRef.": "spark.kubernetes.executor.secretKeyRef.",
    "spark.kubernetes.authenticate.driver.": "spark.kubernetes.authenticate.driver",
}


@cache
def settings() -> frozenset[str]:
    """All names of settings in Spark's own classes."""
    pyspark = pytest.importorskip("pyspark")
    jars = Path(pyspark.__file__).parent / "jars"
    found: set[bytes] = set()
    for part in ("core", "kubernetes", "sql", "catalyst", "common-utils"):
        for jar in jars.glob(f"spark-{part}_*.jar"):
            with ZipFile(jar) as opened:
                for name in opened.namelist():
                    if re.search(r"(config|internal|k8s)/[^/]*\.class$", name, re.IGNORECASE):
                        found |= set(re.findall(rb"spark\.[A-Za-z0-9.]+", opened.read(name)))
    return frozenset(one.decode() for one in found)


def parts() -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all(MANIFEST.read_text())}


def test_its_settings_are_ones_that_spark_knows() -> None:
    (driver,) = parts()["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    given = re.findall(r"--conf=(spark[A-Za-z0-9.]+)", " ".join(driver["args"]))
    table = (ROOT / "docs" / "deploy.md").read_text().partition("## Kubernetes")[2]
    given += re.findall(r"`(spark[A-Za-z0-9.]+)", table)
    assert len(given) > 15
    for name in given:
        known = next((at for start, at in PUT_TOGETHER.items() if name.startswith(start)), name)
        assert known in settings(), f"Spark has no setting {name}"


def test_what_its_parts_name_is_there() -> None:
    found = parts()
    spec = found["StatefulSet"]["spec"]
    pod = spec["template"]["spec"]
    (driver,) = pod["containers"]
    conf = dict(arg[7:].split("=", 1) for arg in driver["args"] if arg.startswith("--conf="))
    claim = found["PersistentVolumeClaim"]["metadata"]["name"]
    volumes = "spark.kubernetes.executor.volumes.persistentVolumeClaim.checkpoint."
    assert conf[volumes + "options.claimName"] == claim
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim
    # A checkpoint has one name for the driver and all executors.
    (mounted,) = driver["volumeMounts"]
    assert conf[volumes + "mount.path"] == mounted["mountPath"] == driver["args"][-1]
    assert found["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteMany"]
    ports = {port["name"]: str(port["port"]) for port in found["Service"]["spec"]["ports"]}
    assert ports == {
        "driver": conf["spark.driver.port"],
        "blocks": conf["spark.blockManager.port"],
    }
    assert conf["spark.driver.host"] == found["Service"]["metadata"]["name"]
    assert found["Service"]["spec"]["selector"] == spec["template"]["metadata"]["labels"]
    account = found["ServiceAccount"]["metadata"]["name"]
    assert pod["serviceAccountName"] == found["RoleBinding"]["subjects"][0]["name"] == account
    assert conf["spark.kubernetes.container.image"] == driver["image"]
    assert spec["replicas"] == 1
