"""Settings of hypothesis, marks, and the one Spark session that all tests share.

Hypothesis draws the same examples in CI every time, and fresh ones at the desk. Many more of them:
``pytest --hypothesis-profile=thorough``; few of them: ``--hypothesis-profile=quick``.

Tests that start Spark have the mark ``spark``: those that take the fixture of that name get it
here, those that start a process of their own say so. ``make quick`` leaves them and the ``slow``
ones out.
"""

from __future__ import annotations

import os

# Matrices here are small: more threads would only get in each other's way. Before NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "desk", max_examples=15, deadline=None, database=None, suppress_health_check=QUIET
)
settings.register_profile("ci", settings.get_profile("desk"), derandomize=True)
settings.register_profile("quick", settings.get_profile("desk"), max_examples=4)
settings.register_profile("thorough", settings.get_profile("desk"), max_examples=500)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the Spark session."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session on two cores of this process; a second one beside it would be the same one."""
    pytest.importorskip("pyspark")
    from penstock.runtimes.spark.session import session

    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    shared = session("local[2]", name="penstock-tests", conf=conf)
    yield shared
    shared.stop()
