"""The command itself: it only gathers the subcommands."""

from __future__ import annotations

from typing import Annotated

import typer

import penstock
from penstock.cli import (
    advise,
    apps,
    calibrate,
    chaos,
    compare,
    explain,
    metrics,
    nexmark,
    page,
    plan,
    reproduce,
    run,
    simulate,
    state_bench,
    strategies,
    submit,
)

app = typer.Typer(
    name="penstock",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Plan, place, measure and move streaming topologies.",
    epilog="Start with: penstock run wordcount",
)
app.command("plan", help=plan.HELP)(plan.plan)
app.command("run", help=run.HELP, cls=page.PageCommand)(run.run)
app.command("submit", help=submit.HELP, context_settings=submit.SETTINGS, cls=page.PageCommand)(
    submit.submit
)
app.command("simulate", help=simulate.HELP, cls=page.PageCommand)(simulate.simulate_command)
app.command("serve", help=page.HELP, cls=page.PageCommand)(page.serve_command)
app.command("compare", help=compare.HELP)(compare.compare_command)
app.command("calibrate", help=calibrate.HELP)(calibrate.calibrate)
app.command("reproduce", help=reproduce.HELP)(reproduce.reproduce)
app.command("chaos", help=chaos.HELP)(chaos.chaos)
app.command("nexmark", help=nexmark.HELP)(nexmark.nexmark)
app.command("metrics", help=metrics.HELP)(metrics.metrics)
app.command("explain", help=explain.HELP)(explain.explain)
app.command("advise", help=advise.HELP)(advise.advise_command)
app.command("state-bench", help=state_bench.HELP)(state_bench.state_bench)
app.command("apps", help=apps.HELP)(apps.apps)
app.command("strategies", help=strategies.HELP)(strategies.strategies)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Plan, place, measure and move streaming topologies."""
