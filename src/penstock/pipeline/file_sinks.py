"""Sinks that write files: a folder of Parquet or JSON lines files for each batch.

1. When a run starts, the driver makes the output folder and marks it as the run's own. A folder
   with the results of another run is refused.
2. A task writes its rows to ``_staging/<epoch>-<attempt>``, in a file that no other task writes,
   and tells the driver its name, rows and size.
3. When all tasks are done the driver compares what they told with what is there, writes a manifest
   beside the files, removes files that belong to no task, and renames the folder to
   ``batch=<number>``. A reader of ``batch=*`` sees complete batches only, and each once.
4. A task of an earlier attempt that is still running writes to the folder of that attempt, which
   nobody commits.
"""

from __future__ import annotations

import re
import shutil
import uuid
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from penstock.common.errors import InvalidValue, PenstockError
from penstock.common.keywords import class_keywords
from penstock.pipeline.json_reader import decode_lines
from penstock.pipeline.json_writer import encode_lines
from penstock.pipeline.steps import Attempt, StagedFile
from penstock.state.files.checksum import Damaged, pack_json, unpack_json
from penstock.state.files.filesystem import OPEN, create_file, make_folder, sync_folder, write_file

#: What a folder's files may be.
FORMATS = ("parquet", "jsonl")

#: Names in an output folder. Readers of Parquet ignore what begins with an underscore.
MARKER, MANIFEST, STAGING = "_penstock.json", "_manifest.json", "_staging"

_BATCH = re.compile(r"batch=(\d+)")


class OutputMissing(PenstockError):
    """Files that tasks wrote are not where the driver looks for them."""


class OutputTaken(PenstockError):
    """An output folder, or a batch in it, belongs to another run or another driver."""


@class_keywords
@dataclass(eq=False)
class Files:
    """Writes a folder of Parquet or JSON lines files for each batch.

    Parameters
    ----------
    path : str or Path
        A folder that the driver and all executors reach under this name. A relative one is meant
        relative to the working folder of the process that makes this object.
    format : str
        ``parquet`` or ``jsonl``.
    sync : bool
        Flush files to the disk before a batch is committed, so that they survive a loss of power.
    """

    path: str | Path
    format: str = "parquet"
    sync: bool = True
    on_workers = True

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InvalidValue("format", "Files", "one of " + ", ".join(FORMATS), self.format)
        if "://" in str(self.path):
            allowed = "a folder that the driver and all executors reach; addresses are not written"
            raise InvalidValue("path", "Files", allowed, str(self.path))
        self.path = Path(self.path).absolute()

    @property
    def _root(self) -> Path:
        return Path(self.path)

    def start(self, checkpoint: str) -> None:
        """Make the folder, and mark it as the output of a checkpoint.

        Raises
        ------
        OutputTaken
            When it has the results of another one.
        """
        make_folder(self._root, sync=self.sync, mode=OPEN)
        marker = self._root / MARKER
        owner = _read_json(marker)
        if owner is None and not self._batches():
            content = pack_json({"checkpoint": checkpoint})
            create_file(marker, lambda out: out.write(content), sync=self.sync, mode=OPEN)
            owner = _read_json(marker)
        if owner is None or owner.get("checkpoint") != checkpoint:
            raise OutputTaken(
                f"{self._root} has the results of another run. Write to another folder; or go on "
                "with the checkpoint of that run; or remove the folder if its results are not "
                "needed"
            )

    def stage(self, attempt: Attempt, instance: int, table: pa.Table) -> StagedFile | None:
        """Write the rows of one instance where no reader looks, and tell what was written."""
        if not table.num_rows:
            return None
        # A task that Spark runs twice writes two files, and the driver hears of one.
        name = f"part-{instance:05d}-{uuid.uuid4().hex[:8]}.{self.format}"
        target = self._staging(attempt) / name

        def write(out: IO[bytes]) -> None:
            if self.format == "parquet":
                pq.write_table(table, out)
            else:
                out.write(encode_lines(table))

        write_file(target, write, sync=self.sync, mode=OPEN)
        schema = "" if self.format == "parquet" else _packed_schema(table.schema)
        return StagedFile(name, table.num_rows, target.stat().st_size, schema)

    def commit(
        self, attempt: Attempt, table: pa.Table | None, staged: Sequence[StagedFile] = ()
    ) -> None:
        """Make the files that tasks told of visible.

        Raises
        ------
        OutputMissing
            When one of them is not there, or not of the size that was told.
        OutputTaken
            When a newer driver has written the batch.
        """
        final = self._root / f"batch={attempt.batch_id:012d}"
        if not staged:
            # Nothing is to be seen of the batch, not even of a driver before this one.
            self._make_way(final, attempt)
            return
        folder = self._staging(attempt)
        _compare(folder, staged, attempt)
        told = {one.name for one in staged}
        for path in folder.iterdir():
            if path.name not in told:
                path.unlink()
        content = pack_json({**asdict(attempt), "files": [asdict(one) for one in staged]})
        write_file(folder / MANIFEST, lambda out: out.write(content), sync=self.sync, mode=OPEN)
        self._make_way(final, attempt)
        folder.rename(final)
        if self.sync:
            sync_folder(self._root)

    def _make_way(self, final: Path, attempt: Attempt) -> None:
        """Remove what an older attempt at the batch committed."""
        if not final.exists():
            return
        known = _read_json(final / MANIFEST) or {}
        theirs = (known.get("epoch", -1), known.get("number", -1))
        if theirs >= (attempt.epoch, attempt.number):
            raise OutputTaken(
                f"{final} was written by attempt {theirs[1]} of epoch {theirs[0]}, and this is "
                f"attempt {attempt.number} of epoch {attempt.epoch}: another driver has taken "
                "over, or two sinks write to one folder. Give each sink a folder of its own"
            )
        aside = self._root / STAGING / f"replaced-{uuid.uuid4().hex}"
        make_folder(aside.parent, sync=False, mode=OPEN)
        final.rename(aside)
        shutil.rmtree(aside)

    def recover(self, committed: int) -> None:
        """Remove what was staged, and batches after the last one that was committed."""
        shutil.rmtree(self._root / STAGING, ignore_errors=True)
        for number, folder in self._batches():
            if number > committed:
                shutil.rmtree(folder)

    def _batches(self) -> list[tuple[int, Path]]:
        if not self._root.is_dir():
            return []
        found = ((_BATCH.fullmatch(path.name), path) for path in self._root.iterdir())
        return sorted((int(match[1]), path) for match, path in found if match)

    def _staging(self, attempt: Attempt) -> Path:
        return self._root / STAGING / f"{attempt.epoch}-{attempt.number}"


