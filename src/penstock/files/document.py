"""From bytes to plain values: YAML or JSON, with everything refused that could mislead.

YAML is read by the rules of version 1.2 for plain scalars: ``no`` and ``2024-05-01`` are text,
``1e6`` is a number. Keys must be text and must not repeat; merge keys are not supported.

PyYAML's own nodes keep the positions that errors name; a library that writes YAML back is not
needed for that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import yaml

from penstock.common.near_miss import near_miss
from penstock.files.errors import FileError, shown

#: Suffixes that are read, in the order in which they are offered.
SUFFIXES = (".yaml", ".yml", ".json")

#: Larger files are refused before they are read.
MOST_BYTES = 256 * 1024 * 1024

#: Where a file may be; what `open` takes.
FilePath = str | PathLike[str]


class _Misleading(Exception):
    """Syntax that parses but is refused."""


def read_document(path: FilePath) -> Any:
    """Read a file into plain values: mappings, lists, text, numbers, booleans and None.

    Raises
    ------
    FileError
        When the file is missing, is no YAML or JSON by its suffix or by its content, is empty, or
        has a repeated key.
    """
    file = Path(path)
    name = str(path)
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise FileError(name, f"must end in {', '.join(SUFFIXES)}, got {shown(file.suffix)}")
    text = _read_text(file, name)
    if not text.strip():
        raise FileError(name, "is empty")
    try:
        return _parse_json(text) if suffix == ".json" else _parse_yaml(text)
    except _Misleading as error:
        raise FileError(name, str(error)) from None
    except RecursionError:
        raise FileError(name, "is nested too deeply") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise FileError(name, f"is not valid JSON: {error.msg} at {place}") from None
    except yaml.YAMLError as error:
        raise FileError(name, f"is not valid YAML: {_yaml_problem(error)}") from None
    except (ValueError, OverflowError) as error:
        raise FileError(name, f"holds a value that cannot be read: {error}") from None


def _read_text(file: Path, name: str) -> str:
    try:
        if file.is_dir():
            raise FileError(name, "is a directory, not a file")
        if file.stat().st_size > MOST_BYTES:
            raise FileError(name, f"is larger than {MOST_BYTES // 1024**2} MB")
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise FileError(name, f"does not exist{_neighbour(file)}") from None
    except UnicodeDecodeError as error:
        raise FileError(name, f"is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise FileError(name, f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the name
        raise FileError(name.replace("\0", "\\0"), f"cannot be read: {error}") from None


def _neighbour(file: Path) -> str:
    try:
        return near_miss(file.name, (entry.name for entry in file.parent.iterdir()))
    except OSError:
        return ""


def _parse_json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    raise _Misleading(f"repeats the key {shown(key)}")
                seen.add(key)
        return made

    def constant(name: str) -> Any:
        raise _Misleading(f"must hold finite numbers only, got {name}")

    return json.loads(text, object_pairs_hook=unique, parse_constant=constant)


class _Loader(yaml.SafeLoader):
    """Plain scalars by YAML 1.2, unique text keys, no merge keys, no other types."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012
    yaml_constructors: ClassVar[dict[str | None, Any]] = {}


def _construct_map(loader: _Loader, node: yaml.Node) -> Iterable[dict[str, Any]]:
    made: dict[str, Any] = {}
    yield made
    if not isinstance(node, yaml.MappingNode):
        raise yaml.constructor.ConstructorError(None, None, "expected a mapping", node.start_mark)
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        line = key_node.start_mark.line + 1
        if not isinstance(key, str):
            raise _Misleading(f"must have text as keys, got {shown(key)} on line {line}")
        if key == "<<":
            raise _Misleading(f"uses a merge key on line {line}, which is not supported")
        if key in made:
            raise _Misleading(f"repeats the key {shown(key)} on line {line}")
        made[key] = loader.construct_object(value_node, deep=True)


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


_SCALARS: dict[str, Callable[[str], Any]] = {
    "null": lambda text: None,
    "bool": lambda text: text.lower() == "true",
    "int": int,
    "float": _float,
    "str": str,
}


def _construct_scalar(kind: str) -> Callable[[_Loader, yaml.ScalarNode], Any]:
    return lambda loader, node: _SCALARS[kind](str(loader.construct_scalar(node)))


def _prepare_loader() -> None:
    # Loader classes are set up by registration; the tables above start out empty.
    prefix = "tag:yaml.org,2002:"
    for kind in _SCALARS:
        _Loader.yaml_constructors[prefix + kind] = _construct_scalar(kind)
    _Loader.yaml_constructors[prefix + "map"] = _construct_map
    _Loader.yaml_constructors[prefix + "seq"] = yaml.SafeLoader.construct_yaml_seq
    _Loader.yaml_constructors[None] = yaml.SafeLoader.construct_undefined
    for kind, pattern, first in (
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
        ("int", r"[-+]?[0-9]+", list("-+0123456789")),
        (
            "float",
            r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
            r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
            list("-+0123456789."),
        ),
    ):
        for character in first:
            _Loader.yaml_implicit_resolvers.setdefault(character, []).append(
                (prefix + kind, re.compile(f"^(?:{pattern})$"))
            )


_prepare_loader()


def _parse_yaml(text: str) -> Any:
    # The loader is safe: it makes plain values only.
    return yaml.load(text, Loader=_Loader)


def _yaml_problem(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or "unreadable"
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return str(problem)
    return f"{problem} at line {mark.line + 1}, column {mark.column + 1}"
