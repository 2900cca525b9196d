"""The commit that a driver starts from: the newest one that is undamaged, with all of its state.

A damaged commit, or one whose state in the checkpoint is missing or damaged, is set aside if the
commit before it can be used: the batches since are run again with the ranges that they had, and
sinks replace what they wrote. If none can be used, the run does not start: it would compute
something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.engine.driver.commit_log import CommitLog, CommitLogDamaged
from penstock.state.config import StateConfig
from penstock.state.files.filesystem import is_address
from penstock.state.files.local import LocalSegments
from penstock.state.versions import StateLost


def restore_point(commit_log: CommitLog, state_config: StateConfig) -> dict[str, Any]:
    """Return the entry of the newest commit that can be used; {} before the first.

    Raises
    ------
    CommitLogDamaged, StateLost
        When there are commits and none of them can be used; of the newest one.
    """
    unusable: dict[int, CommitLogDamaged | StateLost] = {}
    for number in commit_log.commits():
        try:
            entry = commit_log.committed(number)
            if entry is None:
                continue
            _verify(entry.get("state", {}), state_config)
        except (CommitLogDamaged, StateLost) as error:
            unusable[number] = error
            continue
        if unusable:
            commit_log.roll_back({damaged: str(why) for damaged, why in unusable.items()})
        return entry
    if unusable:
        raise unusable[max(unusable)]
    return {}


def _verify(state: Mapping[str, Any], state_config: StateConfig) -> None:
    """Verify the files of a committed state, as far as the driver reaches them.

    State at an address is not read through here; tasks verify it when they load it.
    """
    if not state_config.in_checkpoint or is_address(state_config.shared):
        return
    files = LocalSegments(state_config.shared)
    for operator, known in state.items():
        for instance, version in enumerate(known["versions"]):
            for segment in files.chain(operator, instance, version):
                files.read_bytes(operator, instance, segment)
