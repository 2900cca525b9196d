"""The same input under one strategy after another; one that fails is told, and the others go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.apps import App, apps
from penstock.model import InvalidValue, PenstockError
from penstock.pipeline.sources.rates import Profile
from penstock.report.comparison import Entry

#: Says what is being done.
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Scenario:
    """What every strategy gets.

    Parameters
    ----------
    app : str
        Application, as in `penstock.apps`.
    rate : str
        Profile of the source tuples a second.
    zipf : float
        Skew of the keys.
    seconds : float
        How long tuples come.
    nodes : int
    seed : int
    """

    app: str
    rate: str = "2000"
    zipf: float = 1.0
    seconds: float = 60.0
    nodes: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        owner = "a comparison"
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise InvalidValue("seconds", owner, "more than 0", self.seconds)
        for name, least in (("nodes", 1), ("seed", 0)):
            value = getattr(self, name)
            if value < least:
                raise InvalidValue(name, owner, f"a whole number of at least {least}", value)
        self.made.source(self.profile, zipf=self.zipf, seed=self.seed, rows=1)

    @property
    def made(self) -> App:
        """The application."""
        made: App = apps.make(self.app)
        return made

    @property
    def profile(self) -> Profile:
        """The rate over time."""
        return Profile.parse(self.rate)


#: Runs a scenario under one strategy.
Engine = Callable[[Scenario, str, Tell], Entry]


def compare(
    scenario: Scenario, names: Sequence[str], engine: Engine, tell: Callable[[str, str], None]
) -> Iterator[Entry]:
    """Run a scenario under each strategy, and give each entry as soon as it is there.

    Parameters
    ----------
    scenario : Scenario
    names : sequence of str
        Strategies.
    engine : callable
    tell : callable
        Gets the strategy at work and what is being done.
    """
    for name in names:
        tell(name, "starting")
        try:
            entry = engine(scenario, name, lambda text, name=name: tell(name, text))  # type: ignore[misc]
        except PenstockError as error:
            entry = Entry(name, failure=str(error))
        except Exception as error:  # noqa: BLE001 - told in its row, and the others go on
            entry = Entry(name, failure=f"{type(error).__name__}: {error}")
        yield entry
