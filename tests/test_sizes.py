"""No module is longer than a reader's patience, and no function than a screen.

A function is measured without its docstring: what is written for the reader is not what has to be
understood.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "penstock"

#: Lines of a module, and of a function without its docstring.
MODULE, FUNCTION = 350, 60

#: What may be longer, up to how many lines, and why: path, or path and name of the function.
EXCEPTIONS: dict[str, tuple[int, str]] = {}


def key(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        total -= (first.end_lineno or first.lineno) - first.lineno + 1
    return total


def too_long(text: str, name: str) -> Iterator[str]:
    """Name what is longer than it may be."""
    lines = len(text.splitlines())
    if lines > EXCEPTIONS.get(name, (MODULE, ""))[0]:
        yield f"{name}: {lines} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            long = lines_of(node)
            if long > EXCEPTIONS.get(f"{name} {node.name}", (FUNCTION, ""))[0]:
                yield f"{name} {node.name}: {long} lines"


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=key)
def test_modules_and_functions_are_short(path: Path) -> None:
    assert list(too_long(path.read_text(encoding="utf-8"), key(path))) == []


def test_exceptions_are_there_and_few() -> None:
    assert len(EXCEPTIONS) <= 5
    assert all((SOURCE / name.split(" ")[0]).exists() for name in EXCEPTIONS)


def test_what_is_long_is_found() -> None:
    body = "\n".join(["def f():", '    """Say.', *["    word"] * 80, '    """', "    return 1"])
    assert list(too_long(body, "x.py")) == []
    long = "\n".join(["def f():", *["    x = 1"] * FUNCTION])
    assert list(too_long(long, "x.py")) == [f"x.py f: {FUNCTION + 1} lines"]
    assert list(too_long("\n" * (MODULE + 1), "x.py")) == [f"x.py: {MODULE + 1} lines"]
