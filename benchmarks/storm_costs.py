"""What a hop, serialisation and acking cost on Apache Storm: ``python benchmarks/storm_costs.py``.

A spout emits a key and a number as fast as it may, through a chain of bolts that pass them on, one
instance of each, in a cluster of one JVM. CPU for a tuple is that of the whole JVM over the tuples
that arrived. A hop is the difference between a chain of four bolts and one of one, over three;
serialisation (Storm's setting for tests that serialises every tuple that is passed on) and acking
are the differences that they make to the longer chain, over its hops. Each is a JVM of its own.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from peer_sides import JOBS, STORM_JARS
from tables import show

from penstock.testing.maven import jars

#: Bolts, whether tuples are acked, and whether they are serialised.
CASES = {
    "1 hop": (1, False, False),
    "4 hops": (4, False, False),
    "4 hops, serialised": (4, False, True),
    "4 hops, acked": (4, True, False),
}


def measured(classes: str, case: tuple[int, bool, bool], given: argparse.Namespace) -> Any:
    """Return tuples a second and microseconds of CPU for a tuple."""
    hops, acking, serializing = case
    words = [str(hops), str(acking).lower(), str(serializing).lower()]
    words += [str(given.warm_s), str(given.seconds)]
    ran = subprocess.run(
        ["java", "-Xmx1g", "-cp", classes, "StormHops", *words],
        capture_output=True,
        text=True,
        timeout=180,
    )
    told = [line for line in ran.stdout.splitlines() if line.startswith("RESULT ")]
    if not told:
        raise SystemExit(ran.stdout[-1000:] + ran.stderr[-2000:])
    rate, cores = map(float, told[0].split()[1:])
    return rate, cores / rate * 1e6


def main() -> None:
    """Measure every case, and take the differences."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--warm-s", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    libraries = f"{jars(*STORM_JARS)}/*"
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    with tempfile.TemporaryDirectory(prefix="penstock-storm-") as folder:
        source = str(Path(JOBS, "StormHops.java"))
        subprocess.run(["javac", "-nowarn", "-cp", libraries, "-d", folder, source], check=True)
        for repetition in range(given.repeats):
            for name in CASES if repetition % 2 == 0 else reversed(CASES):
                found[name].append(measured(f"{folder}:{libraries}", CASES[name], given))
    rows = []
    for name, values in found.items():
        rates, costs = zip(*values, strict=True)
        spread = f"{min(costs):.2f} to {max(costs):.2f}"
        rows.append(
            {
                "chain": name,
                "tuples_per_s": f"{statistics.median(rates):,.0f}",
                "cpu_us": statistics.median(costs),
                "spread": spread,
            }
        )
    show("Storm in one JVM, CPU of a tuple", rows)
    cost = {row["chain"]: float(str(row["cpu_us"])) for row in rows}
    base = cost["4 hops"]
    told = {
        "a hop": (base - cost["1 hop"]) / 3,
        "serialisation, a hop": (cost["4 hops, serialised"] - base) / 4,
        "acking, a hop": (cost["4 hops, acked"] - base) / 4,
    }
    show("differences", [{"what": name, "cpu_us": value} for name, value in told.items()])


if __name__ == "__main__":
    main()
