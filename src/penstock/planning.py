"""Plan a topology: the function for notebooks and scripts, which the command uses too."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from penstock.common.near_miss import near_miss
from penstock.files import load_cluster, load_measurements, load_topology
from penstock.model import (
    Cluster,
    InvalidValue,
    Keep,
    Measurements,
    Plan,
    Refused,
    Topology,
    expand,
)
from penstock.model.sizing import sized_for
from penstock.strategies import Request, Strategy, strategies

#: Asked for instead of a name, stands for every registered strategy.
ALL = "all"

#: Tuples per second over all edges above which a topology is taken for a mistake.
MOST_PER_S = 1e15


@dataclass(frozen=True)
class PlanOutcome:
    """What one strategy answered.

    Parameters
    ----------
    strategy : str
    seconds : float
        Time that the strategy took; the expansion of the topology, which all share, is left out.
    plan : Plan or None
        None when the strategy made none.
    declined : tuple of str
        Why there is no plan; empty when there is one.
    """

    strategy: str
    seconds: float
    plan: Plan | None
    declined: tuple[str, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether there is a plan and it breaks no limit."""
        return self.plan is not None and self.plan.feasible

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with the keys that ``penstock plan --json`` promises."""
        plan, cost = self.plan, self.plan.after if self.plan else None
        return {
            "strategy": self.strategy,
            "seconds": round(self.seconds, 6),
            "feasible": self.feasible,
            "infeasible": [str(v) for v in plan.infeasible] if plan else list(self.declined),
            "nodes_used": cost.nodes_used if cost else None,
            "cut_share": cost.cut_share if cost else None,
            "in_process_share": cost.in_process_share if cost else None,
            "max_node_load": cost.max_node_load if cost else None,
            "lin": cost.lin if cost else None,
            "reasons": [str(r) for r in plan.reasons] if plan else list(self.declined),
            "placement": {
                operator: [{"node": spot.node, "process": spot.process} for spot in spots]
                for operator, spots in plan.placement.items()
            }
            if plan
            else None,
        }


def plan(
    topology: Topology | str | PathLike[str],
    cluster: Cluster | str | PathLike[str] | int,
    strategy: str | Strategy = "penstock",
    *,
    seed: int = 0,
    measurements: Measurements | str | PathLike[str] | None = None,
    running: Plan | None = None,
    now_s: float = 0.0,
    exact_nodes: bool = False,
    **parameters: Any,
) -> Plan | Keep:
    """Plan a topology on a cluster with one strategy.

    Examples
    --------
    >>> from penstock.model import Edge, Kind, Operator, Topology
    >>> words = Topology(
    ...     "words", (Operator("lines", Kind.SOURCE, 2), Operator("split", parallelism=4)),
    ...     (Edge("lines", "split"),))
    >>> made = plan(words, 3)
    >>> made.feasible, made.after.nodes_used
    (True, 1)
    >>> print(made.reasons[0])
    1 of 3 nodes hold it with a load of 0.80

    Parameters
    ----------
    topology : Topology or path
    cluster : Cluster, path or int
        A number stands for so many equal nodes on which the topology fits; see
        `penstock.model.sizing.sized_for`.
    strategy : str or Strategy
        Name of a registered strategy, or one that you made yourself; Penstock's own by default.
    seed : int
        Equal seeds give equal plans.
    measurements : Measurements or path, optional
        What was measured; it replaces what the topology only estimates.
    running : Plan, optional
        The plan that runs now. A strategy may then answer `Keep`; without one it never does.
    now_s : float
        Time of the request, in seconds from any fixed start.
    exact_nodes : bool
        Have the strategy use every node, so that cuts can be compared.
    **parameters
        Parameters of the strategy, when it is given by name.

    Raises
    ------
    Refused
        When the strategy does not take requests of this kind or size.
    InvalidValue, FileError
        When an argument or a file says something that is not allowed.
    """
    made = _made(strategy, parameters)
    base = request(
        topology,
        cluster,
        seed=seed,
        measurements=measurements,
        running=running,
        now_s=now_s,
        exact_nodes=exact_nodes,
    )
    return made.plan(base)


def request(
    topology: Topology | str | PathLike[str],
    cluster: Cluster | str | PathLike[str] | int,
    *,
    seed: int = 0,
    measurements: Measurements | str | PathLike[str] | None = None,
    running: Plan | None = None,
    now_s: float = 0.0,
    exact_nodes: bool = False,
) -> Request:
    """Load and check what a strategy is asked; the parameters are those of `plan`."""
    if not isinstance(topology, Topology):
        topology = load_topology(topology)
    if measurements is not None and not isinstance(measurements, Measurements):
        measurements = load_measurements(measurements, topology)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InvalidValue("seed", "a request", "a whole number of at least 0", seed)
    _require_moderate(topology, measurements)
    if isinstance(cluster, int):
        cluster = sized_for(expand(topology, measurements), cluster)
    elif not isinstance(cluster, Cluster):
        cluster = load_cluster(cluster)
    return Request(
        topology=topology,
        cluster=cluster,
        measurements=measurements,
        running=running,
        now_s=now_s,
        rng=np.random.default_rng(seed),
        exact_nodes=exact_nodes,
    )


def ask(base: Request, strategy: str, seed: int = 0) -> PlanOutcome:
    """Ask one strategy; a refusal is an outcome, not an error.

    Every strategy gets a generator of its own, so that its plan does not depend on which others
    are asked.
    """
    made = _made(strategy, {})
    own = dataclasses.replace(base, rng=np.random.default_rng(seed))
    # The expansion is common to all strategies, so it does not count as time of this one.
    _ = own.graph
    start_s = time.perf_counter()
    try:
        answer: Plan | Keep | Refused = made.plan(own)
    except Refused as error:
        answer = error
    seconds = time.perf_counter() - start_s
    if isinstance(answer, Plan):
        return PlanOutcome(strategy, seconds, answer)
    if isinstance(answer, Keep):
        return PlanOutcome(strategy, seconds, None, tuple(str(r) for r in answer.reasons))
    return PlanOutcome(strategy, seconds, None, (str(answer),))


def chosen(names: str) -> tuple[str, ...]:
    """Names of the strategies that a comma-separated list asks for; ``all`` is every one.

    Examples
    --------
    >>> chosen("even,evn")
    Traceback (most recent call last):
    ...
    penstock.common.errors.InvalidValue: parameter strategy of a request must be all or from \
