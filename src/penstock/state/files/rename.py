"""State of an operator that gets another name."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from penstock.common.errors import PenstockError
from penstock.state.files.filesystem import folder_name, is_address, make_folder, sync_folder


def copy_operator(root: str | Path, old: str, new: str, *, sync: bool) -> None:
    """Let the state of an operator be found under another name, too; files are not copied."""
    if is_address(root):
        raise PenstockError(
            f"the state of {old!r} lies at {root}, where it cannot be renamed to {new!r}; keep the "
            "old name, or forget the state"
        )
    source, target = Path(root) / folder_name(old), Path(root) / folder_name(new)
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        if file.name.startswith("."):
            continue
        other = target / file.relative_to(source)
        make_folder(other.parent, sync=sync)
        other.unlink(missing_ok=True)
        os.link(file, other)
        if sync:
            sync_folder(other.parent)


def remove_operator(root: str | Path, old: str) -> None:
    """Remove the state of an operator that has another name now."""
    if not is_address(root):
        shutil.rmtree(Path(root) / folder_name(old), ignore_errors=True)
