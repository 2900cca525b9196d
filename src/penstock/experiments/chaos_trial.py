"""An application under scripted faults, compared to the row with what must come out."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.apps import apps
from penstock.faults.fault import Fault
from penstock.faults.schedules import BATCHES, Schedule
from penstock.model import PenstockError
from penstock.pipeline.file_sinks import Files, parquet
from penstock.runtimes.spark.options import (
    Options,
    QueueOptions,
    RecoveryOptions,
    StateOptions,
)
from penstock.runtimes.spark.query import Query, launch
from penstock.runtimes.spark.session import (
    SparkSession,
    cluster,
    embedded,
    expected_executors,
    wait_for_executors,
)
from penstock.strategies import Strategy

#: Rows of a run, its instances, and seconds that it may take.
ROWS, INSTANCES, LIMIT_S = 4000, 4, 300.0

#: Seconds to wait for executors that were killed: what a schedule may do rests on their coming.
BACK_S = 90.0

#: Batch in which a driver is killed.
KILLED_AT = 5


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
    rows: int = ROWS,
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
    rows : int
        Rows that the source has.
    """
    master = str(spark.sparkContext.master)
    wait_for_executors(spark, expected_executors(master), BACK_S)
    app = apps.make(schedule.app)
    source = app.source(1e6, zipf=1.0, seed=11, rows=rows)
    sinks = {name: parquet(folder / name) for name in app.keys} if folder else None
    pipeline = app.pipeline(source, sinks, parallelism=INSTANCES)
    started = time.monotonic()
    error, events = "", []
    options = Options(
        queue=QueueOptions(size=rows // BATCHES),
        interval_s=0.0,
        state=StateOptions(
            mode=schedule.state, parity=schedule.parity, backup_every=schedule.every
        ),
        checkpoint=folder / "checkpoint" if folder else None,
        recovery=RecoveryOptions(replacement_wait_s=BACK_S),
        control=None,
    )
    with Query(launch(pipeline, spark, strategy, options, faults=schedule.faults)) as run:
        try:
            if not run.await_termination(LIMIT_S):
                error = f"it did not end within {LIMIT_S:g} s"
        except Exception as failure:  # noqa: BLE001 - a trial that fails is a result
            error = f"{type(failure).__name__}: {failure}"
        events = [f"batch {event.batch}: {event.text}" for event in run.records().events]
    expected = app.expected(source.read(0, rows))
    equal = {}
    for name in app.keys if not error else ():
        got = app.result(name, emitted(pipeline[name].sink))
        equal[name] = got.num_rows > 0 and got.equals(app.result(name, expected[name]))
    seconds = time.monotonic() - started
    return TrialOutcome(
        str(schedule), schedule.app, schedule.name, equal, round(seconds, 1), error, events
    )


def emitted(sink: Any) -> pa.Table:
    """All rows that a sink got, in the order of the batches."""
    if not isinstance(sink, Files):
        table: pa.Table = sink.table()
        return table
    tables = [pq.read_table(path) for path in sorted(Path(sink.path).glob("batch=*/*.parquet"))]
    return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})


def driver_killed(spark: SparkSession, app: str, nodes: int, state: str = "both") -> TrialOutcome:
    """Let another process run an application and kill itself; go on here from its checkpoint."""
    with tempfile.TemporaryDirectory(prefix="penstock-trial-") as made:
        folder, started = Path(made), time.monotonic()
        told = folder / "told"
        # Not through pipes: what the driver leaves behind would hold them for a while.
        with told.open("w", encoding="utf-8") as out:
            died = subprocess.run(
                [sys.executable, "-m", __name__, app, str(folder), str(nodes), state],
                stdout=out,
                stderr=out,
                timeout=LIMIT_S,
                check=False,
            )
        if died.returncode != -signal.SIGKILL:
            raise PenstockError(
                f"the driver that was to be killed ended with {died.returncode}: "
                f"{told.read_text(encoding='utf-8')[-2000:]}"
            )
        committed = len(list((folder / "checkpoint" / "commit-log" / "commits").iterdir()))
        after = trial(spark, Schedule("kill-driver", app, state=state), folder=folder)
        story = [f"killed after {committed} commits", *after.happened]
        seconds = round(time.monotonic() - started, 1)
        return TrialOutcome(
            f"kill-driver@batch={KILLED_AT}, {app}, state {state}",
            app,
            "kill-driver",
            after.equal if 0 < committed < BATCHES else {"killed too late": False},
            seconds,
            after.error,
            story,
        )


def _victim(app: str, folder: str, nodes: str, state: str) -> None:
    """Run with a checkpoint until killed."""
    fault = Fault("kill-driver", KILLED_AT)
    with cluster(embedded(int(nodes), 1, 900)) as spark:
        trial(spark, Schedule("kill-driver", app, (fault,), state=state), folder=Path(folder))


if __name__ == "__main__":
    _victim(*sys.argv[1:])
