"""The contract of a metrics store, as checks that can be run one by one.

A check gets a function that opens one and the same database, empty at first, as often as it is
called:

.. code-block:: python

    @pytest.mark.parametrize("check", METRICS_STORE_CHECKS.values(), ids=METRICS_STORE_CHECKS)
    def test_mine(check, tmp_path):
        check(functools.partial(MetricsStore.open, tmp_path / "metrics.db"))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.model import Cluster
from penstock.store import (
    DECISION,
    BatchRecord,
    EdgeRecord,
    EventRecord,
    InstanceRecord,
    NodeRecord,
    PlanRecord,
    RunRecord,
    RunStatus,
)
from penstock.store.field_checks import LARGEST
from penstock.strategies import Request, strategies
from penstock.testing.broken import require
from penstock.testing.metrics_access_checks import (
    check_closed,
    check_opened_at_once,
    check_read_only,
    check_reader_beside_writer,
    check_threads,
)
from penstock.testing.metrics_examples import ODD_NAMES, Check, Opener, a_batch, a_run, refused
from penstock.testing.scenarios import wordcount


def check_metrics_store(fresh: Callable[[], Opener]) -> None:
    """Run every check of `METRICS_STORE_CHECKS`.

    Parameters
    ----------
    fresh : callable
        Returns an opener of an empty database that no other check saw.

    Raises
    ------
    ContractBroken
        On the first promise that is not kept.
    """
    for check in METRICS_STORE_CHECKS.values():
        check(fresh())


def check_starts_empty(opened: Opener) -> None:
    """Check that a new store holds nothing, and says so without an error."""
    with opened() as store:
        require(store.runs() == (), "a new store must hold no run")
        require(store.latest_run() is None, "a new store must have no latest run")
        require(store.batches("r1") == (), "a run that is not there must have no batches")
        for read in (store.run, store.read):
            require(refused(read, "r1"), "a run that is not there must be named in a StoreError")


def check_runs(opened: Opener) -> None:
    """Check that runs come back as they were written, and that one ends."""
    first, second = a_run("r1", 1000.0), replace(a_run("r2", 2000.0), topology="topn")
    ended = replace(
        first, ended_at_s=1060.5, status=RunStatus.FINISHED, rows_lost=0, rows_duplicated=3
    )
    with opened() as store:
        store.put_run(first)
        store.put_run(second)
        store.put_batch(*a_batch("r1", 0))
        store.put_run(ended)
    with opened() as store:
        require(store.runs() == (second, ended), "runs must come back equal, the newest first")
        require(store.run("r1") == ended, "a run that is written again must be replaced")
        require(len(store.batches("r1")) == 1, "writing a run again must not touch its batches")
        require(store.latest_run() == second, "the latest run is the one that began last")
        require(store.latest_run("wordcount") == ended, "the latest run of a topology is asked for")
        require(store.latest_run("none") is None, "a topology that never ran has no latest run")


def check_batches(opened: Opener) -> None:
    """Check that a batch and its detail come back as they were written, in order."""
    with opened() as store:
        store.put_run(a_run())
        for number in (2, 0, 1):
            store.put_batch(*a_batch("r1", number))
    with opened() as store:
        wanted = [a_batch("r1", number) for number in range(3)]
        found = store.batches("r1")
        require(found == tuple(w[0] for w in wanted), "batches must come back equal, in order")
        instances = store.instances("r1")
        require(instances == sum((w[1] for w in wanted), ()), "instances must come back equal")
        require(store.edges("r1") == sum((w[2] for w in wanted), ()), "edges must come back equal")
        require(store.nodes("r1") == sum((w[3] for w in wanted), ()), "nodes must come back equal")
        known = store.operators("r1")
        require(known == sum((w[4] for w in wanted), ()), "operators must come back equal")
        middle = store.operators("r1", since=1, before=2)
        require(middle == wanted[1][4], "a window must leave out what is outside")
        records = store.read("r1")
        require(records.batches == found, "read must give the same batches")
        require(records.instances == instances, "read must give the same instances")


def check_unmeasured(opened: Opener) -> None:
    """Check that what was not measured stays None."""
    batch = BatchRecord("r1", 0, 1000.0, 0.0)
    instance = InstanceRecord("r1", 0, "count", 0, "node-0")
    node = NodeRecord("r1", 0, "node-0")
    with opened() as store:
        store.put_run(a_run())
        store.put_batch(batch, [instance], [], [node])
        require(store.batches("r1") == (batch,), "an empty batch must come back equal")
        require(store.instances("r1") == (instance,), "unmeasured fields must stay None")
        require(store.nodes("r1") == (node,), "unmeasured fields must stay None")


def check_replayed_batch(opened: Opener) -> None:
    """Check that a batch that is written again replaces itself and its detail."""
    with opened() as store:
        store.put_run(a_run())
        for number in range(3):
            store.put_batch(*a_batch("r1", number, size=3))
        again = a_batch("r1", 1, size=2)
        store.put_batch(*again)
        require(len(store.batches("r1")) == 3, "a replayed batch must count once")
        kept = [i for i in store.instances("r1") if i.batch == 1]
        require(tuple(kept) == again[1], "detail of the first attempt must be gone")


def check_all_or_nothing(opened: Opener) -> None:
    """Check that a batch that is refused leaves no trace, and what was there stays."""
    with opened() as store:
        store.put_run(a_run())
        good = a_batch("r1", 0)
        store.put_batch(*good)
        batch, instances, edges, nodes, _ = a_batch("r1", 0, size=3)
        bad: list[Callable[[], None]] = [
            lambda: store.put_batch(batch, [*instances, instances[0]], edges, nodes),
            lambda: store.put_batch(batch, [replace(instances[0], batch=5)], edges, nodes),
            lambda: store.put_batch(batch, instances, edges, [replace(nodes[0], run="r2")]),
            lambda: store.put_batch(*a_batch("nobody", 0)),
            lambda: store.put_event(EventRecord("nobody", 0, 0.0, "note", "")),
        ]
        for attempt in bad:
            require(refused(attempt), "a bad batch must be refused")
        require(store.batches("r1") == (good[0],), "a refused batch must change nothing")
        require(store.instances("r1") == good[1], "a refused batch must change nothing")
        require(store.batches("nobody") == (), "a run that is not there must stay so")


def check_windows(opened: Opener) -> None:
    """Check that the last batches, and those since one, can be asked for."""
    with opened() as store:
        store.put_run(a_run())
        store.put_run(a_run("r2"))
        for number in range(6):
            store.put_batch(*a_batch("r1", 2 * number))
        store.put_batch(*a_batch("r2", 100))

        def seen(**window: int) -> list[int]:
            numbers = [b.batch for b in store.batches("r1", **window)]
            detail = sorted({i.batch for i in store.instances("r1", **window)})
            require(numbers == detail, "batches and their detail must have the same windows")
            return numbers

        require(seen(last=2) == [8, 10], "last must give the last batches")
        require(seen(last=99) == [0, 2, 4, 6, 8, 10], "a window may be longer than the run")
        require(seen(since=7) == [8, 10], "since must leave out smaller numbers")
        require(seen(since=9, last=3) == [10], "since and last must hold both")
        require(seen(since=99) == [], "a window after the end is empty")
        instances = store.read("r1", detail=1).instances
        require({i.batch for i in instances} == {10}, "read must limit the detail")
        require(len(store.read("r1", detail=1).batches) == 6, "read must give all batches")
        require(refused(lambda: store.batches("r1", last=0)), "a window of 0 must be refused")


def check_keep_detail(opened: Opener) -> None:
    """Check that only the detail of the last batches is kept, and every batch."""
    with opened(keep_detail=3) as store:
        for run in ("r1", "r2"):
            store.put_run(a_run(run))
            for number in range(8):
                store.put_batch(*a_batch(run, number))
        store.put_batch(*a_batch("r1", 8))
        for run, first in (("r1", 6), ("r2", 5)):
            kept = list(range(first, first + 3))
            for part in (store.instances(run), store.edges(run), store.nodes(run)):
                numbers = sorted({record.batch for record in part})
                require(numbers == kept, f"detail of {kept} must be kept, is of {numbers}")
        require(len(store.batches("r1")) == 9, "batches must be kept without their detail")
    for bad in (0, -1, True):
        require(refused(lambda n=bad: opened(keep_detail=n)), f"keep_detail={bad} is no number")


def check_plans_and_events(opened: Opener) -> None:
    """Check that plans and events come back, and that an event can be completed."""
    plan = strategies.make("even").plan(Request(wordcount(3), Cluster.of(2)))
    events = [
        EventRecord("r1", 0, 1001.5, "note", "began"),
        EventRecord("r1", 10, 1003.0, DECISION, "moved", {"lit": 1.2, "moves": ["a", "b"]}, 7),
        EventRecord("r1", 2, 1002.0, "failure", ""),
    ]
    with opened() as store:
        store.put_run(a_run())
        for at in (5, 0):
            store.put_plan(PlanRecord("r1", at, plan))
        for event in events:
            store.put_event(event)
        gained = replace(events[1], figures={"gained": 0.3})
        store.put_event(gained)
    with opened() as store:
        wanted = (events[0], events[2], gained)
        require(store.events("r1") == wanted, "events must come back by number, completed")
        plans = (PlanRecord("r1", 0, plan), PlanRecord("r1", 5, plan))
        require(store.plans("r1") == plans, "plans must come back equal, in order")
        records = store.read("r1")
        require(records.plans == plans and records.events == wanted, "read must give the same")
        require(records.decisions == (gained,), "decisions are events of that kind")


def check_delete_run(opened: Opener) -> None:
    """Check that a deleted run takes everything with it, and nothing else."""
    with opened() as store:
        for run in ("r1", "r2"):
            store.put_run(a_run(run))
            store.put_batch(*a_batch(run, 0))
            store.put_event(EventRecord(run, 0, 0.0, "note", "x"))
        store.delete_run("r1")
        store.delete_run("nobody")
        require([r.id for r in store.runs()] == ["r2"], "one run must be left")
        store.put_run(a_run("r1"))
        again = store.read("r1")
        left = (again.batches, again.instances, again.events, store.edges("r1"), store.nodes("r1"))
        require(not any(left), "nothing of a deleted run must be left")
        require(len(store.read("r2").instances) == 4, "another run must be untouched")


def check_odd_names(opened: Opener) -> None:
    """Check names that look like SQL, other scripts, and what no database holds."""
    with opened() as store:
        for at, name in enumerate(ODD_NAMES):
            run = RunRecord(name, name, name, float(at), config={name: name})
            batch = BatchRecord(name, 0, 0.0, 1.0, lit={name: 1.0})
            instances = [InstanceRecord(name, 0, name, 0, name, name, name)]
            edges = [EdgeRecord.of(name, 0, name, name, [[1]])]
            event = EventRecord(name, 0, 0.0, name, name, {name: name})
            store.put_run(run)
            store.put_batch(batch, instances, edges, [NodeRecord(name, 0, name)])
            store.put_event(event)
            require(store.run(name) == run, f"run {name[:40]!r} must come back equal")
            require(store.batches(name) == (batch,), f"{name[:40]!r} must come back equal")
            require(store.instances(name) == tuple(instances), f"{name[:40]!r} must come back")
            require(store.edges(name) == tuple(edges), f"{name[:40]!r} must come back equal")
            require(store.events(name) == (event,), f"{name[:40]!r} must come back equal")
        require(len(store.runs()) == len(ODD_NAMES), "every odd name must be a run of its own")
    for name in ("", "a\0b", "\ud800"):
        require(refused(lambda n=name: a_run(n)), f"the name {name!r} must be refused")


def check_large_numbers(opened: Opener) -> None:
    """Check that the largest numbers come back exactly, and larger ones are refused."""
    batch = BatchRecord("r1", LARGEST, 1e300, 1e300, rows_in=LARGEST, remote_bytes=LARGEST)
    edge = EdgeRecord.of("r1", LARGEST, "a", "b", [[2**62 + 1]])
    with opened() as store:
        store.put_run(a_run())
        store.put_batch(batch, [], [edge])
        require(store.batches("r1") == (batch,), "large numbers must come back exactly")
        require(store.edges("r1") == (edge,), "large numbers must come back exactly")
    for count in (LARGEST + 1, 10**40, -1, 1.5, True, None):
        too_large = refused(lambda n=count: BatchRecord("r1", 0, 0.0, 1.0, rows_in=n))
        require(too_large, f"{count} rows must be refused")


#: Every check by its name.
METRICS_STORE_CHECKS: Mapping[str, Check] = {
    "starts empty": check_starts_empty,
    "runs": check_runs,
    "batches": check_batches,
    "unmeasured": check_unmeasured,
    "replayed batch": check_replayed_batch,
    "all or nothing": check_all_or_nothing,
    "windows": check_windows,
    "keep detail": check_keep_detail,
    "plans and events": check_plans_and_events,
    "delete run": check_delete_run,
    "odd names": check_odd_names,
    "large numbers": check_large_numbers,
    "reader beside writer": check_reader_beside_writer,
    "threads": check_threads,
    "opened at once": check_opened_at_once,
    "read only": check_read_only,
    "closed": check_closed,
}
