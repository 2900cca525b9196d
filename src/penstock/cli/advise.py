"""``penstock advise``: what holds a streaming query back, by what Spark recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.advise import Advice, Application, advise, is_address, read_address, read_logs
from penstock.advise.advice import FEW_BATCHES, QueryAdvice, rows_per_s
from penstock.advise.elastic import Elastic, executor_time
from penstock.advise.page import write_advice
from penstock.cli.exits import clean_exit, say
from penstock.cli.options import JsonLines, Strategies
from penstock.cli.progress import ProgressBar
from penstock.cli.show import console
from penstock.planning import PlanOutcome, chosen
from penstock.report.text import milliseconds, moment, number, share

HELP = """Say what holds a streaming query back, from what Spark recorded of it.

EVENT_LOG is an event log of Spark (spark.eventLog.enabled), also a rolling or a compressed one, a
folder with several, or an address: http://driver:4040 of a running application, or
http://history:18080/history/APP of a history server. The cause that would gain most comes first,
with the figures that show it and the settings to change. Exit codes: 0 fine, also for a log without
a stream; 2 bad input.

\b
Examples:
  penstock advise examples/event-log.zstd
  penstock advise examples/event-log.zstd --strategy penstock,spark --report advice.html
  penstock advise examples/event-log.zstd --strategy penstock --json
"""

#: Hours and decisions that are printed; the page and --json have all.
MOST_HOURS = 48


def advise_command(
    event_log: Annotated[
        list[str],
        typer.Argument(
            metavar="EVENT_LOG...",
            help="Files, folders or addresses, one or several.",
            show_default=False,
        ),
    ],
    strategy: Strategies = "all",
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write an HTML page.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Equal seeds, equal plans.")] = 0,
    as_json: JsonLines = False,
) -> None:
    """Give advice; see `HELP`."""
    with clean_exit():
        names = chosen(strategy)
        found: list[Advice] = []
        applications: list[Application] = []
        for place in event_log:
            applications += read_address(place) if is_address(place) else read_logs(place)
        with ProgressBar(len(applications), doing="advising") as progress:
            for application in applications:
                title = application.name or application.id
                progress.now(title)
                made = advise(
                    application,
                    strategies=names,
                    seed=seed,
                    watch=lambda what, title=title: progress.detail(  # type: ignore[misc]
                        f"{title}, {what}"
                    ),
                )
                found.append(made)
                if as_json:
                    typer.echo(json.dumps(made.to_dict(), allow_nan=False))
        if not as_json:
            for made in found:
                _show(made)
        if report is not None:
            write_advice(found, report)
            say(f"report in {report}")


def _show(advice: Advice) -> None:
    application, out = advice.application, console()
    out.print()
    out.print(Text(application.name or application.id or application.origin, style="bold"))
    out.print(f"  {application.origin}", soft_wrap=True)
    for note in application.notes:
        out.print(f"  note: {note}", soft_wrap=True)
    out.print(f"  {advice.verdict}", soft_wrap=True)
    for query in advice.queries:
        _show_query(query)
    if advice.elastic is not None:
        _show_elastic(advice.elastic)
    if advice.plans:
        _show_plans(advice.plans)


def _show_query(query: QueryAdvice) -> None:
    out, seen = console(), query.evidence
    out.print()
    out.print(Text(query.title, style="bold"))
    out.print(
        f"  {len(seen.query.batches)} batches, {number(rows_per_s(seen))} rows a second; a batch "
        f"takes {milliseconds(seen.batch_ms)}, every {milliseconds(seen.cycle_ms)}; "
        f"{seen.cores} cores on {seen.executors} executors",
        soft_wrap=True,
    )
    if seen.query.failure:
        out.print(f"  it ended with: {seen.query.failure}", soft_wrap=True)
    if len(seen.batches) < FEW_BATCHES:
        out.print(f"  only {len(seen.batches)} batches count: take figures with care")
    for place, finding in enumerate(query.findings, 1):
        head = f"  {place}. {finding.text} ({share(finding.share)} of {finding.gain.value})"
        out.print(Text(head, style="bold" if place == 1 else ""), soft_wrap=True)
        for line in finding.evidence:
            out.print(f"       {line}", soft_wrap=True)
        for setting in finding.settings:
            out.print(f"     set {setting}", soft_wrap=True)
        for action in finding.actions:
            out.print(f"     {action}", soft_wrap=True)


def _show_elastic(elastic: Elastic) -> None:
    out = console()
    out.print()
    out.print(Text("Executors by hour", style="bold"))
    table = Table(box=None, pad_edge=False)
    table.add_column("  from")
    for column in ("rows/s", "executors", "cores busy", "elastic executors"):
        table.add_column(column, justify="right")
    for hour in elastic.hours[:MOST_HOURS]:
        table.add_row(
            f"  {moment(hour.start_ms / 1e3)}",
            number(hour.rows_per_s),
            number(hour.executors),
            share(hour.busy_share),
            number(hour.elastic),
        )
    out.print(table)
    if len(elastic.hours) > MOST_HOURS:
        out.print(f"  ... and {len(elastic.hours) - MOST_HOURS} more (--json prints all)")
    out.print(
        f"  recorded {executor_time(elastic.static_s)}; elastic, simulated on the recorded "
        f"rates, {executor_time(elastic.executor_s)}, with a p95 of "
        f"{milliseconds(elastic.p95_ms)} instead of {milliseconds(elastic.static_p95_ms)}",
        soft_wrap=True,
    )


def _show_plans(plans: tuple[PlanOutcome, ...]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("  strategy")
    for column in ("plan", "executors", "rows across", "busiest executor"):
        table.add_column(column, justify="right")
    for outcome in plans:
        if outcome.plan is None:
            table.add_row(f"  {outcome.strategy}", "refused", "-", "-", "-")
            continue
        cost = outcome.plan.after
        table.add_row(
            f"  {outcome.strategy}",
            "fits" if outcome.feasible else "does not fit",
            str(cost.nodes_used),
            share(cost.cut_share),
            share(cost.max_node_load),
        )
    out = console()
    out.print()
    out.print(Text("The plan that each strategy would choose", style="bold"))
    out.print(table)
