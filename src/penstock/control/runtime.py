"""What the loop needs of whatever runs a topology: Spark and the simulator both offer this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from penstock.model import Cluster, Measurements, PenstockError, Plan, Topology

#: Nodes that could be had are called this and a number, until they are there under their own name.
SPARE = "spare-"


class ActionFailed(PenstockError):
    """An action did not work; what ran before it still runs."""


@dataclass(frozen=True, eq=False)
class Observation:
    """What a runtime shows after a batch; taking it changes nothing.

    Parameters
    ----------
    now_s : float
        Stream time, in seconds.
    batch : int
        The last committed batch.
    cluster : Cluster
        Nodes that are there. One that was lost is not in it.
    measurements : Measurements or None
        Of the batches since the plan last changed, at most a window of them; None while there are
        too few. The use of a node counts all that runs on it: what its instances do not account for
        is what others take. Leave it out where nodes share a machine and cannot be told apart.
    batch_ms : float
        Time that a batch takes, over the same window.
    throughput_per_s : float
        Source tuples a second that were processed.
    arriving_per_s : float
        Source tuples a second that came in the last few batches: it leads the window, and counts
        what nodes that are full do not get to. 0 when not known.
    queue_length : int
        Source tuples that wait.
    latency_ms : mapping of str to float
        ``p50``, ``p95``, ``p99``; empty while nothing was committed.
    remote_share : float or None
        Part of the tuples, or bytes, that crossed nodes.
    """

    now_s: float
    batch: int
    cluster: Cluster
    measurements: Measurements | None = None
    batch_ms: float = 0.0
    throughput_per_s: float = 0.0
    arriving_per_s: float = 0.0
    queue_length: int = 0
    latency_ms: Mapping[str, float] = field(default_factory=dict)
    remote_share: float | None = None


@dataclass(frozen=True)
class Applied:
    """What a change took.

    Parameters
    ----------
    seconds : float
        Time that the stream stood still for it.
    state_bytes, precopied_bytes : int
        State that was migrated in that time, and state that was pre-copied.
    inband_bytes : int
        State that comes with the next batch, about.
    left : bool
        Whether more of it is to be made.
    """

    seconds: float = 0.0
    state_bytes: int = 0
    precopied_bytes: int = 0
    inband_bytes: int = 0
    left: bool = False

    def and_then(self, other: Applied) -> Applied:
        """Add what another change took."""
        return Applied(
            self.seconds + other.seconds,
            self.state_bytes + other.state_bytes,
            self.precopied_bytes + other.precopied_bytes,
            self.inband_bytes + other.inband_bytes,
            self.left or other.left,
        )


class Runtime(Protocol):
    """Something that runs one topology under a plan."""

    @property
    def topology(self) -> Topology:
        """What is planned; parallelism as declared, not as it runs."""
        ...

    @property
    def plan(self) -> Plan:
        """The plan of the next batch."""
        ...

    def observe(self) -> Observation:
        """Say what was measured."""
        ...

    def request_nodes(self, total: int) -> None:
        """Ask for nodes until there are so many; they show up in later observations.

        Raises
        ------
        ActionFailed
            When the cluster manager cannot do that.
        """
        ...

    def vacate_nodes(self, names: tuple[str, ...], *, undo: bool = False) -> None:
        """Have nodes that hold no instance keep nothing else either, before they are given up.

        Where several topologies share nodes, each has something there, and one gives them up.

        Parameters
        ----------
        names : tuple of str
        undo : bool
            They stay: use them as before.

        Raises
        ------
        ActionFailed
            When they hold instances, or what they keep could not be moved.
        """
        ...

    def release_nodes(self, names: tuple[str, ...]) -> None:
        """Give up nodes that hold no instance any more; what else they keep is moved first.

        Raises
        ------
        ActionFailed
            When the cluster manager cannot do that.
        """
        ...

    def prepare(self, plan: Plan) -> bool:
        """Copy the state that a plan moves ahead while batches go on, and say whether that is done.

        Call it after each batch until it is, and `apply` then; or sooner, and more is moved while
        the stream stands still. Preparing another plan ends it, as one that moves nothing does. It
        changes nothing that is in force, and it does not fail: what cannot be copied is `apply`'s.
        """
        ...

    def apply(self, plan: Plan) -> Applied:
        """Use a plan from the next batch on, carrying the state that it moves.

        One that moves much may be made in portions: as long as something is `Applied.left`, what is
        in force is on the way to it. Call it again after the next batch then.

        Raises
        ------
        ActionFailed
            When the state could not be migrated. The plan before it is still in force.
        """
        ...
