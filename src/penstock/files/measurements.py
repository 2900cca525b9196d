"""Measurement files: what was measured, reduced already or as a window of samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from penstock.common.arrays import FloatArray, frozen_floats
from penstock.common.near_miss import near_miss
from penstock.files.document import FilePath, read_document
from penstock.files.fields import Fields, number
from penstock.model import Kind, Measurements, Sample, Topology, Utilisation
from penstock.model.measurements import BY_INSTANCE, RESOURCES

REDUCED_FIELDS = (
    "source_rates",
    "rates",
    "tuples_per_s",
    "cpu_cores",
    "mem_mb",
    "state_mb",
    "sent_mb_s",
    "received_mb_s",
    "io_mb_s",
    "busy",
    "tuple_bytes",
    "nodes",
    "latency_ms",
    "rate_cv",
)
MEASUREMENTS_FIELDS = (*REDUCED_FIELDS, "samples")
SAMPLE_FIELDS = ("duration_s", "tuples_in", "transferred", "cpu_s", "nodes", "latency_ms")
PAIR_FIELDS = ("from", "to", "matrix")
NODE_FIELDS = RESOURCES

#: Shortest sample, in seconds; keeps rates finite.
LEAST_DURATION_S = 1e-3


def load_measurements(path: FilePath, topology: Topology) -> Measurements:
    """Read measurements of a topology from a YAML or JSON file.

    A file holds either the reduced figures or ``samples``, which are reduced to trimmed means.

    Raises
    ------
    FileError
        Names the file, the field and what is allowed; also when an operator is not in the
        topology, or a list does not have one number for each of its instances.
    """
    file = str(path)
    top = Fields(file, read_document(path), "", MEASUREMENTS_FIELDS)
    sources = [operator.name for operator in topology.sources]
    if "samples" in top:
        for name in REDUCED_FIELDS:
            if name in top:
                raise top.error(name, "left out where samples are given", top.values[name])
        samples = [
            _sample(Fields(file, item, where, SAMPLE_FIELDS), topology)
            for where, item in top.items("samples", required=True)
        ]
        return Measurements.from_samples(samples, sources)
    by_instance: dict[str, Any] = {f: _by_operator(top, f, topology) for f in BY_INSTANCE}
    return Measurements(
        source_rates=_source_rates(top, topology),
        rates=_pairs(top, "rates", topology),
        **by_instance,
        busy=_of_operators(top, "busy", topology),
        tuple_bytes=_of_operators(top, "tuple_bytes", topology),
        nodes=_node_use(top),
        latency_ms=_optional(top, "latency_ms"),
        rate_cv=_optional(top, "rate_cv"),
    )


def _sample(entry: Fields, topology: Topology) -> Sample:
    if "duration_s" not in entry:
        raise entry.missing("duration_s", "the length of the sample in seconds")
    duration_s = entry.number("duration_s", 0.0)
    if duration_s < LEAST_DURATION_S:
        raise entry.error("duration_s", f"at least {LEAST_DURATION_S:g} seconds", duration_s)
    return Sample(
        duration_s=duration_s,
        tuples_in=_by_operator(entry, "tuples_in", topology),
        transferred=_pairs(entry, "transferred", topology),
        cpu_s=_by_operator(entry, "cpu_s", topology),
        nodes=_node_use(entry),
        latency_ms=_optional(entry, "latency_ms"),
    )


def _optional(entry: Fields, name: str) -> float | None:
    return entry.number(name, 0.0) if name in entry else None


def _source_rates(entry: Fields, topology: Topology) -> dict[str, float]:
    rates: dict[str, float] = {}
    for name, value in entry.mapping("source_rates").items():
        _require(entry, f"source_rates.{name}", name, topology)
        if topology[name].kind is not Kind.SOURCE:
            raise entry.error(f"source_rates.{name}", "left out, because it is no source", value)
        rates[name] = number(entry, f"source_rates.{name}", value)
    return rates


def _by_operator(entry: Fields, field: str, topology: Topology) -> dict[str, FloatArray]:
    found: dict[str, FloatArray] = {}
    for name, values in entry.mapping(field).items():
        path = f"{field}.{name}"
        _require(entry, path, name, topology)
        found[name] = _row(entry, path, values, topology[name].parallelism)
    return found


def _of_operators(entry: Fields, field: str, topology: Topology) -> dict[str, float]:
    """Read one number for each operator."""
    found: dict[str, float] = {}
    for name, value in entry.mapping(field).items():
        path = f"{field}.{name}"
        _require(entry, path, name, topology)
        found[name] = number(entry, path, value)
    return found


def _pairs(entry: Fields, field: str, topology: Topology) -> Mapping[tuple[str, str], FloatArray]:
    found: dict[tuple[str, str], FloatArray] = {}
    joined = {(edge.source, edge.target) for edge in topology.edges}
    for where, item in entry.items(field, required=False):
        pair = Fields(entry.file, item, where, PAIR_FIELDS)
        key = (pair.text("from"), pair.text("to"))
        for end, name in zip(("from", "to"), key, strict=True):
            _require(pair, end, name, topology)
        if key not in joined:
            raise pair.error("to", f"joined to {key[0]!r} by an edge", key[1])
        if key in found:
            raise pair.error("to", f"given once for {key[0]!r}", key[1])
        count = topology[key[0]].parallelism
        rows = [value for _, value in pair.items("matrix", required=True)]
        if len(rows) != count:
            allowed = f"{count} rows, one for each instance of {key[0]!r}"
            raise pair.error("matrix", allowed, len(rows))
        width = topology[key[1]].parallelism
        found[key] = np.stack(
            [_row(pair, f"matrix[{i}]", row, width) for i, row in enumerate(rows)]
        )
    return found


def _row(entry: Fields, path: str, values: object, count: int) -> FloatArray:
    if not isinstance(values, list) or len(values) != count:
        raise entry.error(path, f"a list of {count} numbers, one for each instance", values)
    return frozen_floats(_numbers(entry, path, values))


def _numbers(entry: Fields, path: str, values: Iterable[object]) -> list[float]:
    return [number(entry, f"{path}[{i}]", value) for i, value in enumerate(values)]


def _node_use(entry: Fields) -> dict[str, Utilisation]:
    use: dict[str, Utilisation] = {}
    for name, values in entry.mapping("nodes").items():
        at = f"{entry.path}.nodes.{name}" if entry.path else f"nodes.{name}"
        node = Fields(entry.file, values, at, NODE_FIELDS)
        use[name] = Utilisation(*(_optional(node, resource) for resource in NODE_FIELDS))
    return use


def _require(entry: Fields, path: str, name: str, topology: Topology) -> None:
    if name not in topology.index:
        known = list(topology.index)
        raise entry.error(
            path, f"an operator of topology {topology.name!r}", name, near_miss(name, known)
        )
