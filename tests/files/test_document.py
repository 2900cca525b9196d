"""Reading: whatever is in a file, the answer is plain values or one clean error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.files import (
    FileError,
    load_cluster,
    load_measurements,
    load_plan,
    load_topology,
)
from penstock.files.cluster import CLUSTER_FIELDS, NODE_FIELDS
from penstock.files.document import read_document
from penstock.files.measurements import MEASUREMENTS_FIELDS, PAIR_FIELDS, SAMPLE_FIELDS
from penstock.files.topology import EDGE_FIELDS, OPERATOR_FIELDS, TOPOLOGY_FIELDS
from penstock.model import Edge, Grouping, Kind, Operator, Topology

TINY = Topology(
    "tiny",
    (Operator("a", Kind.SOURCE), Operator("b", parallelism=2)),
    (Edge("a", "b", Grouping.SHUFFLE),),
)


def written(folder: Path, name: str, content: str | bytes) -> Path:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: no", "no"),
        ("a: on", "on"),
        ("a: 2024-05-01", "2024-05-01"),
        ("a: 1e6", 1e6),
        ("a: 017", 17),
        ("a: 1:30", "1:30"),
        ("a: -2.5", -2.5),
        ("a: .5", 0.5),
        ("a: 'true'", "true"),
        ("a: true", True),
        ("a: ~", None),
        ("a:", None),
        ("a: [1, {b: 2}]", [1, {"b": 2}]),
        ("x: &one {b: 1}\na: *one", {"b": 1}),
        ("\ufeffa: 1", 1),
    ],
)
def test_yaml_scalars_follow_version_1_2(tmp_path: Path, text: str, value: object) -> None:
    assert read_document(written(tmp_path, "x.yaml", text))["a"] == value


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.json", "", "is empty"),
        ("x.yaml", "  \n", "is empty"),
        ("x.json", b"\xff\xfe", "is not UTF-8"),
        ("x.json", "{", "is not valid JSON"),
        ("x.json", '{"a": 1, "a": 2}', "repeats the key 'a'"),
        ("x.json", '{"a": NaN}', "finite numbers"),
        ("x.json", '{"a": -Infinity}', "finite numbers"),
        ("x.json", "[" * 100_000, "nested too deeply"),
        ("x.json", '{"a": ' + "9" * 5000 + "}", "cannot be read"),
        ("x.yaml", "a: [1", "is not valid YAML"),
        ("x.yaml", "a: 1\na: 2", "repeats the key 'a' on line 2"),
        ("x.yaml", "1: 2", "text as keys"),
        ("x.yaml", "? [1, 2]\n: 3", "text as keys"),
        ("x.yaml", "a: &b {c: 1}\nd: {<<: *b}", "merge key"),
        ("x.yaml", "a: !!python/name:os.system ''", "is not valid YAML"),
        ("x.yaml", "a: !!int foo", "cannot be read"),
        ("x.yaml", "a: !!map foo", "is not valid YAML"),
        ("x.yaml", "a: 1\n---\nb: 2", "is not valid YAML"),
        ("x.yaml", "a: \x01", "is not valid YAML"),
        ("x.yaml", "[" * 20_000, "nested too deeply"),
        ("x.toml", "a = 1", "must end in .yaml, .yml, .json"),
        ("noending", "a: 1", "must end in"),
    ],
)
def test_what_cannot_be_read_is_told(
    tmp_path: Path, name: str, content: str | bytes, problem: str
) -> None:
    file = written(tmp_path, name, content)
    with pytest.raises(FileError) as caught:
        read_document(file)
    assert problem in str(caught.value)
    assert str(caught.value).startswith(str(file))


def test_a_missing_file_has_a_suggestion(tmp_path: Path) -> None:
    written(tmp_path, "wordcount.yaml", "a: 1")
    with pytest.raises(FileError, match=r"does not exist; did you mean 'wordcount\.yaml'\?"):
        read_document(tmp_path / "wordcont.yaml")
    with pytest.raises(FileError, match="does not exist"):
        read_document(tmp_path / "no" / "such.yaml")


def test_a_directory_and_an_odd_name_are_told(tmp_path: Path) -> None:
    (tmp_path / "d.json").mkdir()
    with pytest.raises(FileError, match="is a directory"):
        read_document(tmp_path / "d.json")
    with pytest.raises(FileError, match="cannot be read"):
        read_document("x\0.json")
    with pytest.raises(FileError, match="cannot be read"):
        read_document("x" * 5000 + ".json")


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["a", "b", "source", "fields", 10**400, 1e308, -1, 0])
)
KEYS = (
    st.sampled_from(TOPOLOGY_FIELDS + OPERATOR_FIELDS + EDGE_FIELDS)
    | st.sampled_from(CLUSTER_FIELDS + NODE_FIELDS)
    | st.sampled_from(MEASUREMENTS_FIELDS + SAMPLE_FIELDS + PAIR_FIELDS)
    | st.sampled_from(["a", "b", "cpu"])
    | st.text(max_size=4)
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)
NUMBERS = st.sampled_from([None, 0, 1, 2, -1, 1.5, 1e300, "x", True, [1], 10**30])


@st.composite
def near_topologies(draw: st.DrawFn) -> dict[str, Any]:
    """Draw documents that are almost topologies, so that the checks behind the first ones run."""
    names = st.sampled_from(["a", "b", "c", "", "\ud800", 3])
    operator = st.fixed_dictionaries(
        {"name": names},
        optional={
            "kind": st.sampled_from(["source", "stateless", "stateful", "operator", "sink", 1]),
            "parallelism": NUMBERS,
            "rate_per_s": NUMBERS,
            "state_mb": NUMBERS,
            "selectivity": NUMBERS,
        },
    )
    edge = st.fixed_dictionaries(
        {"from": names, "to": names},
        optional={
            "grouping": st.sampled_from(["shuffle", "partial_key", "FIELDS", "odd", 1, None]),
            "shares": st.lists(NUMBERS, max_size=3) | NUMBERS,
        },
    )
    return {
        "operators": draw(st.lists(operator, max_size=4)),
        "edges": draw(st.lists(edge, max_size=4)),
    }


LOADERS: tuple[Callable[[Path], object], ...] = (
    load_topology,
    load_cluster,
    lambda path: load_measurements(path, TINY),
    load_plan,
)


def errors_of(file: Path) -> list[FileError]:
    """Load a file as everything; anything but success or a `FileError` escapes."""

    def error_of(load: Callable[[Path], object]) -> FileError | None:
        try:
            load(file)
        except FileError as error:
            return error
        return None

    return [error for load in LOADERS if (error := error_of(load)) is not None]


def test_a_list_that_holds_itself_is_told(tmp_path: Path) -> None:
    for text in ("&a [*a]", "operators: &a [*a]", "nodes: &a [{name: *a}]"):
        assert len(errors_of(written(tmp_path, "x.yaml", text))) == len(LOADERS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(document=DOCUMENTS | near_topologies())
@example(document={"operators": [{"name": "a", "kind": "source", "parallelism": 10**400}]})
@example(document={"nodes": [{"name": "n", "count": 100_000}, {"name": "n-00001"}]})
@example(document={"source_rates": {"a": True}, "nodes": {"": {"cpu": -1}}})
@example(document={"samples": []})
@example(document={"format": 1})
@example(document={"format": 1, "parallelism": {"a": -1}})
def test_any_json_loads_or_gives_a_clean_error(tmp_path: Path, document: object) -> None:
    file = written(tmp_path, "fuzz.json", json.dumps(document))
    for error in errors_of(file):
        assert len(str(error).encode("utf-8")) < 2000  # short, and can be printed


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    content=st.binary(max_size=200) | st.text(alphabet="ab:-[]{}&*!? \n'\"#|>%@0.e~", max_size=40)
)
def test_any_yaml_loads_or_gives_a_clean_error(tmp_path: Path, content: str | bytes) -> None:
    file = written(tmp_path, "fuzz.yaml", content)
    assert all(error.file == str(file) for error in errors_of(file))
