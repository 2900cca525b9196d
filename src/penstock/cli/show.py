"""What a person reads: the plan of each strategy, and the table that compares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.model import Plan
from penstock.planning import PlanOutcome
from penstock.report.comparison import FIGURES, Entry
from penstock.report.text import ranges
from penstock.strategies import Request

#: Nodes, limits and reasons that are printed before the rest is only counted.
MOST_ROWS = 16

#: Width when the output goes to a file or a pipe: a table is not cut there.
PIPE_COLUMNS = 120


def console() -> Console:
    """Make the console for results; names from files are never read as markup."""
    made = Console(markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made = Console(markup=False, highlight=False, emoji=False, width=PIPE_COLUMNS)
    return made


def show_request(request: Request, equal: int | None) -> None:
    """Print what is planned, and on what."""
    graph, cluster = request.graph, request.cluster
    out = console()
    out.print(
        f"topology {request.topology.name}: {len(request.topology.operators)} operators, "
        f"{len(graph)} instances, {graph.total_rate:,.0f} tuples/s over all edges, "
        f"{graph.cpu_cores.sum():.4g} cores, {graph.mem_mb.sum():,.0f} MB"
    )
    if equal is not None:
        node = cluster.nodes[0]
        out.print(
            f"cluster: {equal} equal nodes sized to fit, each {node.cpu_cores:.4g} cores, "
            f"{node.mem_mb:,.0f} MB, {node.processes} processes"
        )
    else:
        out.print(
            f"cluster: {len(cluster)} nodes, {cluster.cpu_cores.sum():.4g} cores, "
            f"{cluster.mem_mb.sum():,.0f} MB, {int(cluster.processes.sum())} processes"
        )


def show_outcome(outcome: PlanOutcome) -> None:
    """Print one plan: nodes with their load and instances, then why."""
    out = console()
    out.print()
    out.print(Text(f"{outcome.strategy}: {_verdict(outcome)}", style="bold"))
    if outcome.plan is not None:
        _show_nodes(out, outcome.plan)
        _show_list(out, "breaks", [str(v) for v in outcome.plan.infeasible])
        _show_list(out, "why", [str(r) for r in outcome.plan.reasons])
    else:
        _show_list(out, "why", outcome.declined)


def show_comparison(outcomes: Sequence[PlanOutcome]) -> None:
    """Print one row a strategy, the smallest cut first."""
    table = Table(title="Comparison", title_justify="left", title_style="bold")
    table.add_column("strategy", no_wrap=True)
    table.add_column("plan", no_wrap=True)
    for column in ("nodes", "cut", "in process", "max load", "LIN", "latency", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    for outcome in sorted(outcomes, key=_rank):
        plan = outcome.plan
        if plan is None:
            table.add_row(outcome.strategy, "refused", *["-"] * 6, f"{outcome.seconds:.3f}")
            continue
        cost = plan.after
        latency = "-" if cost.latency_ms is None else f"{cost.latency_ms:.2f} ms"
        table.add_row(
            outcome.strategy,
            "feasible" if plan.feasible else "infeasible",
            str(cost.nodes_used),
            f"{cost.cut_share:.1%}",
            f"{cost.in_process_share:.1%}",
            f"{cost.max_node_load:.0%}",
            f"{cost.lin:.3f}",
            latency,
            f"{outcome.seconds:.3f}",
        )
    out = console()
    out.print()
    out.print(table)
    out.print(
        "cut: tuples that cross nodes; max load: busiest resource of the busiest node; "
        "LIN: imbalance over nodes; latency: an estimate that only orders plans"
    )


def show_strategies(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print name, summary, origin and parameters of each strategy."""
    out = console()
    for row in rows:
        out.print(Text(row["name"], style="bold"), soft_wrap=True)
        out.print(f"    {row['summary']}", soft_wrap=True)
        out.print(f"    from {row['origin']}", soft_wrap=True)
        for parameter in row["parameters"]:
            unit = f" {parameter['unit']}" if parameter["unit"] else ""
            out.print(
                f"    {parameter['name']} = {parameter['default']}{unit}: {parameter['doc']} "
                f"({parameter['allowed']})",
                soft_wrap=True,
            )


def _verdict(outcome: PlanOutcome) -> str:
    if outcome.plan is None:
        return "refused"
    verdict = "feasible" if outcome.plan.feasible else "infeasible"
    used = outcome.plan.after.nodes_used
    return (
        f"{verdict}, {used} node{'' if used == 1 else 's'}, "
        f"{outcome.plan.after.cut_share:.1%} of the tuples cross nodes"
    )


def _rank(outcome: PlanOutcome) -> tuple[int, float]:
    if outcome.plan is None:
        return (2, 0.0)
    return (0 if outcome.plan.feasible else 1, outcome.plan.after.cut_share)


def _show_nodes(out: Console, plan: Plan) -> None:
    held: dict[str, dict[str, list[int]]] = {}
    for operator, spots in plan.placement.items():
        for index, spot in enumerate(spots):
            held.setdefault(spot.node, {}).setdefault(operator, []).append(index)
    order = [name for name in plan.nodes if name in held]
    width = max((len(name) for name in order[:MOST_ROWS]), default=0)
    for name in order[:MOST_ROWS]:
        instances = " ".join(
            f"{op}[{ranges(numbers).replace(' ', '')}]" for op, numbers in held[name].items()
        )
        line = Text(f"  {name:<{width}}  {plan.after.node_load[name]:>5.0%}  {instances}")
        out.print(line, overflow="ellipsis", no_wrap=True)
    _show_rest(out, "nodes", len(order))


def _show_list(out: Console, title: str, lines: Sequence[str]) -> None:
    for line in lines[:MOST_ROWS]:
        out.print(f"  {title}: {line}", soft_wrap=True)
    _show_rest(out, title, len(lines))


def _show_rest(out: Console, what: str, count: int) -> None:
    if count > MOST_ROWS:
        out.print(f"  {what}: ... and {count - MOST_ROWS} more (--json prints all)")


def show_entries(entries: Sequence[Entry]) -> None:
    """Print a comparison: figures down, strategies across, the best of each in bold."""
    out = console()
    done = [entry for entry in entries if entry.series or not entry.failure]
    if done:
        table = Table(box=None, pad_edge=False)
        table.add_column("")
        for entry in done:
            table.add_column(entry.strategy, justify="right", no_wrap=True)
        for figure in FIGURES:
            best = figure.best(done)
            cells = [
                Text(
                    figure.show(figure.value(entry)),
                    style="bold" if entry.strategy in best else "",
                )
                for entry in done
            ]
            table.add_row(figure.label, *cells)
        out.print(table)
    for entry in entries:
        if entry.failure:
            out.print(f"{entry.strategy} failed: {entry.failure}", soft_wrap=True)
