"""The simulator against the engine: three placements of one application, and how far it is off.

The costs are measured right before, on the same embedded cluster of three executors. The bounds are
factors and not differences, and wide; what they would catch is a simulator that takes the wrong
thing for the bottleneck. The errors are printed. It needs a machine that does nothing else, so it
is run by ``make measured`` and not with the others.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.runtimes.checked import checked

pytestmark = pytest.mark.measured

#: Simulated over real, or the other way round, is at most this.
THROUGHPUT_FACTOR, LATENCY_FACTOR = 1.5, 2.5

#: Placements whose real values differ by less are not ordered.
CLEAR = 1.3


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Both rates, with three placements each."""
    return dict(checked("calibration")["calibration"])


@pytest.mark.parametrize("rate", ["light", "heavy"])
def test_the_error_of_the_simulator_is_bounded(found: dict[str, Any], rate: str) -> None:
    for one in found[rate]:
        throughput = one["simulated_per_s"] / one["real_per_s"]
        latency = one["simulated_p50_ms"] / one["real_p50_ms"]
        print(
            f"{rate}, {one['rate_per_s']:,.0f} rows/s, {one['placement']}: "
            f"{one['real_per_s']:,.0f} rows/s run, {one['simulated_per_s']:,.0f} simulated "
            f"({throughput - 1:+.0%}); p50 {one['real_p50_ms']:,.0f} ms run, "
            f"{one['simulated_p50_ms']:,.0f} ms simulated ({latency - 1:+.0%})"
        )
        assert 1 / THROUGHPUT_FACTOR <= throughput <= THROUGHPUT_FACTOR, one
        assert 1 / LATENCY_FACTOR <= latency <= LATENCY_FACTOR, one


@pytest.mark.parametrize("rate", ["light", "heavy"])
@pytest.mark.parametrize("figure", ["per_s", "p50_ms"])
def test_placements_are_in_the_right_order(found: dict[str, Any], rate: str, figure: str) -> None:
    for one, other in combinations(found[rate], 2):
        low, high = sorted((one, other), key=lambda row: float(row[f"real_{figure}"]))
        if high[f"real_{figure}"] > CLEAR * low[f"real_{figure}"]:
            assert high[f"simulated_{figure}"] > low[f"simulated_{figure}"], (low, high)


def test_the_placements_differ(found: dict[str, Any]) -> None:
    """Otherwise nothing was ordered: all on one node is slower than one node for each instance."""
    together, even, _ = found["heavy"]
    assert even["real_p50_ms"] * CLEAR < together["real_p50_ms"]
