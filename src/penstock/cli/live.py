"""The live view of a run: a few figures on stderr that change in place, a summary at the end."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from penstock.model import Plan
from penstock.report.text import data_size, milliseconds, number, share
from penstock.store.histogram import Histogram
from penstock.store.records import BatchRecord, intervals_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.runtimes.spark.monitor import Observed

#: Batches that the figures are averaged over.
WINDOW = 10


class Board:
    """Shows a run while it runs; plain lines where stderr is no terminal.

    Parameters
    ----------
    quiet : bool
        Show nothing but what goes wrong.
    """

    def __init__(self, quiet: bool) -> None:
        self._console = Console(stderr=True)
        self._animated = self._console.is_terminal and not quiet
        self._quiet = quiet
        self._live = Live(console=self._console, transient=True, auto_refresh=False)
        self._window: deque[BatchRecord] = deque(maxlen=WINDOW)
        self._status, self._decision, self._elapsed = "", "", 0.0
        self._rows = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Board:
        if self._animated:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._animated:
            self._live.stop()

    def say(self, text: str) -> None:
        """Say what is going on."""
        self._status = text
        if self._animated:
            self._draw()
        elif not self._quiet:
            self._console.print(text, style="dim")

    def plan(self, plan: Plan) -> None:
        """Show why the plan is as it is."""
        self._decision = "; ".join(str(reason) for reason in plan.reasons)
        self.say("running")

    def show(self, observed: Observed) -> None:
        """Show a batch; called in the thread that drives the run."""
        with self._lock:
            self._window.append(observed.batch)
            self._rows += observed.batch.rows_in
        if self._animated:
            self._draw()
        elif not self._quiet and observed.batch.batch % WINDOW == 0:
            figures = ", ".join(f"{name} {value}" for name, value in self._figures())
            self._console.print(f"batch {observed.batch.batch}: {figures}", style="dim")

    def tick(self, elapsed_s: float) -> None:
        """Show that time goes by."""
        self._elapsed = elapsed_s
        if self._animated:
            self._draw()

    def summary(self, summary: Mapping[str, Any], report: Path) -> None:
        """Print the figures of the whole run."""
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="bold")
        table.add_column(justify="right")
        latency = summary["latency_ms"] or {}
        for name, value in (
            ("rows in / out", f"{summary['rows_in']:,} / {summary['rows_out']:,}"),
            ("rows lost / duplicated", f"{summary['rows_lost']} / {summary['rows_duplicated']}"),
            ("throughput", f"{number(summary['throughput'])} rows/s"),
            *((f"latency {p}", milliseconds(latency.get(p))) for p in ("p50", "p95", "p99")),
            ("batches", str(summary["batches"])),
            ("tasks where planned", share(summary["placement_honoured"])),
            ("shuffled remotely", data_size(summary["remote_bytes"])),
            ("shuffled locally", data_size(summary["local_bytes"])),
            ("nodes used", str(summary["nodes_used"])),
            ("decisions", str(summary["decisions"])),
        ):
            table.add_row(name, value)
        console = Console()
        console.print(
            Panel(table, title=f"{summary['topology']} under {summary['strategy']}", expand=False)
        )
        console.print(f"report: {report}")

    def _figures(self) -> list[tuple[str, str]]:
        with self._lock:
            window = list(self._window)
        if not window:
            return []
        seconds = max(sum(intervals_s(window)), 1e-9)
        latency = Histogram.merged(batch.latency for batch in window)
        last = window[-1]
        shuffled = sum(b.shuffle_bytes for b in window)
        remote = sum(b.remote_bytes for b in window) / shuffled if shuffled else None
        tasks = sum(b.tasks for b in window)
        return [
            ("rate", f"{number(sum(b.rows_in for b in window) / seconds)} rows/s"),
            ("p50", milliseconds(latency.percentile(50))),
            ("p95", milliseconds(latency.percentile(95))),
            ("p99", milliseconds(latency.percentile(99))),
            ("batch", milliseconds(last.duration_ms)),
            ("waiting", f"{last.queue_length:,}"),
            ("nodes", str(last.nodes_used)),
            ("remote", share(remote)),
            ("placed", share(sum(b.tasks_honoured for b in window) / tasks if tasks else None)),
            ("imbalance", number(last.lin)),
        ]

    def _draw(self) -> None:
        grid = Table.grid(padding=(0, 3))
        figures = self._figures()
        if figures:
            grid.add_row(*(f"[dim]{name}[/dim]" for name, _ in figures))
            grid.add_row(*(f"[bold]{value}[/bold]" for _, value in figures))
        body = Table.grid()
        body.add_row(grid)
        if self._decision:
            body.add_row(f"[dim]last decision:[/dim] {self._decision}")
        title = f"{self._status}  {self._elapsed:.0f} s, {self._rows:,} rows"
        with self._lock:
            self._live.update(Panel(body, title=title, title_align="left"), refresh=True)
