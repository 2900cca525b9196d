"""COMMCount: how often each commodity was looked at (Ms section 7.1)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock import functions as F
from penstock.apps.api import App, Instances, rate_of, register
from penstock.apps.taobao import READER, Behavior
from penstock.common.parameters import param
from penstock.model import NotAllowed
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.keyed.step import Split
from penstock.pipeline.sources.generator import Content
from penstock.pipeline.sources.readers import Reader
from penstock.pipeline.steps import Hints, Sink

#: Behaviour that is counted.
VIEW = "pv"


@register
@dataclass(frozen=True)
class CommCount(App):
    """Count views of items in a shop.

    The result is the number of views, behaviour ``pv``, of each item, as ``(item, views)``.
    A row costs about 0.6 microseconds to make and 0.3 to filter; nine of ten are views. Equal items
    of a batch are added up before they are sent; a row that arrives costs about 1 to count.

    For comparing routers, `cost_us` makes every view wait where it is counted, and views are then
    sent one by one. With `split` the views of a hot item are counted in several instances and the
    counts merged, as `grouping` distributes them: by a routing table, by partial key (PKG) or by
    hot key (PStream).
    """

    name: ClassVar[str] = "commcount"
    summary: ClassVar[str] = "behaviours -> views -> count: how often each item was looked at"
    keys: ClassVar[Mapping[str, tuple[str, ...]]] = {"counts": ("item",)}

    items: int = param(50_000, "Different items in generated data.", least=1, unit="items")
    users: int = param(100_000, "Different users in generated data.", least=1, unit="users")
    cost_us: float = param(0.0, "Wait for each view where it is counted.", least=0, unit="us")
    split: bool = param(False, "Count views of hot items in several instances, and merge.")
    grouping: str = param(
        "fields",
        "How views are distributed; other than fields only with split.",
        choices=("fields", "partial-key", "hot-key"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grouping != "fields" and not self.split:
            raise NotAllowed(
                f"commcount groups by {self.grouping}, which sends an item to several instances; "
                "set split=true, so that their counts are merged, or group by fields"
            )

    def content(self, zipf: float) -> Content:
        """Taobao's columns, the items skewed."""
        return Behavior(self.users, self.items, zipf=zipf)

    def reader(self, path: str | Path) -> Reader:
        """Read ``UserBehavior.csv``: user, item, category, behaviour, time, without a header."""
        return READER

    def build(self, source: Any, out: Mapping[str, Sink], many: Instances) -> Pipeline:
        """Build ``behaviors -> views -> count -> counts``; see `App.build`.

        With `split`, ``count-parts`` stands before ``count``; grouped by ``fields``, both are one.
        """
        return (
            Pipeline(self.name)
            .source(
                "behaviors",
                source,
                parallelism=many.of("behaviors"),
                hints=Hints(rate_per_s=rate_of(source), cpu_us_per_tuple=0.6, tuple_bytes=42.0),
            )
            .map(
                "views",
                views,
                parallelism=many.stateless("views"),
                chain=many.chain,
                hints=Hints(cpu_us_per_tuple=0.3, selectivity=0.4, tuple_bytes=8.0),
            )
            .aggregate(
                "count",
                by="item",
                views=F.count(),
                work=partial(waited, cost_us=self.cost_us) if self.cost_us else None,
                split=Split(self.grouping, many.of("count")) if self.split else False,
                parallelism=many.of("count-parts" if self.split else "count"),
                # Who waits holds a slot of its node all the same.
                hints=Hints(cpu_us_per_tuple=1.0 + self.cost_us, tuple_bytes=16.0),
            )
            .sink("counts", out["counts"])
        )

    def expected(self, table: pa.Table) -> dict[str, pa.Table]:
        """Count with a `Counter`."""
        items, behaviors = (table.column(name).to_pylist() for name in ("item", "behavior"))
        pairs = zip(items, behaviors, strict=True)
        viewed = [item for item, behavior in pairs if behavior == VIEW and item is not None]
        seen = sorted(Counter(viewed).items())
        schema = pa.schema([("item", pa.int64()), ("views", pa.int64())])
        return {"counts": pa.table([[i for i, _ in seen], [n for _, n in seen]], schema=schema)}


def waited(batch: pa.RecordBatch, *, cost_us: float) -> pa.RecordBatch:
    """Wait for every row: a cost that does not depend on the cores that there are."""
    time.sleep(batch.num_rows * cost_us * 1e-6)
    return batch


def views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Keep the items that were looked at."""
    item = batch.column("item")
    seen = pc.and_(pc.equal(batch.column("behavior"), VIEW), item.is_valid())
    return pa.record_batch({"item": item.filter(seen)})
