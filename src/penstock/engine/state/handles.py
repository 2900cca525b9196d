"""What the driver knows of the state: versions, where it lies, who keeps fragments of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.engine.job_graph import JobGraph
from penstock.model import Grouping, InvalidValue, Plan, RoutingTable
from penstock.strategies.route.two_tier import TwoTier, resize


@dataclass(eq=False)
class InstanceState:
    """State of one instance, as committed.

    Parameters
    ----------
    version : int
        -1 before it has any.
    executor : str
        Where its copy on a node is; "" if there is none.
    backed : int
        The version that peers have, together with the driver; -1 if none.
    worn : bool
        Whether some of their fragments turned out to be corrupt or gone.
    """

    version: int = -1
    executor: str = ""
    backed: int = -1
    worn: bool = False


@dataclass(eq=False)
class StateHandle:
    """State of one stateful vertex.

    Parameters
    ----------
    by, route : tuple of str
        Columns of the state's key, and of the key that tuples are routed by; `route` is empty where
        tuples do not come by key, and instances cannot be changed.
    table : RoutingTable or None
    instances : list of InstanceState
    splittable : bool
        Whether keys may be split, because what is made of them elsewhere comes home.
    """

    by: tuple[str, ...]
    route: tuple[str, ...]
    table: RoutingTable | None
    instances: list[InstanceState]
    splittable: bool = False

    @property
    def empty(self) -> bool:
        """Whether nothing was saved yet."""
        return all(instance.version < 0 for instance in self.instances)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the journal."""
        return {
            "partitions": None if self.table is None else list(self.table.partitions),
            "versions": [instance.version for instance in self.instances],
        }


def held_by(job_graph: JobGraph, committed: Mapping[str, Any]) -> dict[str, StateHandle]:
    """Start from what the journal says was committed; {} is nothing."""
    found = {}
    for vertex in job_graph.vertices:
        step = job_graph.pipeline[vertex.head]
        if step.keyed is None:
            continue
        keyed = all(link.grouping is Grouping.FIELDS for link in step.links)
        known = committed.get(vertex.name, {"partitions": None, "versions": []})
        partitions = known["partitions"]
        found[vertex.name] = StateHandle(
            step.keyed.by,
            step.links[0].by if keyed else (),
            None if partitions is None else RoutingTable(tuple(partitions)),
            [InstanceState(version) for version in known["versions"]],
            step.splittable,
        )
    return found


def table_for(name: str, held: StateHandle, plan: Plan) -> RoutingTable | None:
    """Return the routing table that a vertex has under a plan.

    State that is there stays in as many router partitions as it began with: a plan without a table,
    or with one of another size as a planner makes that does not know what runs, gets the table of
    now with the fewest partitions moved.

    Raises
    ------
    InvalidValue
        When the plan wants something that the state cannot follow.
    """
    count, wanted = plan.parallelism[name], plan.routing.get(name)
    owner = f"operator {name!r}"
    if wanted is not None and wanted.split and not held.splittable:
        allowed = "without split keys: its state is not split; see aggregate(split=True)"
        raise InvalidValue("routing", owner, allowed, dict(wanted.split))
    if not held.route:
        if held.instances and not held.empty and count != len(held.instances):
            allowed = f"{len(held.instances)}: its tuples do not come by key"
            raise InvalidValue("parallelism", owner, allowed, count)
        return None
    if held.table is None or held.empty:
        return wanted or TwoTier().table(count)
    if wanted is None or len(wanted.partitions) != len(held.table.partitions):
        wanted = held.table if len(held.instances) == count else resize(held.table, count)
    if max(wanted.partitions) >= count:
        raise InvalidValue("routing", owner, f"for {count} instances", max(wanted.partitions) + 1)
    return wanted
