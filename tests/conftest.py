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


#: Tests that take a second or more without Spark, by how their names begin.
SLOW = (
    "tests/advise/test_rules.py",
    "tests/apps/test_apps.py::test_results_do_not_depend_on_the_cut",
    "tests/cli/test_advise.py",
    "tests/cli/test_command.py::test_all_asks_every_strategy",
    "tests/cli/test_compare.py::test_a_run_in_its_own_process",
    "tests/cli/test_compare.py::test_an_interrupted_process_cleans_up",
    "tests/common/test_arrow_keys.py",
    "tests/control/test_chaos.py",
    "tests/control/test_loop.py",
    "tests/control/test_stability.py",
    "tests/documentation/test_examples.py::test_commands_give_what_they_show",
    "tests/engine/test_async_backup.py",
    "tests/engine/test_crash_points.py",
    "tests/engine/test_inband.py",
    "tests/engine/test_precopy.py",
    "tests/engine/test_repartition.py",
    "tests/engine/test_restore.py",
    "tests/engine/test_split.py",
    "tests/files/test_document.py::test_any_json_loads_or_gives_a_clean_error",
    "tests/pipeline/test_json_lines.py",
    "tests/pipeline/test_keys.py",
    "tests/pipeline/test_windows.py::test_the_engine_closes_each_window_once",
    "tests/runtimes/attached/test_unchanged.py::test_every_strategy_plans_a_query[ms]",
    "tests/runtimes/sim/test_contract.py",
    "tests/runtimes/sim/test_fluid.py::test_nothing_is_lost",
    "tests/state/test_damage.py",
    "tests/state/test_fencing.py",
    "tests/state/test_store.py::test_old_files_go_and_chains_stay_short",
    "tests/store/test_retention.py",
    "tests/strategies/test_contract.py::test_partitioner[graph-network-",
    "tests/strategies/test_contract.py::test_strategy[ms-",
    "tests/strategies/test_contract.py::test_strategy[optimal-",
    "tests/strategies/test_contract.py::test_strategy[penstock-",
    "tests/strategies/test_contract.py::test_strategy[sp-ant-",
    "tests/strategies/test_ms.py",
    "tests/test_real_graphs.py::test_every_strategy_plans_it",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the Spark session, and those that are slow without it."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def nothing_waits_for_the_disk() -> Iterator[None]:
    """Flush no file to the disk: no test of this process loses its power for real.

    Tests of what is there after a loss of power note the calls instead (`penstock.testing`).
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session on two cores of this process; a second one beside it would be the same one."""
    pytest.importorskip("pyspark")
    from penstock.runtimes.spark.session import session

    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    shared = session("local[2]", name="penstock-tests", conf=conf)
    yield shared
    shared.stop()
