"""The live view of a run: a few figures on stderr that change in place, a summary at the end."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from penstock.cli.noise import Noise
from penstock.model import Plan
from penstock.report.text import data_size, milliseconds, number, share
from penstock.store.histogram import Histogram
from penstock.store.records import BatchRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.events import Event
    from penstock.runtimes.spark.monitor import Observed

#: Batches that the figures are averaged over.
WINDOW = 10
#: Widest name and widest value in each column of figures: what changes must not move the rest.
COLUMNS = ((10, 14), (3, 7), (9, 6), (7, 6))
#: Lines that a decision may take.
DECISION_LINES = 3


class Board:
    """Shows a run while it runs; plain lines where stderr is no terminal.

    Parameters
    ----------
    quiet : bool
        Show nothing but what goes wrong.
    console : Console, optional
        Where to draw; by default on stderr.
    """

    def __init__(self, quiet: bool, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._animated = self._console.is_terminal and not quiet
        self._quiet = quiet
        self._window: deque[BatchRecord] = deque(maxlen=WINDOW)
        self._status, self._decision, self._elapsed = "", "", 0.0
        self._rows = 0
        self._began = time.monotonic()
        self._spinner = Spinner("dots")
        self._lock = threading.Lock()
        self._open = ExitStack()

    def __enter__(self) -> Board:
        if self._animated:
            if self._console.stderr:
                # The view keeps the terminal; what others write there is held back.
                terminal = self._open.enter_context(os.fdopen(os.dup(2), "w"))
                self._console = Console(file=terminal)
                self._open.enter_context(Noise())
            self._open.enter_context(
                Live(
                    console=self._console,
                    transient=True,
                    redirect_stderr=False,
                    refresh_per_second=5,
                    get_renderable=self.view,
                )
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        """Say what is going on."""
        self._status = text
        if not self._animated and not self._quiet:
            self._console.print(text, style="dim")

    def plan(self, plan: Plan) -> None:
        """Show why the plan is as it is."""
        self._decision = "; ".join(str(reason) for reason in plan.reasons)
        self.say("running")

    def decided(self, event: Event) -> None:
        """Show what the loop decided, and how far that is."""
        text = f"{event.status.value}: {event.text}"
        if event.gained is not None:
            text += f"; {event.gained.text}"
        self._decision = text
        if not self._animated and not self._quiet:
            self._console.print(f"decision {event.number}, {text}", style="dim")

    def show(self, observed: Observed) -> None:
        """Show a batch; called in the thread that drives the run."""
        with self._lock:
            self._window.append(observed.batch)
            self._rows += observed.batch.rows_in
        if not self._animated and not self._quiet and observed.batch.batch % WINDOW == 0:
            figures = ", ".join(
                f"{name} {value}" for column in self._figures() for name, value in column
            )
            self._console.print(f"batch {observed.batch.batch}: {figures}", style="dim")

    def tick(self, elapsed_s: float) -> None:
        """Show that time goes by."""
        self._elapsed = elapsed_s

    def summary(self, summary: Mapping[str, Any], report: Path) -> None:
        """Print the figures of the whole run."""
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="bold")
        table.add_column(justify="right")
        latency = summary["latency_ms"] or {}
        for name, value in (
            ("rows in / out", f"{summary['rows_in']:,} / {summary['rows_out']:,}"),
            ("rows lost / duplicated", _compared(summary)),
            ("throughput", f"{number(summary['throughput'])} rows/s"),
            *((f"latency {p}", milliseconds(latency.get(p))) for p in ("p50", "p95", "p99")),
            ("batches", str(summary["batches"])),
            ("tasks where planned", share(summary["placement_honoured"])),
            ("shuffled remotely", data_size(summary["remote_bytes"])),
            ("shuffled locally", data_size(summary["local_bytes"])),
            ("nodes used", str(summary["nodes_used"])),
            ("decisions", str(summary["decisions"])),
        ):
            if value:
                table.add_row(name, value)
        console = Console()
        console.print(
            Panel(table, title=f"{summary['topology']} under {summary['strategy']}", expand=False)
        )
        if summary["state"]:
            console.print(summary["state"], highlight=False)
        console.print(f"report: {report}")

    def view(self) -> RenderableType:
        """Draw the view as it is now."""
        columns = self._figures()
        if not columns:
            text = f"{self._status}  {time.monotonic() - self._began:.0f} s"
            self._spinner.update(text=Text(text))
            return self._spinner
        body = Table.grid()
        # Where all columns do not fit beside each other they stand in twos, or one by one.
        inside = self._console.width - 4
        abreast = next((n for n in (4, 2) if inside >= _width(n)), 1)
        for start in range(0, len(columns), abreast):
            body.add_row(_grid(columns[start : start + abreast], start))
        if self._decision:
            body.add_row(self._last_decision(inside))
        title = Text(f"{self._status}  {self._elapsed:.0f} s, {self._rows:,} rows")
        # A terminal echoes Ctrl-C at the cursor: behind a full line it would begin another, and the
        # view could not be taken away.
        return Group(Panel(body, title=title, title_align="left"), "")

    def _figures(self) -> list[list[tuple[str, str]]]:
        with self._lock:
            window = list(self._window)
        if not window:
            return []
        offered, taken = _rates(window)
        latency = Histogram.merged(batch.latency for batch in window)
        last = window[-1]
        shuffled = sum(b.shuffle_bytes for b in window)
        remote = sum(b.remote_bytes for b in window) / shuffled if shuffled else None
        tasks = sum(b.tasks for b in window)
        honoured = sum(b.tasks_honoured for b in window)
        return [
            [
                ("rate", f"{offered:,.0f} rows/s"),
                ("throughput", f"{taken:,.0f} rows/s"),
                ("batch", milliseconds(last.duration_ms)),
            ],
            [(f"p{p}", milliseconds(latency.percentile(p))) for p in (50, 95, 99)],
            [
                ("nodes", str(last.nodes_used)),
                ("imbalance", _fixed(last.lin)),
                ("skew", _fixed(max(last.lit.values(), default=None))),
            ],
            [
                ("remote", share(remote)),
                ("placed", share(honoured / tasks if tasks else None)),
                ("waiting", number(last.queue_length)),
            ],
        ]

    def _last_decision(self, width: int) -> Text:
        text = Text.assemble(("last decision: ", "dim"), self._decision)
        lines = list(text.wrap(self._console, max(width, 20)))
        if len(lines) > DECISION_LINES:
            lines = lines[:DECISION_LINES]
            lines[-1].truncate(max(width, 20) - 1)
            lines[-1].append("\u2026")
        return Text("\n").join(lines)


def _rates(window: list[BatchRecord]) -> tuple[float, float]:
    """Rows a second that came, and that were taken: less while the queue grows."""
    first, rest = window[0], window[1:]
    if not rest:
        alone = first.rows_in / max(first.duration_ms / 1000.0, 1e-9)
        return alone, alone
    last = rest[-1]
    seconds = max(last.started_at_s - first.started_at_s, 1e-9)
    taken = sum(batch.rows_in for batch in rest)
    more = sum(batch.dropped for batch in rest) + last.queue_length - first.queue_length
    return max(0, taken + more) / seconds, taken / seconds


def _fixed(value: float | None) -> str:
    return number(None) if value is None else f"{value:.2f}"


def _width(columns: int) -> int:
    """Characters that so many columns of figures need."""
    return max(
        sum(name + 1 + value for name, value in COLUMNS[start : start + columns])
        + 3 * (columns - 1)
        for start in range(0, len(COLUMNS), columns)
    )


def _grid(columns: list[list[tuple[str, str]]], start: int) -> Table:
    """Put columns of figures side by side, each as wide as it may ever get."""
    grid = Table.grid(padding=0)
    for at in range(start, start + len(columns)):
        name, value = COLUMNS[at]
        grid.add_column(style="dim", min_width=name + 1, no_wrap=True)
        last = at == start + len(columns) - 1
        grid.add_column(style="bold", min_width=value, justify="right", no_wrap=True)
        if not last:
            grid.add_column(min_width=3)
    for row in zip(*columns, strict=True):
        cells: list[str] = []
        for name, value in row:
            cells += [name, value, ""]
        grid.add_row(*cells[:-1])
    return grid


def _compared(summary: Mapping[str, Any]) -> str:
    """Write what the comparison of input and output found; nothing where Spark alone does both."""
    lost, duplicated = summary["rows_lost"], summary["rows_duplicated"]
    return "" if lost is None else f"{lost} / {duplicated}"
