"""What a task notes of the tuples that it sends: counts, hot keys, event times, late rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.common.arrays import IntArray, group_counts
from penstock.common.key_hashing import HashArray, key_hashes
from penstock.model import Grouping, RoutingTable
from penstock.pipeline.keyed.windowed import Windowed
from penstock.pipeline.steps import Link, Step
from penstock.strategies.route import modulo
from penstock.strategies.route.heavy import heaviest

#: Keys are reported above this part of an instance's fair share of a sender's tuples, and at most
#: so many of them for each target: a plan splits as many as make up a fifth of the stream.
HOT_SHARE, HOT_KEPT = 0.02, 32


class TaskMetrics:
    """Figures of one task in one batch, by target."""

    def __init__(self) -> None:
        self.partitions: dict[str, IntArray] = {}
        self.hot: dict[str, dict[int, int]] = {}
        self.late: dict[str, int] = {}
        self.event_times: dict[str, int] = {}

    def partial(self, step: Step, batch: pa.RecordBatch, watermark_us: int | None) -> Any:
        """Reduce what is sent to a keyed step, and note its times if it has windows."""
        assert step.keyed is not None
        if not isinstance(step.keyed, Windowed):
            return step.keyed.partial(batch)
        arrived = step.keyed.arrive(batch, watermark_us)
        if arrived.late:
            self.late[step.name] = self.late.get(step.name, 0) + arrived.late
        if arrived.latest_us is not None:
            known = self.event_times.get(step.name, arrived.latest_us)
            self.event_times[step.name] = max(known, arrived.latest_us)
        return arrived.parts

    def hashes(
        self,
        target: str,
        link: Link,
        table: pa.Table,
        routing: RoutingTable | None,
        instances: int,
        *,
        single: bool,
    ) -> HashArray | None:
        """Hash the keys of what is sent, and count router partitions and hot keys.

        Parameters
        ----------
        single : bool
            Whether rows are single tuples. Reduced ones hold a key once, and none is hot.
        """
        by_table = link.grouping is Grouping.FIELDS and routing is not None
        if not link.by_key or not (by_table or instances > 1):
            return None
        hashes = key_hashes(table, link.by)
        if by_table:
            assert routing is not None
            size = len(routing.partitions)
            counts = group_counts(modulo(hashes, size), size)
            self.partitions[target] = self.partitions.get(target, 0) + counts
        if single and instances > 1:
            found = self.hot.setdefault(target, {})
            keys, times = heaviest(hashes, HOT_SHARE / instances, HOT_KEPT)
            for key, count in zip(keys.tolist(), times.tolist(), strict=True):
                found[key] = found.get(key, 0) + count
        return hashes

    def stats(self) -> dict[str, Any]:
        """Figures besides the partitions, as plain values."""
        hot = {}
        for target, found in self.hot.items():
            kept = sorted(found, key=lambda key: (-found[key], key))[:HOT_KEPT]
            if kept:
                hot[target] = {key: found[key] for key in kept}
        return {"hot_keys": hot, "late": self.late, "event_times": self.event_times}
