"""Ts-Stream's evaluation (section 5): latency and throughput of two small applications."""

from __future__ import annotations

from collections.abc import Callable

from penstock.experiments.papers.draw import bars
from penstock.experiments.papers.figure import Figure
from penstock.experiments.papers.page import Paper
from penstock.experiments.papers.physics import nodes, topn, wordcount
from penstock.experiments.papers.trial import System, bottleneck, steady
from penstock.model import Topology

OWN = "Ts-Stream"
SYSTEMS = (
    System(OWN, "ts"),
    System("Storm", "even", settles=True),
    System("Penstock", "penstock"),
    System(OWN, "ts").alone(f"{OWN}, without our local search"),
)
CLUSTER = nodes(6, cores=4, mem_mb=4096, mbit_s=1000, processes=4, slots=8)
APPS: dict[str, Topology] = {"WordCount": wordcount(2, 4, 6, 2), "Top-N": topn(2, 4, 6, 1)}
RATE = 1000.0

#: Figs. 6, 7.
LATENCY_MS = {
    "WordCount": {OWN: 1.91, "Storm": 2.72},
    "Top-N": {OWN: 2.31, "Storm": 2.98},
}
#: Figs. 8, 9, at 1000 tuples/s.
THROUGHPUT_PER_S = {
    "WordCount": {OWN: 412.0, "Storm": 234.0},
    "Top-N": {OWN: 405.0, "Storm": 222.0},
}


def _most(app: str, topology: Topology, tell: Callable[[str], None]) -> dict[str, float]:
    """Find the highest rate that each system sustains."""
    most = {}
    for system in SYSTEMS:
        tell(f"{app}, most: {system.label}")
        most[system.label] = bottleneck(system, topology, CLUSTER)
    return most


def experiments(tell: Callable[[str], None]) -> Paper:
    """Run them all; `tell` is told what is being run."""
    figures: list[Figure] = []
    for n, (app, topology) in enumerate(APPS.items()):
        found = {}
        for system in SYSTEMS:
            tell(f"{app}: {system.label}")
            found[system.label] = steady(system, topology, CLUSTER, RATE)
        latency = {name: s["latency_ms"]["mean"] for name, s in found.items()}
        through = {name: s["throughput_per_s"] for name, s in found.items()}
        used = {name: s["nodes"] for name, s in found.items()}
        most = _most(app, topology, tell)
        figures += [
            Figure(
                f"Fig. {6 + n}",
                f"latency of {app} at 1000 tuples/s",
                "ms",
                OWN,
                latency,
                LATENCY_MS[app],
                drawing=bars("latency, ms", {"paper": LATENCY_MS[app], "here": latency}),
                why=WHY.get(f"Fig. {6 + n}", ""),
            ),
            Figure(
                f"Fig. {8 + n}",
                f"throughput of {app} at 1000 tuples/s",
                "tuples/s",
                OWN,
                through,
                THROUGHPUT_PER_S[app],
                higher_is_better=True,
                drawing=bars("tuples/s", {"paper": THROUGHPUT_PER_S[app], "here": through}),
                why=THROUGHPUT,
            ),
            Figure(
                "Not in the paper",
                f"maximum throughput of {app}",
                "tuples/s",
                OWN,
                most,
                higher_is_better=True,
                drawing=bars("tuples/s", {"here": most}),
                note="Nodes in use at 1000 tuples/s: "
                + ", ".join(f"{name} {count:g}" for name, count in used.items())
                + ".",
            ),
        ]
    return Paper(
        "ts",
        "Ts-Stream's experiments",
        {
            "Cluster": "6 supervisor nodes, two CPUs of 2 cores, 4 GB; 1 Gbit/s and 4 workers of 8 "
            "tasks are assumed",
            "Applications": "WordCount with 14 tasks, Top-N with 13; the paper gives no numbers",
            "Baselines": "Storm's default scheduler; Penstock's own strategy is ours to add",
            "Rates": "1000 tuples/s",
        },
        tuple(figures),
    )


THROUGHPUT = (
    "24 cores carry 1000 tuples/s under any placement here: a line takes about 2 ms of CPU at the "
    "most, so that 8 % of the cluster is busy. The paper's figures mean that less than half of "
    "what came was put out, while latency stayed below 3 ms, which no queue does that falls "
    "behind; we take its throughput for a count of output tuples that is not the input's. What a "
    "placement does for throughput shows in the maximum, which the paper does not measure."
)
WHY: dict[str, str] = {}
