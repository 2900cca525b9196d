"""A changed pipeline goes on from a checkpoint only where that is safe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.engine.driver.fingerprint import Adoption, Fingerprint, PipelineChanged, adopt

BEFORE = Fingerprint(
    {"lines": "Lines"}, {"count": {"vertex": "count", "key": ["word"], "state": "n int64"}}
)


def changed(**values: object) -> Fingerprint:
    return replace(BEFORE, stateful={"count": {**BEFORE.stateful["count"], **values}})


def test_the_same_pipeline_goes_on() -> None:
    same = {"lines": "lines", "count": "count"}
    assert adopt(BEFORE, BEFORE) == Adoption({"count": "count"}, same)


def test_a_function_chained_behind_a_step_with_state_keeps_the_state() -> None:
    assert adopt(BEFORE, changed(vertex="count+format")).vertices == {"count": "count+format"}


def test_a_new_source_goes_on() -> None:
    assert adopt(BEFORE, replace(BEFORE, sources={"lines": "Lines", "more": "Rows"}))


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (replace(BEFORE, sources={"text": "Lines"}), "source 'lines' is gone"),
        (replace(BEFORE, sources={"lines": "Kafka"}), "source 'lines' was Lines and is Kafka"),
        (replace(BEFORE, stateful={}), "step with state 'count' is gone"),
        (changed(key=["line"]), "step with state 'count' had the key word, now line"),
        (changed(state="n double"), "step with state 'count' had the state n int64, now n double"),
        (
            replace(BEFORE, stateful={**BEFORE.stateful, "sum": BEFORE.stateful["count"]}),
            "step with state 'sum' is new",
        ),
    ],
)
def test_what_is_not_safe_is_refused_by_name(now: Fingerprint, says: str) -> None:
    with pytest.raises(PipelineChanged, match=says) as caught:
        adopt(BEFORE, now)
    assert "rename=" in str(caught.value)
    assert "forget=" in str(caught.value)


def test_a_renamed_step_takes_its_state_along() -> None:
    now = replace(
        BEFORE, stateful={"words": {"vertex": "words", "key": ["word"], "state": "n int64"}}
    )
    assert adopt(BEFORE, now, rename={"count": "words"}).vertices == {"count": "words"}
    with pytest.raises(PipelineChanged, match="'count' is gone"):
        adopt(BEFORE, now)


def test_a_forgotten_step_starts_anew() -> None:
    found = adopt(BEFORE, changed(key=["line"]), forget=["count"])
    assert found == Adoption({}, {"lines": "lines"})
    assert adopt(BEFORE, Fingerprint({"text": "Lines"}, {}), forget=["lines", "count"]).steps == {}


def test_a_misspelt_step_is_answered_with_the_near_one() -> None:
    with pytest.raises(PipelineChanged, match="did you mean 'count'"):
        adopt(BEFORE, BEFORE, forget=["cuont"])
