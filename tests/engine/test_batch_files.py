"""A reader who follows a steady batch has few files to open."""

from __future__ import annotations

from pathlib import Path

from tests.trace_batch import files_of_a_batch

#: Files that a steady batch enters in the rooms that move it along, and in the whole package:
#: there are also the parts that it works with, such as hashes of keys, reducers and state files.
#: What no batch changes is not entered: it is worked out before. The aim was 25. These files have
#: 6,800 lines; two more of them fit into one of 350 only where they have different subjects.
OWN, ALL = 14, 29


def test_a_steady_batch_enters_few_files(tmp_path: Path) -> None:
    files = files_of_a_batch(tmp_path)
    own = [name for name in files if name.startswith(("engine/", "runtimes/"))]
    assert "engine/driver/driver.py" in own
    assert len(own) <= OWN, own
    assert len(files) <= ALL, files
