"""The same rows through a pipeline and through Spark's own query, cut into the same batches.

One Parquet file is one batch on both sides: Spark reads a file at a time, the local runner takes
the rows of one table at a time. What comes out must be equal to the row.

.. code-block:: python

    from penstock import functions as F
    from penstock.testing.differential import Sides, require_equal

    sides = Sides(spark, tmp_path, tables)
    mine = sides.final(lambda rows: rows.aggregate("sum", by="k", t=F.sum("v")), by="k")
    require_equal(mine, sides.query("select k, sum(v) as t from rows group by k"))

What it does not model: processes that die, several nodes. Columns must have types that Parquet
and Spark share. Examples are drawn by a fixed seed; ``PENSTOCK_EXAMPLES`` asks for more of them and
``PENSTOCK_SEED`` for others; ``make differential`` does both.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

try:
    from hypothesis import Phase, settings
except ImportError as missing:  # pragma: no cover
    raise ImportError(
        "penstock.testing.differential needs hypothesis; install it with: pip install hypothesis"
    ) from missing

from penstock.engine.driver.driver import Driver
from penstock.engine.job_graph import JobGraph
from penstock.model import Cluster, Plan
from penstock.pipeline import Memory, Pipeline, Rows
from penstock.runtimes.local import LocalBackend
from penstock.strategies import Request, strategies
from penstock.testing.broken import ContractBroken
from penstock.testing.tables import comparable, row_counts

Build = Callable[[Pipeline], Pipeline]
RowCounts = Counter[Hashable]

#: Seed of all examples, and how many there are of each: as given, or a few.
SEED = int(os.environ.get("PENSTOCK_SEED", "0"))


def examples(few: int) -> settings:
    """Draw `few` examples, unless more are asked for, and do not look for smaller ones.

    Each costs queries of Spark, so that shrinking takes many minutes: ``PENSTOCK_SHRINK=1`` does.
    """
    phases = list(Phase) if os.environ.get("PENSTOCK_SHRINK") else [Phase.explicit, Phase.generate]
    count = int(os.environ.get("PENSTOCK_EXAMPLES", few))
    return settings(max_examples=count, phases=phases, deadline=None)


class Sides:
    """Two ways to process the same batches.

    Parameters
    ----------
    spark : SparkSession
    folder : Path
        Where files are written; it may be used for several examples.
    tables : sequence of pyarrow.Table
        One a batch, all of one schema; they may be empty. They are the stream ``rows``.
    **others : sequence of pyarrow.Table
        More streams by name, with as many batches.
    """

    def __init__(
        self,
        spark: Any,
        folder: Path,
        tables: Sequence[pa.Table],
        **others: Sequence[pa.Table],
    ) -> None:
        self.spark, self.streams = spark, {"rows": list(tables), **others}
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        for name, stream in self.streams.items():
            self.files(name).mkdir()
            for number, table in enumerate(stream):
                file = self.files(name) / f"{number:05d}.parquet"
                pq.write_table(table, file)
                # Spark takes the oldest file first.
                os.utime(file, (10**9 + number, 10**9 + number))

    def files(self, stream: str) -> Path:
        """Return the folder with the files of a stream."""
        return self.folder / stream

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- Spark

    def query(self, sql: str) -> RowCounts:
        """Run a query over all rows, which it finds in views of the streams' names."""
        for name in self.streams:
            self.spark.read.parquet(str(self.files(name))).createOrReplaceTempView(name)
        return table_counts(self.spark.sql(sql).toArrow())

    def stream(self, sql: str, *, time: str, lateness: str, mode: str) -> RowCounts:
        """Run a streaming query over ``rows``, a file at a time, and return all that it emits.

        Parameters
        ----------
        sql : str
        time, lateness : str
            Column and delay of the watermark.
        mode : str
            Output mode: ``append`` or ``update``.
        """
        rows = self.reader("rows").withWatermark(time, lateness)
        rows.createOrReplaceTempView("rows")
        return self.run(self.spark.sql(sql), mode)

    def reader(self, name: str) -> Any:
        """Return a stream as a DataFrame that takes a file at a time."""
        files = str(self.files(name))
        schema = self.spark.read.parquet(files).schema
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(files)

    def run(self, query: Any, mode: str) -> RowCounts:
        """Run a streaming DataFrame to the end of its files, and return all that it emits."""
        name = f"out_{next(_NAMES)}"
        started = (
            query.writeStream.format("memory")
            .queryName(name)
            .outputMode(mode)
            .option("checkpointLocation", str(self.folder / name))
            .trigger(availableNow=True)
            .start()
        )
        started.awaitTermination()
        found = table_counts(self.spark.table(name).toArrow())
        self.spark.catalog.dropTempView(name)
        return found

    # ---- Penstock

    def emitted(self, build: Build, *, parallelism: int = 2) -> list[pa.Table]:
        """Run a pipeline, and return what each batch emits.

        Parameters
        ----------
        build : callable
            Adds steps to a pipeline that has the source ``rows``, and one for each other stream.
        """
        out = Memory()
        pipeline = Pipeline("differential")
        for name, stream in self.streams.items():
            pipeline = pipeline.source(name, Rows(pa.concat_tables(stream)), parallelism=1)
        job_graph = JobGraph.of(build(pipeline).sink("out", out))
        cluster = Cluster.of(2)
        plan = strategies.make("even").plan(Request(job_graph.topology(parallelism), cluster))
        if not isinstance(plan, Plan):
            raise TypeError(f"the even strategy has no plan: {plan}")
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        driver = Driver(job_graph, LocalBackend(folder / "nodes", cluster.names), folder, plan)
        ends = {
            name: [0, *itertools.accumulate(table.num_rows for table in stream)]
            for name, stream in self.streams.items()
        }
        for number in range(max(map(len, self.streams.values()))):
            cuts = {name: tuple(end[number : number + 2]) for name, end in ends.items()}
            driver.run_batch({name: (cut,) for name, cut in cuts.items() if cut[-1] > cut[0]})
        while driver.watermark_moved:
            driver.run_batch({})
        driver.close()
        return [table for _, table in sorted(out.batches.items())]

    def rows(self, build: Build, **options: Any) -> RowCounts:
        """All rows that a pipeline emits."""
        return sum((table_counts(t) for t in self.emitted(build, **options)), RowCounts())

    def final(self, build: Build, by: str | Sequence[str], **options: Any) -> RowCounts:
        """Last row of each key that a pipeline emits."""
        key = [by] if isinstance(by, str) else list(by)
        last: dict[Hashable, dict[str, Any]] = {}
        for table in self.emitted(build, **options):
            for row in table.to_pylist():
                last[comparable([row[name] for name in key])] = row
        return row_counts(last.values())


