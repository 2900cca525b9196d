"""The five papers' systems and their baselines live on Spark: ``make bench-papers``.

Each paper has a setting of its own in which what it claims can show: tasks wait instead of
computing, so that every executor has a capacity of its own whatever cores the machine has; costs
are declared wrongly, keys are skewed, or the rate changes. All systems of a paper take turns on one
embedded cluster, in another order each repetition. Nothing is simulated: the same engine runs all
of them, and only who places, routes and scales differs. ``--keep`` goes on where an earlier call
stopped, and ``--page`` writes the tables of the documentation from what was kept.

    python benchmarks/papers_on_spark.py ms --keep /tmp/papers.jsonl
    python benchmarks/papers_on_spark.py --keep /tmp/papers.jsonl --page docs/reproduce/on-spark.md
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console

from penstock import functions as F
from penstock import spark as engine
from penstock.control import Event, Settings
from penstock.control.events import DecisionStatus
from penstock.pipeline import Discard, Hints, Pipeline
from penstock.pipeline.keyed.step import Split
from penstock.pipeline.sources.generator import Generator, Keys
from penstock.pipeline.sources.rates import Profile
from penstock.runtimes.spark.monitor import Observed
from penstock.runtimes.spark.options import Options
from penstock.runtimes.spark.query import launch
from penstock.store.histogram import Histogram
from penstock.strategies import strategies

NOTE = Console(stderr=True, highlight=False)
Row = dict[str, Any]

#: Memory of an executor, in MB.
MEMORY_MB = 700

#: Looks soon, because a run is short; the guards are those of every run.
SOON = Settings(every=3, cooldown=3, stable_rounds=2, verify=2)


@dataclass(frozen=True)
class System:
    """One of those that are compared.

    Parameters
    ----------
    strategy : str
        Who plans.
    replans : bool
        Whether it looks at what is measured and plans again.
    grouping : str
        How keys are distributed: ``fields`` by hash or by the strategy's table, or by a router that
        splits all keys, or the hot ones, over several instances.
    parameters : mapping
        Of the strategy, where they are not the paper's.
    """

    strategy: str
    replans: bool = False
    grouping: str = "fields"
    parameters: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """What the systems of a paper get.

    Parameters
    ----------
    claim : str
        Of the paper, as far as it can show here.
    profile : str
        Source tuples a second over time.
    seconds : float
        How long it runs, or longest, where batches are counted.
    measured : tuple of (float, float)
        Spans that are measured, in seconds; none where batches are counted.
    batches : int
        Batches that it runs for, of which the last half is measured: a rate that does not change
        leaves time to decide, however long batches take.
    wait_us : tuple of float
        For each tuple where it is parsed and where it is counted.
    declared : float
        Part of these costs that the application declares.
    instances : tuple of int
        Of source, parse, count and store.
    queue : int
        Tuples that wait at the source at the most, and that one batch takes.
    """

    claim: str
    systems: Mapping[str, System]
    profile: str
    seconds: float
    measured: tuple[tuple[float, float], ...]
    wait_us: tuple[float, float]
    instances: tuple[int, int, int, int]
    declared: float = 1.0
    zipf: float = 0.0
    nodes: int = 6
    cores: int = 1
    processes: int = 1
    queue: int = 2000
    batches: int = 0


TRIALS: dict[str, Trial] = {
    "ts": Trial(
        "Ts-Stream needs fewer nodes and sends less between them than Storm's default, at no more "
        "latency.",
        {"ts": System("ts", replans=True), "Storm (even)": System("even")},
        "1000",
        60,
        (),
        (100, 200),
        (2, 6, 6, 4),
        cores=2,
        batches=36,
    ),
    "sra": Trial(
        "When the rate doubles, Sra-Stream gives operators more instances, and the response time "
        "stays low where it grows under Storm's schedulers.",
        {
            "sra": System("sra", replans=True),
            "Storm (even)": System("even"),
            "Storm (R-Storm)": System("rstorm"),
        },
        "steps:1000x12,2000x22",
        34,
        ((22, 34),),
        (50, 850),
        (2, 2, 2, 2),
        cores=2,
    ),
    "sl": Trial(
        "With loads that differ from what was declared, Sl-Stream replaces the scheme without "
        "losing state, and has more throughput and less latency than schedulers that are blind.",
        {
            "sl": System("sl", replans=True),
            "Storm (even)": System("even"),
            "Storm (R-Storm)": System("rstorm"),
        },
        "1200",
        60,
        (),
        (400, 2200),
        (2, 6, 12, 4),
        declared=0.2,
        batches=36,
    ),
    "ms": Trial(
        "With skewed keys Ms-Stream's two-tier routing and balanced nodes have more throughput "
        "than hashing (Storm, R-Storm), splitting all keys (PKG) and shuffling hot ones (PStream).",
        {
            "ms": System("ms", replans=True),
            "ms, chi=0.2": System("ms", replans=True, parameters={"chi": 0.2}),
            "Storm (even)": System("even"),
            "R-Storm": System("rstorm"),
            "PKG": System("even", grouping="partial-key"),
            "PStream": System("even", grouping="hot-key"),
        },
        "4000",
        60,
        (),
        (0, 4000),
        (2, 2, 12, 2),
        zipf=1.0,
        queue=800,
        batches=30,
    ),
    "ra": Trial(
        "Ra-Stream's nodes follow a rate of 2 : 5 : 3, with less latency than Storm's default and "
        "SP-Ant on fewer nodes; instances that talk most share a process.",
        {
            "ra": System("ra", replans=True),
            "Storm (even)": System("even"),
            "SP-Ant": System("sp-ant"),
        },
        "steps:400x14,1000x14,600x14",
        42,
        ((8, 14), (22, 28), (36, 42)),
        (300, 4000),
        (2, 4, 16, 4),
        nodes=4,
        processes=2,
    ),
}


def waited(batch: pa.RecordBatch, *, wait_us: float) -> pa.RecordBatch:
    """Wait for every row."""
    time.sleep(batch.num_rows * wait_us * 1e-6)
    return batch


def pipeline_of(trial: Trial, system: System, rows: int) -> Pipeline:
    """``events -> parse -> count -> store``, none of them chained."""
    parse_us, count_us = trial.wait_us
    sources, parsers, counters, stores = trial.instances
    source = Generator(Profile.parse(trial.profile), Keys(2000, zipf=trial.zipf), 1, rows)
    split: Any = False if system.grouping == "fields" else Split(system.grouping, counters)
    steps = Pipeline("paper").source(
        "events", source, parallelism=sources, hints=Hints(rate_per_s=source.rate_per_s)
    )
    if parse_us:
        steps = steps.map(
            "parse",
            partial(waited, wait_us=parse_us),
            parallelism=parsers,
            chain=False,
            hints=Hints(cpu_us_per_tuple=trial.declared * parse_us),
        )
    return (
        steps.aggregate(
            "count",
            by="key",
            n=F.count(),
            work=partial(waited, wait_us=count_us),
            split=split,
            parallelism=counters,
            hints=Hints(cpu_us_per_tuple=trial.declared * count_us),
        )
        .map(
            "store",
            partial(waited, wait_us=0.0),
            parallelism=stores,
            chain=False,
            hints=Hints(cpu_us_per_tuple=10.0),
        )
        .sink("out", Discard())
    )


def measure(spark: SparkSession, trial: Trial, system: System) -> Row:
    """Run one system once, and say what was seen in the spans that count."""
    seen: list[tuple[float, Observed]] = []
    events: dict[int, Event] = {}
    rows = Profile.parse(trial.profile).position(10.0 * trial.seconds)
    settings = Settings(**{**vars(SOON), "min_nodes": trial.nodes, "max_nodes": trial.nodes})
    began: list[float] = []

    def hear(observed: Observed) -> None:
        seen.append((time.monotonic() - began[0] if began else 0.0, observed))

    run = launch(
        pipeline_of(trial, system, rows),
        spark,
        strategies.make(system.strategy, **system.parameters),
        Options(
            control=settings if system.replans else None,
            queue=engine.QueueOptions(size=trial.queue),
        ),
        hear,
        lambda event: events.update({event.number: event}),
    )
    began.append(time.monotonic())
    try:
        while not run.over.wait(0.2) and time.monotonic() - began[0] < trial.seconds:
            if trial.batches and len(seen) >= trial.batches:
                break
        run.stop()
        if run.failure is not None:
            raise run.failure
        recorder = run.execution.recorder
        lost, duplicated = recorder.lost, recorder.duplicated
    finally:
        run.close()
    passive = (DecisionStatus.NOTED, DecisionStatus.REFUSED, DecisionStatus.RECOMMENDED)
    made = [event for event in events.values() if event.status not in passive]
    return {
        "spans": [_span(seen, *span) for span in trial.measured or [_last_half(seen)]],
        "decisions": len(made),
        "moves": sum(e.moved for e in made),
        "instances": sum(run.execution.plan.parallelism.values()),
        "lost": lost,
        "duplicated": duplicated,
    }


def _last_half(seen: list[tuple[float, Observed]]) -> tuple[float, float]:
    """When the batches of the last half were committed."""
    half = seen[len(seen) // 2 :]
    return (half[0][0], half[-1][0]) if half else (0.0, 0.0)


def _span(seen: list[tuple[float, Observed]], since: float, until: float) -> Row:
    """Figures of the batches that were committed in a span."""
    inside = [(at, one) for at, one in seen if since <= at <= until]
    before = max((at for at, _ in seen if at < since), default=since)
    rows = sum(one.batch.rows_in for _, one in inside)
    latency = Histogram.merged(one.batch.latency for _, one in inside)
    sent = sum(use.sent_bytes for _, one in inside for use in one.uses)
    crossed = sum(use.crossed_out_bytes for _, one in inside for use in one.uses)
    took_s = inside[-1][0] - before if inside else until - since
    return {
        "rows_per_s": rows / took_s,
        "p50_ms": latency.percentile(50.0),
        "p99_ms": latency.percentile(99.0),
        "nodes": statistics.mean(one.batch.nodes_used for _, one in inside) if inside else None,
        "executors": statistics.mean(len({use.worker[0] for use in one.uses}) for _, one in inside)
        if inside
        else None,
        "across": crossed / sent if sent else None,
        "lit": statistics.mean(_lit(one.batch.lit) for _, one in inside) if inside else None,
        "batches": len(inside),
    }


def _lit(found: Mapping[str, float]) -> float:
    """LIT of the instances that count: of their parts, where those are merged."""
    return found.get("count-parts", found.get("count", 0.0))


# ---- kept rows, and the page made of them


def kept(path: Path) -> list[Row]:
    """Read what was measured so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_paper(name: str, asked: argparse.Namespace) -> None:
    """Measure what is missing of a paper; systems take turns."""
    trial = TRIALS[name]
    done = {(row["system"], row["turn"]) for row in kept(asked.keep) if row["paper"] == name}
    turns = [
        (turn, system)
        for turn in range(asked.repeats)
        for system in itertools.islice(
            itertools.cycle(trial.systems), turn, turn + len(trial.systems)
        )
        if (system, turn) not in done
    ]
    if not turns:
        return
    until = time.monotonic() + asked.minutes * 60
    master = engine.embedded(trial.nodes, trial.cores, MEMORY_MB, trial.processes)
    with engine.cluster(master, processes=trial.processes) as spark:
        # What Spark and Python load at the first run must not count against whoever is first.
        measure(spark, replace(trial, seconds=8.0), System("even"))
        for turn, system in turns:
            if time.monotonic() + trial.seconds + 10 > until:
                NOTE.print(f"{name}: no time left for {system}, repetition {turn + 1}")
                return
            row = measure(spark, trial, trial.systems[system])
            NOTE.print(f"{name} {turn + 1} {system}: {row}")
            with asked.keep.open("a", encoding="utf-8") as out:
                line = {"paper": name, "system": system, "turn": turn, **row}
                out.write(json.dumps(line) + "\n")