def parquet(path: str | Path) -> Files:
    """Write Parquet files; see `Files`."""
    return Files(path, "parquet")


def json_lines(path: str | Path) -> Files:
    """Write one JSON object a line; see `Files`, and `read_json_lines` to read them.

    JSON has fewer types than Arrow. `penstock.pipeline.json_writer` tells how each is written.
    """
    return Files(path, "jsonl")


def read_json_lines(path: str | Path, schema: pa.Schema | None = None) -> pa.Table:
    """Read what `json_lines` wrote, with the types that the rows had.

    Parameters
    ----------
    path : str or Path
        The output folder, or one of its batches.
    schema : Schema, optional
        Read these columns instead of those that were written.

    Raises
    ------
    OutputMissing
        When a file that was committed is missing or has another size.
    """
    root, tables = Path(path), list[pa.Table]()
    folders = [root] if (root / MANIFEST).exists() else sorted(root.glob("batch=*"))
    for folder in folders:
        manifest = _read_json(folder / MANIFEST) or {}
        staged = [StagedFile(**values) for values in manifest.get("files", ())]
        attempt = Attempt(manifest.get("batch_id", -1))
        _compare(folder, staged, attempt)
        for one in staged:
            content = (folder / one.name).read_bytes()
            columns = _unpacked_schema(one.schema) if schema is None else schema
            tables.append(decode_lines(content, columns))
    if not tables:
        return pa.table({}) if schema is None else schema.empty_table()
    return pa.concat_tables(tables, promote_options="permissive")


def _compare(folder: Path, staged: Iterable[StagedFile], attempt: Attempt) -> None:
    """Raise when a file that a task told of is not there as it was told."""
    told = list(staged)
    wrong = [one for one in told if _size(folder / one.name) != one.size_bytes]
    if not wrong:
        return
    first = wrong[0]
    size = _size(folder / first.name)
    there = "is missing" if size is None else f"has {size} bytes, not {first.size_bytes}"
    raise OutputMissing(
        f"{len(wrong)} of {len(told)} files that tasks wrote for batch {attempt.batch_id} are not "
        f"in {folder} as they were written: {first.name} with {first.rows} rows {there}. The "
        f"driver and all executors must reach {folder.parents[1]} under this name: use a shared "
        "folder"
    )


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _read_json(path: Path) -> dict[str, Any] | None:
    """Return the values of a marker or a manifest; None if it is missing."""
    try:
        return unpack_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except Damaged as error:
        raise OutputMissing(f"{path} is {error}") from error


def _packed_schema(schema: pa.Schema) -> str:
    return b64encode(schema.serialize()).decode()


def _unpacked_schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(b64decode(text)))