'penstock strategies', got 'evn'; did you mean 'even'?
    """
    known = strategies.names()
    asked = [name for part in names.split(",") if (name := part.strip())]
    if not asked:
        raise InvalidValue("strategy", "a request", "all or a name", names)
    for name in asked:
        if name != ALL and name not in known:
            raise InvalidValue(
                "strategy",
                "a request",
                "all or from 'penstock strategies'",
                name,
                near_miss(name, known),
            )
    return known if ALL in asked else tuple(dict.fromkeys(asked))


def _made(strategy: str | Strategy, parameters: dict[str, Any]) -> Strategy:
    if not isinstance(strategy, str):
        if parameters:
            raise InvalidValue(
                "parameters", "a request", "left out when the strategy is made already", parameters
            )
        return strategy
    part = strategies.get(strategy)
    fields = dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()
    known = [field.name for field in fields if field.init]
    for name in parameters:
        if name not in known:
            allowed = f"one of {', '.join(known)}" if known else "left out, there are none"
            raise InvalidValue("parameters", f"strategy {strategy!r}", allowed, name)
    made: Strategy = part(**parameters)
    return made


def _require_moderate(topology: Topology, measurements: Measurements | None) -> None:
    """Refuse selectivities whose product along a path would leave the range of numbers."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = expand(topology, measurements).total_rate
    if not total <= MOST_PER_S:
        raise InvalidValue(
            "operators",
            f"topology {topology.name!r}",
            f"with rates and selectivities that give at most {MOST_PER_S:g} tuples/s in all",
            f"{total:g} tuples/s",
        )
