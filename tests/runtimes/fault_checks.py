"""Applications under faults on an embedded cluster, in a process of its own; prints JSON.

Some faults in a few runs, and rows of the matrix that do not take long; ``penstock chaos --matrix``
runs all of them.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any, ClassVar

from penstock import spark as engine
from penstock.experiments.chaos_processes import outcome_of
from penstock.experiments.chaos_trial import TRIAL_CONF, trial
from penstock.faults.fault import Fault
from penstock.model import Cluster, Keep, Plan
from penstock.strategies import Request
from penstock.strategies.even import Even
from penstock.testing.chaos import Schedule, matrix, schedules

NODES = 4

#: Runs by name: application, parity fragments, batches that the driver holds, faults.
RUNS: dict[str, tuple[str, int, int, tuple[str, ...]]] = {
    "kills_and_scaling": (
        "wordcount",
        1,
        2,
        (
            "kill-executor@batch=2",
            "kill-worker@batch=4",
            "scale@batch=5:to=7",
            "scale@batch=7:to=3",
        ),
    ),
    "two_at_once_and_fragments": (
        "topn",
        2,
        1,
        (
            "kill-executor@batch=2:count=2",
            "corrupt-fragment@batch=5",
            "delete-fragment@batch=5:index=1",
            "kill-executor@batch=5",
        ),
    ),
    "kill_during_a_move": (
        "commcount",
        1,
        8,
        ("move@batch=3", "kill-executor@batch=3:during=move"),
    ),
}


class Few:
    """Uses the first two nodes, so that the others keep fragments and nothing else."""

    name: ClassVar[str] = "few"
    summary: ClassVar[str] = "two nodes"
    origin: ClassVar[str] = "these tests"

    def plan(self, request: Request) -> Plan | Keep:
        """Plan as `even` does on fewer nodes."""
        two = replace(request, cluster=Cluster(request.cluster.nodes[:2]))
        return Even().plan(two)


IDLE = "kill-executor@batch=3:of=idle"

#: Rows of the matrix, and the application of each; `make faults` runs them all.
ROWS = {"kill-driver": "wordcount", "kill-in-backup": "debs2024"}

#: Seed and number of random schedules.
SEED, RANDOM = 5, 2


def main() -> None:
    """Run everything on one cluster."""
    results: dict[str, Any] = {}
    started = time.monotonic()
    with engine.cluster(engine.embedded(NODES, 1, 900), conf=TRIAL_CONF) as spark:
        for name, (app, parity, every, faults) in RUNS.items():
            parsed = tuple(Fault.parse(text) for text in faults)
            outcome = trial(spark, Schedule(name, app, parsed, parity=parity, every=every))
            results[name] = {**outcome.to_dict(), "faults": list(map(str, parsed))}
        idle = Schedule("idle", "wordcount", (Fault.parse(IDLE),), every=1)
        results["backup_node"] = trial(spark, idle, strategy=Few()).to_dict()
        for name, app in ROWS.items():
            (schedule,) = matrix([app], only=name)
            results[name] = outcome_of(spark, schedule, NODES).to_dict()
        results["random"] = [
            trial(spark, schedule).to_dict()
            for schedule in schedules(SEED, RANDOM, ["debs2024", "portrait"], NODES)
        ]
    results["seconds"] = time.monotonic() - started
    print("RESULT " + json.dumps(results))


if __name__ == "__main__":
    main()
