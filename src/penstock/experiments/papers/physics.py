"""The one physical model of all experiments, and where its figures come from.

The papers name machines and rates, and say nothing of what a tuple costs. So every operator, hop
and restart has one cost here, used by every paper and every strategy. The figures were fixed before
any experiment was run, so that a line of ten words takes 0.9 ms of CPU through WordCount in one
process and 2.0 ms across nodes: Ra-Stream's maximum of 14,500 lines a second on 28 cores leaves
1.9 ms. They have not been changed since.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.model import Cluster, Edge, Grouping, Kind, Node, Operator, TierCosts, Topology
from penstock.runtimes.sim.costs import CostProfile

#: CPU of a hop at each end: a queue in the process; Kryo and a socket beyond it, which Storm uses
#: between workers of a node too; a network card and its interrupts across. Time of a hop: queues
#: and batching of Storm's workers, and a switched 100 Mbit/s network. Storm restarts a worker whose
#: instances change in some seconds.
PHYSICS = CostProfile(
    hop_cpu_us=TierCosts(5.0, 30.0, 50.0),
    hop_us=TierCosts(20.0, 150.0, 1000.0),
    restart_s=3.0,
    detect_s=5.0,
)

#: CPU of one tuple, in microseconds, on a core of the papers' machines; all cores are alike.
CPU_US = {
    "read": 100.0,
    "split": 150.0,
    "normalise": 60.0,
    "count": 50.0,
    "output": 30.0,
    "filter": 60.0,
    "detect": 150.0,
    "aggregate": 150.0,
    "store": 100.0,
    "anomaly": 150.0,
    "alert": 80.0,
    "views": 60.0,
    "rank": 80.0,
    "merge": 80.0,
    "segment": 150.0,
    "feature": 60.0,
    "portrait": 80.0,
}

#: Words in a line.
WORDS = 10.0

#: Part of a counter's updates that are sent on: counters are flushed now and then, not each time.
FLUSHED = 0.1

#: Memory of an instance, in MB: a share of a worker's heap.
INSTANCE_MB = 200.0

#: State of a stateful operator, in MB.
STATE_MB = 50.0

#: Different keys of a stream.
KEYS = 10_000


def nodes(
    count: int, cores: float, mem_mb: float, mbit_s: float, processes: int, slots: int
) -> Cluster:
    """Equal nodes."""
    return Cluster(
        tuple(
            Node(
                f"node-{i:02d}",
                cpu_cores=cores,
                mem_mb=mem_mb,
                bandwidth_mb_s=mbit_s / 8.0,
                processes=processes,
                slots=slots,
            )
            for i in range(count)
        )
    )


def operator(
    name: str, count: int, *, work: str = "", selectivity: float = 1.0, kind: Kind = Kind.STATELESS
) -> Operator:
    """Make an operator with the model's costs."""
    return Operator(
        name,
        kind,
        count,
        cpu_us_per_tuple=CPU_US[work or name],
        mem_mb=INSTANCE_MB,
        selectivity=selectivity,
        state_mb=STATE_MB if kind is Kind.STATEFUL else 0.0,
    )


def wordcount(read: int, split: int, count: int, output: int) -> Topology:
    """Read -> split -> count -> output (Ra fig. 1, Ts fig. 5)."""
    return Topology(
        "wordcount",
        (
            operator("read", read, kind=Kind.SOURCE),
            operator("split", split, selectivity=WORDS),
            operator("count", count, selectivity=FLUSHED, kind=Kind.STATEFUL),
            operator("output", output),
        ),
        (Edge("read", "split"), Edge("split", "count", Grouping.FIELDS), Edge("count", "output")),
    )


def topn(read: int, split: int, count: int, merge: int = 1) -> Topology:
    """Read words -> split -> count and rank -> merge (Sl table 4, Ts fig. 5)."""
    return Topology(
        "topn",
        (
            operator("read", read, kind=Kind.SOURCE),
            operator("split", split, work="normalise"),
            operator("count", count, work="rank", selectivity=FLUSHED, kind=Kind.STATEFUL),
            operator("merge", merge, kind=Kind.STATEFUL),
        ),
        (
            Edge("read", "split"),
            Edge("split", "count", Grouping.FIELDS),
            Edge("count", "merge", Grouping.GLOBAL),
        ),
    )


def words(read: int, normalise: int, count: int) -> Topology:
    """Read words -> normalise -> count (Sra fig. 16)."""
    return Topology(
        "words",
        (
            operator("read", read, kind=Kind.SOURCE),
            operator("normalise", normalise),
            operator("count", count, selectivity=FLUSHED, kind=Kind.STATEFUL),
        ),
        (Edge("read", "normalise"), Edge("normalise", "count", Grouping.FIELDS)),
    )


def debs(counts: tuple[int, int, int, int, int, int, int]) -> Topology:
    """Source -> filter -> detection, aggregation -> storage, anomaly -> alert (Ra fig. 8)."""
    source, filters, detect, aggregate, store, anomaly, alert = counts
    return Topology(
        "debs2024",
        (
            operator("read", source, kind=Kind.SOURCE),
            operator("filter", filters),
            operator("detect", detect, selectivity=0.5),
            operator("aggregate", aggregate, selectivity=FLUSHED, kind=Kind.STATEFUL),
            operator("store", store),
            operator("anomaly", anomaly, selectivity=FLUSHED, kind=Kind.STATEFUL),
            operator("alert", alert),
        ),
        (
            Edge("read", "filter"),
            Edge("filter", "detect"),
            Edge("filter", "aggregate", Grouping.FIELDS),
            Edge("aggregate", "store"),
            Edge("detect", "anomaly", Grouping.FIELDS),
            Edge("anomaly", "alert"),
        ),
    )


def commcount(read: int, views: int, count: int) -> Topology:
    """Read behaviours -> keep views -> count views of each item (Ms fig. 5)."""
    return Topology(
        "commcount",
        (
            operator("read", read, kind=Kind.SOURCE),
            operator("views", views, selectivity=0.9),
            operator("count", count, selectivity=FLUSHED, kind=Kind.STATEFUL),
            operator("output", 2),
        ),
        (Edge("read", "views"), Edge("views", "count", Grouping.FIELDS), Edge("count", "output")),
    )


def portrait(read: int, segment: int, feature: int, users: int) -> Topology:
    """Reader -> segmentation -> gender, age, occupation -> portrait (Sra fig. 17)."""
    traits = ("gender", "age", "occupation")
    return Topology(
        "portrait",
        (
            operator("read", read, kind=Kind.SOURCE),
            operator("segment", segment),
            *(operator(t, feature, work="feature") for t in traits),
            operator("portrait", users, selectivity=FLUSHED, kind=Kind.STATEFUL),
        ),
        (
            Edge("read", "segment"),
            *(Edge("segment", t) for t in traits),
            *(Edge(t, "portrait", Grouping.FIELDS) for t in traits),
        ),
    )


def together(name: str, parts: dict[str, Topology]) -> Topology:
    """Make one topology of several that share nothing but the cluster."""
    operators: list[Operator] = []
    edges: list[Edge] = []
    for prefix, part in parts.items():
        operators += [replace(o, name=f"{prefix}.{o.name}") for o in part.operators]
        edges += [
            replace(e, source=f"{prefix}.{e.source}", target=f"{prefix}.{e.target}")
            for e in part.edges
        ]
    return Topology(name, tuple(operators), tuple(edges))