def require_equal(found: RowCounts, wanted: RowCounts, what: str = "the pipeline") -> None:
    """Raise unless two multisets of rows are equal; tell of the columns that differ.

    Raises
    ------
    ContractBroken
        With the rows that only one side has, each beside the most similar one of the other.
    """
    more, missing = list((found - wanted).elements()), list((wanted - found).elements())
    if not more and not missing:
        return
    lines = [f"{what} emits {len(more)} rows that Spark does not, and misses {len(missing)}:"]
    for row in more[:3]:
        near = max(missing, key=lambda other: len(_fields(row) & _fields(other)), default=())
        lines.append(f"  emitted {sorted(_fields(row) - _fields(near), key=str)}")
        lines.append(f"  instead of {sorted(_fields(near) - _fields(row), key=str)}")
        lines.append(f"  in the row {row}"[:1000])
    lines += [f"  missing {row}"[:1000] for row in missing[:3]]
    raise ContractBroken("\n".join(lines))


def _fields(row: Hashable) -> set[Hashable]:
    return set(row) if isinstance(row, tuple) else {row}


_NAMES = itertools.count()


def table_counts(table: pa.Table) -> RowCounts:
    """Rows of a table as a multiset; windows are flat, as Penstock emits them."""
    return row_counts(table.to_pylist())
