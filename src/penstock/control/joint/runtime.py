"""Several runtimes as one, for one loop; one that fails drops out and the others go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.control.joint.join import join_observations, join_plans, join_topologies, split_plan
from penstock.control.rollout import priced
from penstock.control.runtime import ActionFailed, Applied, Observation, Runtime
from penstock.model import PenstockError, Plan, Topology, diff


class JointRuntime:
    """Runtimes that share nodes, as one `Runtime`.

    A runtime that raises anything but `ActionFailed` is taken to have failed: it drops out, its
    error is kept in `failures`, and the nodes that only it used are free for the others. Call the
    loop's `tick` after a batch of any of them, one call at a time.

    Parameters
    ----------
    runtimes : mapping of str to Runtime
        By the names that their operators are told apart by.
    on_failure : callable, optional
        Gets the name of a runtime that failed, and its error.
    """

    def __init__(
        self,
        runtimes: Mapping[str, Runtime],
        on_failure: Callable[[str, Exception], None] | None = None,
    ) -> None:
        self.runtimes = dict(runtimes)
        self.failures: dict[str, Exception] = {}
        self._on_failure = on_failure
        self._plan = join_plans({name: r.plan for name, r in self.runtimes.items()})
        self._seen: dict[str, Observation] = {}
        self._batch = -1

    @property
    def topology(self) -> Topology:
        """All topologies side by side."""
        return join_topologies({name: r.topology for name, r in self._left().items()})

    @property
    def plan(self) -> Plan:
        """All plans side by side, with the cost that they were planned with together."""
        actual = join_plans({name: r.plan for name, r in self._left().items()})
        same = actual.topology == self._plan.topology and diff(self._plan, actual).empty
        return self._plan if same else actual

    def add(self, name: str, runtime: Runtime) -> None:
        """Let another runtime join, or one that failed come back."""
        self.runtimes[name] = runtime
        self.failures.pop(name, None)

    def observe(self) -> Observation:
        """Say what was measured, of those that are left."""
        seen: dict[str, Observation] = {}
        for name, runtime in tuple(self.runtimes.items()):
            try:
                seen[name] = runtime.observe()
            except Exception as error:  # noqa: BLE001 - kept, told, and the others go on
                self._drop(name, error)
        self._left()
        self._seen = seen
        joined = join_observations(seen)
        # One that drops out must not turn the count back.
        self._batch = max(self._batch, joined.batch)
        return replace(joined, batch=self._batch)

    def request_nodes(self, total: int) -> None:
        """Ask for nodes through the first that is left: they are everybody's."""
        self._one(lambda runtime: runtime.request_nodes(total))

    def vacate_nodes(self, names: tuple[str, ...], *, undo: bool = False) -> None:
        """Have nodes keep nothing of any runtime.

        Raises
        ------
        ActionFailed
            When one could not. Then none has.
        """
        try:
            self._each(lambda runtime: runtime.vacate_nodes(names, undo=undo))
        except ActionFailed:
            if not undo:
                self._each(lambda runtime: runtime.vacate_nodes(names, undo=True))
            raise

    def release_nodes(self, names: tuple[str, ...]) -> None:
        """Give up nodes in two steps: nobody keeps anything there, then one gives them up."""
        self.vacate_nodes(names)
        try:
            self._one(lambda runtime: runtime.release_nodes(names))
        except ActionFailed:
            self.vacate_nodes(names, undo=True)
            raise

    def prepare(self, plan: Plan) -> bool:
        """Have every runtime prepare its part of the plan; done when all are."""
        parts = split_plan(plan, {name: r.topology for name, r in self._left().items()})
        done = True
        for name, part in parts.items():
            try:
                done = self.runtimes[name].prepare(part) and done
            except Exception as error:  # noqa: BLE001 - kept, told, and the others go on
                self._drop(name, error)
        self._left()
        return done

    def apply(self, plan: Plan) -> Applied:
        """Give every runtime its part of the plan, if it differs from what it runs.

        Raises
        ------
        ActionFailed
            When one could not change. It keeps its plan; those before it have their new one.
        """
        parts = split_plan(plan, {name: r.topology for name, r in self._left().items()})
        took = Applied()
        for name, part in parts.items():
            runtime = self.runtimes[name]
            try:
                if diff(runtime.plan, part).empty:
                    continue
                took = took.and_then(runtime.apply(self._priced(name, part)))
            except ActionFailed as error:
                raise ActionFailed(f"{name}: {error}") from error
            except Exception as error:  # noqa: BLE001 - kept, told, and the others go on
                self._drop(name, error)
        self._left()
        self._plan = plan
        return took

    def _each(self, action: Callable[[Runtime], None]) -> None:
        """Act on all that are left; one that fails drops out."""
        for name, runtime in tuple(self._left().items()):
            try:
                action(runtime)
            except ActionFailed:
                raise
            except Exception as error:  # noqa: BLE001 - kept, told, and the others go on
                self._drop(name, error)
        self._left()

    def _one(self, action: Callable[[Runtime], None]) -> None:
        """Act on the first that is left; one that fails drops out, and the next is asked."""
        for name, runtime in tuple(self._left().items()):
            try:
                action(runtime)
            except ActionFailed:
                raise
            except Exception as error:  # noqa: BLE001 - kept, told, and the next is asked
                self._drop(name, error)
                continue
            return
        self._left()

    def _priced(self, name: str, part: Plan) -> Plan:
        seen = self._seen.get(name)
        if seen is None:
            return part
        return priced(part, self.runtimes[name].topology, seen.cluster, seen.measurements)

    def _drop(self, name: str, error: Exception) -> None:
        del self.runtimes[name]
        self.failures[name] = error
        if self._on_failure is not None:
            self._on_failure(name, error)

    def _left(self) -> dict[str, Runtime]:
        if not self.runtimes:
            why = "; ".join(f"{name}: {error}" for name, error in self.failures.items())
            raise PenstockError(f"no topology is left that runs: {why}")
        return self.runtimes
