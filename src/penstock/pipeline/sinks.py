"""Sinks: memory, console, a function, files. Each takes a batch twice and keeps it once."""

from __future__ import annotations

import shutil
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.keywords import class_keywords


@class_keywords
@dataclass(eq=False)
class Memory:
    """Keeps the rows of every batch in the driver."""

    on_workers = False
    batches: dict[int, pa.Table] = field(default_factory=dict)

    def stage(self, batch_id: int, instance: int, table: pa.Table) -> None:
        """Do nothing: rows come to the driver."""

    def commit(self, batch_id: int, table: pa.Table | None) -> None:
        """Keep the batch, in place of an earlier one of the same number."""
        if table is not None:
            self.batches[batch_id] = table

    def recover(self, committed: int) -> None:
        """Forget later batches."""
        self.batches = {b: t for b, t in self.batches.items() if b <= committed}

    def table(self) -> pa.Table:
        """All rows, in the order of the batches; empty without columns before the first."""
        tables = [self.batches[b] for b in sorted(self.batches)]
        return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})

    def latest(self, *by: str) -> pa.Table:
        """Last row of each key: what a keyed step's state came to."""
        table = self.table()
        if not table.num_rows:
            return table
        numbered = table.append_column("__row", pa.array(range(table.num_rows)))
        last = numbered.group_by(list(by), use_threads=False).aggregate([("__row", "max")])
        return table.take(last.column("__row_max"))


@class_keywords
@dataclass(eq=False)
class Discard:
    """Keeps nothing: the rows are counted where they are made, and not even sent."""

    on_workers = True

    def stage(self, batch_id: int, instance: int, table: pa.Table) -> None:
        """Do nothing."""

    def commit(self, batch_id: int, table: pa.Table | None) -> None:
        """Do nothing."""

    def recover(self, committed: int) -> None:
        """Do nothing."""


@class_keywords
@dataclass(eq=False)
class Console:
    """Prints the first rows of every batch."""

    rows: int = 10
    on_workers = False

    def stage(self, batch_id: int, instance: int, table: pa.Table) -> None:
        """Do nothing: rows come to the driver."""

    def commit(self, batch_id: int, table: pa.Table | None) -> None:
        """Print."""
        if table is None or not table.num_rows:
            return
        shown = table.slice(0, self.rows).to_pylist()
        lines = [f"batch {batch_id}: {table.num_rows} rows", *(f"  {row}" for row in shown)]
        sys.stdout.write("\n".join(lines) + "\n")

    def recover(self, committed: int) -> None:
        """Do nothing: what was printed stays printed."""


@class_keywords
@dataclass(eq=False)
class Call:
    """Calls a function with the number and the rows of every batch.

    After a crash between the call and the commit the function is called again with the same number
    and the same rows: it must be idempotent by that number.
    """

    function: Callable[[int, pa.Table], None]
    on_workers = False

    def stage(self, batch_id: int, instance: int, table: pa.Table) -> None:
        """Do nothing: rows come to the driver."""

    def commit(self, batch_id: int, table: pa.Table | None) -> None:
        """Call the function."""
        if table is not None:
            self.function(batch_id, table)

    def recover(self, committed: int) -> None:
        """Do nothing: the function knows its batches by number."""


@class_keywords
@dataclass(eq=False)
class Files:
    """Writes a folder of Parquet or JSON lines files for each batch.

    Tasks write into ``_staging``; the commit renames the batch's folder to ``batch=<number>``, so
    that a reader of ``path/batch=*`` sees whole batches only, and each once.

    Parameters
    ----------
    path : str or Path
        A folder that all workers share.
    format : str
        ``parquet`` or ``jsonl``.
    """

    path: str | Path
    format: str = "parquet"
    on_workers = True

    def stage(self, batch_id: int, instance: int, table: pa.Table) -> None:
        """Write one instance's rows; a second attempt replaces the first."""
        if not table.num_rows:
            return
        folder = Path(self.path) / "_staging" / f"{batch_id:012d}"
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"part-{instance:05d}.{self.format}"
        partial = folder / f".{target.name}.{uuid.uuid4().hex}"
        if self.format == "parquet":
            pq.write_table(table, partial)
        else:
            table.to_pandas().to_json(partial, orient="records", lines=True, date_format="iso")
        partial.replace(target)

    def commit(self, batch_id: int, table: pa.Table | None) -> None:
        """Rename the folder of the batch."""
        staged = Path(self.path) / "_staging" / f"{batch_id:012d}"
        final = Path(self.path) / f"batch={batch_id:012d}"
        if not staged.exists():
            return
        for leftover in staged.glob(".*"):
            leftover.unlink()
        if final.exists():
            shutil.rmtree(final)
        staged.replace(final)

    def recover(self, committed: int) -> None:
        """Remove what was staged, and batches after the last one committed."""
        folder = Path(self.path)
        shutil.rmtree(folder / "_staging", ignore_errors=True)
        for batch in folder.glob("batch=*"):
            if int(batch.name.partition("=")[2]) > committed:
                shutil.rmtree(batch)


def parquet(path: str | Path) -> Files:
    """Write Parquet files."""
    return Files(path, "parquet")


def json_lines(path: str | Path) -> Files:
    """Write one JSON object a line."""
    return Files(path, "jsonl")
