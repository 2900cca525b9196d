"""Settings of hypothesis, and the one Spark session that all tests share.

Hypothesis draws the same examples in CI every time, and fresh ones at the desk. Many more of them:
``pytest --hypothesis-profile=thorough``.
"""

from __future__ import annotations

import os
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
settings.register_profile("thorough", settings.get_profile("desk"), max_examples=500)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session on two cores of this process; a second one beside it would be the same one."""
    pytest.importorskip("pyspark")
    from penstock.runtimes.spark.session import session

    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    shared = session("local[2]", name="penstock-tests", conf=conf)
    yield shared
    shared.stop()
