"""Contract suites that every strategy and part must pass, third parties' too.

Run a whole suite, or parametrise over its single checks so that a failure names the check:

.. code-block:: python

    import pytest
    from penstock.testing import STRATEGY_CHECKS, check_strategy

    def test_mine():
        check_strategy(MyStrategy())

    @pytest.mark.parametrize("check", STRATEGY_CHECKS.values(), ids=STRATEGY_CHECKS)
    def test_mine_in_parts(check):
        check(MyStrategy())

A check returns nothing, or raises `ContractBroken` with a sentence that says what was promised. The
checks named ``generated`` need hypothesis; `penstock.testing.generate` has its strategies.
"""

from penstock.testing.broken import ContractBroken
from penstock.testing.codec_checks import CODEC_CHECKS, check_codec
from penstock.testing.fake_runtime import FakeRuntime
from penstock.testing.partitioner_checks import PARTITIONER_CHECKS, check_partitioner
from penstock.testing.placer_checks import PLACER_CHECKS, check_placer
from penstock.testing.runtime_checks import RUNTIME_CHECKS, Driven, check_runtime
from penstock.testing.scenarios import SCENARIOS
from penstock.testing.strategy_checks import STRATEGY_CHECKS, check_strategy

__all__ = [
    "CODEC_CHECKS",
    "PARTITIONER_CHECKS",
    "PLACER_CHECKS",
    "RUNTIME_CHECKS",
    "SCENARIOS",
    "STRATEGY_CHECKS",
    "ContractBroken",
    "Driven",
    "FakeRuntime",
    "check_codec",
    "check_partitioner",
    "check_placer",
    "check_runtime",
    "check_strategy",
]
