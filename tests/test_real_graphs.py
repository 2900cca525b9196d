"""The graphs of production topologies plan with every strategy, and the largest one fast."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.files import load_topology
from penstock.model import Plan, Refused, expand
from penstock.model.sizing import sized_for
from penstock.planning import plan
from penstock.strategies import strategies

GRAPHS = sorted((Path(__file__).parent / "data" / "topologies").glob("*.json"))
BASELINES = ("even", "metis", "optimal", "rstorm", "sp-ant", "spark")
#: Strategies that take long, or refuse, where a graph is large: they get the smaller half.
SLOW = ("ms", "optimal", "sp-ant")
#: Strategies that may decline what is too large for them.
MAY_REFUSE = ("optimal", "sp-ant")
#: Parameters that make a search give up sooner; whether it finds an answer is not the point here.
BRIEFLY: dict[str, dict[str, Any]] = {"optimal": {"steps": 1000}, "ms": {"epochs": 20}}
NODES = 8


def instances_of(graph: Path) -> int:
    return sum(load_topology(graph).parallelism.values())


SMALL = frozenset(sorted(GRAPHS, key=instances_of)[: len(GRAPHS) // 2])

CASES = [
    pytest.param(graph, strategy, id=f"{graph.stem}-{strategy}")
    for graph in GRAPHS
    for strategy in strategies.names()
    if graph in SMALL or strategy not in SLOW
]

#: Limits on the largest graph (5,402 instances) on 500 nodes.
EXPANSION_S, PLAN_S, MEMORY_BYTES = 2.0, 5.0, 2 * 1024**3


def test_all_graphs_and_baselines_are_there() -> None:
    assert len(GRAPHS) == 40
    assert set(BASELINES) <= set(strategies.names())


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda path: path.stem)
def test_a_cluster_made_to_measure_fits(graph: Path) -> None:
    instances = expand(load_topology(graph))
    for count in (1, 3, NODES, 500):
        cluster = sized_for(instances, count)
        assert len(cluster) == count
        assert cluster.cpu_cores.sum() >= instances.cpu_cores.sum()
        assert cluster.mem_mb.min() >= instances.mem_mb.max()
        assert (cluster.slots * cluster.processes >= len(instances)).all()


@pytest.mark.parametrize(("graph", "strategy"), CASES)
def test_every_strategy_plans_it(graph: Path, strategy: str) -> None:
    try:
        made = plan(graph, NODES, strategy, **BRIEFLY.get(strategy, {}))
    except Refused:
        assert strategy in MAY_REFUSE
        return
    assert isinstance(made, Plan)
    spots = {name: len(spots) for name, spots in made.placement.items()}
    assert spots == dict(made.parallelism)
    if strategy != "sra":  # which decides the parallelism, too
        assert spots == dict(load_topology(graph).parallelism)
    assert made.after.nodes_used <= NODES
    assert np.isfinite([made.after.cut_share, made.after.lin, made.after.max_node_load]).all()


MEASURE = """
import json, resource, sys, time
from penstock.files import load_topology
from penstock.model import Plan, Refused, expand
from penstock.planning import ask, request

topology = load_topology(sys.argv[1])
start = time.perf_counter()
count = len(expand(topology))
found = {"instances": count, "expansion": time.perf_counter() - start}
base = request(topology, 500)
for name in ("even", "rstorm"):
    outcome = ask(base, name)
    assert outcome.plan is not None
    found[name] = outcome.seconds
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found["peak_bytes"] = peak if sys.platform == "darwin" else peak * 1024
print(json.dumps(found))
"""


@pytest.mark.slow
def test_the_largest_graph_is_planned_fast_and_in_little_memory() -> None:
    largest = max(GRAPHS, key=instances_of)
    # A process of its own: the peak must not be that of other tests.
    ran = subprocess.run(
        [sys.executable, "-c", MEASURE, str(largest)], capture_output=True, text=True, check=True
    )
    found = json.loads(ran.stdout)
    assert found["instances"] == 5402
    assert found["expansion"] < EXPANSION_S
    assert found["even"] < PLAN_S
    assert found["rstorm"] < PLAN_S
    assert found["peak_bytes"] < MEMORY_BYTES
