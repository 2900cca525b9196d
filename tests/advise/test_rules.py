"""Each planted cause comes first in its recorded log; other causes are found where they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.advise import Advice, advise, read_logs
from penstock.advise.application import (
    Application,
    LoggedBatch,
    LoggedExecutor,
    LoggedQuery,
    LoggedStage,
    StateOperator,
    Task,
)
from penstock.advise.codecs import unpacked
from penstock.advise.evidence import Evidence
from penstock.advise.findings import Finding, Gain, found, rules

LOGS = Path(__file__).parents[1] / "data" / "event_logs"

PLANTED = {
    "skew": "skew.zstd",
    "partitions": "partitions.lz4",
    "idle": "idle.snappy",
    "commit": "commit.lzf",
    "source": "eventlog_v2_source",
}


@pytest.mark.parametrize("cause", PLANTED)
def test_the_planted_cause_comes_first(cause: str) -> None:
    (application,) = read_logs(LOGS / PLANTED[cause])
    (query,) = advise(application).queries
    first = query.findings[0]
    assert first.rule == cause
    assert first.share >= 0.15
    assert first.evidence
    assert [f.share for f in query.findings] == sorted(f.share for f in query.findings)[::-1]


#: Addresses, and folders of somebody's machine.
PRIVATE = re.compile(rb"\b\d+\.\d+\.\d+\.\d+\b|/home/|/root/|/tmp/|/usr/|/work/")


@pytest.mark.parametrize("name", [*PLANTED.values(), "batch"])
def test_recorded_logs_are_small_and_tell_of_no_machine(name: str) -> None:
    place = LOGS / name
    files = list(place.iterdir()) if place.is_dir() else [place]
    assert sum(f.stat().st_size for f in files) < 200_000
    for file in files:
        with file.open("rb") as opened:
            assert not PRIVATE.findall(b"".join(unpacked(opened)))


def test_a_log_without_a_stream_says_so() -> None:
    (application,) = read_logs(LOGS / "batch")
    made = advise(application)
    assert not application.streaming
    assert made.queries == ()
    assert made.verdict.startswith("This is not a streaming application: its 2 stages")


def test_idle_executors_are_compared_with_elastic_ones() -> None:
    (application,) = read_logs(LOGS / PLANTED["idle"])
    made = advise(application)
    elastic = made.elastic
    assert elastic is not None
    assert elastic.executors == 4
    assert elastic.executor_s < 0.6 * elastic.static_s
    assert sum(h.seconds * h.executors for h in elastic.hours) == pytest.approx(elastic.static_s)
    assert sum(h.seconds * h.elastic for h in elastic.hours) == pytest.approx(
        elastic.executor_s, rel=0.05
    )


def test_each_strategy_that_is_asked_has_a_plan() -> None:
    (application,) = read_logs(LOGS / PLANTED["skew"])
    made = advise(application, strategies=("penstock", "even", "spark"))
    assert [p.strategy for p in made.plans] == ["penstock", "even", "spark"]
    plan = made.plans[0].plan
    assert plan is not None
    assert sum(plan.parallelism.values()) == 10


def test_equal_logs_give_equal_advice() -> None:
    def once() -> dict[str, Any]:
        (application,) = read_logs(LOGS / PLANTED["idle"])
        values = advise(application).to_dict()
        for plan in values["plans"]:
            del plan["seconds"]
        return values

    assert once() == once()


# ---- causes that no recorded log has, made by hand

Change = Callable[[int, Task], Task]


def task(partition: int, start_ms: float, took_ms: float = 400, **more: Any) -> Task:
    values = {"run_ms": took_ms, "cpu_ms": 0.9 * took_ms, "read_rows": 1000.0} | more
    executor = values.pop("executor", str(partition % 2))
    return Task(partition, executor, start_ms, start_ms + took_ms, **values)


def made(
    *,
    tasks: int = 4,
    source: str = "KafkaV2[Subscribe[topic]]",
    phases: dict[str, float] | None = None,
    change: Callable[[int, Task], Task] = lambda batch, own: own,
    state: Callable[[int], tuple[StateOperator, ...]] = lambda batch: (),
    cores: int = 2,
    properties: dict[str, str] | None = None,
    reads: Callable[[float], tuple[Task, ...]] | None = None,
) -> Advice:
    """Advice on ten batches of two stages, on two executors, in which all is well."""
    batches, stages = [], []
    for i in range(10):
        at = 1e6 + i * 1000.0
        own = tuple(change(i, task(p, at + 400)) for p in range(tasks))
        read = reads(at) if reads else tuple(task(p, at + 20, 350) for p in range(2 * cores))
        middle, end = max(t.end_ms for t in read), max(t.end_ms for t in own)
        stages.append(LoggedStage(2 * i, "run", i, at + 20, middle, (), ("MicroBatchScan",), read))
        steps = ("StateStoreSave", "Exchange")
        stages.append(LoggedStage(2 * i + 1, "run", i, middle, end, (2 * i,), steps, own))
        took = {"addBatch": end - at, "queryPlanning": 20.0, "walCommit": 20.0} | (phases or {})
        batches.append(
            LoggedBatch(i, at, max(end - at, sum(took.values())), took, 4000.0, None, state(i))
        )
    executors = tuple(LoggedExecutor(str(e), f"host-{e}", cores, 0.0) for e in range(2))
    query = LoggedQuery("id", "run", "words", (source,), "sink", tuple(batches), tuple(stages))
    return advise(
        Application("log", "app", "words", "4.3.0", 0.0, 2e6, properties or {}, executors, (query,))
    )


def first(advice: Advice) -> Finding:
    return advice.queries[0].findings[0]


def names(advice: Advice) -> list[str]:
    return [finding.rule for finding in advice.queries[0].findings]


def test_where_all_is_well_nothing_is_found() -> None:
    advice = made()
    assert names(advice) == []
    assert advice.verdict == "Nothing holds it back that the log shows."


def test_too_few_partitions() -> None:
    finding = first(made(tasks=1))
    assert finding.rule == "partitions"
    assert finding.text.startswith("Too few shuffle partitions: 1 tasks on 4 cores")
    assert [(s.name, s.to) for s in finding.settings] == [("spark.sql.shuffle.partitions", "4")]


def test_slow_executor() -> None:
    def slow(batch: int, own: Task) -> Task:
        return task(own.partition, own.start_ms, 1200 if own.executor == "1" else 400)

    finding = first(made(change=slow))
    assert finding.rule == "executors"
    assert (
        finding.text == "Slow executor: tasks of executor 1 on host-1 take 2.1 times as long as "
        "elsewhere."
    )


def test_an_executor_with_most_of_the_tasks() -> None:
    def piled(batch: int, own: Task) -> Task:
        if own.partition == 0:
            return task(0, own.start_ms, executor="0")
        return task(own.partition, own.start_ms + 400 * (own.partition - 1), executor="1")

    finding = first(made(tasks=4, change=piled, cores=1))
    assert finding.rule == "executors"
    assert finding.text.startswith("Uneven executors: executor 1 on host-1 has 2.1 times")


def test_a_heavy_partition_that_has_no_more_rows() -> None:
    def heavy(batch: int, own: Task) -> Task:
        return task(own.partition, own.start_ms, 2000 if own.partition == 3 else 300)

    finding = first(made(change=heavy))
    assert finding.rule == "skew"
    assert "although it does not have many more rows" in finding.text


def test_planning() -> None:
    finding = first(made(phases={"queryPlanning": 900.0}))
    assert (finding.rule, finding.gain) == ("planning", Gain.TIME)


def test_a_driver_that_works_alone() -> None:
    finding = first(made(phases={"addBatch": 3000.0}))
    assert finding.rule == "planning"
    assert finding.figures["driver_ms"] > 1500


def test_offsets_that_take_long() -> None:
    finding = first(made(phases={"latestOffset": 900.0}))
    assert finding.rule == "source"
    assert finding.text.endswith("waiting for its offsets.")


def test_few_partitions_of_kafka() -> None:
    def one(at: float) -> tuple[Task, ...]:
        return (task(0, at + 20, 2000),)

    finding = first(made(reads=one))
    assert finding.rule == "source"
    assert finding.settings[0].name == "minPartitions of the Kafka source"


def test_listing_of_files() -> None:
    finding = first(made(source="FileStreamSource[file:/in]", phases={"latestOffset": 900.0}))
    assert finding.rule == "listing"


def test_small_files() -> None:
    def many(at: float) -> tuple[Task, ...]:
        return tuple(
            task(p, at + 20 + 100 * (p // 4), 100, run_ms=10.0, read_bytes=1e4) for p in range(40)
        )

    finding = first(made(source="FileStreamSource[file:/in]", reads=many))
    assert finding.rule == "listing"
    assert finding.settings[0].name == "spark.sql.files.openCostInBytes"


def test_garbage() -> None:
    advice = made(change=lambda batch, own: task(own.partition, own.start_ms, gc_ms=200.0))
    assert first(advice).rule == "garbage"


def test_spill() -> None:
    advice = made(change=lambda batch, own: task(own.partition, own.start_ms, spilled_bytes=1e7))
    assert first(advice).rule == "spill"


def test_logs_of_the_checkpoint_that_take_long() -> None:
    finding = first(made(phases={"walCommit": 500.0, "commitOffsets": 500.0}))
    assert finding.rule == "commit"
    assert "most of it into the checkpoint's logs" in finding.text


def test_state_that_only_grows() -> None:
    def state(batch: int) -> tuple[StateOperator, ...]:
        return (StateOperator("stateStoreSave", 1e6 * batch, memory_bytes=1e8 * (batch + 1)),)

    finding = first(made(state=state))
    assert (finding.rule, finding.gain) == ("state", Gain.RISK)
    assert "it only grows" in finding.text


def test_state_that_is_removed_and_small_is_fine() -> None:
    def state(batch: int) -> tuple[StateOperator, ...]:
        return (StateOperator("stateStoreSave", 1e6, removed_rows=10, memory_bytes=1e8),)

    assert names(made(state=state)) == []


@pytest.mark.parametrize("name", rules.names())
def test_no_rule_finds_anything_where_nothing_ran(name: str) -> None:
    query = LoggedQuery("id", "run")
    assert found(Evidence(Application("log", queries=(query,)), query)) == ()
    assert rules.get(name).summary


def test_settings_are_told_once() -> None:
    advice = made(
        change=lambda batch, own: task(own.partition, own.start_ms, gc_ms=150.0, spilled_bytes=1e7)
    )
    settings = [s.name for s in advice.queries[0].settings]
    assert settings.count("spark.executor.memory") == 1


def test_two_queries_share_the_executors() -> None:
    one = made().application
    (query,) = one.queries
    later = tuple(replace(b, start_ms=b.start_ms + 500) for b in query.batches)
    other = replace(query, id="other", run_id="other", name="lines", batches=later)
    again = replace(query, run_id="again")
    advice = advise(replace(one, queries=(query, other, again)))
    assert [q.title for q in advice.queries] == ["words", "lines", "words"]
    plan = advice.plans[0].plan
    assert plan is not None
    assert list(plan.parallelism) == [
        f"{prefix}: {stage}"
        for prefix in ("words", "lines", "words 2")
        for stage in ("source", "StateStoreSave")
    ]
    assert advice.elastic is not None
    assert advice.elastic.static_s == pytest.approx(2 * 8.34)


def test_executors_that_come_and_go_are_counted_while_they_are_there() -> None:
    one = made().application
    low, high = one.queries[0].batches[3].start_ms, one.queries[0].batches[-1].end_ms
    first, second = one.executors
    there = replace(first, removed_ms=(low + high) / 2)
    assert replace(one, executors=(there, second)).cores(low, high) == pytest.approx(3.0)
