"""A run at one batch: operators, edges and nodes, as a page draws them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.model import Plan
from penstock.store.derived import intervals_s
from penstock.store.edge_record import EdgeRecord
from penstock.store.operator_record import OperatorRecord
from penstock.store.records import BatchRecord, InstanceRecord, NodeRecord, PlanRecord
from penstock.web.layers import layers_of

#: Batches that rates are averaged over.
WINDOW = 3

#: Batches that are searched for the last look at state.
STATE_WINDOW = 30

#: Reasons of a plan that are told.
MOST_REASONS = 8


@dataclass(frozen=True)
class Detail:
    """What is stored of some batches in a row.

    Parameters
    ----------
    batches : sequence of BatchRecord
        The last is the one that is shown.
    before : BatchRecord or None
        The batch before the first.
    instances, edges, nodes, operators : sequence
        Of these batches; empty where retention dropped them.
    """

    batches: Sequence[BatchRecord]
    before: BatchRecord | None
    instances: Sequence[InstanceRecord]
    edges: Sequence[EdgeRecord]
    nodes: Sequence[NodeRecord]
    operators: Sequence[OperatorRecord]

    @property
    def last(self) -> BatchRecord:
        """The batch that is shown."""
        return self.batches[-1]

    @property
    def seconds(self) -> float:
        """Time that the batches stand for."""
        return sum(intervals_s(self.batches, self.before))


def frame_of(
    detail: Detail,
    plans: Sequence[PlanRecord],
    outline: Mapping[str, Any],
    origin_s: float,
) -> dict[str, Any]:
    """Say what ran where at a batch, how fast, and with which state.

    Parameters
    ----------
    detail : Detail
    plans : sequence of PlanRecord
        Of the run, in order.
    outline : mapping
        The topology, as `penstock.store.outline` makes it; may be empty.
    origin_s : float
        What times count from.
    """
    last = detail.last
    in_force = [p for p in plans if p.from_batch <= last.batch] or list(plans[:1])
    plan = in_force[-1].plan if in_force else None
    names = _node_names(in_force, detail)
    number = {name: at for at, name in enumerate(names)}
    placed = _placed(plan, detail, last.batch)
    return {
        "batch": last.batch,
        "t": round(last.ended_at_s - origin_s, 3),
        "detailed": any(one.batch == last.batch for one in detail.instances),
        "nodes": _nodes(names, plan, detail, placed),
        "operators": _operators(detail, plan, outline, placed, number),
        "edges": _edges(detail, plan, outline, placed),
        "plan": _plan(in_force[-1]) if in_force else None,
        "queue": last.queue_length,
        "batch_ms": last.duration_ms,
        "lin": last.lin,
        "figures": dict(last.figures),
    }


def _node_names(plans: Sequence[PlanRecord], detail: Detail) -> list[str]:
    """All nodes so far, in the order in which they came: each keeps its number and its colour."""
    found = dict.fromkeys(name for record in plans for name in record.plan.nodes)
    found.update(dict.fromkeys(record.node for record in detail.nodes))
    found.update(dict.fromkeys(record.node for record in detail.instances))
    return list(found)


def _placed(plan: Plan | None, detail: Detail, batch: int) -> dict[str, dict[int, str]]:
    """Node of each instance: where it ran, or where the plan has it."""
    placed: dict[str, dict[int, str]] = {}
    if plan is not None:
        for operator, spots in plan.placement.items():
            placed[operator] = {index: spot.node for index, spot in enumerate(spots)}
    ran: dict[str, dict[int, str]] = {}
    for one in detail.instances:
        if one.batch == batch:
            ran.setdefault(one.operator, {})[one.index] = one.node
    return {**placed, **ran}


def _nodes(
    names: Sequence[str], plan: Plan | None, detail: Detail, placed: Mapping[str, Mapping[int, str]]
) -> list[dict[str, Any]]:
    count: dict[str, int] = {}
    for spots in placed.values():
        for node in spots.values():
            count[node] = count.get(node, 0) + 1
    use: dict[str, list[NodeRecord]] = {}
    for record in detail.nodes:
        use.setdefault(record.node, []).append(record)
    last = {record.node for record in detail.nodes if record.batch == detail.last.batch}
    busy: dict[str, set[str]] = {}
    for one in detail.instances:
        busy.setdefault(one.node, set()).add(one.executor)
    found = []
    for number, name in enumerate(names):
        there = name in last if last else bool(count.get(name))
        own = use.get(name, []) if there else []
        found.append(
            {
                "name": name,
                "number": number,
                "there": there,
                "kept": plan is not None and name in plan.active,
                "instances": count.get(name, 0) if there else 0,
                "cpu": _mean(record.cpu for record in own),
                "mem": _mean(record.mem for record in own),
                "planned": plan.after.node_load.get(name) if plan is not None else None,
                "executors": sorted(busy.get(name, set()) - {""}) if there else [],
            }
        )
    return found


def _operators(
    detail: Detail,
    plan: Plan | None,
    outline: Mapping[str, Any],
    placed: Mapping[str, Mapping[int, str]],
    number: Mapping[str, int],
) -> list[dict[str, Any]]:
    known = {one["name"]: one for one in outline.get("operators", ())}
    names = list(dict.fromkeys([*known, *placed]))
    pairs = _pairs(detail, outline)
    layers = layers_of(names, pairs)
    targets = {target for _, target in pairs}
    sums = _sums(detail)
    executors: dict[str, dict[int, str]] = {}
    for one in detail.instances:
        if one.batch == detail.last.batch:
            executors.setdefault(one.operator, {})[one.index] = one.executor
    found = []
    for name in names:
        nodes = placed.get(name, {})
        own = sums.get(name, {})
        records = [r for r in detail.operators if r.operator == name]
        state = next((r.state for r in reversed(records) if r.state), [])
        count = max([len(nodes), *(index + 1 for index in nodes)], default=0)
        marks = [r.watermark_us for r in records if r.watermark_us is not None]
        columns = [own.get(index, (0.0, 0.0, 0.0, 0.0)) for index in range(count)]
        ran = executors.get(name, {})
        found.append(
            {
                "name": name,
                "kind": known.get(name, {}).get("kind") or _kind(name, targets, bool(state)),
                "layer": known.get(name, {}).get("layer", layers[name]),
                "parallelism": count,
                "in_per_s": round(sum(c[0] for c in columns), 3),
                "out_per_s": round(sum(c[1] for c in columns), 3),
                "lit": detail.last.lit.get(name),
                "late_rows": sum(r.late_rows for r in records if _recent(r, detail)),
                "watermark_s": marks[-1] / 1e6 if marks else None,
                "node": [number.get(nodes.get(index, ""), -1) for index in range(count)],
                "executor": [ran.get(index, "") for index in range(count)],
                "rate": [round(c[0], 3) for c in columns],
                "cores": [round(c[2], 4) for c in columns],
                "busy": [round(c[3], 4) for c in columns],
                "state": list(state),
                "state_bytes": sum(one["size_bytes"] for one in state) if state else None,
                "hot_keys": _hot_keys(name, records, detail, plan),
                "split": _split(name, records, plan),
            }
        )
    return found


def _kind(name: str, targets: set[str], state: bool) -> str:
    """Guess the kind of an operator of which no outline was kept."""
    if state:
        return "stateful"
    return "stateless" if name in targets else "source"


def _recent(record: OperatorRecord, detail: Detail) -> bool:
    return record.batch >= detail.batches[0].batch


def _sums(detail: Detail) -> dict[str, dict[int, tuple[float, float, float, float]]]:
    """Tuples in and out a second, cores and busy time of each instance, over the window."""
    seconds = detail.seconds or 1.0
    sums: dict[str, dict[int, list[float]]] = {}
    for one in detail.instances:
        own = sums.setdefault(one.operator, {}).setdefault(one.index, [0.0, 0.0, 0.0, 0.0])
        own[0] += one.tuples_in
        own[1] += one.tuples_out
        own[2] += (one.cpu_ms or 0.0) / 1000.0
        own[3] += (one.run_ms or 0.0) / 1000.0
    return {
        operator: {
            index: (own[0] / seconds, own[1] / seconds, own[2] / seconds, own[3] / seconds)
            for index, own in of.items()
        }
        for operator, of in sums.items()
    }


def _hot_keys(
    operator: str, records: Sequence[OperatorRecord], detail: Detail, plan: Plan | None
) -> list[dict[str, Any]]:
    recent = [r for r in records if _recent(r, detail) and r.hot_keys]
    if not recent:
        return []
    numbers = {r.batch for r in recent}
    total = sum(
        i.tuples_in for i in detail.instances if i.operator == operator and i.batch in numbers
    )
    rows: dict[str, int] = {}
    names: dict[str, str | None] = {}
    for record in recent:
        for key in record.hot_keys:
            rows[key["hash"]] = rows.get(key["hash"], 0) + key["rows"]
            names[key["hash"]] = names.get(key["hash"]) or key["name"]
    split = plan.routing[operator].split if plan and operator in plan.routing else {}
    order = sorted(rows, key=lambda key: (-rows[key], key))
    return [
        {
            "hash": key,
            "name": names[key],
            "share": round(rows[key] / total, 5) if total else None,
            "split": list(split.get(int(key), ())),
        }
        for key in order[:10]
    ]


def _split(
    operator: str, records: Sequence[OperatorRecord], plan: Plan | None
) -> list[dict[str, Any]]:
    if plan is None or operator not in plan.routing:
        return []
    names = {
        key["hash"]: key["name"] for record in records for key in record.hot_keys if key["name"]
    }
    return [
        {"hash": str(key), "name": names.get(str(key)), "instances": list(to)}
        for key, to in plan.routing[operator].split.items()
    ]


def _pairs(detail: Detail, outline: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Which operator sends to which."""
    told = [(e["source"], e["target"]) for e in outline.get("edges", ())]
    seen = [(e.source, e.target) for e in detail.edges]
    return list(dict.fromkeys([*told, *seen]))


