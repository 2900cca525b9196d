"""The one error of this package."""

from __future__ import annotations

from penstock.common.errors import PenstockError


class StoreError(PenstockError):
    """A metrics store that cannot be opened, read or written.

    Parameters
    ----------
    where : str
        The file or server as the user named it, a password left out.
    problem : str
        What is wrong, as the rest of a sentence that begins with the store.
    """

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"metrics store {where} {problem}")
        self.where = where
        self.problem = problem

    def __reduce__(self) -> tuple[type[StoreError], tuple[str, str]]:
        return (StoreError, (self.where, self.problem))
