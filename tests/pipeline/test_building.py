"""What is refused while a pipeline is written, and in which words."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock
from penstock import functions as F
from penstock.common.errors import UnknownKeyword
from penstock.model import Grouping, InvalidValue, NotAllowed
from penstock.pipeline import (
    Console,
    Csv,
    Files,
    Generator,
    Hints,
    Keys,
    Lines,
    Link,
    Memory,
    Pipeline,
    Replay,
    Rows,
    Split,
    Text,
    json_lines,
    parquet,
)

TABLE = pa.table({"word": ["a"], "n": [1], "x": [0.5]})
STATE = pa.schema([("n", pa.int64())])


def source() -> Pipeline:
    return Pipeline("p").source("rows", Rows(TABLE))


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def update(rows: pa.Table, state: pa.Table) -> tuple[None, None]:
    return None, None


# ---- keywords

MISSPELT: dict[str, tuple[Callable[[], Any], str]] = {
    "source": (
        lambda: Pipeline("p").source("rows", Rows(TABLE), paralelism=2),  # type: ignore[call-arg]
        "unknown keyword 'paralelism' of step 'rows'; did you mean 'parallelism'?",
    ),
    "map": (
        lambda: source().map("m", same, groping="all"),  # type: ignore[call-arg]
        "unknown keyword 'groping' of step 'm'; did you mean 'grouping'?",
    ),
    "rows": (
        lambda: source().rows("m", lambda row: row, STATE, aftr="rows"),  # type: ignore[call-arg]
        "unknown keyword 'aftr' of step 'm'; did you mean 'after'?",
    ),
    "select": (
        lambda: source().select("m", ["n"], chian=False),  # type: ignore[call-arg]
        "unknown keyword 'chian' of step 'm'; did you mean 'chain'?",
    ),
    "filter": (
        lambda: source().filter("m", pc.field("n") > 1, hint=None),  # type: ignore[call-arg]
        "unknown keyword 'hint' of step 'm'; did you mean 'hints'?",
    ),
    "aggregate": (
        lambda: source().aggregate("count", by="word", n=F.count(), paralelism=2),  # type: ignore[arg-type]
        "unknown keyword 'paralelism' of step 'count'; did you mean 'parallelism'?",
    ),
    "stateful": (
        lambda: source().stateful("s", by="word", updat=update, state=STATE),  # type: ignore[call-arg]
        "unknown keyword 'updat' of step 's'; did you mean 'update'?",
    ),
    "sink": (
        lambda: source().sink("out", Memory(), befor="rows"),  # type: ignore[call-arg]
        "unknown keyword 'befor' of step 'out'; the keywords are name, sink, after",
    ),
    "Hints": (
        lambda: Hints(selectivty=2.0),  # type: ignore[call-arg]
        "unknown keyword 'selectivty' of Hints; did you mean 'selectivity'?",
    ),
    "Split": (
        lambda: Split(merge_paralelism=2),  # type: ignore[call-arg]
        "unknown keyword 'merge_paralelism' of Split; did you mean 'merge_parallelism'?",
    ),
    "Link": (
        lambda: Link("rows", group="all"),  # type: ignore[call-arg]
        "unknown keyword 'group' of Link; did you mean 'grouping'?",
    ),
    "Generator": (
        lambda: Generator(10, Keys(), sead=3),  # type: ignore[call-arg]
        "unknown keyword 'sead' of Generator; did you mean 'seed'?",
    ),
    "Keys": (lambda: Keys(zpif=1.0), "did you mean 'zipf'?"),  # type: ignore[call-arg]
    "Text": (lambda: Text(words_per_lin=1), "did you mean 'words_per_line'?"),  # type: ignore[call-arg]
    "Csv": (lambda: Csv(STATE, delimeter=";"), "did you mean 'delimiter'?"),  # type: ignore[call-arg]
    "Replay": (lambda: Replay("x", Csv(STATE), sped=2), "did you mean 'speed'?"),  # type: ignore[call-arg]
    "Rows": (lambda: Rows(TABLE, stmp="n"), "did you mean 'stamp'?"),  # type: ignore[call-arg]
    "Lines": (lambda: Lines(line=["a"]), "did you mean 'lines'?"),  # type: ignore[call-arg]
    "Files": (lambda: Files("x", fromat="jsonl"), "did you mean 'format'?"),  # type: ignore[call-arg]
    "Console": (lambda: Console(row=3), "did you mean 'rows'?"),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("what", MISSPELT)
def test_a_misspelt_keyword_is_answered_with_the_near_one(what: str) -> None:
    build, told = MISSPELT[what]
    with pytest.raises(UnknownKeyword) as caught:
        build()
    assert told in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_values_with_checked_keywords_travel() -> None:
    for value in (Hints(mem_mb=3.0), Split("hot-key"), Link("rows", "fields", "word"), Keys(7)):
        assert pickle.loads(pickle.dumps(value)) == value


def test_a_column_may_be_called_name() -> None:
    made = source().aggregate("count", by="word", name=F.count())
    assert made["count"].keyed is not None
    assert made["count"].keyed.state.names == ["name"]
    mapped = source().aggregate("count", by="word", reduce={"window": F.count()})
    assert mapped["count"].keyed is not None
    assert mapped["count"].keyed.state.names == ["window"]


# ---- names


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\0b", "a\nb", "x" * 201, 5, None])
def test_a_name_must_be_able_to_name_a_folder(name: Any) -> None:
    with pytest.raises(NotAllowed, match="name of a step must be usable as the name of a folder"):
        source().map(name, same)
    with pytest.raises(NotAllowed, match="name of a pipeline must be usable"):
        Pipeline(name)


@pytest.mark.parametrize("name", ["count", "a b", "größe", "a.b", "...", "x" * 200])
def test_other_names_are_fine(name: str) -> None:
    assert source().map(name, same)[name].name == name


def test_the_steps_that_an_aggregation_adds_have_names_of_their_own() -> None:
    taken = source().map("sum-parts", same)
    with pytest.raises(NotAllowed, match="has a step 'sum-parts' already; give this one another"):
        taken.aggregate("sum", by="word", n=F.count(), split=True, after="rows")


# ---- columns


def test_a_key_must_be_among_the_columns_where_they_are_known() -> None:
    told = "step 'c' is grouped by 'wrd', which 'rows' does not have; did you mean 'word'?"
    with pytest.raises(NotAllowed, match=told.replace("?", r"\?")):
        source().aggregate("c", by="wrd", n=F.count())
    named = source().select("s", {"w": "word"})
    with pytest.raises(NotAllowed, match="which 's' does not have; its columns are w"):
        named.stateful("c", by="nothing", update=update, state=STATE)
    each = source().rows("r", lambda row: row, STATE)
    with pytest.raises(NotAllowed, match="which 'r' does not have"):
        each.map("m", same, grouping="fields", by="word")
    # What a function makes is not known.
    assert source().map("m", same).aggregate("c", by="wrd", n=F.count())


def test_what_is_no_key() -> None:
    keys: list[Any] = [(), "", 5, ["word", 3], None]
    for by in keys:
        with pytest.raises(InvalidValue, match="a column, or a sequence of columns"):
            source().aggregate("c", by=by, n=F.count())
    with pytest.raises(NotAllowed, match="the column 'word' twice"):
        source().aggregate("c", by=("word", "word"), n=F.count())


# ---- what goes where


def test_wrong_things_are_named() -> None:
    wrong: Any = Memory
    with pytest.raises(InvalidValue, match=r"must be a sink such as Memory\(\)"):
        source().sink("out", wrong)
    wrong = TABLE
    with pytest.raises(InvalidValue, match=r"a source of penstock\.pipeline or a streaming"):
        Pipeline("p").source("rows", wrong)
    wrong = "upper"
    with pytest.raises(InvalidValue, match="must be a function"):
        source().map("m", wrong)
    with pytest.raises(NotAllowed, match="reads from 'row', which is no step; did you mean 'rows'"):
        source().map("m", same, after="row")
    with pytest.raises(NotAllowed, match="which is a sink and sends nothing on"):
        source().sink("out", Memory()).map("m", same)
    with pytest.raises(InvalidValue, match="at least one step"):
        source().map("m", same, after=[])
    with pytest.raises(NotAllowed, match="which calls no function; leave 'choose' out"):
        source().map("m", same, choose=lambda batch, n: [0])


def test_links_take_words() -> None:
    link = Link("rows", "fields", "word")
    assert link == Link("rows", Grouping.FIELDS, ("word",))
    with pytest.raises(InvalidValue, match="one of shuffle"):
        Link("rows", "by-word")


# ---- the package


def test_what_people_need_first_is_in_the_package() -> None:
    assert penstock.Pipeline is Pipeline
    assert penstock.functions is F
    assert set(penstock.__all__) <= set(dir(penstock))
    with pytest.raises(AttributeError, match="no attribute 'Pipline'"):
        penstock.Pipline  # type: ignore[attr-defined]  # noqa: B018


def test_the_package_loads_nothing_that_was_not_asked_for() -> None:
    code = (
        "import sys, penstock; "
        "assert not {'numpy', 'pyarrow', 'pyspark'} & set(sys.modules); "
        "penstock.Pipeline, penstock.functions, penstock.plan, penstock.run_locally; "
        "assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("other", ["out", "x/../out", "link"])
def test_two_sinks_in_one_folder_are_refused(tmp_path: Path, other: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    made = Pipeline("p").source("rows", Lines(["a"])).sink("one", parquet(tmp_path / "out"))
    with pytest.raises(NotAllowed, match="the sinks 'one' and 'two' write to one folder"):
        made.sink("two", json_lines(tmp_path / other), after="rows")
    made.sink("two", parquet(tmp_path / "out" / "inner"), after="rows")
