"""One instance whose state grows to millions of keys within a memory budget.

The state grows to each of the given sizes; there, batches look up, change and save keys drawn at
random, through the same `StateStore` as the tasks of a run. Shown are the median batch, in time and
CPU time of all threads; the longest of those that put the state in order again; and memory: what
only this process has at the time and had at the most since the size before, and pages of mapped
files, which the system takes back when it needs them.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from penstock.state.config import StateConfig
from penstock.state.store import StateStore


def rows(numbers: Any, value: int) -> pa.Table:
    """Make rows of some keys, of 20 bytes each, and two counters."""
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width=15, padding="0")
    values = np.full(len(numbers), value, dtype=np.int64)
    key = pc.binary_join_element_wise("user", digits, "-")
    return pa.table({"key": key, "a": values, "b": values})


class Memory(threading.Thread):
    """Watches the memory of this process."""

    def __init__(self, every_s: float = 0.01) -> None:
        super().__init__(daemon=True)
        self.every_s, self.most, self.start_mb = every_s, 0.0, _resident()[0]
        self.start()

    def run(self) -> None:
        """Look again and again."""
        while True:
            self.most = max(self.most, _resident()[0])
            time.sleep(self.every_s)

    def since(self) -> dict[str, float]:
        """Say how much there is now and was at the most, beyond the start."""
        most, self.most = self.most, 0.0
        gc.collect()
        pa.default_memory_pool().release_unused()
        ctypes.CDLL(None).malloc_trim(0)
        own, mapped = _resident()
        start = self.start_mb
        return {"own_mb": own - start, "peak_mb": most - start, "mapped_mb": mapped}


def _resident() -> tuple[float, float]:
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    status = dict(line.split(":", 1) for line in lines)
    own, mapped = (int(status[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile"))
    return own, mapped


class Instance:
    """The state of one instance, batch after batch."""

    def __init__(self, store: StateStore) -> None:
        self.store, self.version = store, -1

    def batch(self, changed: pa.Table, *, get: bool) -> tuple[float, float, bool]:
        """Run a batch; return its seconds, those of CPU, and whether it wrote everything."""
        started, cpu = time.perf_counter(), time.process_time()
        state = self.store.load("op", 0, ("key",), self.version)
        if get:
            found = state.get(changed)
            assert found is not None
            assert found.num_rows == changed.num_rows
        state = state.put(changed)
        saved = self.store.save("op", 0, self.version, self.version + 1, changed, state)
        self.version += 1
        return time.perf_counter() - started, time.process_time() - cpu, saved.segment.whole


def measure(
    sizes: list[int], touched: int, batches: int, memory_mb: float, folder: Path
) -> list[dict[str, Any]]:
    """Grow to every size, and run batches there."""
    store = StateStore(StateConfig("checkpoint", str(folder), memory_mb=memory_mb), folder, "bench")
    instance, watch, rng = Instance(store), Memory(), np.random.default_rng(0)
    reached, found = 0, []
    for size in sizes:
        growing = []
        while reached < size:
            step = min(touched, size - reached)
            growing.append(instance.batch(rows(np.arange(reached, reached + step), 0), get=False))
            reached += step
        times = [
            # A few less where one is drawn twice: to avoid that would take memory of its own.
            instance.batch(rows(np.unique(rng.integers(0, size, touched)), i), get=True)
            for i in range(batches)
        ]
        pauses = [(seconds, cpu) for seconds, cpu, whole in growing + times if whole]
        plain = [(seconds, cpu) for seconds, cpu, whole in times if not whole]
        found.append(
            {
                "keys": size,
                "batch_ms": 1000 * median(seconds for seconds, _ in plain),
                "cpu_ms": 1000 * median(cpu for _, cpu in plain),
                "pause_ms": 1000 * max((seconds for seconds, _ in pauses), default=0.0),
                "pause_cpu_ms": 1000 * max((cpu for _, cpu in pauses), default=0.0),
                "pauses": len(pauses),
                **watch.since(),
                "rows_mb": store.load("op", 0, ("key",), instance.version).bytes() / 1e6,
            }
        )
        Console(stderr=True).print(f"{size:,} keys", style="dim")
    return found


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--keys", type=int, nargs="+", default=[100_000, 500_000, 1_000_000, 2_000_000, 5_000_000]
    )
    parser.add_argument("--touched", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--memory-mb", type=float, default=128.0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-large-") as folder:
        found = measure(asked.keys, asked.touched, asked.batches, asked.memory_mb, Path(folder))
    if asked.json:
        print(json.dumps(found))
        return
    table = Table(title=f"{asked.touched:,} keys a batch, {asked.memory_mb:g} MB")
    for column in found[0]:
        table.add_column(column.replace("_", " "), justify="right")
    for row in found:
        table.add_row(*(f"{v:,.0f}" for v in row.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