def _told(values: list[float | None], digits: int = 0, scale: float = 1.0) -> str:
    """Median, and in brackets the smallest and the largest."""
    found = sorted(value * scale for value in values if value is not None)
    if not found:
        return ""
    middle, low, high = statistics.median(found), found[0], found[-1]
    text = f"{middle:,.{digits}f}"
    same = f"{low:.{digits}f}" == f"{high:.{digits}f}"
    return text if same else f"{text} ({low:,.{digits}f} to {high:,.{digits}f})"


COLUMNS: tuple[tuple[str, str, int, float], ...] = (
    ("Tuples/s", "rows_per_s", 0, 1.0),
    ("p50 [s]", "p50_ms", 2, 1e-3),
    ("p99 [s]", "p99_ms", 2, 1e-3),
    ("Nodes", "nodes", 1, 1.0),
    ("Bytes across nodes", "across", 2, 1.0),
    ("LIT", "lit", 2, 1.0),
)


def table(name: str, rows: list[Row]) -> list[str]:
    """Make the table of a paper: a line for each system and span."""
    trial = TRIALS[name]
    titles = [title for title, *_ in COLUMNS]
    lines = [
        "| System | At | " + " | ".join(titles) + " | Instances | Moves | Lost, doubled | Runs |",
        "|" + "---|" * (len(titles) + 6),
    ]
    for system in trial.systems:
        mine = [row for row in rows if row["paper"] == name and row["system"] == system]
        spans = trial.measured or ((0.0, 0.0),)
        for i, (since, until) in enumerate(spans if mine else ()):
            figures = [
                _told([row["spans"][i][key] for row in mine], digits, scale)
                for _, key, digits, scale in COLUMNS
            ]
            rate = Profile.parse(trial.profile).rate((since + until) / 2)
            tail = (
                _told([row["instances"] for row in mine]),
                _told([row["moves"] for row in mine]),
                f"{sum(r['lost'] for r in mine)}, {sum(r['duplicated'] for r in mine)}",
                str(len(mine)),
            )
            lines.append(f"| {system} | {rate:,.0f}/s | " + " | ".join((*figures, *tail)) + " |")
    return lines


