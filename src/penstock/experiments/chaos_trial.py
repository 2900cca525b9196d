"""An application under scripted faults, compared to the row with what must come out."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.apps import apps
from penstock.apps.api import App
from penstock.engine.driver.commit_log import FOLDER, CommitLog
from penstock.faults.schedules import BATCHES, Schedule
from penstock.model import PenstockError
from penstock.pipeline.file_sinks import Files, parquet
from penstock.pipeline.sources.generator import Generator
from penstock.runtimes.spark.options import (
    Options,
    QueueOptions,
    RecoveryOptions,
    StateOptions,
)
from penstock.runtimes.spark.query import Query, launch
from penstock.runtimes.spark.session import (
    SparkSession,
    expected_executors,
    wait_for_executors,
)
from penstock.store.records import BatchRecord
from penstock.strategies import Strategy

#: Rows of a run, its instances, and seconds that it may take.
ROWS, INSTANCES, LIMIT_S = 4000, 4, 300.0

#: Seconds to wait for executors that were killed: what a schedule may do rests on their coming.
BACK_S = 90.0

#: Rows of a run under load, rows that its queue holds, seconds from batch to batch, and how many
#: times as many rows come as it can take then.
LOAD_ROWS, LOAD_QUEUE, LOAD_INTERVAL_S, OVERLOAD = 20_000, 400, 0.5, 10

#: For JVMs that live for minutes at most: optimising their code costs more than it gains.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: Configuration of a session for trials: it notices within half a minute that an executor is
#: silent, and starts executors in place of those that are killed with little work.
TRIAL_CONF = {
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "5s",
    "spark.driver.extraJavaOptions": _SHORT_LIVED,
    "spark.executor.extraJavaOptions": _SHORT_LIVED,
}


@dataclass(frozen=True)
class TrialOutcome:
    """What came of a schedule.

    Parameters
    ----------
    schedule : str
    app, name : str
    equal : dict of str to bool
        For each sink, whether its result is what it must be.
    seconds : float
    error : str
        What the run failed with; empty if it ended.
    happened : list of str
        Faults and plans, in their order.
    """

    schedule: str
    app: str
    name: str
    equal: dict[str, bool] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""
    happened: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether it ended, with all results equal."""
        return not self.error and bool(self.equal) and all(self.equal.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "passed": self.passed}


def trial(
    spark: SparkSession,
    schedule: Schedule,
    *,
    strategy: str | Strategy = "even",
    folder: Path | None = None,
    executors: int = 0,
    back_s: float = BACK_S,
) -> TrialOutcome:
    """Run an application under a schedule, when all executors are there.

    Parameters
    ----------
    spark : SparkSession
    schedule : Schedule
    strategy : str or Strategy
        By default one that uses all nodes.
    folder : Path, optional
        Where a checkpoint is kept or found, and results go as Parquet; otherwise they are kept in
        memory.
    executors : int
        How many there are at first; by default as many as the master's name says.
    back_s : float
        Seconds to wait for the replacement of a lost executor.
    """
    master = str(spark.sparkContext.master)
    wait_for_executors(spark, executors or expected_executors(master), BACK_S)
    app, source = app_of(schedule), source_of(schedule)
    sinks = {name: parquet(folder / name) for name in app.keys} if folder else None
    stream = source if schedule.source == "generator" else dataframe(spark, source, folder)
    pipeline = app.pipeline(stream, sinks, parallelism=INSTANCES)
    started = time.monotonic()
    error, events, batches = "", list[str](), tuple[BatchRecord, ...]()
    options = options_of(schedule, folder, back_s)
    with Query(launch(pipeline, spark, strategy, options, faults=schedule.faults)) as run:
        try:
            if not run.await_termination(LIMIT_S):
                error = f"it did not end within {LIMIT_S:g} s"
        except Exception as failure:  # noqa: BLE001 - a trial that fails is a result
            error = f"{type(failure).__name__}: {failure}"
        records = run.records()
        events = [f"batch {event.batch}: {event.text}" for event in records.events]
        batches = records.batches
    equal = {}
    if not error:
        got = {name: emitted(pipeline[name].sink) for name in app.keys}
        equal = compared(schedule, got, folder)
    if not error and schedule.load:
        equal |= bounded(batches, schedule.load)
    seconds = time.monotonic() - started
    return TrialOutcome(
        str(schedule), schedule.app, schedule.name, equal, round(seconds, 1), error, events
    )


