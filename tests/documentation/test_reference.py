"""What the documents say about the code is what the code says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.control import Settings
from penstock.files import cluster, measurements, topology
from penstock.strategies import describe, strategies

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reference() -> Any:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_command_reference_is_fresh(reference: Any) -> None:
    written = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert written == reference.cli_markdown(), "run: make reference"


def test_every_strategy_is_listed(reference: Any) -> None:
    text = reference.strategies_markdown()
    for name in strategies.names():
        assert f"## {name}\n" in text
        assert strategies.get(name).origin in text


def test_pages_about_strategies_have_a_strategy(reference: Any) -> None:
    pages = {page.stem for page in (ROOT / "docs" / "strategies").glob("*.md")}
    baselines = re.findall(r"^## (.+)$", reference.BASELINES.read_text(encoding="utf-8"), re.M)
    assert pages - {"baselines"} | set(baselines) <= set(strategies.names())


def test_every_strategy_has_a_page(reference: Any) -> None:
    assert [name for name in strategies.names() if reference.page_of(name) is None] == []


@pytest.mark.parametrize(
    ("heading", "fields"),
    [
        ("Topology", (*topology.TOPOLOGY_FIELDS, *topology.OPERATOR_FIELDS, *topology.EDGE_FIELDS)),
        ("Cluster", (*cluster.CLUSTER_FIELDS, *cluster.NODE_FIELDS)),
        (
            "Measurements",
            (
                *measurements.MEASUREMENTS_FIELDS,
                *measurements.SAMPLE_FIELDS,
                *measurements.PAIR_FIELDS,
                *measurements.NODE_FIELDS,
            ),
        ),
    ],
)
def test_every_field_is_described(heading: str, fields: tuple[str, ...]) -> None:
    text = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", section))))
    assert set(fields) <= words


def test_defaults_are_those_of_the_model() -> None:
    from penstock.model import Node, Operator

    operator, node = Operator("a"), Node("a")
    for field, default in topology.NUMBERS.items():
        assert getattr(operator, field) == default
    for field, default in cluster.NUMBERS.items():
        assert getattr(node, field) == default


def test_every_setting_of_the_loop_is_listed() -> None:
    text = (ROOT / "docs" / "loop.md").read_text(encoding="utf-8")
    for p in describe(Settings):
        row = f"| `{p['name']}` | {p['default']} {p['unit']} | {p['allowed']} | {p['doc']} |"
        assert row in text


def test_everything_in_the_api_page_exists() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    named = re.findall(
        r"^\.\. auto\w+:: (\S+)\.(\w+)\n(?:   :members: (\S.*)\n)?", page, re.MULTILINE
    )
    assert len(named) > 50
    for module, name, members in named:
        if module.startswith("penstock.spark"):
            pytest.importorskip("pyspark")
        part = getattr(importlib.import_module(module), name)
        for member in filter(None, members.split(", ")):
            assert hasattr(part, member) or member in part.__annotations__, f"{name}.{member}"
