"""What could be better about an attached query and only a person can change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock.model import Reason
from penstock.runtimes.attached.reading import Reading
from penstock.runtimes.attached.real_time import Sizing, held
from penstock.runtimes.attached.unchanged import ADVICE
from penstock.runtimes.spark.monitor import Observed


class Advisor:
    """Collects advice on one query: each is told once, and kept with its latest figures.

    Parameters
    ----------
    note : callable
        Told in a sentence what is new.
    cores : callable
        Counts the cores of all executors.
    real_time : bool
        Whether the query runs in real-time mode.
    """

    def __init__(
        self, note: Callable[[str], None], cores: Callable[[], int], *, real_time: bool
    ) -> None:
        self._note, self._cores = note, cores
        self._sizing = Sizing() if real_time else None
        self._sized = False
        self._found: dict[str, str] = {}

    @property
    def found(self) -> tuple[str, ...]:
        """All of it, as it was last seen."""
        return tuple(self._found.values())

    def submitted(self, batch: str, tasks: int) -> None:
        """Hear that a stage begins, of a query in real-time mode."""
        if self._sizing is not None:
            self._keep(self._sizing.submitted(batch, tasks, self._cores()))

    def after(
        self, observed: Observed, reading: Reading, waits: bool, reasons: Iterable[Reason]
    ) -> None:
        """Look at a batch that has ended.

        Parameters
        ----------
        waits : bool
            Whether batches end before their trigger comes.
        reasons : iterable of Reason
            Of the loop's latest decision.
        """
        for reason in reasons:
            if reason.text.startswith(ADVICE):
                self._keep({reason.text: reason.text.removeprefix(ADVICE)})
        self._keep(reading.advice(waits))
        if self._sizing is None:
            return
        if not self._sized:
            self._sized = True
            self._note(held(observed, self._cores()))
        self._sizing.add(observed)
        self._keep(self._sizing.advice())

    def _keep(self, advice: Mapping[str, str]) -> None:
        for name, text in advice.items():
            if name not in self._found:
                self._note(ADVICE + text)
            self._found[name] = ADVICE + text
