"""Topology files: operators and edges."""

from __future__ import annotations

from pathlib import Path

from penstock.common.near_miss import near_miss
from penstock.files.document import FilePath, read_document
from penstock.files.errors import FileError
from penstock.files.fields import Fields, number
from penstock.model import Edge, Grouping, InvalidValue, Kind, Operator, Topology

#: More instances than this, over all operators, are taken for a mistake.
MOST_INSTANCES = 1_000_000

#: Kind of an operator whose file only says that it is not a source: its edges tell the rest.
UNDECIDED = "operator"

NUMBERS = {
    "cpu_us_per_tuple": 0.0,
    "cpu_pct": 0.0,
    "mem_mb": 0.0,
    "io_bytes_per_tuple": 0.0,
    "selectivity": 1.0,
    "state_mb": 0.0,
    "tuple_bytes": 100.0,
    "complexity": 1.0,
}
TOPOLOGY_FIELDS = ("name", "operators", "edges")
OPERATOR_FIELDS = ("name", "kind", "parallelism", *NUMBERS, "rate_per_s", "splittable")
EDGE_FIELDS = ("from", "to", "grouping", "shares", "source", "target")

GROUPINGS = {grouping.value: grouping for grouping in Grouping}
KINDS: dict[str, Kind | None] = {**{kind.value: kind for kind in Kind}, UNDECIDED: None}
#: Groupings by key: their targets keep history, unless they say otherwise.
KEYED = frozenset({Grouping.FIELDS, Grouping.PARTIAL_KEY, Grouping.HOT_KEY})


def load_topology(path: FilePath, *, relaxed: bool = True) -> Topology:
    """Read a topology from a YAML or JSON file.

    Parameters
    ----------
    path : str or path
    relaxed : bool
        Accept cycles and operators that no source reaches, and list them in
        `Topology.warnings`. This is enough for planning; such a topology cannot run.

    Raises
    ------
    FileError
        Names the file, the field and what is allowed.
    """
    file = str(path)
    top = Fields(file, read_document(path), "", TOPOLOGY_FIELDS)
    entries = [
        Fields(file, item, where, OPERATOR_FIELDS)
        for where, item in top.items("operators", required=True)
    ]
    if not entries:
        raise top.error("operators", "at least one operator", [])
    places: dict[str, str] = {}
    for entry in entries:
        name = entry.text("name")
        if name in places:
            allowed = f"unique, and {places[name]} has it too"
            raise entry.error("name", allowed, name)
        places[name] = entry.path
    edges = tuple(
        _edge(Fields(file, item, where, EDGE_FIELDS), tuple(places))
        for where, item in top.items("edges", required=False)
    )
    keyed = {edge.target for edge in edges if edge.grouping in KEYED}
    operators = tuple(_operator(entry, keyed) for entry in entries)
    count = sum(operator.parallelism for operator in operators)
    if count > MOST_INSTANCES:
        raise top.error("operators", f"at most {MOST_INSTANCES} instances in all", count)
    try:
        return Topology(top.text("name", Path(path).stem or "topology"), operators, edges, relaxed)
    except InvalidValue as error:
        raise FileError(file, f"does not hold together: {error}") from None


def _operator(entry: Fields, keyed: set[str]) -> Operator:
    name = entry.text("name")
    kind = entry.choice("kind", KINDS, None)
    if kind is None:
        kind = Kind.STATEFUL if name in keyed else Kind.STATELESS
    if "rate_per_s" in entry and kind is not Kind.SOURCE:
        allowed = "left out, because only a source has a rate of its own"
        raise entry.error("rate_per_s", allowed, entry.values["rate_per_s"])
    numbers = {field: entry.number(field, default) for field, default in NUMBERS.items()}
    if numbers["state_mb"] and kind is not Kind.STATEFUL:
        raise entry.error("state_mb", "0 unless the kind is stateful", numbers["state_mb"])
    splittable = entry.truth("splittable", False)
    if splittable and kind is Kind.SOURCE:
        raise entry.error("splittable", "false for a source", splittable)
    return Operator(
        name=name,
        kind=kind,
        parallelism=entry.whole("parallelism", 1, most=MOST_INSTANCES),
        rate_per_s=entry.number("rate_per_s", 0.0) if "rate_per_s" in entry else None,
        splittable=splittable,
        **numbers,
    )


def _edge(entry: Fields, names: tuple[str, ...]) -> Edge:
    source = _end(entry, "from", "source", names)
    target = _end(entry, "to", "target", names)
    shares: tuple[float, ...] | None = None
    if "shares" in entry:
        shares = tuple(
            number(entry, f"shares[{i}]", item, most=1.0)
            for i, (_, item) in enumerate(entry.items("shares", required=False))
        )
    try:
        return Edge(source, target, entry.choice("grouping", GROUPINGS, Grouping.SHUFFLE), shares)
    except InvalidValue as error:
        raise entry.error("shares", error.allowed, error.got) from None


def _end(entry: Fields, field: str, other: str, names: tuple[str, ...]) -> str:
    if field in entry and other in entry:
        raise entry.error(other, f"left out where {field} is given", entry.values[other])
    used = other if other in entry else field
    if used not in entry:
        raise entry.missing(field, "the name of an operator")
    name = entry.text(used)
    if name not in names:
        hint = near_miss(name, names)
        raise entry.error(used, f"the name of one of the {len(names)} operators", name, hint)
    return name