def page(rows: list[Row]) -> str:
    """Make the tables of all papers."""
    parts: list[str] = []
    for name, trial in TRIALS.items():
        parse_us, count_us = trial.wait_us
        each = f", {trial.processes} executors each" if trial.processes > 1 else ""
        parts += [
            f"### {name}",
            "",
            f"Claim: {trial.claim}",
            "",
            f"{trial.nodes} nodes{each}, {trial.cores} task{'s' * (trial.cores > 1)} at a time an "
            f"executor; {trial.profile} tuples/s; a tuple waits {parse_us:g} us where it is parsed "
            f"and {count_us:g} us where it is counted, of which {trial.declared:.0%} are declared; "
            f"Zipf {trial.zipf:g}; {'-'.join(str(n) for n in trial.instances)} instances of "
            "source, parse, count and store.",
            "",
            *table(name, rows),
            "",
        ]
    return "\n".join(parts)


MARKS = ("<!-- begin: papers_on_spark.py -->", "<!-- end -->")


def write_page(path: Path, rows: list[Row]) -> None:
    """Put the tables between the marks of a page; the words around them stay."""
    before, rest = path.read_text().split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    path.write_text(f"{before}{MARKS[0]}\n\n{page(rows)}\n{MARKS[1]}{after}")


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("papers", nargs="*", choices=[*TRIALS, []], metavar="PAPER", default=[])
    parser.add_argument("--keep", type=Path, default=Path("papers-on-spark.jsonl"), metavar="FILE")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--minutes", type=float, default=7.0, metavar="M", help="for each paper")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the tables into a page")
    asked = parser.parse_args()
    asked.keep.parent.mkdir(parents=True, exist_ok=True)
    for name in asked.papers or ([] if asked.page else list(TRIALS)):
        run_paper(name, asked)
    if asked.page:
        write_page(asked.page, kept(asked.keep))
    else:
        print(page(kept(asked.keep)))


if __name__ == "__main__":
    main()
