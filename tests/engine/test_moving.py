"""State that moves, is lost with its node, and is dealt anew: the result is as if nothing was."""

from __future__ import annotations

import shutil
import threading
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import functions as F
from penstock.common.arrays import frozen_ints
from penstock.engine.backend import NO_SENDERS, Stage, StateSenders
from penstock.engine.driver.driver import Driver, MigrationResult
from penstock.engine.job_graph import JobGraph
from penstock.engine.migration import increments as portions_module
from penstock.engine.migration import precopy as ahead_module
from penstock.engine.migration.inband import InbandMigration
from penstock.engine.state import async_backup as handover_module
from penstock.engine.state.backup import fragments
from penstock.model import Cluster, InvalidValue, Plan
from penstock.pipeline import Memory, Pipeline, Rows
from penstock.runtimes.local import LocalBackend
from penstock.state import store as home_module
from penstock.state.backup import fragments as fragments_module
from penstock.state.config import StateConfig
from penstock.state.files.filesystem import RemoteFiles
from penstock.state.store import clear_cache
from penstock.state.versions import Segment, StateLost
from penstock.strategies import Request, strategies
from penstock.strategies.route.two_tier import resize

DATA = pa.table({"k": [f"w{i % 37}" for i in range(600)], "v": list(range(600))})
SUMS = {f"w{r}": sum(v for v in range(600) if v % 37 == r) for r in range(37)}
NODES = 5


def pipeline(sink: Any) -> Pipeline:
    return (
        Pipeline("sums")
        .source("rows", Rows(DATA), parallelism=2)
        .aggregate("sum", by="k", n=F.count(), t=F.sum("v"), parallelism=3)
        .aggregate("again", by="k", times=F.count(), last=F.sum("t"), parallelism=2)
        .sink("out", sink, after="sum")
        .sink("more", Memory(), after="again")
    )


class Setup:
    """A driver on folders that stand for nodes."""

    def __init__(self, root: Path, mode: str, nodes: int = NODES, **state_config: Any) -> None:
        self.sink = Memory()
        self.job_graph = JobGraph.of(pipeline(self.sink))
        self.root, self.position = root, 0
        self.backend = LocalBackend(root / "nodes", Cluster.of(nodes).names)
        # Peers have it all at the end of every batch, where a test does not say otherwise.
        self.state_config = StateConfig(mode, **{"every": 1, **state_config})
        self.driver = Driver(
            self.job_graph, self.backend, root, self.plan(0, 3), state_config=self.state_config
        )

    def plan(self, turn: int, instances: int) -> Plan:
        cluster = Cluster(tuple(n for n in Cluster.of(NODES).nodes if n.name in self.backend.nodes))
        topology = self.job_graph.topology(2).with_parallelism({"sum": instances})
        made = strategies.make("even").plan(Request(topology, cluster))
        assert isinstance(made, Plan)
        nodes = (np.asarray(made.node_of) + turn) % len(cluster)
        return replace(made, node_of=frozen_ints(nodes), active=(), routing={})

    def batch(self, rows: int = 40) -> None:
        stop = min(600, self.position + rows)
        self.driver.run_batch({"rows": ((self.position, stop),)})
        self.position = stop

    def result(self) -> dict[str, int]:
        while self.position < 600:
            self.batch(100)
        return {row["k"]: row["t"] for row in self.sink.latest("k").to_pylist()}


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    clear_cache()


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("inband", [True, False])
@pytest.mark.parametrize("mode", ["peers", "checkpoint", "both"])
def test_instances_move_and_are_dealt_anew(
    tmp_path: Path, mode: str, inband: bool, every: int
) -> None:
    setup = Setup(tmp_path, mode, every=every)
    for turn, instances in enumerate((3, 3, 4, 7, 7, 3, 1, 5)):
        setup.driver.adopt(setup.plan(turn, instances), inband=inband)
        if turn % 2:
            clear_cache()
        setup.batch()
    assert setup.result() == SUMS


@pytest.mark.parametrize("mode", ["peers", "both"])
@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("inband", [True, False])
def test_a_lost_node_is_put_together_from_its_peers(
    tmp_path: Path, mode: str, lost: int, inband: bool
) -> None:
    setup = Setup(tmp_path, mode, parity=2)
    for _ in range(5):
        setup.batch()
    assert "survives any 3 nodes" in str(setup.driver.survives())
    victims = {setup.driver.plan.placement["sum"][i].node for i in range(lost)}
    for node in victims:
        setup.backend.lose(node)
    took = setup.driver.adopt(setup.plan(1, 3), inband=inband)
    assert took.restored >= lost
    assert took.state_bytes > 0
    setup.batch()
    assert "survives any" in str(setup.driver.survives())
    assert setup.result() == SUMS


