"""Cluster files: nodes and their capacities."""

from __future__ import annotations

from penstock.files.document import FilePath, read_document
from penstock.files.fields import Fields
from penstock.model import Cluster, Node
from penstock.model.sizing import MOST_NODES

NUMBERS = {
    "cpu_cores": 4.0,
    "mem_mb": 8192.0,
    "io_mb_s": 500.0,
    "bandwidth_mb_s": 125.0,
}
CLUSTER_FIELDS = ("nodes",)
NODE_FIELDS = ("name", "count", *NUMBERS, "rack", "processes", "slots", "own_cores")

MOST_PROCESSES = 1000
MOST_SLOTS = 1_000_000


def load_cluster(path: FilePath) -> Cluster:
    """Read a cluster from a YAML or JSON file.

    Raises
    ------
    FileError
        Names the file, the field and what is allowed.
    """
    file = str(path)
    top = Fields(file, read_document(path), "", CLUSTER_FIELDS)
    nodes: list[Node] = []
    places: dict[str, str] = {}
    for where, item in top.items("nodes", required=True):
        entry = Fields(file, item, where, NODE_FIELDS)
        for node in _nodes(entry):
            if node.name in places:
                raise entry.error("name", f"unique, and {places[node.name]} has it too", node.name)
            places[node.name] = where
            nodes.append(node)
        if len(nodes) > MOST_NODES:
            raise top.error("nodes", f"at most {MOST_NODES} nodes in all", len(nodes))
    if not nodes:
        raise top.error("nodes", "at least one node", [])
    return Cluster(tuple(nodes))


def _nodes(entry: Fields) -> list[Node]:
    name = entry.text("name")
    names = [name]
    if "count" in entry:
        count = entry.whole("count", 1, most=MOST_NODES)
        width = len(str(count - 1))
        names = [f"{name}-{i:0{width}d}" for i in range(count)]
    numbers = {field: entry.number(field, default) for field, default in NUMBERS.items()}
    rack = entry.text("rack", "rack-0")
    processes = entry.whole("processes", 1, most=MOST_PROCESSES)
    slots = entry.whole("slots", 64, most=MOST_SLOTS)
    own = entry.truth("own_cores", False)
    return [
        Node(n, rack=rack, processes=processes, slots=slots, own_cores=own, **numbers)
        for n in names
    ]
