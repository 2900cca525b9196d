"""Output files: every batch once, of one run, and never fewer rows than tasks wrote."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common.errors import InvalidValue
from penstock.pipeline import json_lines, parquet, read_json_lines
from penstock.pipeline.file_sinks import MANIFEST, STAGING, Files, OutputMissing, OutputTaken
from penstock.pipeline.steps import Attempt, StagedFile

ROWS = pa.table({"v": [1, 2, 3]})


def staged(sink: Files, attempt: Attempt, *tables: pa.Table) -> list[StagedFile]:
    found = [sink.stage(attempt, number, table) for number, table in enumerate(tables)]
    return [one for one in found if one is not None]


def values(folder: Path) -> list[int]:
    found = [pq.read_table(path, partitioning=None) for path in folder.glob("batch=*/*.parquet")]
    return sorted(v for table in found for v in table.column("v").to_pylist())


def test_a_relative_folder_is_that_of_the_process_that_named_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sink = parquet("out")
    (tmp_path / "worker").mkdir()
    sent = pickle.dumps(sink)
    monkeypatch.chdir(tmp_path / "worker")
    there = pickle.loads(sent)
    assert there.path == tmp_path / "out"
    attempt = Attempt(0, 0, 1)
    sink.start("c")
    sink.commit(attempt, None, staged(there, attempt, ROWS))
    assert values(tmp_path / "out") == [1, 2, 3]
    assert not list((tmp_path / "worker").iterdir())


def test_files_that_the_driver_does_not_see_fail_the_batch(tmp_path: Path) -> None:
    sink, attempt = parquet(tmp_path), Attempt(3, 8, 1)
    told = staged(sink, attempt, ROWS, ROWS)
    (tmp_path / STAGING / "1-8" / told[1].name).unlink()
    sentence = r"1 of 2 files that tasks wrote for batch 3 .* 3 rows is missing.*shared folder"
    with pytest.raises(OutputMissing, match=sentence):
        sink.commit(attempt, None, told)
    told = staged(sink, attempt, ROWS)
    path = tmp_path / STAGING / "1-8" / told[0].name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(OutputMissing, match="bytes, not"):
        sink.commit(attempt, None, told)
    shutil.rmtree(tmp_path / STAGING)
    with pytest.raises(OutputMissing):
        sink.commit(attempt, None, told)
    assert values(tmp_path) == []


def test_a_late_task_of_an_earlier_attempt_doubles_nothing(tmp_path: Path) -> None:
    sink, first, second = parquet(tmp_path), Attempt(0, 0, 1), Attempt(0, 1, 1)
    staged(sink, first, ROWS, ROWS, ROWS)
    told = staged(sink, second, ROWS)
    staged(sink, first, ROWS)
    # The same task twice in one attempt, as Spark may run it: the driver heard of one.
    staged(sink, second, ROWS)
    sink.commit(second, None, told)
    staged(sink, second, ROWS)
    assert values(tmp_path) == [1, 2, 3]
    sink.recover(0)
    assert values(tmp_path) == [1, 2, 3]
    assert not (tmp_path / STAGING).exists()


def test_a_newer_attempt_replaces_an_older_one_and_not_the_other_way(tmp_path: Path) -> None:
    sink, old, new = parquet(tmp_path), Attempt(0, 4, 1), Attempt(0, 5, 2)
    late = staged(sink, old, pa.table({"v": [9]}))
    sink.commit(new, None, staged(sink, new, ROWS))
    with pytest.raises(OutputTaken, match="another driver has taken over"):
        sink.commit(old, None, late)
    assert values(tmp_path) == [1, 2, 3]
    newest = Attempt(0, 6, 3)
    sink.commit(newest, None, staged(sink, newest, pa.table({"v": [7]})))
    assert values(tmp_path) == [7]


def test_two_sinks_on_one_folder_are_noticed(tmp_path: Path) -> None:
    attempt = Attempt(0, 0, 1)
    first, second = parquet(tmp_path), parquet(tmp_path)
    first.commit(attempt, None, staged(first, attempt, ROWS))
    told = staged(second, attempt, ROWS)
    with pytest.raises(OutputTaken, match="two sinks write to one folder"):
        second.commit(attempt, None, told)


def test_a_folder_of_another_run_is_refused_and_left_alone(tmp_path: Path) -> None:
    sink, attempt = parquet(tmp_path), Attempt(0, 0, 1)
    sink.start("mine")
    sink.commit(attempt, None, staged(sink, attempt, ROWS))
    parquet(tmp_path).start("mine")
    with pytest.raises(OutputTaken, match="has the results of another run"):
        parquet(tmp_path).start("yours")
    assert values(tmp_path) == [1, 2, 3]
    # Of a run that did not mark it.
    (tmp_path / "old" / "batch=000000000000").mkdir(parents=True)
    with pytest.raises(OutputTaken):
        parquet(tmp_path / "old").start("mine")


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "batch=notes").mkdir()
    (tmp_path / "readme").write_text("mine")
    sink = parquet(tmp_path)
    sink.start("c")
    sink.recover(-1)
    assert (tmp_path / "batch=notes").is_dir()
    assert (tmp_path / "readme").read_text() == "mine"


def test_json_lines_read_back_as_they_were(tmp_path: Path) -> None:
    sink = json_lines(tmp_path)
    sink.start("c")
    tables = [pa.table({"n": pa.array([2**60 + i, None]), "b": [b"\xff", b""]}) for i in range(3)]
    for number, table in enumerate(tables):
        attempt = Attempt(number, number, 1)
        sink.commit(attempt, None, staged(sink, attempt, table, table.slice(0, 0)))
    assert read_json_lines(tmp_path).equals(pa.concat_tables(tables))
    assert read_json_lines(tmp_path / "batch=000000000001").equals(tables[1])
    only = read_json_lines(tmp_path, pa.schema({"n": pa.int64()}))
    assert only.column_names == ["n"]
    assert read_json_lines(tmp_path / "nothing").num_rows == 0


def test_a_damaged_manifest_is_an_error(tmp_path: Path) -> None:
    sink, attempt = json_lines(tmp_path), Attempt(0, 0, 1)
    sink.commit(attempt, None, staged(sink, attempt, ROWS))
    path = tmp_path / "batch=000000000000" / MANIFEST
    sound = path.read_bytes()
    for offset in range(0, len(sound), 7):
        path.write_bytes(sound[:offset] + bytes([sound[offset] ^ 4]) + sound[offset + 1 :])
        with pytest.raises(OutputMissing, match="is damaged at byte"):
            read_json_lines(tmp_path)


def test_an_impossible_format_and_an_address_are_refused() -> None:
    with pytest.raises(InvalidValue, match="one of parquet, jsonl"):
        Files("x", "csv")
    with pytest.raises(InvalidValue, match="addresses are not written"):
        parquet("s3://bucket/out")
