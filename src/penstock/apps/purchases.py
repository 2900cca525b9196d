"""Which views led to a purchase, and when users were there: steps that follow event time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock import functions as F
from penstock.apps.api import App, Instances, rate_of, register
from penstock.apps.taobao import READER
from penstock.apps.visits import BUY, VIEW, Visits
from penstock.common.parameters import param
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.keyed.time_bound import STEP_US, between
from penstock.pipeline.keyed.windows import session
from penstock.pipeline.sources.generator import Content
from penstock.pipeline.sources.readers import Reader
from penstock.pipeline.steps import Hints, Sink

SECOND_US = 1_000_000
NAMES = ("user", "item", "category", "behavior", "t")

#: State of a period by a timer.
PERIOD = pa.schema([("n", pa.int64()), ("due", pa.int64())])
INTEGER = pa.int64()


@register
@dataclass(frozen=True)
class Purchases(App):
    """Join views with purchases, and count by session and by period, without duplicates.

    ``behaviors -> unique``, and behind it three results. ``matches`` has each view with the
    purchases of the same user and item that came at most `match_s` later, or none. ``sessions`` has
    how much a user did without a gap of `gap_s`. ``periods`` has how much was done in a category in
    each `period_s`, kept and emitted by a timer. Times are microseconds since 1970.

    Rows are out of order and some come twice. What comes at most `lateness_s` late is in the
    results, which then do not depend on how the stream is cut; what comes later may be dropped, and
    `expected` does not know of that. What the watermark has not passed at the end is not emitted,
    as in Spark.
    """

    name: ClassVar[str] = "purchases"
    summary: ClassVar[str] = "behaviours -> unique -> match, sessions, periods: by event time"
    keys: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "matches": ("user", "item", "t", "bought"),
        "sessions": ("user", "window_start"),
        "periods": ("category", "period"),
    }

    users: int = param(100, "Different users in generated data.", least=1, unit="users")
    items: int = param(10, "Different items in generated data.", least=1, unit="items")
    match_s: int = param(20, "Most time from a view to a purchase.", least=1, unit="s")
    gap_s: int = param(15, "Time without a row that ends a session.", least=1, unit="s")
    period_s: int = param(60, "Length of a period.", least=1, unit="s")
    lateness_s: int = param(10, "How late a row may come.", least=0, unit="s")

    def content(self, zipf: float) -> Content:
        """Taobao's columns, out of order and with duplicates, the users skewed."""
        return Visits(self.users, self.items, zipf)

    def reader(self, path: str | Path) -> Reader:
        """Read ``UserBehavior.csv``: user, item, category, behaviour, time, without a header."""
        return READER

    def build(self, source: Any, out: Mapping[str, Sink], many: Instances) -> Pipeline:
        """Build ``behaviors -> unique`` and the three results; see `App.build`."""
        late = f"{self.lateness_s} s"
        made = (
            self._matched(self._unique(source, many), many)
            .select("pairs", {"user": "user", "item": "item", "t": "t", "bought": "t_bought"})
            .sink("matches", out["matches"])
            .aggregate(
                "session",
                after="unique",
                by="user",
                window=session("t", f"{self.gap_s} s", lateness=late),
                n=F.count(),
                parallelism=many.of("session"),
                hints=Hints(cpu_us_per_tuple=2.0, selectivity=0.2, tuple_bytes=32.0),
            )
            .sink("sessions", out["sessions"])
        )
        return made.stateful(
            "count",
            after="unique",
            by=["category", "period"],
            update=counted,
            on_timer=closed,
            state=PERIOD,
            time="t",
            lateness=late,
            event_timer="due",
            ttl="1 d",
            parallelism=many.of("count"),
            hints=Hints(cpu_us_per_tuple=2.0, selectivity=0.1, tuple_bytes=24.0),
        ).sink("periods", out["periods"])

    def _matched(self, made: Pipeline, many: Instances) -> Pipeline:
        late = f"{self.lateness_s} s"
        for name, behavior in (("views", VIEW), ("buys", BUY)):
            made = made.filter(
                name,
                pc.field("behavior") == behavior,
                after="unique",
                parallelism=many.stateless(name),
                chain=many.chain,
                hints=Hints(cpu_us_per_tuple=0.3, selectivity=0.5, tuple_bytes=40.0),
            )
        bound = between("t", "t", "0 s", f"{self.match_s} s", lateness=late)
        return made.join(
            "match",
            "buys",
            after="views",
            on=["user", "item"],
            how="left",
            time=bound,
            suffix="_bought",
            parallelism=many.of("match"),
            hints=Hints(cpu_us_per_tuple=3.0, tuple_bytes=60.0),
        )

    def _unique(self, source: Any, many: Instances) -> Pipeline:
        micros = pc.field("timestamp") * SECOND_US
        length = self.period_s * SECOND_US
        columns = {name: name for name in NAMES[:-1]} | {"t": micros}
        period = pc.divide(micros, length) * length
        due = period + length
        return (
            Pipeline(self.name)
            .source(
                "behaviors",
                source,
                parallelism=many.of("behaviors"),
                hints=Hints(rate_per_s=rate_of(source), cpu_us_per_tuple=0.6, tuple_bytes=42.0),
            )
            .select(
                "timed",
                {**columns, "period": period, "due": due},
                parallelism=many.stateless("timed"),
                chain=many.chain,
                hints=Hints(cpu_us_per_tuple=0.3, tuple_bytes=58.0),
            )
            .deduplicate(
                "unique",
                by=["user", "item", "behavior", "t"],
                time="t",
                lateness=f"{self.lateness_s} s",
                parallelism=many.of("unique"),
                hints=Hints(cpu_us_per_tuple=1.5, selectivity=0.85, tuple_bytes=58.0),
            )
        )

    def expected(self, table: pa.Table) -> dict[str, pa.Table]:
        """Work all three out with dictionaries; no row may be later than is allowed."""
        columns = (table.column(name).to_pylist() for name in (*NAMES[:-1], "timestamp"))
        rows = {(*row[:-1], row[-1] * SECOND_US) for row in zip(*columns, strict=True)}
        return {
            "matches": self._matches(rows),
            "sessions": self._sessions(rows),
            "periods": self._periods(rows),
        }

    def _watermark(self, times: list[int]) -> int:
        return max(max(times, default=0) - self.lateness_s * SECOND_US, 0)

    def _matches(self, rows: set[Any]) -> pa.Table:
        views = [row for row in rows if row[3] == VIEW]
        buys: dict[Any, list[int]] = defaultdict(list)
        for user, item, _, behavior, t in rows:
            if behavior == BUY:
                buys[user, item].append(t)
        sides = ([row[-1] for row in views], [t for times in buys.values() for t in times])
        most = self.match_s * SECOND_US
        over = min(map(self._watermark, sides)) - most - STEP_US
        found: list[tuple[int, int, int, int | None]] = []
        for user, item, _, _, t in views:
            met = [bought for bought in buys[user, item] if t <= bought <= t + most]
            found += [(user, item, t, bought) for bought in met]
            if not met and t <= over:
                found.append((user, item, t, None))
        # Those without a purchase come last, as Arrow sorts them.
        found.sort(key=lambda row: (*row[:3], row[3] is None, row[3] or 0))
        return _table(self.keys["matches"], found)

    def _sessions(self, rows: set[Any]) -> pa.Table:
        gap, found = self.gap_s * SECOND_US, list[tuple[int, int, int, int]]()
        end = self._watermark([row[-1] for row in rows])
        for user, t in sorted((row[0], row[-1]) for row in rows):
            if found and found[-1][0] == user and t <= found[-1][2]:
                _, start, _, n = found.pop()
                found.append((user, start, t + gap, n + 1))
            else:
                found.append((user, t, t + gap, 1))
        over = [one for one in found if one[2] <= end]
        return _table(("user", "window_start", "window_end", "n"), over)

    def _periods(self, rows: set[Any]) -> pa.Table:
        length, counts = self.period_s * SECOND_US, dict[tuple[int, int], int]()
        for _, _, category, _, t in rows:
            key = (category, t // length * length)
            counts[key] = counts.get(key, 0) + 1
        end = self._watermark([row[-1] for row in rows])
        over = sorted((*key, n) for key, n in counts.items() if key[1] + length <= end)
        return _table(("category", "period", "n"), over)


def counted(rows: pa.Table, state: pa.Table) -> tuple[None, pa.Table]:
    """Count the rows of a category and period; the timer is due when the period is over."""
    names = ["category", "period", "n", "due"]
    new = rows.append_column("n", pa.array([1] * rows.num_rows, INTEGER)).select(names)
    both = pa.concat_tables([state.select(names), new])
    sums = both.group_by(["category", "period"], use_threads=False)
    made = sums.aggregate([("n", "sum"), ("due", "max")])
    return None, made.rename_columns(names)


def closed(state: pa.Table) -> tuple[pa.Table, None, pa.Table]:
    """Emit the periods that are over, and forget them."""
    return state.select(["category", "period", "n"]), None, state.select(["category", "period"])


def _table(names: tuple[str, ...], rows: list[Any]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return pa.table({n: pa.array(c, INTEGER) for n, c in zip(names, columns, strict=True)})
