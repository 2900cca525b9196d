"""A plan: where every instance runs, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from penstock.common.arrays import IntArray, frozen_ints
from penstock.common.errors import InvalidValue
from penstock.model.cluster import Cluster
from penstock.model.cost import Cost, Violation

FORMAT = 1


@dataclass(frozen=True)
class Reason:
    """Why a plan is as it is: a sentence, and the figures that decided."""

    text: str
    figures: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Spot:
    """One process of one node."""

    node: str
    process: int = 0

    def __str__(self) -> str:
        return f"{self.node}/{self.process}"


@dataclass(frozen=True)
class RoutingTable:
    """How the keys of a stateful operator find their instance (Ms eq. 27-28).

    Parameters
    ----------
    partitions : tuple of int
        Instance of each router partition; a key's partition is its hash modulo their number.
    split : mapping of int to tuple of int
        Hashes of keys that are hotter than one instance, and the instances that share each.
    """

    partitions: tuple[int, ...]
    split: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.partitions:
            raise InvalidValue("partitions", "a routing table", "at least one partition", ())


@dataclass(frozen=True, eq=False)
class Plan:
    """Where every instance runs, and why.

    Parameters
    ----------
    strategy, topology : str
        Names of the strategy that made it and of the topology that it is for.
    parallelism : mapping of str to int
        Instances of each operator, in the topology's order.
    nodes : tuple of str
        Nodes of the cluster that it was made for.
    node_of : array of int
        Node of each instance, as its position in `nodes`.
    process_of : array of int
        Process of each instance, counted from 0 within its node.
    after : Cost
        What the plan costs.
    before : Cost or None
        What the running plan costs under the same rates; None when none runs.
    reasons : tuple of Reason
        Never empty.
    infeasible : tuple of Violation
        The limits that it breaks; empty when it is feasible.
    active : tuple of str
        Nodes that are kept awake: those in use and any the strategy keeps in reserve.
    routing : mapping of str to RoutingTable
        Tables of the stateful operators that have one.
    pinned : bool
        Whether the engine is to be asked to follow the placement; False leaves it to the engine.
    """

    strategy: str
    topology: str
    parallelism: Mapping[str, int]
    nodes: tuple[str, ...]
    node_of: IntArray
    process_of: IntArray
    after: Cost
    reasons: tuple[Reason, ...]
    before: Cost | None = None
    infeasible: tuple[Violation, ...] = ()
    active: tuple[str, ...] = ()
    routing: Mapping[str, RoutingTable] = field(default_factory=dict)
    pinned: bool = True

    def __post_init__(self) -> None:
        owner = f"a plan by {self.strategy!r}"
        count = sum(self.parallelism.values())
        for name in ("node_of", "process_of"):
            array = frozen_ints(getattr(self, name))
            if array.shape != (count,):
                raise InvalidValue(name, owner, f"{count} numbers, one an instance", array.shape)
            object.__setattr__(self, name, array)
        if count and not (self.node_of.min() >= 0 and self.node_of.max() < len(self.nodes)):
            low, high = int(self.node_of.min()), int(self.node_of.max())
            allowed = f"from 0 to {len(self.nodes) - 1}"
            raise InvalidValue("node_of", owner, allowed, low if low < 0 else high)
        if count and self.process_of.min() < 0:
            raise InvalidValue("process_of", owner, "at least 0", int(self.process_of.min()))
        if not self.reasons:
            raise InvalidValue("reasons", owner, "at least one reason", ())
        if not self.active:
            used = np.unique(self.node_of)
            object.__setattr__(self, "active", tuple(self.nodes[i] for i in used))
        object.__setattr__(self, "parallelism", MappingProxyType(dict(self.parallelism)))
        object.__setattr__(self, "routing", MappingProxyType(dict(self.routing)))

    @property
    def feasible(self) -> bool:
        """Whether it breaks no limit."""
        return not self.infeasible

    @cached_property
    def placement(self) -> Mapping[str, tuple[Spot, ...]]:
        """Spot of every instance, by operator."""
        spots: dict[str, tuple[Spot, ...]] = {}
        start = 0
        for name, count in self.parallelism.items():
            nodes = self.node_of[start : start + count].tolist()
            processes = self.process_of[start : start + count].tolist()
            spots[name] = tuple(
                Spot(self.nodes[n], p) for n, p in zip(nodes, processes, strict=True)
            )
            start += count
        return MappingProxyType(spots)

    @cached_property
    def locations(self) -> Mapping[str, tuple[str, ...]]:
        """Spot of every instance as text, such as ``node-1/0``, by operator."""
        return MappingProxyType(
            {name: tuple(map(str, spots)) for name, spots in self.placement.items()}
        )

    def node_of_in(self, cluster: Cluster) -> IntArray:
        """Node of each instance as its position in another cluster; -1 where it is gone."""
        table = np.array([cluster.index.get(name, -1) for name in self.nodes], dtype=np.int64)
        return table[self.node_of]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(
            (self.strategy, self.topology, self.node_of.tobytes(), self.process_of.tobytes())
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `from_dict` reads them back."""
        return {
            "format": FORMAT,
            "strategy": self.strategy,
            "topology": self.topology,
            # Instances are numbered in this order; the keys of a JSON object have none.
            "operators": list(self.parallelism),
            "parallelism": dict(self.parallelism),
            "nodes": list(self.nodes),
            "node_of": self.node_of.tolist(),
            "process_of": self.process_of.tolist(),
            "after": self.after.to_dict(),
            "before": self.before.to_dict() if self.before else None,
            "reasons": [{"text": r.text, "figures": dict(r.figures)} for r in self.reasons],
            "infeasible": [
                {
                    "resource": v.resource,
                    "where": v.where,
                    "demand": v.demand,
                    "capacity": v.capacity,
                    "unit": v.unit,
                }
                for v in self.infeasible
            ],
            "active": list(self.active),
            "routing": {
                name: {
                    "partitions": list(table.partitions),
                    "split": {str(key): list(to) for key, to in table.split.items()},
                }
                for name, table in self.routing.items()
            },
            "pinned": self.pinned,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Plan:
        """Read back what `to_dict` wrote."""
        if values.get("format") != FORMAT:
            raise InvalidValue("format", "a plan", str(FORMAT), values.get("format"))
        return cls(
            strategy=values["strategy"],
            topology=values["topology"],
            parallelism={name: values["parallelism"][name] for name in values["operators"]},
            nodes=tuple(values["nodes"]),
            node_of=frozen_ints(values["node_of"]),
            process_of=frozen_ints(values["process_of"]),
            after=Cost.from_dict(values["after"]),
            before=Cost.from_dict(values["before"]) if values["before"] else None,
            reasons=tuple(Reason(r["text"], r["figures"]) for r in values["reasons"]),
            infeasible=tuple(Violation(**v) for v in values["infeasible"]),
            active=tuple(values["active"]),
            routing={
                name: RoutingTable(
                    tuple(table["partitions"]),
                    {int(key): tuple(to) for key, to in table["split"].items()},
                )
                for name, table in values["routing"].items()
            },
            pinned=values["pinned"],
        )


@dataclass(frozen=True)
class Keep:
    """A strategy's answer that the running plan stays, and why."""

    reasons: tuple[Reason, ...]

    def __post_init__(self) -> None:
        if not self.reasons:
            raise InvalidValue("reasons", "a decision to keep", "at least one reason", ())
