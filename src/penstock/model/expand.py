"""From a topology to its instance graph: rates, CPU, memory and I/O of every instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, frozen_floats
from penstock.model.instances import Flow, InstanceGraph
from penstock.model.measurements import Measurements
from penstock.model.operator import Edge, Grouping, Operator
from penstock.model.topology import Topology

#: Rate of a source instance when neither the topology nor a measurement tells it.
DERIVED_RATE_PER_S = 1000.0


def expand(topology: Topology, measurements: Measurements | None = None) -> InstanceGraph:
    """Expand a topology to its instances.

    Rates follow from the source rates, selectivities and groupings; what was measured replaces what
    was derived or declared: rates, CPU, memory, state, disk traffic and the size of tuples. With
    another parallelism than was measured, a tuple costs what it did, and state is shared anew. A
    source whose rate nobody knows reads `DERIVED_RATE_PER_S` per instance. An edge
    that closes a cycle carries its sender's output but does not feed it back into the rates, which
    would not settle for a selectivity of 1.

    Examples
    --------
    >>> from penstock.model import Kind
    >>> pair = Topology(
    ...     "pair", (Operator("a", Kind.SOURCE, 2, rate_per_s=100), Operator("b", parallelism=4)),
    ...     (Edge("a", "b"),))
    >>> expand(pair).rates().toarray()[0]
    array([ 0. ,  0. , 12.5, 12.5, 12.5, 12.5])
    """
    measured = measurements or Measurements()
    topology = _sized(topology, measured)
    counts = np.array(list(topology.parallelism.values()), dtype=np.int64)
    first = np.concatenate(([0], np.cumsum(counts)))
    incoming = _source_rates(topology, measured)
    closing = {id(edge) for edge in topology.feedback}
    leaving: dict[str, list[int]] = {operator.name: [] for operator in topology.operators}
    for position, edge in enumerate(topology.edges):
        leaving[edge.source].append(position)
    known = _measured_matrices(topology, measured)
    flows: dict[int, Flow] = {}
    for name in topology.order:
        i = topology.index[name]
        operator = topology.operators[i]
        emitted = incoming[i] * operator.selectivity
        for position in leaving[name]:
            edge = topology.edges[position]
            j = topology.index[edge.target]
            flow = Flow(
                edge=edge,
                first_source=int(first[i]),
                first_target=int(first[j]),
                out=frozen_floats(emitted),
                share=frozen_floats(_shares(edge, int(counts[j]))),
                matrix=known.get(position),
            )
            flows[position] = flow
            if id(edge) not in closing:
                incoming[j] = incoming[j] + flow.received

    rate_in = np.concatenate(incoming)
    return InstanceGraph(
        topology=topology,
        flows=tuple(flows[position] for position in range(len(topology.edges))),
        rate_in=frozen_floats(rate_in),
        cpu_cores=frozen_floats(
            _worked(topology, rate_in, first, measured, measured.cpu_cores, _declared_cpu)
        ),
        mem_mb=frozen_floats(_memory(topology, first, measured)),
        io_mb_s=frozen_floats(
            _worked(topology, rate_in, first, measured, measured.io_mb_s, _declared_io)
        ),
        state_mb=frozen_floats(_state(topology, first, measured)),
    )


def _sized(topology: Topology, measured: Measurements) -> Topology:
    """Give operators the size of tuple that they were seen to send."""
    if not any(name in topology.index for name in measured.tuple_bytes):
        return topology
    operators = tuple(
        replace(o, tuple_bytes=measured.tuple_bytes[o.name])
        if o.name in measured.tuple_bytes
        else o
        for o in topology.operators
    )
    return replace(topology, operators=operators)


def _source_rates(topology: Topology, measured: Measurements) -> list[FloatArray]:
    """Tuples per second that each instance of a source reads; 0 for the other operators."""
    incoming = [np.zeros(operator.parallelism) for operator in topology.operators]
    for operator in topology.sources:
        i = topology.index[operator.name]
        per_instance = measured.tuples_per_s.get(operator.name)
        if per_instance is not None and len(per_instance) == operator.parallelism:
            incoming[i] += per_instance
            continue
        rate = measured.source_rates.get(operator.name, operator.rate_per_s)
        if rate is None:
            rate = DERIVED_RATE_PER_S * operator.parallelism
        incoming[i] += rate / operator.parallelism
    return incoming


def _per_instance(topology: Topology, value: Callable[[Operator], float]) -> FloatArray:
    counts = list(topology.parallelism.values())
    return frozen_floats(np.repeat([float(value(o)) for o in topology.operators], counts))


def _declared_cpu(topology: Topology, rate_in: FloatArray) -> FloatArray:
    constant = _per_instance(topology, lambda o: o.cpu_pct) / 100.0
    return constant + _per_instance(topology, lambda o: o.cpu_us_per_tuple) * rate_in * 1e-6


def _declared_io(topology: Topology, rate_in: FloatArray) -> FloatArray:
    return _per_instance(topology, lambda o: o.io_bytes_per_tuple) * rate_in / 1e6


def _worked(
    topology: Topology,
    rate_in: FloatArray,
    first: IntArray,
    measured: Measurements,
    seen: Mapping[str, FloatArray],
    declared: Callable[[Topology, FloatArray], FloatArray],
) -> FloatArray:
    """Return what the work of each instance takes: as measured, or else as declared.

    Of an operator whose parallelism has changed the cost of a tuple is known.
    """
    needs = np.array(declared(topology, rate_in), dtype=np.float64)
    for i, operator in enumerate(topology.operators):
        own, tuples = seen.get(operator.name), measured.tuples_per_s.get(operator.name)
        span = slice(first[i], first[i + 1])
        if own is None:
            continue
        if len(own) == operator.parallelism:
            needs[span] = own
        elif tuples is not None and len(tuples) == len(own) and tuples.sum() > 0:
            needs[span] = rate_in[span] * float(own.sum() / tuples.sum())
    return needs


def _state(topology: Topology, first: IntArray, measured: Measurements) -> FloatArray:
    """State of each instance; what was measured before a change of parallelism is shared anew."""
    state = np.array(_per_instance(topology, lambda o: o.state_mb / o.parallelism))
    for i, operator in enumerate(topology.operators):
        own = measured.state_mb.get(operator.name)
        if own is not None:
            span = slice(first[i], first[i + 1])
            same = len(own) == operator.parallelism
            state[span] = own if same else float(own.sum()) / operator.parallelism
    return state


def _memory(topology: Topology, first: IntArray, measured: Measurements) -> FloatArray:
    """Memory of each instance with its state; as declared until it was measured."""
    memory = _per_instance(topology, lambda o: o.mem_mb) + _state(topology, first, measured)
    for i, operator in enumerate(topology.operators):
        own = measured.mem_mb.get(operator.name)
        if own is not None:
            span = slice(first[i], first[i + 1])
            same = len(own) == operator.parallelism
            memory[span] = own if same else float(own.sum()) / operator.parallelism
    return memory


def _shares(edge: Edge, count: int) -> FloatArray:
    if edge.grouping is Grouping.ALL:
        return np.ones(count)
    if edge.grouping is Grouping.GLOBAL:
        share = np.zeros(count)
        share[0] = 1.0
        return share
    if edge.shares is not None:
        return np.asarray(edge.shares, dtype=np.float64)
    return np.full(count, 1.0 / count)


def _measured_matrices(topology: Topology, measured: Measurements) -> Mapping[int, FloatArray]:
    """Measured rates by position of the edge; of parallel edges the first has them all."""
    known: dict[int, FloatArray] = {}
    seen: set[tuple[str, str]] = set()
    for position, edge in enumerate(topology.edges):
        key = (edge.source, edge.target)
        rates = measured.rates.get(key)
        if rates is None:
            continue
        shape = (topology[edge.source].parallelism, topology[edge.target].parallelism)
        if rates.shape != shape:
            # Measured before a change of parallelism: it says nothing about these instances.
            continue
        known[position] = rates if key not in seen else frozen_floats(np.zeros(shape))
        seen.add(key)
    return known
