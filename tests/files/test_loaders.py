"""Topology, cluster, measurement and plan files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.common.errors import PenstockError
from penstock.files import (
    FileError,
    load_cluster,
    load_measurements,
    load_plan,
    load_topology,
    save_plan,
)
from penstock.model import Grouping, Kind, Plan, Topology

EXAMPLES = Path(__file__).parents[2] / "examples"
GRAPHS = Path(__file__).parents[1] / "data" / "topologies"


def written(folder: Path, document: object, name: str = "x.json") -> Path:
    file = folder / name
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def topology_with(**changes: Any) -> dict[str, Any]:
    document = {
        "operators": [{"name": "a", "kind": "source"}, {"name": "b", "parallelism": 2}],
        "edges": [{"from": "a", "to": "b"}],
    }
    return {**document, **changes}


SOURCE = {"name": "a", "kind": "source"}


def operators_with(**fields: Any) -> dict[str, Any]:
    return topology_with(operators=[SOURCE, {"name": "b", **fields}])


def edges_with(**fields: Any) -> dict[str, Any]:
    return topology_with(edges=[{"from": "a", "to": "b", **fields}])


@pytest.mark.parametrize("name", ["wordcount.yaml", "portrait.yaml"])
def test_the_examples_can_run(name: str) -> None:
    assert load_topology(EXAMPLES / name, relaxed=False).warnings == ()


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(
        "operators: [{name: a, kind: source}, {name: b, parallelism: 2}]\n"
        "edges: [{source: a, target: b, grouping: partial_key}]"
    )
    document = edges_with(grouping="partial-key")
    assert load_topology(tmp_path / "x.yml") == load_topology(written(tmp_path, document))


def test_what_is_left_out_has_the_defaults_of_the_model(tmp_path: Path) -> None:
    topology = load_topology(written(tmp_path, topology_with(), "mine.json"))
    assert topology.name == "mine"
    assert topology["a"].rate_per_s is None
    assert topology["b"].selectivity == 1.0
    assert topology.edges[0].grouping is Grouping.SHUFFLE


@pytest.mark.parametrize(
    ("grouping", "kind"),
    [
        ("fields", Kind.STATEFUL),
        ("partial_key", Kind.STATEFUL),
        ("shuffle", Kind.STATELESS),
        ("all", Kind.STATELESS),
    ],
)
def test_edges_tell_the_kind_of_an_operator(tmp_path: Path, grouping: str, kind: Kind) -> None:
    document = topology_with(
        operators=[SOURCE, {"name": "b", "kind": "operator"}],
        edges=[{"from": "a", "to": "b", "grouping": grouping}],
    )
    assert load_topology(written(tmp_path, document))["b"].kind is kind


def test_operators_may_be_splittable(tmp_path: Path) -> None:
    document = topology_with(operators=[SOURCE, {"name": "b", "splittable": True}])
    loaded = load_topology(written(tmp_path, document))
    assert [(o.splittable, o.routed) for o in loaded.operators] == [(False, False), (True, True)]


@pytest.mark.parametrize(
    ("document", "field", "told"),
    [
        (
            topology_with(operators=[SOURCE, {"name": "b", "splittable": 1}]),
            "operators[1].splittable",
            "must be true or false, got 1",
        ),
        (
            topology_with(operators=[{**SOURCE, "splittable": True}], edges=[]),
            "operators[0].splittable",
            "false for a source",
        ),
        ([], "", "must be a mapping with name, operators, edges, got []"),
        ({}, "operators", "but is missing"),
        ({"operators": []}, "operators", "at least one operator"),
        ({"operators": {}}, "operators", "a list"),
        ({"operators": [3]}, "operators[0]", "a mapping with the fields name, kind"),
        ({"operators": [{}]}, "operators[0].name", "but is missing"),
        (topology_with(nodes=3), "nodes", "is not known"),
        (operators_with(parallelism=0), "operators[1].parallelism", "from 1 to 1000000, got 0"),
        (operators_with(parallelism=1.5), "operators[1].parallelism", "got 1.5"),
        (operators_with(parallelism=True), "operators[1].parallelism", "got True"),
        (operators_with(parallelism=10**30), "operators[1].parallelism", "a whole number"),
        (operators_with(paralelism=2), "operators[1].paralelism", "did you mean 'parallelism'?"),
        (operators_with(cpu_pct=-1), "operators[1].cpu_pct", "a number from 0 to 1e+12, got -1"),
        (operators_with(cpu_pct="much"), "operators[1].cpu_pct", "got 'much'"),
        (operators_with(mem_mb=1e300), "operators[1].mem_mb", "got 1e+300"),
        (operators_with(mem_mb=10**400), "operators[1].mem_mb", "a number from 0"),
        (operators_with(kind="sourc"), "operators[1].kind", "did you mean 'source'?"),
        (operators_with(kind=7), "operators[1].kind", "one of source, stateless, stateful"),
        (operators_with(rate_per_s=1), "operators[1].rate_per_s", "only a source"),
        (operators_with(state_mb=1), "operators[1].state_mb", "unless the kind is stateful"),
        (topology_with(operators=[SOURCE, SOURCE]), "operators[1].name", "operators[0] has it too"),
        (edges_with(to="bb"), "edges[0].to", "one of the 2 operators, got 'bb'"),
        (edges_with(source="a"), "edges[0].source", "left out where from is given"),
        (topology_with(edges=[{"from": "a"}]), "edges[0].to", "but is missing"),
        (edges_with(grouping="shufle"), "edges[0].grouping", "did you mean 'shuffle'?"),
        (edges_with(shares=[1, 0]), "edges[0].shares", "unless the grouping is custom"),
        (edges_with(grouping="fields", shares=[0.5, 0.6]), "edges[0].shares", "sum to 1"),
        (edges_with(grouping="fields", shares=[2, 0]), "edges[0].shares[0]", "from 0 to 1, got 2"),
        (edges_with(grouping="fields", shares=3), "edges[0].shares", "a list"),
        (edges_with(grouping="fields", shares=[1]), "", "one number for each of the 2 instances"),
        (topology_with(edges=[{"from": "b", "to": "a"}]), "", "without an edge into a source"),
        ({"operators": [{"name": "b"}]}, "", "at least one source"),
        ({"operators": [{"name": "a\nb"}]}, "operators[0].name", "printable"),
        (operators_with(parallelism=1_000_000), "operators", "at most 1000000 instances in all"),
    ],
)
def test_errors_name_file_field_and_what_is_allowed(
    tmp_path: Path, document: object, field: str, told: str
) -> None:
    file = written(tmp_path, document)
    with pytest.raises(FileError) as caught:
        load_topology(file)
    assert isinstance(caught.value, PenstockError)
    assert caught.value.field == field
    assert str(file) in str(caught.value)
    assert told in str(caught.value)


def test_an_error_survives_pickling() -> None:
    error = FileError("x.yaml", "is empty", "operators")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_cycle_is_a_warning_unless_it_is_to_run(tmp_path: Path) -> None:
    file = written(tmp_path, topology_with(edges=[{"from": "b", "to": "b"}]))
    assert len(load_topology(file).warnings) == 2
    with pytest.raises(FileError, match="without a cycle"):
        load_topology(file, relaxed=False)


@pytest.mark.parametrize("graph", sorted(GRAPHS.glob("*.json")), ids=lambda path: path.stem)
def test_real_graphs_load_as_they_are(graph: Path) -> None:
    document = json.loads(graph.read_text(encoding="utf-8"))
    topology = load_topology(graph)
    assert topology.name == graph.stem
    assert [o.parallelism for o in topology.operators] == [
        o["parallelism"] for o in document["operators"]
    ]
    assert len(topology.edges) == len(document["edges"])


def test_cyclic_graphs_are_known() -> None:
    cyclic = [path.stem for path in sorted(GRAPHS.glob("*.json")) if load_topology(path).cycle]
    assert cyclic == ["c01-t11", "c01-t12", "c01-t39"]


def test_a_cluster_has_nodes_one_by_one_or_counted(tmp_path: Path) -> None:
    document = {"nodes": [{"name": "big", "cpu_cores": 16}, {"name": "n", "count": 11, "slots": 2}]}
    cluster = load_cluster(written(tmp_path, document))
    assert cluster.names[:3] == ("big", "n-00", "n-01")
    assert len(cluster) == 12
    assert cluster.nodes[0].cpu_cores == 16
    assert cluster.nodes[11].slots == 2


@pytest.mark.parametrize(
    ("document", "field", "told"),
    [
        ({}, "nodes", "missing"),
        ({"nodes": []}, "nodes", "at least one node"),
        ({"nodes": [{"cpu_cores": 1}]}, "nodes[0].name", "missing"),
        ({"nodes": [{"name": "a"}, {"name": "a"}]}, "nodes[1].name", "nodes[0] has it too"),
        ({"nodes": [{"name": "a", "slots": 0}]}, "nodes[0].slots", "from 1 to 1000000"),
        ({"nodes": [{"name": "a", "count": 0}]}, "nodes[0].count", "from 1 to 100000"),
        ({"nodes": [{"name": "a", "mem": 1}]}, "nodes[0].mem", "did you mean 'mem_mb'?"),
        ({"nodes": [{"name": "a", "rack": 1}]}, "nodes[0].rack", "printable text"),
        (
            {"nodes": [{"name": "a", "count": 60_000}, {"name": "b", "count": 60_000}]},
            "nodes",
            "at most 100000",
        ),
    ],
)
def test_cluster_errors(tmp_path: Path, document: object, field: str, told: str) -> None:
    with pytest.raises(FileError) as caught:
        load_cluster(written(tmp_path, document))
    assert caught.value.field == field
    assert told in str(caught.value)


@pytest.fixture
def words() -> Topology:
    return load_topology(EXAMPLES / "wordcount.yaml")


def test_reduced_measurements(tmp_path: Path, words: Topology) -> None:
    document = {
        "source_rates": {"lines": 1500},
        "rates": [{"from": "lines", "to": "split", "matrix": [[1, 2, 3, 4], [5, 6, 7, 8]]}],
        "tuples_per_s": {"split": [1, 2, 3, 4]},
        "cpu_cores": {"count": [0.1] * 6},
        "mem_mb": {"count": [10, 20, 30, 40, 50, 60]},
        "busy": {"count": 0.3},
        "tuple_bytes": {"lines": 80},
        "nodes": {"node-0": {"cpu": 0.5, "network": 0.2}},
        "latency_ms": 8,
        "rate_cv": 0.1,
    }
    seen = load_measurements(written(tmp_path, document), words)
    assert seen.source_rates == {"lines": 1500}
    assert seen.rates["lines", "split"].shape == (2, 4)
    assert seen.cpu_cores["count"].sum() == pytest.approx(0.6)
    assert seen.nodes["node-0"].cpu == 0.5
    assert seen.nodes["node-0"].mem is None
    assert seen.nodes["node-0"].network == 0.2
    assert seen.mem_mb["count"].tolist() == [10, 20, 30, 40, 50, 60]
    assert (seen.busy, seen.tuple_bytes) == ({"count": 0.3}, {"lines": 80})
    assert (seen.latency_ms, seen.rate_cv) == (8, 0.1)


def test_samples_are_reduced_to_trimmed_means(words: Topology) -> None:
    seen = load_measurements(EXAMPLES / "wordcount-measured.yaml", words)
    np.testing.assert_allclose(seen.tuples_per_s["lines"], [790.0, 800.0])
    assert seen.latency_ms == pytest.approx(12.2)


SAMPLE = {"duration_s": 1}


@pytest.mark.parametrize(
    ("document", "field", "told"),
    [
        ({"rate": 1}, "rate", "did you mean 'rates'?"),
        ({"source_rates": {"line": 1}}, "source_rates.line", "did you mean 'lines'?"),
        ({"busy": {"coutn": 1}}, "busy.coutn", "did you mean 'count'?"),
        ({"state_mb": {"count": [1]}}, "state_mb.count", "a list of 6 numbers"),
        ({"source_rates": {"split": 1}}, "source_rates.split", "no source"),
        ({"source_rates": {"lines": -1}}, "source_rates.lines", "from 0"),
        ({"source_rates": [1]}, "source_rates", "a mapping"),
        ({"cpu_cores": {"split": [1]}}, "cpu_cores.split", "a list of 4 numbers"),
        ({"cpu_cores": {"lines": [1, None]}}, "cpu_cores.lines[1]", "a number from 0"),
        ({"rates": [{"from": "lines", "to": "count"}]}, "rates[0].to", "joined to 'lines'"),
        ({"rates": [{"from": "lines", "to": "split"}]}, "rates[0].matrix", "missing"),
        (
            {"rates": [{"from": "lines", "to": "split", "matrix": [[1, 2, 3, 4]]}]},
            "rates[0].matrix",
            "2 rows",
        ),
        (
            {"rates": [{"from": "lines", "to": "split", "matrix": [[1], [2]]}]},
            "rates[0].matrix[0]",
            "a list of 4 numbers",
        ),
        ({"nodes": {"n": {"cpu": "x"}}}, "nodes.n.cpu", "a number"),
        ({"nodes": {"n": 1}}, "nodes.n", "a mapping with the fields cpu, mem, io"),
        ({"samples": [SAMPLE], "latency_ms": 1}, "latency_ms", "left out where samples"),
        ({"samples": [{}]}, "samples[0].duration_s", "missing"),
        ({"samples": [{"duration_s": 0}]}, "samples[0].duration_s", "at least 0.001"),
        (
            {"samples": [SAMPLE, {**SAMPLE, "nodes": {"n": {"ram": 1}}}]},
            "samples[1].nodes.n.ram",
            "one of cpu, mem, io",
        ),
        (
            {"samples": [{**SAMPLE, "cpu_s": {"split": [1]}}]},
            "samples[0].cpu_s.split",
            "4 numbers",
        ),
    ],
)
def test_measurement_errors(
    tmp_path: Path, words: Topology, document: object, field: str, told: str
) -> None:
    with pytest.raises(FileError) as caught:
        load_measurements(written(tmp_path, document), words)
    assert caught.value.field == field
    assert told in str(caught.value)


def test_a_pair_is_given_once(tmp_path: Path, words: Topology) -> None:
    pair = {"from": "lines", "to": "split", "matrix": [[1, 1, 1, 1]] * 2}
    with pytest.raises(FileError, match="given once"):
        load_measurements(written(tmp_path, {"rates": [pair, pair]}), words)


def test_a_plan_is_read_back(tmp_path: Path, words: Topology) -> None:
    made = penstock.plan(words, 3)
    assert isinstance(made, Plan)
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == made


def test_a_plan_goes_to_json_only_and_to_places_that_exist(tmp_path: Path, words: Topology) -> None:
    made = penstock.plan(words, 3)
    assert isinstance(made, Plan)
    with pytest.raises(FileError, match=r"must end in \.json"):
        save_plan(made, tmp_path / "plan.yaml")
    with pytest.raises(FileError, match="cannot be written"):
        save_plan(made, tmp_path / "no" / "plan.json")


@pytest.mark.parametrize("document", [[], {}, {"format": 1}, {"format": 2}])
def test_what_is_no_plan_is_told(tmp_path: Path, document: object) -> None:
    with pytest.raises(FileError):
        load_plan(written(tmp_path, document))
