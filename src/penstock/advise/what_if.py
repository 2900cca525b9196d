"""What elastic executors would have cost: the real control loop on the recorded rates."""

from __future__ import annotations

import math
from dataclasses import replace

from penstock.advise.application import Application
from penstock.advise.elastic import Elastic, Hour
from penstock.advise.workload import Recorded, most_executors
from penstock.model import Refused
from penstock.report.text import clock
from penstock.runtimes.sim import SimulatedRun, Workload, simulate
from penstock.strategies import strategies

#: Moments that a simulation keeps at the most.
MOST_MOMENTS = 720

#: Batches that the loop has to settle. A shorter stream is repeated, and only its last repetition
#: counts.
SETTLING = 100

#: Batches that are simulated at the most, and days: a log whose times are damaged may tell of
#: thousands of years.
MOST_BATCHES, MOST_DAYS = 500_000, 100.0

#: Strategy whose decisions the loop carries out: the one that scales by default.
ELASTIC = "penstock"

HOUR_MS = 3.6e6


def elastic_of(application: Application, work: Recorded) -> Elastic | None:
    """Simulate elastic executors; None where there is one executor only.

    Raises
    ------
    Refused
        When the strategy does not plan what was recorded, or it is too long to be simulated.
    """
    if most_executors(application) < 2:
        return None
    days, batches = work.seconds / 86_400, work.seconds / work.cycle_s
    if batches < 1:
        raise Refused("the log tells of less than one batch: give the logs of a longer time")
    if days > MOST_DAYS or batches > MOST_BATCHES:
        raise Refused(
            f"the log tells of {batches:,.0f} batches in {days:,.1f} days; at most "
            f"{MOST_BATCHES:,} in {MOST_DAYS:g} days are simulated: give the logs of a shorter time"
        )
    end_ms = work.start_ms + work.seconds * 1e3
    held_ms = sum(e.present_ms(work.start_ms, end_ms) for e in application.executors)
    static = _run(work, "even", every=False)
    elastic = _run(work, ELASTIC, every=True)
    since_s = (_times(work) - 1) * work.seconds
    summary, before = elastic.summary(since_s), static.summary(since_s)
    all_of_them = before["throughput_per_s"]
    hours = _hours(application, work, elastic)
    cores_s = sum(h.seconds * h.executors for h in hours)
    return Elastic(
        executors=most_executors(application),
        static_s=held_ms / 1e3,
        executor_s=summary["nodes"] * work.seconds,
        mean_executors=summary["nodes"],
        most_executors=int(summary["most_nodes"]),
        busy_share=sum(h.busy_share * h.seconds * h.executors for h in hours) / cores_s
        if cores_s
        else 0.0,
        kept_up=min(1.0, summary["throughput_per_s"] / all_of_them) if all_of_them else 1.0,
        static_p95_ms=(before["latency_ms"] or {}).get("p95"),
        p95_ms=(summary["latency_ms"] or {}).get("p95"),
        hours=hours,
        decisions=tuple(
            f"{clock(e.at_s - since_s)} {e.text}" for e in elastic.events if e.at_s > since_s
        ),
    )


def _times(work: Recorded) -> int:
    """How often the stream runs: more than once when it is too short for the loop to settle."""
    batches = work.seconds / work.cycle_s
    return 1 if batches >= SETTLING else 1 + math.ceil(SETTLING / batches)


def _run(work: Recorded, strategy: str, *, every: bool) -> SimulatedRun:
    interval_s = max(1.0, work.cycle_s, work.seconds / MOST_MOMENTS)
    times = _times(work)
    rates = work.rates
    if times > 1:
        rates = {name: replace(rate, period_s=work.seconds) for name, rate in rates.items()}
    return simulate(
        work.topology,
        work.cluster,
        strategies.make(strategy),
        Workload(rates),
        seconds=times * work.seconds,
        every_s=5 * interval_s if every else 0.0,
        costs=work.costs,
        interval_s=interval_s,
    )


def _hours(application: Application, work: Recorded, run: SimulatedRun) -> tuple[Hour, ...]:
    """Executors, tasks and rows hour by hour from the first batch on."""
    end_ms = work.start_ms + work.seconds * 1e3
    count = max(1, int(-(-(end_ms - work.start_ms) // HOUR_MS)))
    lows = [work.start_ms + i * HOUR_MS for i in range(count)]
    highs = [min(low + HOUR_MS, end_ms) for low in lows]
    busy, rows, nodes, simulated_s = ([0.0] * count for _ in range(4))

    def at(ms: float) -> int:
        return min(count - 1, max(0, int((ms - work.start_ms) // HOUR_MS)))

    for query in application.queries:
        for task in (t for stage in query.stages for t in stage.tasks):
            if work.start_ms <= task.start_ms <= end_ms:
                busy[at(task.start_ms)] += task.took_ms
        for batch in query.batches:
            if work.start_ms <= batch.start_ms <= end_ms:
                rows[at(batch.start_ms)] += batch.rows
    since_s = (_times(work) - 1) * work.seconds
    for moment in run.moments:
        middle_s = moment.at_s - moment.seconds / 2 - since_s
        if middle_s >= 0:
            i = at(work.start_ms + middle_s * 1e3)
            nodes[i] += moment.nodes * moment.seconds
            simulated_s[i] += moment.seconds
    made = []
    for i, (low, high) in enumerate(zip(lows, highs, strict=True)):
        length_ms = high - low
        cores = application.cores(low, high)
        held = sum(e.present_ms(low, high) for e in application.executors)
        made.append(
            Hour(
                low,
                length_ms / 1e3,
                held / length_ms,
                min(1.0, busy[i] / (cores * length_ms)) if cores else 0.0,
                rows[i] / (length_ms / 1e3),
                nodes[i] / simulated_s[i] if simulated_s[i] else 0.0,
            )
        )
    return tuple(made)
