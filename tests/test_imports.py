"""Imports point one way, and what is meant to be pure imports nothing impure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

CONTRIBUTING = SOURCE.parent / "CONTRIBUTING.md"

#: A row of the table there: rank, package, what it keeps to.
ROW = re.compile(r"^\| (\d+) \| `(\w+)` \|([^|]*)\|", re.MULTILINE)


def documented() -> tuple[dict[str, int], dict[str, set[str]]]:
    """Read the rank of each package, and those that keep to fewer than their rank allows."""
    ranks: dict[str, int] = {}
    only: dict[str, set[str]] = {}
    for rank, package, kept in ROW.findall(CONTRIBUTING.read_text(encoding="utf-8")):
        ranks[package] = int(rank)
        if kept.strip():
            only[package] = set(re.findall(r"`(\w+)`", kept))
    return ranks, only


#: A package may import from packages of a lower rank, and from itself.
RANKS, ONLY = documented()

#: What alone may import Spark.
SPARK = ("penstock.runtimes.attached", "penstock.runtimes.spark", "penstock.spark")

PURE = ("common", "model", "strategies", "control")

#: Clocks, ids, logs, randomness, files, processes, network, and the engine.
IMPURE = frozenset(
    {
        "asyncio",
        "concurrent",
        "datetime",
        "getpass",
        "glob",
        "http",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "platform",
        "pyspark",
        "random",
        "requests",
        "secrets",
        "shutil",
        "signal",
        "socket",
        "sqlite3",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "uuid",
        "yaml",
    }
)

IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "breakpoint"})

#: Names of `numpy.random` that hold no hidden state.
SEEDED = frozenset({"Generator", "SeedSequence", "BitGenerator", "PCG64", "default_rng"})


def modules() -> list[Path]:
    return sorted((SOURCE / "penstock").rglob("*.py"))


def package_of(module: str) -> str:
    """Package, or module, right below ``penstock``; empty for ``penstock`` itself."""
    return module.split(".")[1] if "." in module else ""


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that is imported, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")
                keep = len(parents) - node.level + int(is_package)
                base = ".".join([*parents[:keep], *([base] if base else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def reverse_edges(tree: ast.AST, module: str, is_package: bool = False) -> list[str]:
    own = package_of(module)
    found = []
    for line, target in imports(tree, module, is_package):
        if target.split(".")[0] != "penstock":
            continue
        other = package_of(target)
        if not own or other == own:
            continue  # the root only exports lazily
        if other not in RANKS:
            # `from penstock import plan`: a name of the root, which loads strategies and files.
            if RANKS[own] <= RANKS["planning"]:
                found.append(f"{module}:{line} imports {target}")
        elif RANKS[other] >= RANKS[own] or other not in ONLY.get(own, RANKS):
            found.append(f"{module}:{line} imports {target}")
    return found


def spark_imports(tree: ast.AST, module: str) -> list[str]:
    if any(module == home or module.startswith(f"{home}.") for home in SPARK):
        return []
    return [
        f"{module}:{line} imports {target}"
        for line, target in imports(tree, module, False)
        if target.split(".")[0] in {"pyspark", "py4j"}
    ]


def impurities(tree: ast.AST, module: str) -> list[str]:
    found = []
    for line, target in imports(tree, module, False):
        if target.split(".")[0] in IMPURE:
            found.append(f"{module}:{line} imports {target}")
        if target.startswith("numpy.random.") and target.split(".")[2] not in SEEDED:
            found.append(f"{module}:{line} imports {target}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in IMPURE_CALLS:
                found.append(f"{module}:{node.lineno} calls {name}")
            unseeded = not node.args and not node.keywords
            none = bool(node.args) and ast.unparse(node.args[0]) == "None"
            if name.endswith("default_rng") and (unseeded or none):
                found.append(f"{module}:{node.lineno} makes an unseeded generator")
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if owner in {"np.random", "numpy.random"} and node.attr not in SEEDED:
                found.append(f"{module}:{node.lineno} uses the global {owner}.{node.attr}")
    return found


def test_the_table_is_read_and_in_order() -> None:
    ranks = list(RANKS.values())
    assert ranks == sorted(ranks)
    assert len(ranks) > 15
    assert ONLY["common"] == set()
    assert ONLY["state"] == {"common", "model"}
    for package, kept in ONLY.items():
        assert all(RANKS[other] < RANKS[package] for other in kept)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = package_of(name_of(path))
    assert package in RANKS or not package, f"give {package} a rank in {CONTRIBUTING.name}"
    assert reverse_edges(tree, name_of(path), path.name == "__init__.py") == []
    assert spark_imports(tree, name_of(path)) == []


@pytest.mark.parametrize(
    "path", [p for p in modules() if package_of(name_of(p)) in PURE], ids=name_of
)
def test_pure_packages_stay_pure(path: Path) -> None:
    assert impurities(ast.parse(path.read_text(encoding="utf-8")), name_of(path)) == []


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("penstock.model.cost", "from penstock.strategies import Request"),
        ("penstock.model.cost", "import penstock.cli.main"),
        ("penstock.model.cost", "from ..strategies import api"),
        ("penstock.model.cost", "from penstock import plan"),
        ("penstock.strategies.even", "def f():\n    from penstock.planning import plan"),
        ("penstock.strategies.even", "from penstock.files import load_topology"),
        ("penstock.control.loop", "from penstock.runtimes import spark"),
        ("penstock.cli.plan", "from penstock.testing import contract"),
        ("penstock.pipeline.builder", "from penstock.runtimes.spark import run"),
        ("penstock.pipeline.builder", "from penstock.apps import apps"),
        ("penstock.state.files.local", "from penstock.files import load_topology"),
        ("penstock.store.store", "from penstock.pipeline import Pipeline"),
        ("penstock.report.summary", "from penstock.strategies import Request"),
        ("penstock.runtimes.spark.query", "import penstock.spark"),
        ("penstock.spark", "from penstock.store import MetricsStore"),
    ],
)
def test_a_reverse_edge_is_found(module: str, code: str) -> None:
    assert reverse_edges(ast.parse(code), module)


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("penstock.strategies.even", "from penstock.model import Plan"),
        ("penstock.strategies.even", "from .api import Request"),
        ("penstock.cli.plan", "from penstock.planning import plan"),
        ("penstock.cli.main", "import penstock"),
        ("penstock.state.table", "from penstock.common.key_hashing import hash_keys"),
        ("penstock.runtimes.spark.query", "from penstock.store.store import MetricsStore"),
        ("penstock.spark", "from penstock.runtimes.spark.query import start"),
        ("penstock.cli.run", "from penstock import spark"),
    ],
)
def test_a_forward_edge_is_fine(module: str, code: str) -> None:
    assert not reverse_edges(ast.parse(code), module)


@pytest.mark.parametrize(
    ("module", "code", "found"),
    [
        ("penstock.runtimes.sim.run", "from pyspark.sql import SparkSession", True),
        ("penstock.apps.api", "def f():\n    import pyspark", True),
        ("penstock.sparkling", "import py4j.protocol", True),
        ("penstock.runtimes.spark.query", "from pyspark.sql import SparkSession", False),
        ("penstock.apps.api", "from penstock import spark", False),
    ],
)
def test_only_the_spark_runtime_imports_spark(module: str, code: str, found: bool) -> None:
    assert bool(spark_imports(ast.parse(code), module)) is found


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "from datetime import datetime",
        "import os.path",
        "import pyspark.sql as s",
        "def f():\n    import random",
        "from numpy.random import rand",
        "np.random.shuffle(x)",
        "np.random.seed(0)",
        "np.random.default_rng()",
        "np.random.default_rng(None)",
        "print(1)",
        "open('x')",
    ],
)
def test_an_impurity_is_found(code: str) -> None:
    assert impurities(ast.parse(code), "penstock.model.x")


@pytest.mark.parametrize(
    "code",
    [
        "import numpy as np",
        "np.random.default_rng(0)",
        "def f(rng: np.random.Generator): rng.random()",
        "from timeit import x",
    ],
)
def test_what_is_pure_passes(code: str) -> None:
    assert not impurities(ast.parse(code), "penstock.model.x")
