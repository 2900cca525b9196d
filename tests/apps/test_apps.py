"""Every application gives what plain counting gives, however the stream is cut."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.apps import App, apps, latest
from penstock.apps.backblaze import SCHEMA as DRIVES
from penstock.common.errors import UnknownKeyword
from penstock.engine.job_graph import JobGraph
from penstock.model import InvalidValue, NotAllowed
from penstock.pipeline.sinks import Memory
from penstock.pipeline.sources.memory import Lines, Rows
from penstock.runtimes.local import run_locally

NAMES = apps.names()


def check(app: App, source: Any, cuts: list[int], **options: Any) -> dict[str, pa.Table]:
    """Run an application and compare what came out with what should have."""
    sinks = {name: Memory() for name in app.keys}
    pipeline = app.pipeline(source, sinks, **options)
    run_locally(pipeline, cuts)
    wanted = app.expected(source.read(0, source.end))
    results = {}
    for name, sink in sinks.items():
        got = app.result(name, sink.table())
        if wanted[name].num_rows or got.num_rows:
            assert got.schema.equals(wanted[name].schema)
            assert got.to_pylist() == wanted[name].to_pylist()
        results[name] = got
    return results


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8)
@given(
    cuts=st.lists(st.integers(0, 1500), max_size=6),
    zipf=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    seed=st.integers(0, 2**40),
    parallelism=st.integers(1, 4),
    chain=st.booleans(),
)
def test_results_do_not_depend_on_the_cut(
    name: str, cuts: list[int], zipf: float, seed: int, parallelism: int, chain: bool
) -> None:
    app = apps.make(name)
    source = app.source("steps:100x2,900x1,50x1", zipf=zipf, seed=seed, rows=1500)
    found = check(app, source, cuts, parallelism=parallelism, chain=chain)
    if name != "debs2024":
        assert all(table.num_rows for table in found.values())


@pytest.mark.parametrize("slide_days", [1, 3, 7, 10])
def test_windows_of_many_days(slide_days: int) -> None:
    app = apps.make("debs2024", drives=100, window_days=7, slide_days=slide_days)
    found = check(app, app.source(rows=100 * 90, seed=1), [3, 2000, 2001, 6500])
    assert found["alerts"].num_rows > 1
    assert max(found["alerts"].column("kinds").to_pylist()) >= 4
    assert True in found["alerts"].column("failed").to_pylist()
    assert max(found["storage"].column("failures").to_pylist()) >= 1
    full = found["storage"].column("readings").to_pylist()
    assert max(full) <= 7 * 100


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("grouping", ["fields", "partial-key", "hot-key"])
def test_views_are_the_same_however_they_are_dealt(split: bool, grouping: str) -> None:
    if grouping != "fields" and not split:
        with pytest.raises(NotAllowed, match="set split=true"):
            apps.make("commcount", grouping=grouping)
        return
    app = apps.make("commcount", items=50, cost_us=0.1, split=split, grouping=grouping)
    source = app.source(rows=1500, zipf=1.2, seed=3)
    many = {"count-parts": 3, "count": 2} if split else 3
    assert check(app, source, [400, 401], parallelism=many)["counts"].num_rows


@pytest.mark.parametrize("shape", ["topn", "topn-merge"])
def test_ties_go_by_the_alphabet(shape: str) -> None:
    app = apps.make(shape, n=3)
    words = ["d", "b", "a", "c", "b", "d", "a", "e"]
    source: Any = Rows(pa.table({"word": words})) if shape == "topn" else Lines(words)
    ranks = check(app, source, [1, 2, 3, 4, 5, 6, 7])["ranks"]
    assert ranks.column("word").to_pylist() == ["a", "b", "d"]


@given(
    words=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=80),
    n=st.integers(1, 5),
    data=st.data(),
)
def test_rankings_forget_nothing_that_they_need(
    words: list[str], n: int, data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(words)), max_size=12))
    check(apps.make("topn", n=n), Rows(pa.table({"word": words})), cuts)
    check(apps.make("topn-merge", n=n), Lines(words), cuts)


def test_odd_texts() -> None:
    lines = [
        "",
        "  ",
        "To BE, or not?",
        "\u00c9t\u00e9 \u00e9t\u00e9",
        "a1-b2",
        "'tis",
        "x\ty\u2028z",
    ]
    rows = Rows(pa.table({"line": pa.array([*lines, None])}))
    found = check(apps.make("wordcount"), rows, [1, 2, 5])["counts"]
    assert {"to", "be", "a1", "b2", "tis", "x"} <= set(found.column("word").to_pylist())


def test_odd_rows() -> None:
    behaviors = pa.table(
        {"item": [1, None, 1, 2, 3], "behavior": ["pv", "pv", "buy", None, "other"]}
    )
    found = check(apps.make("commcount"), Rows(behaviors), [2])["counts"]
    assert found.to_pylist() == [{"item": 1, "views": 1}]
    searches = pa.table({"user": [1, None, 2, 2], "query": ["to be", "or", None, ""]})
    check(apps.make("portrait"), Rows(searches), [1])


def test_drives_that_cannot_be_right() -> None:
    good = {"serial_number": "Z", "model": "m", "capacity_bytes": 1, "failure": 0}
    good |= {"smart_9_raw": 1.0, "smart_194_raw": float(45 + (30 << 16)), "smart_5_raw": 2.0**64}
    day = pa.scalar(19_800, pa.int32()).cast(pa.date32()).as_py()
    rows = [
        {**good, "date": day},
        {**good, "date": None},
        *({**good, "date": day, name: None} for name in good),
        {**good, "date": day, "failure": 2},
        {**good, "date": day, "capacity_bytes": -1},
        {**good, "date": day, "smart_5_raw": -3.0},
    ]
    app = apps.make("debs2024", window_days=2)
    found = check(app, Rows(pa.Table.from_pylist(rows, DRIVES)), [1, 4])
    assert found["storage"].column("readings").to_pylist() == [4, 4]
    assert found["alerts"].column("kinds").to_pylist() == [2]


@pytest.mark.parametrize("name", NAMES)
def test_shape(name: str) -> None:
    app = apps.make(name)
    source = app.source(500, rows=10)
    whole, split = (JobGraph.of(app.pipeline(source, chain=chain)) for chain in (True, False))
    assert len(whole.vertices) <= len(split.vertices)
    assert {step.name for step, _ in whole.sinks} == set(app.keys)
    topology = split.topology(2)
    assert topology.operators[0].rate_per_s == pytest.approx(500)
    assert all(operator.cpu_us_per_tuple > 0 for operator in topology.operators)
    pickle.loads(pickle.dumps(app.pipeline(source)))


def test_the_papers_graphs() -> None:
    def edges(name: str) -> set[tuple[str, str]]:
        app = apps.make(name)
        edges = JobGraph.of(app.pipeline(app.source(), chain=False)).edges
        return {(edge.source.split("+")[0], edge.target.split("+")[0]) for edge in edges}

    assert edges("topn") == {("words", "count"), ("count", "rank"), ("rank", "total")}
    assert edges("topn-merge") == {("lines", "split"), ("split", "count"), ("count", "merge")}
    traits = ("gender", "age", "occupation")
    assert edges("portrait") == {
        ("searches", "segment"),
        *(("segment", trait) for trait in traits),
        *((trait, "portrait") for trait in traits),
    }
    assert edges("debs2024") == {
        ("drives", "filter"),
        ("filter", "detect"),
        ("filter", "aggregate"),  # skips the layer of detect
        ("detect", "aggregate"),
        ("detect", "anomaly"),
    }


@pytest.mark.parametrize("name", NAMES)
def test_instances_and_sinks_by_name(name: str) -> None:
    app = apps.make(name)
    source = app.source(rows=10)
    first = app.pipeline(source).steps[0].name
    assert app.pipeline(source, parallelism={first: 3})[first].parallelism == 3
    with pytest.raises(NotAllowed, match=f"the steps are {first}"):
        app.pipeline(source, parallelism={"nobody": 3})
    with pytest.raises(NotAllowed, match="the sinks are " + ", ".join(app.keys)):
        app.pipeline(source, {"nowhere": Memory()})
    with pytest.raises(InvalidValue, match="one of " + ", ".join(app.keys)):
        app.result("nowhere", pa.table({}))
    assert app.result(next(iter(app.keys)), pa.table({})).num_rows == 0


def test_registry_and_parameters() -> None:
    with pytest.raises(InvalidValue, match=r"one of commcount, debs2024.*did you mean 'wordcount'"):
        apps.get("wordcounts")
    with pytest.raises(InvalidValue, match="parameter n of TopN must be a whole number"):
        apps.make("topn", n=0)
    with pytest.raises(
        UnknownKeyword, match="'vocabulry' of application 'topn'; did you mean 'voc"
    ):
        apps.make("topn", vocabulry=3)
    with pytest.raises(InvalidValue, match="from 0 to 2"):
        apps.make("portrait").source(zipf=3.0)
    assert all(apps.get(name).summary for name in NAMES)


class TestFiles:
    """Readers of the real files."""

    def test_text(self, tmp_path: Path) -> None:
        file = tmp_path / "book.txt"
        file.write_text("To be, or not to be\nthat is the question\n")
        for name in ("wordcount", "topn", "topn-merge"):
            app = apps.make(name)
            assert check(app, app.read(file, speed=10), [1])

    def test_taobao(self, tmp_path: Path) -> None:
        app = apps.make("commcount")
        file = tmp_path / "UserBehavior.csv"
        file.write_text(
            "1,2268318,2520377,pv,1511544070\n1,2333346,2520771,pv,1511561733\n"
            "1,2268318,149192,buy,1511572885\n100,2268318,2520377,pv,1511593493\n"
        )
        found = check(app, app.read(file, speed=10), [1])["counts"]
        assert found.to_pylist() == [{"item": 2268318, "views": 2}, {"item": 2333346, "views": 1}]

    @pytest.mark.parametrize(
        "content", ["user,item,category,behavior,timestamp\n1,2,3,pv,4\n", "1,2,3,pv\n", "1 2 3\n"]
    )
    def test_not_taobao(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "x.csv").write_text(content)
        with pytest.raises(InvalidValue, match="user int64, item int64, category int64, behavior"):
            apps.make("commcount").read(tmp_path / "x.csv")

    def test_searches(self, tmp_path: Path) -> None:
        app = apps.make("portrait")
        (tmp_path / "a.tsv").write_text("query\tuser\nto be\t7\nor not\t8\n")
        found = check(app, app.read(tmp_path / "a.tsv"), [1])["portraits"]
        assert set(found.column("user").to_pylist()) <= {7, 8}
        (tmp_path / "b.csv").write_text("query,who\nto be,7\n")
        with pytest.raises(InvalidValue, match=r"columns user, query, got .*without user"):
            app.read(tmp_path / "b.csv")

    def test_backblaze(self, tmp_path: Path) -> None:
        """Two years, with other columns, in another order, mostly empty."""
        app = apps.make("debs2024", window_days=3)
        (tmp_path / "2016-01-02.csv").write_text(
            "date,serial_number,model,capacity_bytes,failure,smart_1_normalized,smart_1_raw,"
            "smart_5_raw,smart_9_raw,smart_194_raw\n"
            "2016-01-02,MJ0351YNG9Z0XA,Hitachi HDS5C3030ALA630,3000592982016,0,100,0,0,32129,26\n"
            "2016-01-02,Z305B2QN,ST4000DM000,4000787030016,1,113,54551400,8,10922,47\n"
        )
        (tmp_path / "2024-01-01.csv").write_text(
            "date,serial_number,model,capacity_bytes,failure,datacenter,vault_id,smart_9_raw,"
            "smart_5_raw,smart_187_raw,smart_188_raw,smart_194_raw,smart_197_raw,smart_198_raw\n"
            "2024-01-01,ZHZ65F2W,ST12000NM0008,12000138625024,0,iad1,1181,27550.0,0,,,31,0,0\n"
            "2024-01-01,9JG4657T,WDC WUH721414ALE6L4,-1,0,iad1,1122,,,,,,,\n"
        )
        source = app.read(tmp_path, speed="steps:1x5,10x5")
        assert source.end == 4
        found = check(app, source, [1, 3])
        assert set(found["storage"].column("readings").to_pylist()) == {1}
        assert found["alerts"].column("serial_number").to_pylist() == ["Z305B2QN"]

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            ("serial_number,model\nx,y\n", "without date, capacity_bytes, failure"),
            (
                "date,serial_number,model,capacity_bytes,failure\n1 May,x,y,1,0\n",
                "date date32.*1 May",
            ),
        ],
    )
    def test_not_backblaze(self, tmp_path: Path, content: str, problem: str) -> None:
        (tmp_path / "x.csv").write_text(content)
        with pytest.raises(InvalidValue, match=problem):
            apps.make("debs2024").read(tmp_path / "x.csv")


def test_latest_keeps_the_last_row() -> None:
    rng = np.random.default_rng(0)
    keys, values = rng.integers(0, 20, 300), np.arange(300)
    found = latest(pa.table({"k": keys, "v": values}), ("k",)).to_pylist()
    assert {row["k"]: row["v"] for row in found} == dict(zip(keys, values, strict=True))
