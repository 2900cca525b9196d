"""What the driver knows of each stateful vertex: versions, executors, routing table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.engine.job_graph import JobGraph
from penstock.model import Grouping, InvalidValue, NotAllowed, Plan, RoutingTable
from penstock.strategies.route import Destination
from penstock.strategies.route.two_tier import TwoTier, resize


@dataclass(eq=False)
class InstanceState:
    """The committed state of one instance.

    Parameters
    ----------
    version : int
        -1 before it has any.
    executor : str
        The executor that has it in its folder; "" if none has.
    backed_up : int
        The version that the backup nodes have, together with the driver; -1 if they have none.
    damaged : bool
        Whether some of its fragments turned out to be corrupt or gone, so that it has to be backed
        up again.
    """

    version: int = -1
    executor: str = ""
    backed_up: int = -1
    damaged: bool = False


@dataclass(eq=False)
class StateHandle:
    """The committed state of one stateful vertex.

    Parameters
    ----------
    by, route : tuple of str
        Columns of the key of the state, and of the key that tuples are routed by. `route` is empty
        where tuples are not routed by key; then the number of instances cannot change.
    table : RoutingTable or None
        The routing table in force.
    instances : list of InstanceState
    splittable : bool
        Whether the tuples of a hot key may go to several instances; see `task.hot_keys`.
    """

    by: tuple[str, ...]
    route: tuple[str, ...]
    table: RoutingTable | None
    instances: list[InstanceState]
    splittable: bool = False

    @property
    def empty(self) -> bool:
        """Whether no instance has saved any state yet."""
        return all(instance.version < 0 for instance in self.instances)


def committed_handles(job_graph: JobGraph, committed: Mapping[str, Any]) -> dict[str, StateHandle]:
    """Return the handles of all stateful vertices, as the commit log has them; {} is nothing."""
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


def table_for(name: str, handle: StateHandle, plan: Plan) -> RoutingTable | None:
    """Return the routing table that a vertex has under a plan.

    State stays in as many router partitions as it began with. A plan without a table, or with a
    table of another size, as a planner makes that does not know what is running, gets the table in
    force with as few partitions moved as possible.

    Raises
    ------
    NotAllowed
        When the plan wants something that the state cannot follow.
    """
    count, wanted = plan.parallelism[name], plan.routing.get(name)
    owner = f"operator {name!r}"
    if wanted is not None and wanted.split and not handle.splittable:
        raise NotAllowed(
            f"the plan splits keys of {owner}, which merges no split keys; use a strategy that "
            "splits none, or aggregate(..., split=True)"
        )
    if not handle.route:
        if handle.instances and not handle.empty and count != len(handle.instances):
            raise NotAllowed(
                f"{owner} has state in {len(handle.instances)} instances and the plan has {count}; "
                "the number cannot change, because its tuples are not routed by key: group them by "
                "fields, or start with another checkpoint"
            )
        return None
    if handle.table is None or handle.empty:
        wanted = wanted or TwoTier().table(count)
    elif wanted is None or len(wanted.partitions) != len(handle.table.partitions):
        same = len(handle.instances) == count
        wanted = handle.table if same else resize(handle.table, count)
    if max(wanted.partitions) >= count:
        raise InvalidValue("routing", owner, f"for {count} instances", max(wanted.partitions) + 1)
    # Checked once for all batches.
    return Destination(count, wanted).table
