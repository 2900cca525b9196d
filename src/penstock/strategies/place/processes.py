"""Instances of a node into its processes: the pairs that talk most share one (Ra Alg. 3)."""

from __future__ import annotations

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_sums
from penstock.model import Cluster, InstanceGraph, Node, evaluate
from penstock.model.load import ROUNDING
from penstock.strategies.partition.class_state import class_rates
from penstock.strategies.place.spread import rates_of

#: Classes of instances up to which the rates between all of them are worked out.
FEW_CLASSES = 2_000


def fill_in_order(cluster: Cluster, node_of: IntArray) -> IntArray:
    """Fill each node's processes one after the other, in the order of the instances.

    What does not fit into the slots of a node goes to its processes in turn. Processes with cores
    of their own get equal numbers.

    Examples
    --------
    >>> fill_in_order(Cluster.of(1, processes=2, slots=2), np.zeros(3, dtype=np.int64))
    array([0, 0, 1])
    """
    order = np.argsort(node_of, kind="stable")
    held = np.bincount(node_of, minlength=len(cluster))
    rank = np.empty(len(node_of), dtype=np.int64)
    rank[order] = np.arange(len(node_of)) - np.repeat(np.cumsum(held) - held, held)
    own = np.array([node.own_cores for node in cluster.nodes])
    even = np.maximum(-(-held // cluster.processes), 1)
    slots = np.where(own, np.minimum(even, cluster.slots), cluster.slots)
    slots, processes = slots[node_of], cluster.processes[node_of]
    return np.where(rank < slots * processes, rank // slots, rank % processes)


def gather_pairs(graph: InstanceGraph, cluster: Cluster, node_of: IntArray) -> IntArray:
    """Put instances of a node that exchange the most tuples into the same process.

    Grows one process at a time: from the instance with the most traffic inside the node that has
    no process yet, always adding the one that talks most to what is already in the process, until
    its slots are full. A process with cores of its own is full, too, when it has its part of the
    node's load. A node with one process needs no thought.
    """
    process_of = np.zeros(len(node_of), dtype=np.int64)
    # Few classes: the rates between them serve every node. Many: a node is worked out by itself.
    between = class_rates(graph) if graph.classes.max(initial=0) < FEW_CLASSES else None
    by_node = np.argsort(node_of, kind="stable")
    ends = np.cumsum(np.bincount(node_of, minlength=len(cluster)))
    for node in np.unique(node_of[cluster.processes[node_of] > 1]).tolist():
        members = by_node[(ends[node - 1] if node else 0) : ends[node]]
        spec = cluster.nodes[node]
        if len(members) > spec.slots * spec.processes:
            process_of[members] = np.arange(len(members)) % spec.processes
            continue
        if between is None:
            traffic = _within(graph, members)
        else:
            traffic = between[np.ix_(graph.classes[members], graph.classes[members])]
            np.fill_diagonal(traffic, 0.0)
        if spec.own_cores:
            process_of[members] = _share(traffic, _loads(graph, members), spec)
        else:
            process_of[members] = _grow(traffic, spec.slots)
    return process_of


def fill_processes(graph: InstanceGraph, cluster: Cluster, node_of: IntArray) -> IntArray:
    """Gather pairs, or give each process a slice of every operator, whichever is cheaper.

    A stream that prefers targets of its own process needs one in each process that sends, and those
    who talk most may sit in another. Without such streams pairs are gathered.
    """
    gathered = gather_pairs(graph, cluster, node_of)
    if not any(flow.is_local and flow.matrix is None for flow in graph.flows):
        return gathered
    first = graph.first[graph.operator_of]
    size = graph.first[graph.operator_of + 1] - first
    place = (np.arange(len(graph)) - first + 0.5) / size
    sliced = np.zeros_like(gathered)
    for node in np.unique(node_of).tolist():
        members = np.flatnonzero(node_of == node)
        order = np.empty(len(members), dtype=np.int64)
        # By the place among those of its operator that are on this node.
        rank = _rank_within(graph.operator_of[members], place[members])
        order[np.argsort(rank, kind="stable")] = np.arange(len(members))
        spec = cluster.nodes[node]
        wanted = spec.processes if spec.own_cores else -(-len(members) // spec.slots)
        used = min(max(wanted, 1), spec.processes)
        sliced[members] = order * used // len(members)
    costs = [
        evaluate(graph, cluster, node_of, filled).communication_us_per_s
        for filled in (gathered, sliced)
    ]
    return sliced if costs[1] < costs[0] else gathered


def _rank_within(groups: IntArray, values: FloatArray) -> FloatArray:
    """Place of each value among those of its group, from 0 to 1."""
    order = np.lexsort((values, groups))
    sizes = np.bincount(groups)
    start = np.cumsum(sizes) - sizes
    rank = np.empty(len(groups))
    rank[order] = np.arange(len(groups)) - start[groups[order]]
    return np.asarray((rank + 0.5) / sizes[groups], dtype=np.float64)


def stay_in_place(
    graph: InstanceGraph,
    cluster: Cluster,
    node_of: IntArray,
    current: IntArray,
    current_process: IntArray,
) -> IntArray:
    """Leave instances that stay on their node in their process, and let newcomers join one.

    A newcomer joins the process with a free slot that it talks to most; of equals, the emptiest. A
    process with cores of its own that has its part of the load has no free slot.
    Changing the process is a move too, with state and all, and saves the least of all moves.
    """
    process_of = np.where(node_of == current, current_process, -1)
    first = cluster.first_process
    held = np.zeros(int(cluster.processes.sum()), dtype=np.int64)
    stayers = np.flatnonzero(process_of >= 0)
    np.add.at(held, first[node_of[stayers]] + process_of[stayers], 1)
    loads = _loads(graph, np.arange(len(graph)))
    carried = np.zeros(len(held))
    np.add.at(carried, first[node_of[stayers]] + process_of[stayers], loads[stayers])
    total = group_sums(node_of, loads, len(cluster))
    for instance in np.flatnonzero(process_of < 0).tolist():
        node = cluster.nodes[int(node_of[instance])]
        if node.processes == 1:
            process_of[instance] = 0
            continue
        start = int(first[node_of[instance]])
        mates = np.flatnonzero((node_of == node_of[instance]) & (process_of >= 0))
        pull = group_sums(process_of[mates], rates_of(graph, instance)[mates], node.processes)
        taken = held[start : start + node.processes]
        full = taken >= node.slots
        if node.own_cores:
            part = total[node_of[instance]] / node.processes
            over = carried[start : start + node.processes] + loads[instance] / 2 > part + ROUNDING
            full = full | (over if not over.all() else taken > taken.min())
        chosen = int(np.lexsort((taken, -pull, full))[0])
        process_of[instance] = chosen
        held[start + chosen] += 1
        carried[start + chosen] += loads[instance]
    return process_of


def _within(graph: InstanceGraph, members: IntArray) -> FloatArray:
    """Undirected rates between the given instances."""
    local = np.full(len(graph), -1, dtype=np.int64)
    local[members] = np.arange(len(members))
    traffic = np.zeros((len(members), len(members)))
    for flow in graph.flows:
        source = np.flatnonzero(local[flow.sources] >= 0)
        target = np.flatnonzero(local[flow.targets] >= 0)
        if not len(source) or not len(target):
            continue
        if flow.matrix is not None:
            rates = flow.matrix[np.ix_(source, target)]
        else:
            rates = np.outer(flow.out[source], flow.share[target])
        rows, columns = local[flow.sources][source], local[flow.targets][target]
        traffic[np.ix_(rows, columns)] += rates
        traffic[np.ix_(columns, rows)] += rates.T
    np.fill_diagonal(traffic, 0.0)
    return traffic


def _loads(graph: InstanceGraph, members: IntArray) -> FloatArray:
    """CPU of instances, all alike where none is known."""
    loads = graph.cpu_cores[members]
    return loads if loads.sum() > 0 else np.ones(len(members))


def _share(traffic: FloatArray, loads: FloatArray, spec: Node) -> IntArray:
    """Grow the processes of a node one by one up to an equal part of its load."""
    process = np.full(len(traffic), -1, dtype=np.int64)
    for current in range(spec.processes):
        left = np.flatnonzero(process < 0)
        part = loads[left].sum() / (spec.processes - current)
        pull, carried, count = traffic[:, left].sum(axis=1), 0.0, 0
        # The last takes what is left.
        while len(left) and count < spec.slots:
            fits = left[carried + loads[left] / 2 <= part + ROUNDING]
            if not len(fits) and current < spec.processes - 1 and count:
                break
            among = fits if len(fits) else left
            chosen = int(among[np.argmax(pull[among])])
            pull = traffic[chosen] if not count else pull + traffic[chosen]
            process[chosen], carried, count = current, carried + float(loads[chosen]), count + 1
            left = np.flatnonzero(process < 0)
    for rest in np.flatnonzero(process < 0).tolist():
        # Slots were few: whoever has one takes it.
        process[rest] = np.argmin(np.bincount(process[process >= 0], minlength=spec.processes))
    return process


def _grow(traffic: FloatArray, slots: int) -> IntArray:
    count = len(traffic)
    process = np.full(count, -1, dtype=np.int64)
    current = 0
    while (process < 0).any():
        free = process < 0
        pull = traffic[:, free].sum(axis=1)
        for _ in range(slots):
            open_ = np.flatnonzero(process < 0)
            if not len(open_):
                break
            chosen = open_[int(np.argmax(pull[open_]))]
            if process[chosen] < 0 and not (process == current).any():
                pull = np.zeros(count)
            process[chosen] = current
            pull = pull + traffic[chosen]
        current += 1
    return process
