"""What a change of plan means for state: which routing tables change, and which state with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.engine.migration.precopy import PreCopied
from penstock.engine.state.handles import StateHandle, table_for
from penstock.model import Plan, RoutingTable


@dataclass(frozen=True, eq=False)
class PlanChange:
    """A plan to change to, with the routing tables that the state needs under it.

    Parameters
    ----------
    plan : Plan
    tables : mapping of str to RoutingTable or None
        Of every stateful vertex.
    repartitioned : mapping of str to RoutingTable
        Of those among them whose state has to be repartitioned.
    precopied : PreCopied
    """

    plan: Plan
    tables: Mapping[str, RoutingTable | None]
    repartitioned: Mapping[str, RoutingTable]
    precopied: PreCopied

    @classmethod
    def of(cls, handles: Mapping[str, StateHandle], plan: Plan, precopied: PreCopied) -> PlanChange:
        """Find the routing tables of a plan, and which of them repartition state."""
        tables = {name: table_for(name, handle, plan) for name, handle in handles.items()}
        routing = {**plan.routing, **{n: t for n, t in tables.items() if t is not None}}
        repartitioned = {
            name: table
            for name, table in tables.items()
            if table is not None
            and not handles[name].empty
            and (table, plan.parallelism[name])
            != (handles[name].table, len(handles[name].instances))
        }
        return cls(replace(plan, routing=routing), tables, repartitioned, precopied)


def tables_to_change(
    handles: Mapping[str, StateHandle], plan: Plan
) -> dict[str, tuple[RoutingTable, RoutingTable]]:
    """Return, by vertex, the table in force and the table that a plan has of its own for it."""
    return {
        name: (handle.table, plan.routing[name])
        for name, handle in handles.items()
        if not handle.empty
        and handle.table is not None
        and name in plan.routing
        and table_for(name, handle, plan) is plan.routing[name]
    }
