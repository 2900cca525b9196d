"""The operators at one depth, compiled so that a step treats all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from penstock.common.arrays import FloatArray, IntArray
from penstock.model import Topology


@dataclass(frozen=True, eq=False)
class Layer:
    """Operators that do not feed each other.

    Parameters
    ----------
    instances : array of int
    routing : sparse array
        Takes what all edges emit to what the layer's instances receive.
    leaving : array of int
        Edges that leave the layer.
    senders : array of int
        Operator of each of them.
    entries, values, starts : array
        Target instances of those edges with their shares, and where each edge's begin.
    portions : array
        Part of the target's room that the edge may fill, for each entry.
    """

    instances: IntArray
    routing: sp.csr_array
    leaving: IntArray
    senders: IntArray
    entries: IntArray
    values: FloatArray
    starts: IntArray
    portions: FloatArray


def layers_of(
    topology: Topology, first: IntArray, shares: Sequence[FloatArray], flow: FloatArray
) -> tuple[Layer, ...]:
    """Compile the layers, from the sources down.

    Parameters
    ----------
    topology : Topology
    first : array of int
        Number of each operator's first instance.
    shares : sequence of array
        Part of each edge's tuples that each target gets.
    flow : array
        Tuples of each operator, relative to each other: edges into the same instance share its room
        in this proportion.
    """
    index, edges = topology.index, topology.edges
    senders = [index[edge.source] for edge in edges]
    targets = [index[edge.target] for edge in edges]
    volume = [flow[i] * topology.operators[i].selectivity for i in senders]
    wanted = np.zeros(int(first[-1]))
    for e, j in enumerate(targets):
        wanted[first[j] : first[j + 1]] += volume[e] * shares[e]
    made: list[Layer] = []
    for names in topology.layers:
        here = [index[name] for name in names]
        instances = np.concatenate([np.arange(first[i], first[i + 1]) for i in here])
        into = [e for e, j in enumerate(targets) if j in here]
        leaving = [e for e, i in enumerate(senders) if i in here]
        entries: list[IntArray] = []
        values: list[FloatArray] = []
        portions: list[FloatArray] = []
        for e in leaving:
            some = np.flatnonzero(shares[e] > 0)
            at = some + int(first[targets[e]])
            part = volume[e] * shares[e][some] / np.maximum(wanted[at], 1e-300)
            entries.append(at)
            values.append(shares[e][some])
            portions.append(part if volume[e] > 0 else np.ones(len(some)))
        sizes = [len(at) for at in entries]
        made.append(
            Layer(
                instances,
                _distribute(instances, into, targets, first, shares),
                np.array(leaving, dtype=np.int64),
                np.array([senders[e] for e in leaving], dtype=np.int64),
                np.concatenate([np.empty(0, dtype=np.int64), *entries]),
                np.concatenate([np.empty(0), *values]),
                np.concatenate(([0], np.cumsum(sizes[:-1]))).astype(np.int64)[: len(sizes)],
                np.concatenate([np.empty(0), *portions]),
            )
        )
    return tuple(made)


def _distribute(
    instances: IntArray,
    into: Sequence[int],
    targets: Sequence[int],
    first: IntArray,
    shares: Sequence[FloatArray],
) -> sp.csr_array:
    shape = (len(instances), len(shares))
    if not into:
        return sp.csr_array(shape)
    row_of = np.full(int(first[-1]), -1)
    row_of[instances] = np.arange(len(instances))
    rows = np.concatenate([row_of[first[targets[e]] : first[targets[e] + 1]] for e in into])
    columns = np.concatenate([np.full(len(shares[e]), e) for e in into])
    values = np.concatenate([shares[e] for e in into])
    return sp.csr_array(sp.coo_array((values, (rows, columns)), shape=shape))
