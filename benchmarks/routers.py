"""Time the routers on a million keys: ``make bench-routers``.

Every registered router, keys of several kinds, as Arrow and as NumPy columns: the median of several
passes in milliseconds of processor time, so that other work on the machine counts little.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from penstock.common.key_hashing import hash_keys
from penstock.strategies.route import Destination, Router, routers
from penstock.strategies.route.hot_key import HotKey

#: Different keys; how often each comes is skewed, as it is where routers matter.
KEYS = 100_000
INSTANCES = 16


def columns(rows: int, seed: int = 0) -> dict[str, Any]:
    """Make the keys: numbers, short strings of 6 to 10 bytes, strings of 36 as a UUID has."""
    rng = np.random.default_rng(seed)
    ranks = np.minimum(rng.zipf(1.2, rows), KEYS) - 1
    short = [f"user-{rank}" for rank in range(KEYS)]
    long = [f"{rank:08x}-{rank % 9973:04x}-4000-8000-{rank * 40503:012x}" for rank in range(KEYS)]
    numbers = rng.permutation(KEYS).astype(np.int64)[ranks]
    made: dict[str, Any] = {"int64, NumPy": numbers, "int64, Arrow": pa.array(numbers)}
    for name, words in (("short", short), ("36 bytes", long)):
        column = pa.array(words).take(pa.array(ranks))
        made[f"{name}, Arrow"] = column
        made[f"{name}, Arrow dictionary"] = column.dictionary_encode()
        made[f"{name}, NumPy"] = np.array(words)[ranks]
    return made


def destination(router: Router, keys: Any) -> Destination:
    """Return what the router would know after a batch like this one."""
    if isinstance(router, HotKey):
        return Destination(INSTANCES, hot=router.hot(hash_keys(keys), INSTANCES))
    return Destination(INSTANCES)


def timed_ms(router: Router, keys: Any, to: Destination, passes: int) -> float:
    """Return the median of several passes, after one that does not count."""
    router.route(keys, to)
    times = []
    for _ in range(passes):
        start_s = time.process_time()
        router.route(keys, to)
        times.append((time.process_time() - start_s) * 1000.0)
    return statistics.median(times)


def main() -> None:
    """Print a line for each kind of key and a column for each router."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--passes", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    asked = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for kind, keys in columns(asked.rows).items():
        found[kind] = {}
        for name in routers.names():
            router: Router = routers.make(name)
            found[kind][name] = timed_ms(router, keys, destination(router, keys), asked.passes)
    if asked.json:
        json.dump(found, sys.stdout, indent=1)
        return
    table = Table(title=f"Milliseconds for {asked.rows:,} keys", title_justify="left")
    table.add_column("keys")
    for name in routers.names():
        table.add_column(name, justify="right")
    for kind, row in found.items():
        table.add_row(kind, *(f"{value:.1f}" for value in row.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