def test_corrupt_and_missing_fragments_count_as_lost(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers", parity=2)
    for _ in range(4):
        setup.batch()
    victim = setup.driver.plan.placement["sum"][0].node
    setup.backend.lose(victim)
    fragments = sorted((tmp_path / "nodes").rglob("fragments/sum/0/*"))
    by_run: dict[str, list[Path]] = {}
    for path in fragments:
        by_run.setdefault(path.stem, []).append(path)
    for paths in by_run.values():
        paths[0].write_bytes(b"\0" + paths[0].read_bytes()[1:])
        paths[1].unlink()
    setup.driver.adopt(setup.plan(1, 3))
    assert setup.result() == SUMS


def test_too_few_fragments_are_named(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers", parity=1)
    setup.batch()
    before = setup.driver.plan
    setup.backend.lose(setup.driver.plan.placement["sum"][0].node)
    for path in (tmp_path / "nodes").rglob("fragments/sum/0/*"):
        path.unlink()
    with pytest.raises(StateLost, match=r"sum\[0\]: versions 0-0"):
        setup.driver.adopt(setup.plan(1, 3))
    assert setup.driver.plan is before, "what was in charge stays in charge"


def test_the_checkpoint_helps_where_peers_cannot(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "both", parity=1)
    setup.batch()
    setup.backend.lose(setup.driver.plan.placement["sum"][0].node)
    for path in (tmp_path / "nodes").rglob("fragments/sum/0/*"):
        path.unlink()
    setup.driver.adopt(setup.plan(1, 3))
    assert setup.result() == SUMS


@pytest.mark.parametrize("mode", ["checkpoint", "both"])
def test_a_new_driver_goes_on_from_the_checkpoint(tmp_path: Path, mode: str) -> None:
    setup = Setup(tmp_path, mode)
    for instances in (3, 5):
        setup.driver.adopt(setup.plan(1, instances))
        setup.batch()
    for node in list(setup.backend.nodes):
        setup.backend.lose(node)
    again = LocalBackend(tmp_path / "later", Cluster.of(3).names)
    setup.backend = again
    setup.driver = Driver(
        setup.job_graph, again, tmp_path, setup.plan(0, 2), state_config=setup.state_config
    )
    assert setup.driver.position() == {"rows": 80}
    assert setup.result() == SUMS


@pytest.mark.parametrize("mode", ["checkpoint", "both"])
def test_a_checkpoint_may_be_an_address(tmp_path: Path, mode: str) -> None:
    setup = Setup(tmp_path, "checkpoint")
    far = f"file://{tmp_path}/far"
    setup.state_config = StateConfig(mode, shared=f"{far}/state")
    setup.driver = Driver(
        setup.job_graph, setup.backend, far, setup.plan(0, 3), state_config=setup.state_config
    )
    for turn, instances in enumerate((3, 5, 5)):
        setup.driver.adopt(setup.plan(turn, instances))
        for _ in range(4):
            setup.batch(10)
    assert list((tmp_path / "far").rglob("commit-log/commits/*.json"))
    runs = list((tmp_path / "far" / "state" / "sum").rglob("*-*"))
    assert 5 <= len(runs) <= 5 * 20, "old runs go"
    for node in list(setup.backend.nodes):
        setup.backend.lose(node)
    again = LocalBackend(tmp_path / "later", Cluster.of(3).names)
    setup.backend = again
    setup.driver = Driver(
        setup.job_graph, again, far, setup.plan(0, 2), state_config=setup.state_config
    )
    assert setup.driver.position() == {"rows": 120}
    assert setup.result() == SUMS


def test_an_address_that_nothing_opens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="a file system that Arrow can open"):
        RemoteFiles("nosuch://place/folder")


def test_state_kept_by_peers_alone_does_not_outlive_its_driver(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers")
    setup.batch()
    with pytest.raises(StateLost, match="kept by its executors alone"):
        Driver(
            setup.job_graph,
            setup.backend,
            tmp_path,
            setup.driver.plan,
            state_config=StateConfig("peers"),
        )


class Crash(Exception):
    """A driver that dies before it commits."""


def crash_in_next_batch(setup: Setup) -> None:
    """Run a batch whose tasks do all their work, and no commit."""

    def run(job_graph: JobGraph, spec: Any, senders: StateSenders = NO_SENDERS) -> Any:
        list(LocalBackend.run(setup.backend, job_graph, spec, senders))
        raise Crash

    setup.backend.run = run  # type: ignore[method-assign]
    with pytest.raises(Crash):
        setup.batch()


def scaled(setup: Setup) -> None:
    setup.driver.adopt(setup.plan(1, 5))
    setup.driver.adopt(setup.plan(1, 2))


def riding(setup: Setup) -> None:
    setup.driver.adopt(setup.plan(1, 5), inband=True)


def retired(setup: Setup) -> None:
    setup.driver.retire([setup.backend.nodes[-1]])


@pytest.mark.parametrize("mode", ["checkpoint", "both"])
@pytest.mark.parametrize("change", [scaled, riding, retired])
def test_a_driver_may_die_right_after_a_change(tmp_path: Path, mode: str, change: Any) -> None:
    setup = Setup(tmp_path, mode)
    setup.batch()
    setup.batch()
    change(setup)
    crash_in_next_batch(setup)
    clear_cache()
    setup.backend = LocalBackend(tmp_path / "later", Cluster.of(3).names)
    setup.driver = Driver(
        setup.job_graph, setup.backend, tmp_path, setup.plan(0, 2), state_config=setup.state_config
    )
    assert setup.driver.pending() == {"rows": ((80, 120),)}
    assert setup.result() == SUMS


@pytest.mark.parametrize("inband", [True, False])
def test_a_batch_that_was_begun_is_remembered_through_a_change(
    tmp_path: Path, inband: bool
) -> None:
    setup = Setup(tmp_path, "checkpoint")
    setup.batch()
    crash_in_next_batch(setup)
    setup.driver.adopt(setup.plan(1, 5), inband=inband)
    again = LocalBackend(tmp_path / "later", Cluster.of(3).names)
    later = Driver(
        setup.job_graph, again, tmp_path, setup.plan(0, 2), state_config=setup.state_config
    )
    assert later.pending() == {"rows": ((40, 80),)}


def test_what_was_rebuilt_from_damaged_fragments_is_coded_anew(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers", data=1, parity=1)
    for rows in (40, 5, 5):
        setup.batch(rows)
    instance = setup.driver.handles["sum"].instances[0]
    for path in (tmp_path / "nodes").rglob("fragments/sum/0/*.0"):
        path.unlink()
    setup.backend.lose(instance.executor.partition("/")[0])
    # A home that keeps none of its fragments, so that nothing but the damage asks for new ones.
    backup_nodes = {
        k
        for block in setup.driver.registry.catalog.find("sums", "sum", 0)
        for k in block.backup_nodes
    }
    plans = [setup.plan(turn, 3) for turn in range(NODES)]
    setup.driver.adopt(next(p for p in plans if str(p.placement["sum"][0]) not in backup_nodes))
    assert instance.worn
    setup.batch(2)
    assert not instance.worn
    kept = {p.name for p in (tmp_path / "nodes").rglob("fragments/sum/0/*")}
    assert {
        f"{b.first}-{b.last}.0of1.0" for b in setup.driver.registry.catalog.find("sums", "sum", 0)
    } <= kept
    assert setup.result() == SUMS


@pytest.mark.parametrize(
    ("mode", "every", "said"),
    [
        ("peers", 1, "survives any 3 nodes"),
        ("peers", 3, "survives any 3 nodes; the driver holds what changed of late"),
        ("checkpoint", 1, "all of it is in the checkpoint at "),
        ("both", 1, "survives any 3 nodes; all of it is in the checkpoint at "),
    ],
)
def test_the_promise_says_what_is_survived(
    tmp_path: Path, mode: str, every: int, said: str
) -> None:
    setup = Setup(tmp_path, mode, parity=2, every=every)
    assert setup.driver.promise() == ""
    said_of_batches = set()
    for _ in range(9):
        setup.batch(20)
        said_of_batches.add(setup.driver.promise())
    assert len(said_of_batches) == 1, "it is an event whenever it changes"
    assert said_of_batches.pop().startswith(said)


def test_the_promise_follows_losses(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers", parity=2)
    setup.batch()
    for node in setup.backend.nodes[2:]:
        setup.backend.lose(node)
    setup.driver.adopt(setup.plan(0, 3))
    setup.batch()
    assert "survives any 1 node; 2 were asked for: 1 more node" in setup.driver.promise()


def without_copies(setup: Setup, vertex: str) -> None:
    """Remove a vertex's state from all nodes behind the engine's back; its workers are new."""
    folders = list(setup.backend.root.glob(f"*/state/{vertex}"))
    assert folders
    for folder in folders:
        shutil.rmtree(folder)
    clear_cache()


def test_state_never_starts_empty(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers")
    setup.batch()
    before = setup.driver.handles["sum"].instances[0].version
    without_copies(setup, "sum")
    with pytest.raises(StateLost, match=r"sum\[\d\]: the state at version 0 is incomplete"):
        setup.batch()
    assert setup.driver.batch == 0, "nothing of the batch was committed"
    assert setup.driver.handles["sum"].instances[0].version == before
    assert set(setup.sink.batches) == {0}


def test_state_that_is_gone_from_a_node_comes_back_from_the_checkpoint(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "both")
    setup.batch()
    for vertex in ("sum", "again"):
        without_copies(setup, vertex)
        setup.batch()
    assert setup.result() == SUMS


def test_a_copy_that_is_gone_is_moved_from_the_checkpoint(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "both")
    setup.batch()
    without_copies(setup, "sum")
    setup.driver.adopt(setup.plan(1, 3))
    assert setup.result() == SUMS


def test_state_never_goes_back_when_every_batch_should_be_kept(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers")
    setup.batch()
    home = setup.driver.plan.placement["sum"][0].node
    setup.driver.registry.retiring |= {node for node in setup.backend.nodes if node != home}
    setup.batch()
    setup.backend.lose(home)
    with pytest.raises(StateLost, match="peers have version 0 at the most"):
        setup.driver.adopt(setup.plan(1, 3))


@pytest.mark.parametrize("inband", [True, False])
def test_old_fragments_and_copies_go(tmp_path: Path, inband: bool) -> None:
    setup = Setup(tmp_path, "peers")
    sizes = []
    for turn in range(40):
        if turn % 10 == 9:
            setup.driver.adopt(setup.plan(turn, 3), inband=inband)
        setup.driver.run_batch({"rows": ((0, 40),)})
        sizes.append(len([p for p in (tmp_path / "nodes").rglob("*") if p.is_file()]))
    assert max(sizes) < 5 * 20 * 4
    copies = {p.parent.name for p in (tmp_path / "nodes").rglob("state/sum/*/*")}
    assert copies == {"0", "1", "2"}
    holders = [p for p in (tmp_path / "nodes").glob("*/state/sum/*") if any(p.iterdir())]
    assert len(holders) == 3, "one copy of each instance"


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("move"), st.integers(0, 4)),
        st.tuples(st.just("prepare"), st.integers(0, 4)),
        st.tuples(st.just("scale"), st.integers(1, 6)),
        st.tuples(st.just("portions"), st.integers(1, 6)),
        st.tuples(st.just("lose"), st.integers(0, 4)),
        st.tuples(st.just("forget"), st.just(0)),
        st.tuples(st.just("batch"), st.integers(1, 60)),
    ),
    max_size=12,
)


def in_portions(
    setup: Setup, plan: Plan, most: int, *, inband: bool = False
) -> Iterator[MigrationResult]:
    """Adopt a plan with a table, dealing so many bytes at a time."""
    held = setup.driver.handles["sum"].table
    assert held is not None
    plan = replace(plan, routing={"sum": resize(held, plan.parallelism["sum"])})
    before, portions_module.PORTION_BYTES = portions_module.PORTION_BYTES, most
    try:
        for _ in range(1000):
            part = setup.driver.next_increment(plan)
            yield setup.driver.adopt(part, inband=inband)
            if part is plan:
                return
    finally:
        portions_module.PORTION_BYTES = before
    raise AssertionError("it does not come to an end")


@pytest.mark.parametrize("mode", ["peers", "both"])
@pytest.mark.parametrize("instances", [1, 2, 3, 7])
@pytest.mark.parametrize("inband", [True, False])
def test_partitions_are_dealt_in_portions(
    tmp_path: Path, mode: str, instances: int, inband: bool
) -> None:
    setup = Setup(tmp_path, mode)
    setup.batch(200)
    plan, took = setup.plan(1, instances), []
    for one in in_portions(setup, plan, 400, inband=inband):
        took.append(one)
        used = setup.driver.plan.routing["sum"].partitions
        assert max(used) < len(setup.driver.handles["sum"].instances)
        setup.batch(5)
        clear_cache()
    assert setup.driver.plan.parallelism["sum"] == instances
    if instances != 3:
        assert len(took) > 2
    assert setup.result() == SUMS


@pytest.mark.parametrize("most", [1, 10_000_000])
def test_a_portion_is_one_partition_at_least_and_all_if_there_is_room(
    tmp_path: Path, most: int
) -> None:
    setup = Setup(tmp_path, "peers")
    setup.batch(200)
    table, plan = setup.driver.plan.routing["sum"], setup.plan(0, 4)
    moved = []
    for _ in in_portions(setup, plan, most):
        after = setup.driver.plan.routing["sum"]
        moved.append(sum(a != b for a, b in zip(table.partitions, after.partitions, strict=True)))
        table = after
    assert moved == [48] if most > 1 else set(moved) == {1}


@pytest.mark.parametrize("inband", [True, False])
def test_an_executor_lost_between_portions_costs_nothing(tmp_path: Path, inband: bool) -> None:
    setup = Setup(tmp_path, "peers", parity=2)
    setup.batch(200)
    for number, _ in enumerate(in_portions(setup, setup.plan(0, 5), 400, inband=inband)):
        setup.batch(5)
        if number == 1:
            break
    setup.backend.lose(setup.driver.plan.placement["sum"][0].node)
    setup.driver.adopt(setup.plan(0, 5), inband=inband)
    assert setup.result() == SUMS


def test_without_peers_all_is_dealt_at_once(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "checkpoint")
    setup.batch(200)
    assert len(list(in_portions(setup, setup.plan(0, 5), 1))) == 1
    assert setup.result() == SUMS


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(ACTIONS, st.sampled_from(["peers", "both"]), st.sampled_from([1, 2, 8]), st.booleans())
@pytest.mark.usefixtures("any_size", "small_parts")
def test_any_schedule_of_moves_and_losses(
    tmp_path_factory: pytest.TempPathFactory,
    actions: list[tuple[str, int]],
    mode: str,
    every: int,
    inband: bool,
) -> None:
    setup = Setup(tmp_path_factory.mktemp("run"), mode, every=every)
    setup.batch()
    turn, instances = 0, 3
    for kind, number in actions:
        if kind == "move":
            turn = number
            setup.driver.adopt(setup.plan(turn, instances), inband=inband)
        elif kind == "prepare":
            # Copying goes on while other things happen, or is over when they do.
            setup.driver.precopy(setup.plan(number, instances))
            if number % 2:
                copied()
        elif kind == "scale":
            instances = number
            setup.driver.adopt(setup.plan(turn, instances), inband=inband)
        elif kind == "portions":
            instances = number
            for _ in in_portions(setup, setup.plan(turn, instances), 500, inband=inband):
                setup.batch(5)
        elif kind == "lose" and len(setup.backend.nodes) > 2:
            setup.backend.lose(setup.backend.nodes[number % len(setup.backend.nodes)])
            setup.driver.adopt(setup.plan(turn, instances), inband=inband)
            setup.batch(10)
        elif kind == "forget":
            clear_cache()
        elif kind == "batch":
            setup.batch(number)
    assert setup.result() == SUMS
    setup.driver.close()


# ---- held by the driver


def ended(name: str) -> None:
    """Wait for what a thread does beside the batches."""
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(30)
            assert not thread.is_alive()


def given_to_peers() -> None:
    ended("penstock-handover")


def stored(setup: Setup) -> list[Path]:
    return [p for p in setup.backend.root.glob("*/fragments/**/*") if p.is_file()]


def test_batches_whose_changes_the_driver_holds_have_no_keepers(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers", every=3)
    for number in range(9):
        spec = setup.driver.spec({}, setup.driver.number + 1)
        assert spec.hold
        assert not spec.backup_nodes
        given_to_peers()
        assert bool(stored(setup)) is (number >= 3)
        setup.batch()
    setup.driver.close()
    assert setup.result() == SUMS


def test_a_node_is_rebuilt_from_the_driver_alone(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers", every=100)
    for _ in range(6):
        setup.batch()
    assert not stored(setup)
    for index in (0, 1):
        setup.backend.lose(setup.driver.plan.placement["sum"][index].node)
    took = setup.driver.adopt(setup.plan(1, 3))
    assert took.restored >= 2
    assert setup.result() == SUMS


@pytest.mark.parametrize("every", [1, 2, 100])
def test_what_was_saved_while_there_were_no_peers_is_kept_when_there_are(
    tmp_path: Path, every: int
) -> None:
    setup = Setup(tmp_path, "peers", every=every)
    setup.batch(100)
    home = setup.driver.plan.placement["sum"][0].node
    setup.driver.registry.retiring |= {node for node in setup.backend.nodes if node != home}
    setup.batch(10)
    setup.driver.registry.retiring.clear()
    for _ in range(3):
        setup.batch(10)
    setup.backend.lose(home)
    assert setup.driver.adopt(setup.plan(1, 3)).restored
    assert setup.result() == SUMS


def test_a_node_is_rebuilt_from_peers_and_the_driver(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers", every=4)
    # All keys, then few of them at a time: what changed is less than half, and is not all written.
    setup.batch(100)
    for _ in range(4):
        setup.batch(10)
        given_to_peers()
    blocks = setup.driver.registry.blocks("sum", 0)
    assert {block.on_driver for block in blocks} == {True, False}
    setup.backend.lose(setup.driver.plan.placement["sum"][0].node)
    assert setup.driver.adopt(setup.plan(1, 3)).restored
    assert setup.result() == SUMS


def test_peers_that_do_not_take_it_are_told_and_batches_store_it_then(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers", every=1 + 1)
    inner = setup.backend.job

    def job(name: str, stages: Sequence[Stage], *, background: bool = False) -> Iterable[bytes]:
        if background:
            raise OSError("no space left")
        return inner(name, stages, background=background)

    setup.backend.job = job  # type: ignore[method-assign]
    told = []
    for _ in range(8):
        setup.batch(20)
        given_to_peers()
        told.append(setup.driver.pop_backup_failure())
    assert "OSError: no space left" in told
    assert stored(setup), "after two failures, batches end with fragments"
    setup.backend.lose(setup.driver.plan.placement["sum"][0].node)
    setup.driver.adopt(setup.plan(1, 3))
    assert setup.result() == SUMS


@pytest.mark.parametrize("limit", ["SHORT_BYTES", "HOLD_BYTES"])
def test_much_goes_to_peers_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(home_module if limit == "SHORT_BYTES" else handover_module, limit, 100)
    setup = Setup(tmp_path, "peers", every=100)
    held = []
    for _ in range(8):
        held.append(setup.driver.spec({}, setup.driver.number + 1).hold)
        setup.batch(30)
    assert held[0]
    assert not all(held)
    assert stored(setup)
    setup.backend.lose(setup.driver.plan.placement["sum"][0].node)
    setup.driver.adopt(setup.plan(1, 3))
    assert setup.result() == SUMS


# ---- copied ahead


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy ahead however small the state is."""
    monkeypatch.setattr(ahead_module, "SMALL_BYTES", 1)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut everything that travels into parts."""
    monkeypatch.setattr(fragments_module, "PART_BYTES", 300)


@pytest.mark.usefixtures("small_parts")
def test_runs_travel_and_are_kept_in_parts(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers", parity=2)
    for _ in range(3):
        setup.batch(100)
    assert not any("of1." in path.name for path in stored(setup))
    setup.backend.lose(setup.driver.plan.placement["sum"][0].node)
    for path in stored(setup):
        # One fragment of every part.
        if path.name.endswith(".0"):
            path.unlink()
    took = setup.driver.adopt(setup.plan(1, 3))
    assert took.restored
    assert took.moved
    assert setup.result() == SUMS
    assert not list(setup.backend.root.glob("*/incoming-*"))


@pytest.mark.usefixtures("small_parts")
def test_a_part_that_is_missing_is_noticed(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers", parity=1)
    setup.batch(100)
    setup.backend.lose(setup.driver.plan.placement["sum"][0].node)
    for path in stored(setup):
        if ".1of" in path.name:
            path.unlink()
    with pytest.raises(StateLost, match=r"sum\[0\]: versions 0-0"):
        setup.driver.adopt(setup.plan(1, 3))


def test_coding_holds_one_part_in_memory_at_a_time(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers", parity=1)
    spec = setup.driver.spec({}, 1)
    content = bytes(8 * fragments_module.PART_BYTES)
    tracemalloc.start()
    try:
        size = sum(len(f.body) for f in fragments(spec, "sum", 0, Segment(0, 0), content))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > len(content)
    assert most < 5 * fragments_module.PART_BYTES


def copied() -> None:
    ended("penstock-ahead")


def precopied_files(setup: Setup) -> list[Path]:
    return [p for p in setup.backend.root.glob("*/precopied/**/*") if p.is_file()]


def begun(tmp_path: Path, mode: str = "peers", **state_config: Any) -> tuple[Setup, Plan]:
    """Run some batches, and copy the state ahead of a plan."""
    setup = Setup(tmp_path, mode, **state_config)
    setup.batch(200)
    setup.batch(10)
    plan = setup.plan(1, 3)
    assert not setup.driver.precopy(plan)
    copied()
    return setup, plan


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("mode", ["peers", "both"])
@pytest.mark.parametrize("batches", [0, 1, 12])
def test_only_what_is_newer_than_the_copies_is_carried(
    tmp_path: Path, mode: str, batches: int
) -> None:
    whole = Setup(tmp_path / "whole", mode)
    setup, plan = begun(tmp_path / "ahead", mode)
    for rows in (200, 10):
        whole.batch(rows)
    before = setup.driver.plan
    for _ in range(batches):
        setup.batch(3)
        whole.batch(3)
    assert setup.driver.plan is before
    assert precopied_files(setup), "batches leave it alone"
    clear_cache()
    all_of_it, took = whole.driver.adopt(plan), setup.driver.adopt(plan)
    assert took.moved == all_of_it.moved > 0
    assert took.precopied_bytes > 0
    assert took.not_precopied == ""
    assert all_of_it.precopied_bytes == 0
    assert took.state_bytes + took.precopied_bytes == all_of_it.state_bytes
    assert took.state_bytes < all_of_it.state_bytes / 2 or batches == 12
    if not batches:
        assert took.state_bytes == 0
    assert not precopied_files(setup), "what was copied ahead was taken over"
    assert setup.result() == whole.result() == SUMS


@pytest.mark.usefixtures("any_size")
def test_what_was_written_anew_meanwhile_is_copied_again(tmp_path: Path) -> None:
    setup, plan = begun(tmp_path)
    for instance in setup.driver.handles["sum"].instances:
        instance.worn = True
    setup.batch(40)
    assert not setup.driver.precopy(plan), "the old base is of no use any more"
    copied()
    assert setup.driver.precopy(plan)
    took = setup.driver.adopt(plan)
    assert (took.state_bytes, took.not_precopied) == (0, "")
    assert took.precopied_bytes > 0
    assert setup.result() == SUMS


@pytest.mark.usefixtures("any_size")
def test_passes_come_to_an_end(tmp_path: Path) -> None:
    setup, plan = begun(tmp_path)
    for _ in range(ahead_module.PASSES - 1):
        setup.batch(5)
        assert not setup.driver.precopy(plan)
        copied()
    setup.batch(5)
    assert setup.driver.precopy(plan)


def spoil_gone(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()


def spoil_names(paths: list[Path]) -> None:
    for path in paths:
        path.rename(path.with_name("segment-7-3.arrow"))


def spoil_some(paths: list[Path]) -> None:
    spoil_gone(sorted(paths)[::2])


def spoil_length(paths: list[Path]) -> None:
    for path in paths:
        path.write_bytes(path.read_bytes()[:-8])


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("mode", ["peers", "both"])
@pytest.mark.parametrize("spoil", [spoil_gone, spoil_names, spoil_some, spoil_length])
def test_copies_that_are_not_what_was_said_are_not_used(
    tmp_path: Path, mode: str, spoil: Any
) -> None:
    setup, plan = begun(tmp_path, mode)
    spoil(precopied_files(setup))
    setup.batch(5)
    clear_cache()
    took = setup.driver.adopt(plan)
    assert "are gone" in took.not_precopied
    assert took.state_bytes > 0
    assert not precopied_files(setup)
    assert setup.result() == SUMS


@pytest.mark.usefixtures("any_size")
def test_runs_that_vanish_while_they_are_copied_are_carried_later(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers")
    for rows in (200, *[4] * 6):
        setup.batch(rows)
    job = setup.backend.job

    def late(name: str, stages: Sequence[Stage], *, background: bool = False) -> Iterable[bytes]:
        if background:
            # Many batches pass until the tasks begin: their runs are merged.
            held.wait(30)
        return job(name, stages, background=background)

    held = threading.Event()
    setup.backend.job = late  # type: ignore[method-assign]
    plan = setup.plan(1, 3)
    assert not setup.driver.precopy(plan)
    for _ in range(12):
        setup.batch(4)
        assert not setup.driver.precopy(plan)
    held.set()
    copied()
    assert setup.driver.adopt(plan).not_precopied == ""
    assert setup.result() == SUMS


@pytest.mark.usefixtures("any_size")
def test_a_copy_that_fails_is_told_and_everything_is_carried(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers")
    setup.batch(200)
    job = setup.backend.job

    def failing(name: str, stages: Sequence[Stage], *, background: bool = False) -> Iterable[bytes]:
        if background:
            raise RuntimeError("the executor is gone")
        return job(name, stages)

    setup.backend.job = failing  # type: ignore[method-assign]
    plan = setup.plan(1, 3)
    assert not setup.driver.precopy(plan)
    copied()
    assert setup.driver.precopy(plan), "it is not tried again"
    took = setup.driver.adopt(plan)
    assert took.not_precopied == "RuntimeError: the executor is gone"
    assert took.precopied_bytes == 0 < took.state_bytes
    assert setup.result() == SUMS


@pytest.mark.usefixtures("any_size")
def test_a_job_beside_the_batches_is_cancelled_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead_module, "GRACE_S", 0.05)
    setup = Setup(tmp_path, "peers")
    setup.batch(200)
    cancelled = threading.Event()

    def stuck(name: str, stages: Sequence[Stage], *, background: bool = False) -> Iterable[bytes]:
        assert cancelled.wait(30)
        raise RuntimeError("cancelled")

    setup.backend.job = stuck  # type: ignore[method-assign]
    setup.backend.cancel_background = cancelled.set  # type: ignore[method-assign]
    assert not setup.driver.precopy(setup.plan(1, 3))
    setup.driver.close()
    assert cancelled.is_set()
    assert not [t for t in threading.enumerate() if t.name == "penstock-ahead"]


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("turn", [0, 2])
def test_copies_of_a_change_that_was_dropped_go(tmp_path: Path, turn: int) -> None:
    setup, _ = begun(tmp_path)
    first = set(precopied_files(setup))
    assert first
    other = setup.plan(turn, 3)
    assert setup.driver.precopy(other) is (turn == 0), "the plan in force moves nothing"
    copied()
    while not setup.driver.precopy(other):
        copied()
    took = setup.driver.adopt(other)
    assert bool(took.precopied_bytes) is (turn == 2)
    setup.batch(5)
    assert not precopied_files(setup)
    assert setup.result() == SUMS


@pytest.mark.usefixtures("any_size")
def test_copies_for_another_place_are_not_used(tmp_path: Path) -> None:
    setup, _ = begun(tmp_path)
    took = setup.driver.adopt(setup.plan(2, 3))
    assert took.precopied_bytes == 0 < took.state_bytes
    setup.batch(5)
    assert not precopied_files(setup)
    assert setup.result() == SUMS


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("lost", ["old", "new"])
def test_a_node_lost_after_its_state_was_copied_ahead(tmp_path: Path, lost: str) -> None:
    setup, plan = begun(tmp_path, parity=2)
    where = setup.driver.plan if lost == "old" else plan
    setup.backend.lose(where.placement["sum"][0].node)
    setup.driver.adopt(setup.plan(1, 3))
    assert setup.result() == SUMS
    assert not precopied_files(setup)


def test_small_state_is_not_copied_ahead(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers")
    setup.batch(200)
    assert setup.driver.precopy(setup.plan(1, 3))
    assert not precopied_files(setup)


def test_state_in_a_checkpoint_is_not_copied_ahead(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "checkpoint")
    setup.batch(200)
    assert setup.driver.precopy(setup.plan(1, 3))


# ---- with a batch


def places(setup: Setup) -> list[str]:
    return [instance.executor for instance in setup.driver.handles["sum"].instances]


@pytest.mark.usefixtures("small_parts")
def test_state_comes_with_the_batch_and_no_job_is_run_for_it(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers", every=100)
    setup.batch(200)
    before, plan = places(setup), setup.plan(1, 3)

    def job(name: str, stages: Sequence[Stage], *, background: bool = False) -> Iterable[bytes]:
        raise AssertionError(f"the stream stands still to {name}")

    setup.backend.job = job  # type: ignore[method-assign]
    told = setup.driver.adopt(plan, inband=True)
    assert (told.state_bytes, told.moved) == (0, 5)
    assert told.inband_bytes > 0
    assert places(setup) == before, "the old homes are in charge until it is committed"
    assert "survives" in setup.driver.promise()
    result = setup.driver.run_batch({"rows": ((200, 210),)})
    assert result.inband is not None
    assert (result.inband.moved, result.inband.failed, result.inband.not_precopied) == (5, "", "")
    assert result.inband.inband_bytes == told.inband_bytes
    assert places(setup) == [str(spot) for spot in plan.placement["sum"]] != before
    assert not list(setup.backend.root.glob("*/incoming-*"))
    setup.position = 210
    assert setup.result() == SUMS


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("mode", ["peers", "both"])
def test_what_was_copied_ahead_does_not_come_again(tmp_path: Path, mode: str) -> None:
    setup, plan = begun(tmp_path, mode)
    setup.batch(3)
    told = setup.driver.adopt(plan, inband=True)
    clear_cache()
    setup.position += 3
    inband = setup.driver.run_batch({"rows": ((setup.position - 3, setup.position),)}).inband
    assert inband is not None
    assert inband.precopied_bytes == told.precopied_bytes > 0
    assert 0 < inband.inband_bytes == told.inband_bytes < inband.precopied_bytes
    assert not precopied_files(setup)
    assert setup.result() == SUMS


def test_rows_that_are_dealt_anew_come_with_the_batch(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers")
    setup.batch(200)
    told = setup.driver.adopt(setup.plan(2, 5), inband=True)
    assert told.repartitioned == 5
    assert told.moved > 0
    setup.position += 5
    inband = setup.driver.run_batch({"rows": ((200, 205),)}).inband
    assert inband is not None
    assert inband.inband_bytes > 0
    assert len(setup.driver.handles["sum"].instances) == 5
    assert "survives any 2 nodes" in setup.driver.promise()
    assert setup.result() == SUMS


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("instances", [2, 3, 5])
@pytest.mark.parametrize("again", [True, False])
def test_a_batch_that_fails_leaves_the_old_homes_in_charge(
    tmp_path: Path, instances: int, again: bool
) -> None:
    setup, _ = begun(tmp_path)
    before, homes = setup.driver.plan, places(setup)
    plan = setup.plan(1, instances)
    setup.driver.adopt(plan, inband=True)
    crash_in_next_batch(setup)
    del setup.backend.run
    assert places(setup)[:3] == homes[: len(places(setup))]
    if not again:
        setup.driver.adopt(before, inband=True)
    setup.batch()
    assert setup.driver.plan.parallelism["sum"] == (instances if again else 3)
    assert setup.result() == SUMS


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("spoil", [spoil_gone, spoil_names, spoil_some, spoil_length])
def test_state_that_does_not_come_is_carried_before_the_batch(tmp_path: Path, spoil: Any) -> None:
    setup, plan = begun(tmp_path)
    spoil(precopied_files(setup))
    clear_cache()
    setup.driver.adopt(plan, inband=True)
    setup.position += 5
    inband = setup.driver.run_batch({"rows": ((setup.position - 5, setup.position),)}).inband
    assert inband is not None
    assert "did not come" in inband.not_precopied
    assert inband.state_bytes > 0
    assert places(setup) == [str(spot) for spot in plan.placement["sum"]]
    assert setup.result() == SUMS


def test_where_state_cannot_be_moved_the_plan_before_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = Setup(tmp_path, "peers")
    setup.batch(200)
    before, homes = setup.driver.plan, places(setup)
    monkeypatch.setattr(InbandMigration, "senders", lambda inband, spec: {})

    def job(name: str, stages: Sequence[Stage], *, background: bool = False) -> Iterable[bytes]:
        raise StateLost("the disk is full")

    setup.backend.job = job  # type: ignore[method-assign]
    setup.driver.adopt(setup.plan(1, 3), inband=True)
    inband = setup.driver.run_batch({"rows": ((200, 205),)}).inband
    setup.position = 205
    assert inband is not None
    assert inband.failed == "the disk is full"
    assert setup.driver.plan.placement == before.placement
    assert places(setup) == homes
    assert setup.result() == SUMS


def test_nodes_that_state_still_comes_from_are_not_given_up_before_it_has(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers")
    setup.batch(200)
    before = setup.driver.plan
    gone = before.placement["sum"][0].node
    number = before.nodes.index(gone)
    homes = np.where(before.node_of == number, (number + 1) % NODES, before.node_of)
    plan = replace(before, node_of=frozen_ints(homes), active=())
    setup.driver.adopt(plan, inband=True)
    setup.driver.retire([gone])
    assert places(setup) == [str(spot) for spot in plan.placement["sum"]]
    setup.backend.lose(gone)
    setup.batch()
    assert setup.result() == SUMS


def test_a_node_lost_while_state_is_to_come_from_it(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers", parity=2)
    setup.batch(200)
    lost = setup.driver.plan.placement["sum"][0].node
    setup.driver.adopt(setup.plan(1, 3), inband=True)
    setup.backend.lose(lost)
    took = setup.driver.adopt(setup.plan(1, 3), inband=True)
    assert took.restored
    assert setup.result() == SUMS


@pytest.mark.parametrize("instances", [7, 2])
@pytest.mark.parametrize(
    ("mode", "restart"),
    [
        ("peers", False),
        ("both", False),
        ("both", True),
        ("checkpoint", False),
        ("checkpoint", True),
    ],
)
def test_what_a_failed_attempt_wrote_makes_nothing_else_go(
    tmp_path: Path, mode: str, restart: bool, instances: int
) -> None:
    setup = Setup(tmp_path, mode, parity=2)
    setup.batch(200)
    for _ in range(2):
        setup.batch(5)
    # Instances that deal more than half of their rows write all of them anew, in vain.
    setup.driver.adopt(setup.plan(1, instances), inband=True)
    crash_in_next_batch(setup)
    del setup.backend.run
    clear_cache()
    if restart:
        again(setup)
    else:
        setup.driver.adopt(setup.plan(0, 3), inband=True)
    for _ in range(3):
        setup.batch(5)
    if mode == "peers":
        setup.backend.lose(setup.driver.plan.placement["sum"][0].node)
        assert setup.driver.adopt(setup.plan(0, 3), inband=True).restored
    else:
        again(setup)
    assert setup.result() == SUMS


def again(setup: Setup) -> None:
    """Start anew from the checkpoint, on other nodes."""
    clear_cache()
    shutil.rmtree(setup.backend.root, ignore_errors=True)
    setup.driver = Driver(
        setup.job_graph,
        setup.backend,
        setup.root,
        setup.plan(0, 3),
        state_config=setup.state_config,
    )
    setup.position = setup.driver.position()["rows"]
    pending = setup.driver.pending()
    if pending is not None:
        setup.driver.run_batch(pending)
        setup.position = pending["rows"][-1][1]


def test_a_node_lost_while_a_change_is_looked_at(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers", parity=2)
    setup.batch(200)
    lost, alive, asked = (
        setup.driver.plan.placement["sum"][0].node,
        setup.backend.alive,
        list[int](),
    )

    def dying() -> frozenset[str]:
        found = alive()
        asked.append(1)
        if len(asked) == 1:
            setup.backend.lose(lost)
        return found

    setup.backend.alive = dying  # type: ignore[method-assign]
    plan = setup.plan(1, 3)
    told = setup.driver.adopt(plan, inband=True)
    assert told.moved, "it is to come from where it was, which fails the batch, not the run"
    setup.driver.adopt(setup.plan(1, 3), inband=True)
    assert setup.result() == SUMS


def test_a_change_that_fails_halfway_leaves_places_as_they_were(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers")
    setup.batch(200)
    homes, job = places(setup), setup.backend.job

    def failing(name: str, stages: Sequence[Stage], *, background: bool = False) -> Iterable[bytes]:
        if name.startswith("deal"):
            raise StateLost("the disk is full")
        return job(name, stages, background=background)

    setup.backend.job = failing  # type: ignore[method-assign]
    with pytest.raises(StateLost, match="full"):
        setup.driver.adopt(setup.plan(1, 5))
    assert places(setup) == homes
    assert setup.result() == SUMS


def test_a_plan_on_nodes_that_are_not_there_is_refused_at_once(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "peers")
    setup.batch(200)
    before, asked = setup.driver.plan, list[str]()
    plan = replace(before, nodes=tuple(f"spare-{n}" for n in before.nodes), active=())

    def job(name: str, stages: Sequence[Stage], *, background: bool = False) -> Iterable[bytes]:
        asked.append(name)
        raise StateLost("no such place")

    setup.backend.job = job  # type: ignore[method-assign]
    with pytest.raises(StateLost, match="no such place"):
        setup.driver.adopt(plan, inband=True)
    assert asked == ["carry state"]
    assert setup.driver.plan is before
    assert setup.result() == SUMS