def app_of(schedule: Schedule) -> App:
    """Return the application; one that splits keys where the schedule does."""
    # Views that wait where they are counted are sent one by one, so that hot ones are measured.
    parameters = {"split": True, "cost_us": 20.0} if "split" in schedule.kinds else {}
    app: App = apps.make(schedule.app, **parameters)
    return app


def source_of(schedule: Schedule) -> Generator:
    """Return the rows: all at once, or ten times as fast as they can be taken."""
    rate, rows = (
        (OVERLOAD * LOAD_QUEUE / LOAD_INTERVAL_S, LOAD_ROWS) if schedule.load else (1e6, ROWS)
    )
    return app_of(schedule).source(rate, zipf=1.0, seed=11, rows=rows)


def options_of(schedule: Schedule, folder: Path | None, back_s: float = BACK_S) -> Options:
    """Return the options of the run."""
    load = schedule.load
    return Options(
        queue=QueueOptions(
            size=LOAD_QUEUE if load else ROWS // BATCHES, when_full=load or QueueOptions.when_full
        ),
        interval_s=LOAD_INTERVAL_S if load else 0.0,
        available_now=schedule.source == "dataframe",
        state=StateOptions(
            mode=schedule.state, parity=schedule.parity, backup_every=schedule.every
        ),
        checkpoint=folder / "checkpoint" if folder else None,
        recovery=RecoveryOptions(replacement_wait_s=back_s),
        control=None,
    )


def dataframe(spark: SparkSession, source: Generator, folder: Path | None) -> Any:
    """Return the rows as a streaming DataFrame of files, a batch each; files stay for a restart."""
    if folder is None:
        raise PenstockError("a streaming DataFrame takes a folder for its files")
    files = folder / "input"
    if not files.exists():
        files.mkdir()
        step = ROWS // BATCHES
        for number, start in enumerate(range(0, ROWS, step)):
            table = pa.table(source.read(start, start + step))
            pq.write_table(table, files / f"{number:03d}.parquet")
    schema = spark.read.parquet(str(files)).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(files))


def compared(schedule: Schedule, got: dict[str, pa.Table], folder: Path | None) -> dict[str, bool]:
    """Say for each sink whether it got what it must."""
    app, source = app_of(schedule), source_of(schedule)
    if schedule.load == "drop":
        rows = pa.concat_tables(source.read(*cut) for cut in taken(folder))
    else:
        rows = source.read(0, LOAD_ROWS if schedule.load else ROWS)
    expected = app.expected(rows)
    equal = {}
    for name in app.keys:
        found = app.result(name, got[name])
        equal[name] = found.num_rows > 0 and found.equals(app.result(name, expected[name]))
    return equal


def taken(folder: Path | None) -> list[tuple[int, int]]:
    """List the ranges of the source that the committed batches of a run read."""
    if folder is None:
        raise PenstockError("what a queue dropped shows only in a checkpoint")
    log = CommitLog(folder / "checkpoint" / FOLDER)
    begun = [log.begun(number) or {} for number in sorted(log.commits())]
    return [
        (int(start), int(stop))
        for entry in begun
        for cuts in entry.get("ranges", {}).values()
        for start, stop in cuts
    ]


def bounded(batches: tuple[BatchRecord, ...], when_full: str) -> dict[str, bool]:
    """Say of a run under load whether its queue kept its bounds and all rows are accounted for."""
    read, dropped = (sum(getattr(b, name) for b in batches) for name in ("rows_in", "dropped"))
    return {
        "no batch beyond the queue": all(0 < b.rows_in <= LOAD_QUEUE for b in batches),
        "all rows read or counted": read + dropped == LOAD_ROWS,
        "rows dropped" if when_full == "drop" else "no rows dropped": (
            bool(dropped) == (when_full == "drop")
        ),
    }


def emitted(sink: Any) -> pa.Table:
    """All rows that a sink got, in the order of the batches."""
    if not isinstance(sink, Files):
        table: pa.Table = sink.table()
        return table
    tables = [pq.read_table(path) for path in sorted(Path(sink.path).glob("batch=*/*.parquet"))]
    return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
