"""What things cost: the physical model of the simulator, as one value that a file can hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any

from penstock.files import FileError
from penstock.files.document import read_document
from penstock.files.fields import Fields, number
from penstock.model import InvalidValue, TierCosts
from penstock.state.config import MODES, StateConfig

#: Fields of a file that are plain numbers of at least 0.
NUMBERS = (
    "batch_s",
    "batch_ms",
    "task_ms",
    "source_queue",
    "queue",
    "restart_s",
    "detect_s",
    "arrival_s",
    "decode_mb_s",
)
#: Fields that say how state is kept, as `penstock.state.config.StateConfig` does.
COUNTS = ("data", "parity")
TIERS = ("hop_cpu_us", "hop_us")
TIER_FIELDS = ("in_process", "in_node", "across")


@dataclass(frozen=True)
class CostProfile:
    """Costs of tuples, hops, batches, moves and failures.

    The defaults are a tuple-at-a-time engine of Storm's kind; `docs/simulator.md` says where each
    figure comes from. Nothing in here depends on a strategy.

    Examples
    --------
    >>> CostProfile(batch_s=0.5, task_ms=20).micro_batch
    True

    Parameters
    ----------
    cpu_us_per_tuple : mapping of str to float
        Measured CPU of an operator's tuple, in microseconds; others cost what the topology says.
    hop_cpu_us : TierCosts
        CPU that one tuple takes at *each* end of a hop, in microseconds: queues in a process,
        serialisation and the socket beyond it.
    hop_us : TierCosts
        Time that a tuple is under way on an idle network, in microseconds.
    batch_s : float
        Batch interval of a micro-batch engine, in seconds; 0: tuple at a time.
    batch_ms : float
        Time of a batch whatever is in it and wherever it runs, in milliseconds: scheduling, the
        commit log and the commit in the driver.
    task_ms : float
        CPU of starting and ending one task of one batch, in milliseconds.
    source_queue, queue : float
        Tuples that the queue of a source's, and of any other instance holds (Sra section 6: 10,000
        and 5,000).
    restart_s : float
        Pause of an instance that moves, besides the way of its state.
    detect_s : float
        Time until a lost node is noticed.
    arrival_s : float
        Time until a node that was asked for is there.
    decode_mb_s : float
        Speed at which lost state is restored from fragments.
    state : str
        How state is kept: ``peers``, ``checkpoint`` or ``both``, as in a run on Spark.
    data, parity : int
        Fragments that hold the state of an instance, and those that may be missing.
    """

    cpu_us_per_tuple: Mapping[str, float] = field(default_factory=dict)
    hop_cpu_us: TierCosts = field(default_factory=lambda: TierCosts(1.0, 10.0, 25.0))
    hop_us: TierCosts = field(default_factory=lambda: TierCosts(10.0, 100.0, 1000.0))
    batch_s: float = 0.0
    batch_ms: float = 0.0
    task_ms: float = 0.0
    source_queue: float = 10_000.0
    queue: float = 5_000.0
    restart_s: float = 0.5
    detect_s: float = 3.0
    arrival_s: float = 20.0
    decode_mb_s: float = 900.0
    state: str = "peers"
    data: int = 7
    parity: int = 1

    def __post_init__(self) -> None:
        owner = "a cost profile"
        for name in NUMBERS:
            value = getattr(self, name)
            least = 1.0 if name in ("source_queue", "queue") else 0.0
            if not (least <= value < float("inf")):
                raise InvalidValue(name, owner, f"a finite number of at least {least:g}", value)
        if self.decode_mb_s <= 0:
            raise InvalidValue("decode_mb_s", owner, "more than 0", self.decode_mb_s)
        for name in ("batch_ms", "task_ms"):
            value = getattr(self, name)
            if value and not self.batch_s:
                raise InvalidValue(name, owner, "0 without a batch interval", value)
        _ = self.state_config  # checks what it is made of
        for operator, value in self.cpu_us_per_tuple.items():
            if not (0 <= value < float("inf")):
                raise InvalidValue(
                    "cpu_us_per_tuple", f"operator {operator!r}", "at least 0 and finite", value
                )

    @classmethod
    def bare(cls, **others: Any) -> CostProfile:
        """Make a profile in which hops and restarts cost nothing, for checks by hand."""
        nothing = TierCosts(0.0, 0.0, 0.0)
        return cls(hop_cpu_us=nothing, hop_us=nothing, restart_s=0.0, **others)

    @classmethod
    def spark(cls) -> CostProfile:
        """Make the profile of Penstock's engine on Spark, as far as it is known.

        Two batches a second and 100 ms a task are what `penstock.engine.job_graph` plans with. What
        a hop costs a tuple of a large Arrow batch was not measured: a guess of the right size.
        """
        return cls(hop_cpu_us=TierCosts(0.5, 0.7, 1.0), batch_s=0.5, task_ms=100.0, restart_s=0.0)

    @property
    def micro_batch(self) -> bool:
        """Whether tuples wait for batches."""
        return self.batch_s > 0

    @property
    def state_config(self) -> StateConfig:
        """How state is kept, as the engine is told it."""
        return StateConfig(self.state, data=self.data, parity=self.parity)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a file; `load_costs` reads them back."""
        values: dict[str, Any] = {"cpu_us_per_tuple": dict(self.cpu_us_per_tuple)}
        for name in TIERS:
            tiers = getattr(self, name)
            values[name] = {tier: getattr(tiers, f"{tier}_us") for tier in TIER_FIELDS}
        plain = (*NUMBERS, "state", *COUNTS)
        return {**values, **{name: getattr(self, name) for name in plain}}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the profile as JSON.

        Raises
        ------
        FileError
            When the file cannot be written.
        """
        try:
            Path(path).write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise FileError(str(path), f"cannot be written: {error.strerror}") from None


def load_costs(path: str | PathLike[str]) -> CostProfile:
    """Read a cost profile from a YAML or JSON file; what it leaves out stays at the default.

    Raises
    ------
    FileError
        Names the file, the field and what is allowed.
    """
    file, default = str(path), CostProfile()
    top = Fields(file, read_document(path), "", [f.name for f in fields(CostProfile)])
    cpu = {
        name: number(top, f"cpu_us_per_tuple.{name}", value)
        for name, value in top.mapping("cpu_us_per_tuple").items()
    }
    values: dict[str, Any] = {name: _tiers(top, name, getattr(default, name)) for name in TIERS}
    values |= {name: top.number(name, getattr(default, name)) for name in NUMBERS}
    values |= {name: _whole(top, name, getattr(default, name)) for name in COUNTS}
    values["state"] = top.choice("state", {mode: mode for mode in MODES}, default.state)
    try:
        return CostProfile(cpu_us_per_tuple=cpu, **values)
    except InvalidValue as error:
        raise FileError(file, str(error)) from None


def _whole(top: Fields, name: str, default: int) -> int:
    value = top.number(name, default)
    if not float(value).is_integer():
        raise top.error(name, "a whole number", value)
    return int(value)


def _tiers(top: Fields, name: str, default: TierCosts) -> TierCosts:
    if name not in top:
        return default
    entry = Fields(top.file, top.values[name], name, TIER_FIELDS)
    values = [entry.number(tier, getattr(default, f"{tier}_us")) for tier in TIER_FIELDS]
    try:
        return TierCosts(*values)
    except InvalidValue as error:
        raise FileError(top.file, str(error), name) from None
