"""Checks of who may use a metrics store at the same time, and when it refuses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from penstock.testing.broken import require
from penstock.testing.metrics_examples import Opener, a_batch, a_run, refused


def check_reader_beside_writer(opened: Opener) -> None:
    """Check that a reader sees whole batches, always more of them, while another writes."""
    done = threading.Event()
    with opened() as writer, opened(read_only=True) as reader:
        writer.put_run(a_run())

        def write() -> None:
            try:
                for number in range(40):
                    writer.put_batch(*a_batch("r1", number, size=4))
            finally:
                done.set()

        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(write)
            seen = 0
            while True:
                last = done.is_set()
                records = reader.read("r1")
                whole = 8 * len(records.batches) == len(records.instances)
                require(whole, "a reader must never see half a batch")
                require(len(records.batches) >= seen, "batches must not vanish")
                seen = len(records.batches)
                if last:
                    break
            written.result()
        require(seen == 40, "a reader must see what was written")


def check_threads(opened: Opener) -> None:
    """Check that threads may share one store."""
    with opened() as store:
        store.put_run(a_run())
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(lambda n: store.put_batch(*a_batch("r1", n)), range(24)):
                pass
            counts = list(pool.map(lambda _: len(store.instances("r1")), range(8)))
        require(counts == [4 * 24] * 8, "every thread's batch must be there")


def check_opened_at_once(opened: Opener) -> None:
    """Check that several may open a new database at the same moment."""
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: opened(), range(4)))
    for at, store in enumerate(stores):
        with store:
            store.put_run(a_run(f"r{at}"))
    with opened() as store:
        require(len(store.runs()) == 4, "all of them must have written to the same tables")


def check_read_only(opened: Opener) -> None:
    """Check that a store that is opened for reading changes nothing."""
    require(refused(lambda: opened(read_only=True)), "there is nothing to read in an empty one")
    with opened() as store:
        store.put_run(a_run())
    with opened(read_only=True) as store:
        require(store.run("r1") == a_run(), "it must be readable")
        writes: list[Callable[[], None]] = [
            lambda: store.put_run(a_run("r2")),
            lambda: store.put_batch(*a_batch("r1", 0)),
            lambda: store.delete_run("r1"),
        ]
        for write in writes:
            require(refused(write), "writing must be refused")
        require(len(store.runs()) == 1, "nothing must have changed")


def check_closed(opened: Opener) -> None:
    """Check that a closed store says so."""
    store = opened()
    store.close()
    store.close()
    require(refused(store.runs), "a closed store must refuse to read")
    require(refused(lambda: store.put_run(a_run())), "a closed store must refuse to write")
