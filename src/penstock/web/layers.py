"""The layer of each operator in a drawing of a topology. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def layers_of(names: Iterable[str], pairs: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Find the longest way to each operator; where there is a cycle, as far as it was followed.

    Examples
    --------
    >>> layers_of(["a", "b", "c"], [("a", "b"), ("b", "c"), ("a", "c")])
    {'a': 0, 'b': 1, 'c': 2}
    """
    layer = dict.fromkeys(names, 0)
    for _ in range(len(layer)):
        changed = False
        for source, target in pairs:
            wanted = min(layer.get(source, 0) + 1, len(layer))
            if layer.get(target, wanted) < wanted:
                layer[target] = wanted
                changed = True
        if not changed:
            break
    return layer
