"""How the state of a run is kept, and the folders that a node keeps it in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from penstock.common.errors import InvalidValue
from penstock.state.files.filesystem import is_address

#: Where state survives the loss of a node: with peers in fragments, in a checkpoint, or in both.
MODES = ("peers", "checkpoint", "both")

#: Folders of a node: for the state of its instances, and for pre-copied state that no instance uses
#: yet. State that arrives with a batch gets a folder of its own whose name begins with the third.
STATE, PRECOPIED, INCOMING = "state", "precopied", "incoming-"


@dataclass(frozen=True)
class StateConfig:
    """How the state of a run is kept.

    Parameters
    ----------
    mode : str
        One of `MODES`.
    shared : str
        The checkpoint's folder for state, for ``checkpoint`` and ``both``: a folder that all
        workers reach, or an address as in `penstock.state.files.filesystem`. A relative folder is
        meant relative to the working folder of the process that makes this object.
    local : str
        Folder for state on a node. A relative one lies in the working folder of the executor.
    data, parity : int
        Data fragments that a segment is cut into, and parity fragments that are added to them. As
        many fragments as there are parity fragments may be lost, if there are enough nodes.
    every : int
        Batches after which the driver gives the changes that it holds to backup nodes. With 1 every
        batch stores its fragments itself.
    memory_mb : float
        Memory for the state of one instance. State that is larger than a quarter of it is mapped
        from its file instead of loaded into memory.
    sync : bool
        Flush what a commit refers to, in the checkpoint, to the disk before the commit, so that it
        survives a loss of power. Files of nodes are not flushed: they go with their process.
    """

    mode: str = "checkpoint"
    shared: str = ""
    local: str = ""
    data: int = 7
    parity: int = 1
    every: int = 8
    memory_mb: float = 256.0
    sync: bool = True

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InvalidValue("state", "a run", "one of " + ", ".join(MODES), self.mode)
        for name, least in (("data", 1), ("parity", 0), ("every", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                allowed = f"a whole number of at least {least}"
                raise InvalidValue(name, "the state config", allowed, value)
        if self.shared and not is_address(self.shared):
            object.__setattr__(self, "shared", str(Path(self.shared).absolute()))
        if not self.memory_mb > 0:
            raise InvalidValue("memory_mb", "the state config", "more than 0", self.memory_mb)

    @cached_property
    def by_peers(self) -> bool:
        """Whether nodes keep state, and fragments of the state of others."""
        return self.mode != "checkpoint"

    @cached_property
    def in_checkpoint(self) -> bool:
        """Whether the checkpoint has the state."""
        return self.mode != "peers"
