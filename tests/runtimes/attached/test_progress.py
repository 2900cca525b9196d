"""What Spark's listener tells, as typed values, and the topology that is found in it."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from tests.runtimes.attached.texts import JOIN, SAVE, batch, progress, task

from penstock.model import Kind
from penstock.runtimes.attached.progress import parse, rows_behind
from penstock.runtimes.attached.topology import graph_of


def test_a_batch_is_read_with_all_that_ran() -> None:
    found = parse(batch(3))
    assert (found.query, found.number, found.rows_in) == ("query", 3, 600)
    assert found.started_at_s == 1767225603.0
    assert [e.id for e in found.executors] == ["0", "1", "2"], "the driver runs no tasks here"
    assert len(found.stages) == 4
    first = found.tasks[0]
    assert (first.executor, first.succeeded, first.run_ms) == ("0", True, 50)
    assert found.tasks[-1].state_bytes == 1000


def test_the_driver_counts_where_it_runs_the_tasks() -> None:
    assert [e.id for e in parse(batch(ids=())).executors] == ["driver"]


def test_stages_become_operators_in_the_order_of_the_data_flow() -> None:
    graph = graph_of("clicks", parse(batch()))
    assert graph is not None
    topology = graph.topology({JOIN: 4.0})
    assert topology.layers == (("source-0", "source-1"), (JOIN,), (SAVE,))
    assert dict(topology.parallelism) == {"source-0": 2, "source-1": 2, JOIN: 2, SAVE: 2}
    assert topology[JOIN].kind is Kind.STATEFUL
    assert topology[JOIN].state_mb == 4.0
    assert [stage.name for stage in graph.stateful] == [JOIN, SAVE]


def test_a_plan_that_was_already_replaced_is_matched_by_the_order_of_its_stages() -> None:
    graph = graph_of("clicks", parse(batch()))
    assert graph is not None
    late = parse(batch(5, segments=False))
    assert graph.stage_of(late) == graph.stage_of(parse(batch(5)))


def test_a_batch_without_all_stages_tells_no_topology() -> None:
    text = batch()
    cut = "\n".join(line for line in text.splitlines() if not line.startswith("stage\t3"))
    assert graph_of("clicks", parse(cut)) is None
    assert graph_of("clicks", parse(batch(segments=False))) is None


def test_state_whose_partitions_cannot_be_told_apart_is_left_alone() -> None:
    lines = [
        line.replace("\t\t2\tTrue", "\t\t5\tTrue") if line.startswith("stage\t3") else line
        for line in batch().splitlines()
    ]
    graph = graph_of("clicks", parse("\n".join(lines)))
    assert graph is not None
    assert [stage.name for stage in graph.stateful] == [JOIN]
    assert len(graph.not_placed) == 1
    assert SAVE in graph.not_placed[0]


def test_time_of_a_repeated_stage_is_added_up() -> None:
    graph = graph_of("clicks", parse(batch()))
    assert graph is not None
    again = parse("\n".join([*batch().splitlines(), task(3, 0, "2", 40)]))
    ran = graph.tasks(again)[SAVE][0]
    assert (ran.run_ms, ran.executor) == (140, "2")


@pytest.mark.parametrize(
    ("end", "latest", "behind"),
    [
        ({"topic": {"0": 10, "1": 5}}, {"topic": {"0": 30, "1": 5}}, 20),
        ('{"topic": {"0": 1}}', '{"topic": {"0": 4}}', 3),
        (7, 9, 2),
        ("no JSON", None, 0),
        ({"topic": {"0": 10}}, None, 0),
    ],
)
def test_rows_that_wait_are_counted_where_offsets_say_so(
    end: object, latest: object, behind: int
) -> None:
    sources = [{"endOffset": end, "latestOffset": latest}]
    assert rows_behind(progress(0, sources=sources)) == behind
