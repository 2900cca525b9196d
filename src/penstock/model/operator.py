"""Operators and the edges between them: what a topology is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from penstock.common.errors import InvalidValue


class Kind(str, Enum):
    """What an operator does with history: none to read, none to keep, or some to keep."""

    SOURCE = "source"
    STATELESS = "stateless"
    STATEFUL = "stateful"


class Grouping(str, Enum):
    """How the tuples of an edge are distributed over the target's instances (Sra section 2.1).

    ``shuffle`` and ``none`` spread evenly; ``fields`` sends a key to one instance;
    ``partial-key`` to the lighter of two; ``hot-key`` spreads hot keys over all and sends others to
    one; ``all`` copies to every instance; ``global`` sends
    everything to the first; ``direct`` and ``custom`` let the sender decide;
    ``local-or-shuffle`` prefers targets in the sender's own process.
    """

    SHUFFLE = "shuffle"
    FIELDS = "fields"
    PARTIAL_KEY = "partial-key"
    HOT_KEY = "hot-key"
    ALL = "all"
    GLOBAL = "global"
    NONE = "none"
    DIRECT = "direct"
    LOCAL_OR_SHUFFLE = "local-or-shuffle"
    CUSTOM = "custom"


#: Groupings whose targets receive unequal parts when the keys, or the sender, are skewed.
SHAREABLE = frozenset({Grouping.FIELDS, Grouping.DIRECT, Grouping.CUSTOM})


def _check_number(parameter: str, owner: str, value: float, *, least: float = 0.0) -> None:
    if (
        not isinstance(value, (int, float))
        or isinstance(value, bool)
        or not math.isfinite(value)
        or value < least
    ):
        raise InvalidValue(parameter, owner, f"a finite number of at least {least:g}", value)


@dataclass(frozen=True)
class Operator:
    """One function of the application.

    Parameters
    ----------
    name : str
        Unique within the topology.
    kind : Kind
        Source, stateless or stateful.
    parallelism : int
        Number of instances.
    cpu_us_per_tuple : float
        CPU time that one tuple costs, in microseconds.
    cpu_pct : float
        CPU that each instance takes whatever the rate is, in percent of one core.
    mem_mb : float
        Memory of each instance without its state, in MB.
    io_bytes_per_tuple : float
        Disk traffic of one tuple, in bytes.
    selectivity : float
        Tuples emitted on each outgoing edge for one tuple received, or read by a source.
    state_mb : float
        State of the whole operator, in MB, shared by its instances.
    tuple_bytes : float
        Size of an emitted tuple, in bytes.
    rate_per_s : float or None
        Tuples per second that a source reads, all instances together. None: not known.
    complexity : float
        Weight of one tuple when a node's measured use is attributed to instances (Ms eq. 6-8).
    splittable : bool
        Whether tuples of one key may be processed in several instances, because what follows
        merges their results: only then may a plan split a hot key.
    """

    name: str
    kind: Kind = Kind.STATELESS
    parallelism: int = 1
    cpu_us_per_tuple: float = 0.0
    cpu_pct: float = 0.0
    mem_mb: float = 0.0
    io_bytes_per_tuple: float = 0.0
    selectivity: float = 1.0
    state_mb: float = 0.0
    tuple_bytes: float = 100.0
    rate_per_s: float | None = None
    complexity: float = 1.0
    splittable: bool = False

    @property
    def routed(self) -> bool:
        """Whether its keys belong to instances, so that a routing table distributes them."""
        return self.kind is Kind.STATEFUL or self.splittable

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidValue("name", "an operator", "a non-empty string", self.name)
        owner = f"operator {self.name!r}"
        if (
            not isinstance(self.parallelism, int)
            or isinstance(self.parallelism, bool)
            or self.parallelism < 1
        ):
            raise InvalidValue(
                "parallelism", owner, "a whole number of at least 1", self.parallelism
            )
        for parameter in (
            "cpu_us_per_tuple",
            "cpu_pct",
            "mem_mb",
            "io_bytes_per_tuple",
            "selectivity",
            "state_mb",
            "tuple_bytes",
            "complexity",
        ):
            _check_number(parameter, owner, getattr(self, parameter))
        if self.rate_per_s is not None:
            if self.kind is not Kind.SOURCE:
                raise InvalidValue(
                    "rate_per_s", owner, "left out, because only a source has one", self.rate_per_s
                )
            _check_number("rate_per_s", owner, self.rate_per_s)
        if self.state_mb and self.kind is not Kind.STATEFUL:
            raise InvalidValue(
                "state_mb", owner, "0 unless the operator is stateful", self.state_mb
            )
        if self.splittable not in (False, True):
            raise InvalidValue("splittable", owner, "true or false", self.splittable)
        if self.splittable and self.kind is Kind.SOURCE:
            raise InvalidValue("splittable", owner, "false for a source", self.splittable)


@dataclass(frozen=True)
class Edge:
    """A stream from one operator to another.

    Parameters
    ----------
    source, target : str
        Names of the operators.
    grouping : Grouping
        How tuples are distributed over the target's instances.
    shares : tuple of float or None
        Part of the stream that each of the target's instances receives, for ``fields``, ``direct``
        and ``custom``. None: equal parts.
    """

    source: str
    target: str
    grouping: Grouping = Grouping.SHUFFLE
    shares: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.shares is None:
            return
        owner = f"edge {self.source!r} -> {self.target!r}"
        if self.grouping not in SHAREABLE:
            allowed = "left out unless the grouping is " + ", ".join(
                sorted(g.value for g in SHAREABLE)
            )
            raise InvalidValue("shares", owner, allowed, self.shares)
        for share in self.shares:
            _check_number("shares", owner, share)
        if not math.isclose(sum(self.shares), 1.0, rel_tol=1e-6):
            raise InvalidValue("shares", owner, "numbers that sum to 1", self.shares)
