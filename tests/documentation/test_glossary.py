"""One word for each thing: no class name twice, and no word that the glossary replaces."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"

#: Words that are not to come back, and what to say instead.
FORBIDDEN = {
    r"(?<!square )(?<!sine )waves?": "batch spec",
    r"(?<!third )(?:party|parties)": "participant",
    r"ledgers?": "state registry",
    r"residences?": "task state",
    r"keepers?": "backup node",
    r"handovers?": "async backup",
    r"riding|riders?": "in-band migration, senders",
    r"crews?": "executors",
    r"errands?": "mailbox, request",
    r"dealt|dealing|re-?deal": "repartitioned (state), distributed (tuples)",
    r"deals? (?:anew|keys|state|tuples|partitions)": "repartition, distribute",
    r"parcels?": "transfer",
    r"alight|aboard|tenants?": "cancel, begin, instance at",
    r"spread anew": "backed up again",
    r"journals?": "commit log",
    r"(?:raw|check) (?:fragment|block)s?": "data and parity fragments",
    r"in charge": "in force",
    r"(?:old|new|its|their|no|only)[ _]homes?": "owner (of a key), node, location",
    r"copied ahead": "pre-copied",
    r"await_end": "await_termination",
    r"smallest\(|largest\(": "penstock.functions.min, max",
}
#: A word stands by itself, between underscores, or in a name of several words.
FOUND = {word: re.compile(rf"(?<![a-z])(?:{word})(?![a-z])", re.IGNORECASE) for word in FORBIDDEN}

#: Files, or folders, where a word has another meaning.
ALLOWED = {
    r"(?<!square )(?<!sine )waves?": (
        # Spark's waves of tasks, and waves of a spectrum.
        "src/penstock/advise/",
        "src/penstock/strategies/",
    ),
    r"journals?": ("docs/strategies/", "src/penstock/store/"),
}


def pages() -> list[Path]:
    docs = [page for page in (ROOT / "docs").rglob("*.md") if page != GLOSSARY]
    return sorted([*(ROOT / "src").rglob("*.py"), *docs, ROOT / "README.md"])


def lines() -> Iterator[tuple[str, int, str]]:
    for page in pages():
        name = str(page.relative_to(ROOT))
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
            yield name, number, line


@pytest.mark.parametrize("word", FORBIDDEN)
def test_words_that_are_gone_stay_gone(word: str) -> None:
    again = [
        f"{name}:{number}: {line.strip()}"
        for name, number, line in lines()
        if FOUND[word].search(line) and not name.startswith(ALLOWED.get(word, ()))
    ]
    assert not again, f"say {FORBIDDEN[word]}:\n" + "\n".join(again)


def test_no_two_classes_share_a_name() -> None:
    where: dict[str, list[str]] = defaultdict(list)
    for page in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(page.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(f"{page.relative_to(ROOT)}:{node.lineno}")
    twice = {name: files for name, files in where.items() if len(files) > 1}
    assert not twice
