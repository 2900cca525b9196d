"""WordCount: reading lines, splitting them into words, counting words (Ra fig. 1, Sra fig. 16)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from penstock import functions as F
from penstock.apps.api import App, Instances, rate_of, register
from penstock.apps.words import words_of
from penstock.common.parameters import param
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.sources.generator import Content
from penstock.pipeline.sources.readers import Reader, TextLines
from penstock.pipeline.sources.text import Text
from penstock.pipeline.steps import Hints, Sink

#: Rows sent for each word of a line: equal ones of a batch are added up first.
SENT_PER_WORD = 0.1

_WORD = re.compile(r"[a-z0-9\x80-\U0010ffff]+")


@register
@dataclass(frozen=True)
class WordCount(App):
    """Count words of text.

    The result is the number of times that each word came, as ``(word, n)``. A word is a run of
    letters and digits, ASCII letters made small.

    A line of ten words costs about 0.6 microseconds to make and 1 to split. Equal words of a batch
    are added up before they are sent; what arrives costs about 1 microsecond a row to count.
    """

    name: ClassVar[str] = "wordcount"
    summary: ClassVar[str] = "lines -> split -> count: how often each word comes"
    keys: ClassVar[Mapping[str, tuple[str, ...]]] = {"counts": ("word",)}

    words_per_line: int = param(10, "Words in a generated line.", least=1, unit="words")
    vocabulary: int = param(10_000, "Different words in generated lines.", least=1, unit="words")

    def content(self, zipf: float) -> Content:
        """Lines of words, the words skewed."""
        return Text(self.words_per_line, self.vocabulary, zipf)

    def reader(self, path: str | Path) -> Reader:
        """Read any text, line by line."""
        return TextLines()

    def build(self, source: Any, out: Mapping[str, Sink], many: Instances) -> Pipeline:
        """Build ``lines -> split -> count -> counts``; see `App.build`."""
        counts = counting(self.name, source, many, self.words_per_line)
        return counts.sink("counts", out["counts"])

    def expected(self, table: pa.Table) -> dict[str, pa.Table]:
        """Count with a regular expression and a `Counter`."""
        return {"counts": counted(word_list(table.column("line").to_pylist()))}


def counting(name: str, source: Any, many: Instances, words_per_line: int) -> Pipeline:
    """Begin a pipeline with ``lines -> split -> count``."""
    return (
        Pipeline(name)
        .source(
            "lines",
            source,
            parallelism=many.of("lines"),
            hints=Hints(
                rate_per_s=rate_of(source), cpu_us_per_tuple=0.6, tuple_bytes=6.0 * words_per_line
            ),
        )
        .map(
            "split",
            split,
            parallelism=many.stateless("split"),
            chain=many.chain,
            hints=Hints(
                cpu_us_per_tuple=0.1 * words_per_line,
                selectivity=SENT_PER_WORD * words_per_line,
                tuple_bytes=10.0,
            ),
        )
        .aggregate(
            "count",
            by="word",
            n=F.count(),
            parallelism=many.of("count"),
            hints=Hints(cpu_us_per_tuple=1.0, tuple_bytes=18.0),
        )
    )


def split(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Turn lines into words."""
    return pa.record_batch({"word": words_of(batch.column("line"))[0]})


def word_list(lines: list[str | None]) -> list[str]:
    """Words of lines, one line at a time, for checking."""
    return [word for line in lines for word in words_in(line)]


def words_in(line: str | None) -> list[str]:
    """Words of a line, for checking."""
    small = "".join(c.lower() if c.isascii() else c for c in line or "")
    return _WORD.findall(small)


def counted(words: list[str]) -> pa.Table:
    """Count words into a table sorted by word."""
    pairs = sorted(Counter(words).items(), key=lambda pair: pair[0].encode())
    schema = pa.schema([("word", pa.string()), ("n", pa.int64())])
    return pa.table([[w for w, _ in pairs], [n for _, n in pairs]], schema=schema)
