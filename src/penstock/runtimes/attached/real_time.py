"""How many cores a query in real-time mode holds, and how many it needs. Pure.

The stages of such a query run all at once, each task for as long as its batch lasts, so that every
task holds a core the whole time, whatever it computes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from penstock.runtimes.spark.monitor import Observed
from penstock.store.records import InstanceRecord

#: Batches that are looked back on; the first one compiles code and is left out.
KEPT, FIRST = 5, 1

#: Part of the time that a task may compute without rows having to wait for it, and the part from
#: which on they do.
COMFORTABLE, FULL = 0.5, 0.8

#: Times the mean of its stage from which on a task is the heavy one.
HEAVY = 2.0

#: Seconds of a stage's tasks, by its name and their number.
Busy = Mapping[str, Mapping[int, float]]


class Sizing:
    """What the tasks of a query in real-time mode do with the cores that they hold."""

    def __init__(self) -> None:
        self._batches: deque[Busy] = deque(maxlen=KEPT)
        self._left_out = 0
        self._begun: tuple[str, int] = ("", 0)

    def submitted(self, batch: str, tasks: int, cores: int) -> dict[str, str]:
        """Hear that a stage begins; say so where its batch needs more cores than there are."""
        before = self._begun[1] if self._begun[0] == batch else 0
        self._begun = (batch, before + tasks)
        wanted = self._begun[1]
        if wanted <= cores:
            return {}
        return {
            "cores": f"its stages run all at once and need {wanted} cores, one for each task, and "
            f"there are {cores}: rows wait until the others are done"
        }

    def add(self, observed: Observed) -> None:
        """Take note of a batch that has ended."""
        if self._left_out < FIRST:
            self._left_out += 1
            return
        self._batches.append(_busy(observed.instances))

    def advice(self) -> dict[str, str]:
        """Say which stages hold more cores than they use, and which tasks rows wait for."""
        if len(self._batches) < KEPT:
            return {}
        return dict(_advice(self._batches))


def held(observed: Observed, cores: int) -> str:
    """Say how many cores a query holds."""
    tasks: dict[str, int] = {}
    for one in observed.instances:
        tasks[one.operator] = tasks.get(one.operator, 0) + 1
    parts = ", ".join(f"{count} of {name}" for name, count in tasks.items())
    return (
        f"in real-time mode its {sum(tasks.values())} tasks ({parts}) hold as many of the {cores} "
        "cores as long as it runs; Penstock measures and advises, and moves nothing"
    )


def _busy(instances: Sequence[InstanceRecord]) -> Busy:
    """Part of the time that each task computes."""
    found: dict[str, dict[int, float]] = {}
    for one in instances:
        if one.run_ms:
            found.setdefault(one.operator, {})[one.index] = (one.cpu_ms or 0.0) / one.run_ms
    return found


def _advice(batches: Sequence[Busy]) -> Iterator[tuple[str, str]]:
    for stage, last in batches[-1].items():
        seen = [own for batch in batches if len(own := batch.get(stage, {})) == len(last)]
        mean = {n: sum(own.get(n, 0.0) for own in seen) / len(seen) for n in last}
        count, total = len(mean), sum(mean.values())
        busiest = max(mean, key=lambda number: mean[number])
        wanted = max(1, math.ceil(total / COMFORTABLE))
        if mean[busiest] >= FULL:
            heavy = count > 1 and mean[busiest] >= HEAVY * total / count
            why = "it has far more to do than the others" if heavy else "more tasks would share it"
            yield (
                f"full {stage}",
                f"task {busiest} of {stage} computes for {mean[busiest]:.0%} of the time, so that "
                f"rows wait for it: {why}",
            )
        elif wanted <= count // 2:
            yield (
                f"lean {stage}",
                f"the {count} tasks of {stage} hold as many cores and compute for "
                f"{total / count:.0%} of the time: {wanted} would do",
            )
