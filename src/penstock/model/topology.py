"""A topology: operators, the edges between them, and what makes it sound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from penstock.common.errors import InvalidValue
from penstock.model.operator import Edge, Kind, Operator


@dataclass(frozen=True)
class Topology:
    """Operators and edges, checked when made.

    Examples
    --------
    >>> from penstock.model import Grouping
    >>> words = Topology(
    ...     "wordcount",
    ...     (Operator("lines", Kind.SOURCE, rate_per_s=1000), Operator("split", selectivity=10),
    ...      Operator("count", Kind.STATEFUL, parallelism=4)),
    ...     (Edge("lines", "split"), Edge("split", "count", Grouping.FIELDS)),
    ... )
    >>> words.layers
    (('lines',), ('split',), ('count',))

    Parameters
    ----------
    name : str
        Names the topology in plans, metrics and state.
    operators : tuple of Operator
    edges : tuple of Edge
        Two operators may be joined by several edges.
    relaxed : bool
        Accept cycles and operators that no source reaches, for planning only; they are then
        listed in `warnings`. A runtime calls `require_runnable` first.
    """

    name: str
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...] = ()
    relaxed: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        owner = f"topology {self.name!r}"
        if not self.operators:
            raise InvalidValue("operators", owner, "at least one operator", ())
        seen: set[str] = set()
        for operator in self.operators:
            if operator.name in seen:
                raise InvalidValue("operators", owner, "uniquely named", operator.name)
            seen.add(operator.name)
        for edge in self.edges:
            for end in (edge.source, edge.target):
                if end not in seen:
                    raise InvalidValue("edges", owner, f"between {_names(seen)}", end)
            if self[edge.target].kind is Kind.SOURCE:
                raise InvalidValue(
                    "edges",
                    owner,
                    "without an edge into a source",
                    f"{edge.source} -> {edge.target}",
                )
            if edge.shares is not None and len(edge.shares) != self[edge.target].parallelism:
                raise InvalidValue(
                    "shares",
                    f"edge {edge.source!r} -> {edge.target!r}",
                    f"one number for each of the {self[edge.target].parallelism} instances",
                    edge.shares,
                )
        if not any(operator.kind is Kind.SOURCE for operator in self.operators):
            raise InvalidValue("operators", owner, "a set with at least one source", _names(seen))
        if not self.relaxed:
            self.require_runnable()

    def __getitem__(self, name: str) -> Operator:
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Operator]:
        return {operator.name: operator for operator in self.operators}

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Position of each operator in `operators`."""
        return {operator.name: i for i, operator in enumerate(self.operators)}

    @property
    def sources(self) -> tuple[Operator, ...]:
        """The operators that read from outside."""
        return tuple(o for o in self.operators if o.kind is Kind.SOURCE)

    @property
    def parallelism(self) -> Mapping[str, int]:
        """Instances of each operator."""
        return {operator.name: operator.parallelism for operator in self.operators}

    def upstream(self, name: str) -> tuple[str, ...]:
        """Operators that `name` reads from, each once."""
        return tuple(dict.fromkeys(e.source for e in self.edges if e.target == name))

    @cached_property
    def feedback(self) -> tuple[Edge, ...]:
        """Edges that close a cycle, found depth first from the sources."""
        return tuple(edge for edge, _ in self._walk)

    @cached_property
    def cycle(self) -> tuple[str, ...]:
        """One cycle as the names along it, the first repeated at the end; empty without one."""
        return self._walk[0][1] if self._walk else ()

    @cached_property
    def unreachable(self) -> tuple[str, ...]:
        """Operators that no source reaches."""
        reached = {operator.name for operator in self.sources}
        frontier = list(reached)
        successors = self._successors
        while frontier:
            for edge in successors[frontier.pop()]:
                if edge.target not in reached:
                    reached.add(edge.target)
                    frontier.append(edge.target)
        return tuple(o.name for o in self.operators if o.name not in reached)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What stands in the way of running this topology, in sentences."""
        return tuple(str(problem) for problem in self._problems())

    def require_runnable(self) -> None:
        """Raise `InvalidValue` on a cycle or an operator that no source reaches."""
        for problem in self._problems():
            raise problem

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Operators in topological order; feedback edges are not followed."""
        return tuple(name for layer in self.layers for name in layer)

    @cached_property
    def layers(self) -> tuple[tuple[str, ...], ...]:
        """Operators by depth: the longest path from a source, feedback edges not followed."""
        forward = self.forward_edges
        waiting = {operator.name: 0 for operator in self.operators}
        for edge in forward:
            waiting[edge.target] += 1
        layers: list[tuple[str, ...]] = []
        ready = [name for name, count in waiting.items() if count == 0]
        while ready:
            layers.append(tuple(ready))
            done = set(ready)
            freed: list[str] = []
            for edge in forward:
                if edge.source in done:
                    waiting[edge.target] -= 1
                    if waiting[edge.target] == 0:
                        freed.append(edge.target)
            ready = sorted(freed, key=self.index.__getitem__)
        return tuple(layers)

    @cached_property
    def forward_edges(self) -> tuple[Edge, ...]:
        """The edges without those that close a cycle."""
        closing = {id(edge) for edge in self.feedback}
        return tuple(edge for edge in self.edges if id(edge) not in closing)

    def with_parallelism(self, parallelism: Mapping[str, int]) -> Topology:
        """Return the same topology with other numbers of instances.

        Shares of an edge into an operator whose parallelism changes are dropped: they were those
        of instances that no longer exist.
        """
        operators = tuple(
            replace(o, parallelism=parallelism.get(o.name, o.parallelism)) for o in self.operators
        )
        changed = {
            new.name for new, old in zip(operators, self.operators, strict=True) if new != old
        }
        if not changed:
            return self
        edges = tuple(
            replace(e, shares=None) if e.target in changed and e.shares else e for e in self.edges
        )
        return replace(self, operators=operators, edges=edges)

    @cached_property
    def _successors(self) -> Mapping[str, Sequence[Edge]]:
        successors: dict[str, list[Edge]] = {operator.name: [] for operator in self.operators}
        for edge in self.edges:
            successors[edge.source].append(edge)
        return successors

    @cached_property
    def _walk(self) -> tuple[tuple[Edge, tuple[str, ...]], ...]:
        """Edges that reach back into the current path, each with the cycle that it closes."""
        successors = self._successors
        closing: list[tuple[Edge, tuple[str, ...]]] = []
        finished: set[str] = set()
        roots = [o.name for o in self.sources] + [o.name for o in self.operators]
        for root in roots:
            if root in finished:
                continue
            path: list[str] = [root]
            stack = [iter(successors[root])]
            while stack:
                edge = next(stack[-1], None)
                if edge is None:
                    finished.add(path.pop())
                    stack.pop()
                elif edge.target in path:
                    closing.append((edge, (*path[path.index(edge.target) :], edge.target)))
                elif edge.target not in finished:
                    path.append(edge.target)
                    stack.append(iter(successors[edge.target]))
        return tuple(closing)

    def _problems(self) -> Iterable[InvalidValue]:
        owner = f"topology {self.name!r}"
        if self.cycle:
            yield InvalidValue("edges", owner, "without a cycle", " -> ".join(self.cycle))
        if self.unreachable:
            yield InvalidValue(
                "operators", owner, "all reachable from a source", ", ".join(self.unreachable)
            )


def _names(names: Iterable[str]) -> str:
    """List names for a message, the long tail cut."""
    ordered = sorted(names)
    shown = ", ".join(ordered[:8])
    return shown if len(ordered) <= 8 else f"{shown}, ... ({len(ordered)} in all)"