def _edges(
    detail: Detail,
    plan: Plan | None,
    outline: Mapping[str, Any],
    placed: Mapping[str, Mapping[int, str]],
) -> list[dict[str, Any]]:
    groupings: dict[tuple[str, str], list[str]] = {}
    for edge in outline.get("edges", ()):
        groupings.setdefault((edge["source"], edge["target"]), []).append(edge["grouping"])
    tuples: dict[tuple[str, str], list[float]] = {}
    for edge in detail.edges:
        sums = tuples.setdefault((edge.source, edge.target), [0.0, 0.0])
        senders = _array(placed.get(edge.source, {}), edge.source_instances)
        receivers = _array(placed.get(edge.target, {}), edge.target_instances)
        crossing = senders[edge.rows] != receivers[edge.columns]
        sums[0] += float(edge.tuples.sum())
        sums[1] += float(edge.tuples[crossing].sum())
    seconds = detail.seconds or 1.0
    return [
        {
            "source": pair[0],
            "target": pair[1],
            "grouping": ", ".join(dict.fromkeys(groupings.get(pair, ()))),
            "per_s": round(tuples[pair][0] / seconds, 3) if pair in tuples else None,
            "remote_share": (
                round(tuples[pair][1] / tuples[pair][0], 5)
                if pair in tuples and tuples[pair][0]
                else None
            ),
        }
        for pair in _pairs(detail, outline)
    ]


def _array(nodes: Mapping[int, str], count: int) -> Any:
    return np.array([nodes.get(index, "") for index in range(count)], dtype=object)


def _plan(record: PlanRecord) -> dict[str, Any]:
    plan = record.plan
    return {
        "from_batch": record.from_batch,
        "strategy": plan.strategy,
        "feasible": plan.feasible,
        "breaks": [str(v) for v in plan.infeasible],
        "reasons": [r.text for r in plan.reasons[:MOST_REASONS]],
        "cut_share": plan.after.cut_share,
        "nodes_used": plan.after.nodes_used,
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 4) if known else None
