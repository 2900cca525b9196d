"""Compare stores for the keyed state of one instance, to choose the one that is embedded.

Every store holds the same rows, a key of 20 bytes and two counters. A batch looks up the keys that
it touches, adds to their counters and puts them back, from Arrow and to Arrow, as an operator does.
Each store runs in a process of its own, so that its memory can be told. LMDB and RocksDB are left
out when they are not installed (``pip install lmdb rocksdict``).
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from stores import STORES, Store

#: Store -> the module that it needs.
NEEDS = {"lmdb": "lmdb", "rocksdb": "rocksdict"}


def rows(numbers: Any) -> pa.Table:
    """Make the rows of some keys, all counters 1."""
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width=15, padding="0")
    ones = np.ones(len(numbers), dtype=np.int64)
    return pa.table({"key": pc.binary_join_element_wise("user", digits, "-"), "a": ones, "b": ones})


def added(found: pa.Table) -> pa.Table:
    """Do what the batch does: count on."""
    one = pa.scalar(1, pa.int64())
    return pa.table(
        {
            "key": found.column("key"),
            "a": pc.add(found.column("a"), one),
            "b": pc.add(found.column("b"), one),
        }
    )


def resident_mb() -> tuple[float, float]:
    """Memory of this process that only it has, and pages of files that it has mapped."""
    # What was only needed in between is given back first.
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text("ascii").splitlines()
    )
    own, mapped = (int(status[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile"))
    return own, mapped


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Run something; give its result, its seconds and its seconds of CPU, all threads'."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def disk_mb(folder: Path) -> float:
    """Sum up what lies in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def measure(name: str, keys: int, touched: list[int], batches: int, folder: Path) -> dict[str, Any]:
    """Fill one store, run batches on it, close it and open it again."""
    before = resident_mb()
    store: Store = STORES[name](folder)
    load_s = filled(store, keys)
    rng = np.random.default_rng(1)
    result: dict[str, Any] = {"load_s": load_s, "batches": {}}
    for size in touched:
        times = [batch(store, rng.choice(keys, size, replace=False)) for _ in range(batches)]
        figures = [1000 * median(column) for column in zip(*times, strict=True)]
        result["batches"][size] = dict(zip(("get_ms", "put_ms", "cpu_ms"), figures, strict=True))
    after = resident_mb()
    result["own_mb"], result["mapped_mb"] = (a - b for a, b in zip(after, before, strict=True))
    _, result["compact_s"], _ = timed(store.compact)
    store.close()
    del store
    result["disk_mb"] = disk_mb(folder)
    probe = rows(np.arange(0, keys, max(1, keys // 100))).select(["key"])

    def reopened() -> Store:
        again: Store = STORES[name](folder)
        again.open()
        again.get(probe)
        return again

    again, result["reopen_s"], _ = timed(reopened)
    total = sum(
        int(pc.sum(again.get(rows(np.arange(low, min(keys, low + 500_000)))).column("a")).as_py())
        for low in range(0, keys, 500_000)
    )
    if total != keys + batches * sum(touched):
        raise AssertionError(f"{name} lost counts: it has {total}")
    again.close()
    return result


def filled(store: Store, keys: int) -> float:
    """Fill a store in any order of keys."""
    content = rows(np.random.default_rng(0).permutation(keys))
    _, load_s, _ = timed(partial(store.load, content))
    return load_s


def batch(store: Store, numbers: Any) -> tuple[float, float, float]:
    """Run one batch: seconds of the lookup and of the change, and of CPU for both."""
    asked = rows(numbers).select(["key"])
    found, get_s, get_cpu_s = timed(partial(store.get, asked))
    if found.num_rows != len(numbers):
        raise AssertionError(f"{found.num_rows} of {len(numbers)} keys were found")
    _, put_s, put_cpu_s = timed(partial(store.put, added(found)))
    if store.due:
        store.compact()
    return get_s, put_s, get_cpu_s + put_cpu_s


def apart(name: str, keys: int, touched: list[int], batches: int, under: Path) -> dict[str, Any]:
    """Measure in a process of its own."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=under))
    try:
        asked = json.dumps([name, keys, touched, batches, str(folder)])
        command = [sys.executable, __file__, "--one", asked]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        measured: dict[str, Any] = json.loads(done.stdout)
        return measured
    finally:
        shutil.rmtree(folder)


def main() -> None:
    """Measure all stores and print one table, in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--touched", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--batches", type=int, default=7)
    parser.add_argument("--stores", nargs="+", choices=STORES, default=list(STORES))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        name, keys, touched, batches, folder = json.loads(asked.one)
        print(json.dumps(measure(name, keys, touched, batches, Path(folder))))
        return
    there = []
    for name in asked.stores:
        if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
            print(f"{name} is left out: {NEEDS[name]} is not installed", file=sys.stderr)
        else:
            there.append(name)
    columns = [f"{size:,} keys: get + put (CPU) ms" for size in asked.touched]
    head = ["keys", "store", *columns, "own MB", "mapped MB", "disk MB", "load s", "merge s"]
    print("| " + " | ".join([*head, "reopen s"]) + " |")
    print("|" + "---:|---|" + "---:|" * (len(head) - 1))
    for keys in asked.keys:
        for name in there:
            got = apart(name, keys, asked.touched, asked.batches, asked.folder)
            cells = [f"{keys:,}", name]
            for batch in got["batches"].values():
                both = batch["get_ms"] + batch["put_ms"]
                cells.append(
                    f"{batch['get_ms']:.0f} + {batch['put_ms']:.0f} = {both:.0f} "
                    f"({batch['cpu_ms']:.0f})"
                )
            cells += [f"{got[k]:,.0f}" for k in ("own_mb", "mapped_mb", "disk_mb")]
            cells += [f"{got[k]:.2f}" for k in ("load_s", "compact_s", "reopen_s")]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
