"""A pipeline that was changed goes on from its checkpoint only where the results stay right."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import functions as F
from penstock.engine.driver.fingerprint import PipelineChanged
from penstock.pipeline import Aggregate, Memory, Pipeline, Rows
from penstock.runtimes.local import run_locally
from penstock.state.config import StateConfig
from penstock.state.store import clear_cache

ROWS = pa.table({"k": ["a", "b"] * 6, "v": range(12)})


def counted(
    source: str = "rows",
    step: str = "count",
    by: str = "k",
    rows: int = 12,
    parallelism: int = 2,
    chained: bool = False,
    **columns: Aggregate,
) -> Pipeline:
    made = Pipeline("p").source(source, Rows(ROWS.slice(0, rows)), parallelism=parallelism)
    made = made.aggregate(step, by=by, parallelism=parallelism, reduce=columns or {"n": F.count()})
    if chained:
        made = made.select("doubled", {"k": "k", "n": pc.field("n") * 2})
    return made.sink("out", Memory())


def run(pipeline: Pipeline, root: Path, **options: object) -> list[dict[str, object]]:
    clear_cache()
    run_locally(pipeline, root=root, state_config=StateConfig("checkpoint"), **options)  # type: ignore[arg-type]
    memory = pipeline["out"].sink
    assert isinstance(memory, Memory)
    return sorted(memory.latest("k").to_pylist(), key=str)


@pytest.fixture
def half_way(tmp_path: Path) -> Path:
    """Six of twelve rows are counted."""
    run(counted(rows=6), tmp_path)
    return tmp_path


WHOLE = [{"k": "a", "n": 6}, {"k": "b", "n": 6}]


def test_the_same_pipeline_goes_on(half_way: Path) -> None:
    assert run(counted(), half_way) == WHOLE


def test_another_parallelism_goes_on(half_way: Path) -> None:
    assert run(counted(parallelism=3), half_way) == WHOLE


def test_a_function_behind_the_step_goes_on_with_its_state(half_way: Path) -> None:
    assert run(counted(chained=True), half_way) == [{"k": "a", "n": 12}, {"k": "b", "n": 12}]
    assert (
        run(
            counted(),
            half_way,
        )
        == []
    )


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (counted(step="words"), "'count' is gone"),
        (counted(source="lines"), "'rows' is gone"),
        (counted(by="v"), "had the key k, now v"),
        (counted(n=F.sum("v")), "had the state"),
    ],
    ids=["step", "source", "key", "state"],
)
def test_what_would_be_wrong_is_refused(half_way: Path, changed: Pipeline, named: str) -> None:
    with pytest.raises(PipelineChanged, match=named):
        run(changed, half_way)
    assert run(counted(), half_way) == WHOLE, "the refusal left all as it was"


def test_renamed_steps_go_on_with_their_state(half_way: Path) -> None:
    renamed = counted(source="lines", step="words")
    assert run(renamed, half_way, rename={"rows": "lines", "count": "words"}) == WHOLE
    assert not (half_way / "state" / "count").exists()
    # From then on the new names are the names.
    assert run(counted(source="lines", step="words"), half_way) == []
    with pytest.raises(PipelineChanged):
        run(counted(), half_way)


def test_forgotten_state_starts_anew(half_way: Path) -> None:
    found = run(counted(step="words"), half_way, forget=["count", "words"])
    assert found == [{"k": "a", "n": 3}, {"k": "b", "n": 3}], "only the rows that were left"


def test_a_forgotten_source_is_read_again(half_way: Path) -> None:
    found = run(counted(source="lines"), half_way, forget=["rows"])
    assert found == [{"k": "a", "n": 9}, {"k": "b", "n": 9}]
