"""The record of an operator in one batch: its hottest keys, its state, its watermark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.store.field_checks import FieldChecks


@dataclass(frozen=True)
class OperatorRecord:
    """What is known of one operator as a whole in one batch.

    Parameters
    ----------
    run : str
    batch : int
    operator : str
    late_rows : int
        Rows that came too late for its windows.
    watermark_us : int or None
        Event time up to which its windows are closed, in microseconds since 1970.
    hot_keys : sequence of mapping
        The keys that it received most of: ``hash`` (as text, JSON has no such integers), ``name``
        or None, and ``rows``.
    state : sequence of mapping
        Of each instance: ``size_bytes`` by its backup, ``data`` and ``parity`` fragments, and
        ``fragments``, the node of each; "" is lost, "(driver)" is held by the driver. Empty where
        it was not looked at in this batch.
    """

    run: str
    batch: int
    operator: str
    late_rows: int = 0
    watermark_us: int | None = None
    hot_keys: Sequence[dict[str, Any]] = ()
    state: Sequence[dict[str, Any]] = ()

    def __post_init__(self) -> None:
        check = FieldChecks(self, "an operator's record")
        check.names("run", "operator")
        check.counts("batch", "late_rows")
        for name in ("hot_keys", "state"):
            object.__setattr__(self, name, list(getattr(self, name)))
        check.json("hot_keys", "state", kind=list)
