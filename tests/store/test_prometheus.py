"""The text is what Prometheus reads: checked with its own client's parser."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import parser

from penstock.store import DECISION, EventRecord, Histogram, MetricsStore, RunRecords, Totals
from penstock.store.prometheus import RunState, render
from penstock.testing.metrics_examples import ODD_NAMES, a_batch, a_run


def parsed(text: str) -> dict[str, Any]:
    families = list(parser.text_string_to_metric_families(text))
    assert len({f.name for f in families}) == len(families), "a family must be in one piece"
    return {f.name: f for f in families}


def a_state() -> RunState:
    with MetricsStore.open(":memory:") as store:
        store.put_run(a_run())
        for number in range(3):
            store.put_batch(*a_batch("r1", number))
        store.put_event(EventRecord("r1", 0, 0.0, DECISION, "moved"))
        store.put_event(EventRecord("r1", 1, 0.0, "note", "seen"))
        return RunState.of(store.read("r1"))


def test_totals_are_counters() -> None:
    families = parsed(render([a_state()]))
    labels = {"run": "r1", "topology": "wordcount", "strategy": "penstock"}
    for name, value in [
        ("penstock_rows_in", 600),
        ("penstock_rows_out", 150),
        ("penstock_rows_dropped", 3),
        ("penstock_batches", 3),
        ("penstock_tasks", 12),
        ("penstock_tasks_honoured", 9),
        ("penstock_decisions", 1),
    ]:
        assert families[name].type == "counter"
        (sample,) = families[name].samples
        assert (sample.name, sample.labels, sample.value) == (f"{name}_total", labels, value)
    tiers = {s.labels["tier"]: s.value for s in families["penstock_shuffle_bytes"].samples}
    assert tiers == {"local": 30, "host_local": 60, "remote": 90}


def test_the_latest_batch_is_gauges() -> None:
    families = parsed(render([a_state()]))
    values = {name: [s.value for s in f.samples] for name, f in families.items()}
    assert values["penstock_batch_number"] == [2]
    assert values["penstock_batch_duration_seconds"] == [0.5]
    assert values["penstock_queue_length"] == [7]
    assert values["penstock_nodes_used"] == [2]
    assert values["penstock_lin"] == [0.25]
    assert families["penstock_lit"].samples[0].labels["operator"] == "count"
    cpu = families["penstock_instance_cpu_seconds"].samples
    assert [(s.labels["operator"], s.labels["instance"], s.value) for s in cpu] == [
        ("count", "0", 0.02),
        ("count", "1", 0.04),
        ("lines", "0", 0.02),
        ("lines", "1", 0.04),
    ]
    assert {f.type for n, f in families.items() if "instance" in n} == {"gauge"}


def test_latency_is_a_cumulative_histogram_in_seconds() -> None:
    family = parsed(render([a_state()]))["penstock_latency_seconds"]
    assert family.type == "histogram"
    buckets = [s for s in family.samples if s.name.endswith("_bucket")]
    bounds = [float(s.labels["le"]) for s in buckets]
    counts = [s.value for s in buckets]
    assert bounds == sorted(set(bounds))
    assert bounds[-1] == float("inf")
    assert counts == sorted(counts)
    at = dict(zip(bounds, counts, strict=True))
    assert (at[0.001], at[0.01], at[0.1], at[1.0]) == (3, 6, 6, 9)
    rest = {s.name: s.value for s in family.samples if not s.name.endswith("_bucket")}
    assert rest["penstock_latency_seconds_count"] == counts[-1] == 9
    assert rest["penstock_latency_seconds_sum"] == pytest.approx(0.909)


def test_every_line_is_sound() -> None:
    text = render([a_state()])
    assert text.endswith("\n")
    seen: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# "):
            kind, name = line.split(" ")[1:3]
            assert kind in {"HELP", "TYPE"}
            assert (kind + name) not in seen
            seen.add(kind + name)
        else:
            name = line.partition("{")[0]
            family = name
            for suffix in ("_bucket", "_sum", "_count"):
                if name == f"penstock_latency_seconds{suffix}":
                    family = "penstock_latency_seconds"
            assert "HELP" + family in seen
            assert "TYPE" + family in seen
            float(line.rpartition(" ")[2])


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_escaped(name: str) -> None:
    state = a_state()
    run = replace(state.run, id=name, topology=name)
    instances = tuple(replace(i, operator=name, node=name) for i in state.instances[:1])
    families = parsed(render([replace(state, run=run, instances=instances)]))
    labels = families["penstock_instance_tuples_in"].samples[0].labels
    # The parser of the client trims what stands between quotes and line ends; all else is equal.
    assert {labels[k] for k in ("run", "topology", "operator", "node")} == {name}


def test_several_runs_share_a_family() -> None:
    one = a_state()
    two = replace(one, run=replace(one.run, id="r2"))
    families = parsed(render([one, two]))
    assert [s.labels["run"] for s in families["penstock_rows_in"].samples] == ["r1", "r2"]


def test_a_run_that_has_not_begun() -> None:
    state = RunState.of(RunRecords(a_run()))
    assert state == RunState(a_run(), Totals())
    families = parsed(render([state]))
    assert "penstock_batch_number" not in families
    assert families["penstock_rows_in"].samples[0].value == 0
    assert families["penstock_run_info"].samples[0].labels["status"] == "running"


def test_no_run() -> None:
    assert render([]) == ""


def test_what_was_not_measured_has_no_sample() -> None:
    state = a_state()
    assert state.latest is not None
    silent = replace(state.latest, lin=None, lit={}, latency=Histogram())
    instances = tuple(replace(i, cpu_ms=None, mem_bytes=None) for i in state.instances)
    families = parsed(render([replace(state, latest=silent, instances=instances)]))
    for name in ("lin", "lit", "instance_cpu_seconds", "instance_memory_bytes"):
        assert f"penstock_{name}" not in families
