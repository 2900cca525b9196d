"""Top_N in both shapes of the papers: the most frequent words of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock import functions as F
from penstock.apps.api import App, Instances, rate_of, register
from penstock.apps.ranking import STATE, Ranking, top
from penstock.apps.wordcount import counted, counting, word_list
from penstock.common.key_hashing import hash_keys
from penstock.common.parameters import param
from penstock.model import Grouping
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.sources.generator import Content
from penstock.pipeline.sources.readers import Reader, TextLines
from penstock.pipeline.sources.text import Text
from penstock.pipeline.steps import Hints, Link, Sink

#: Groups of the intermediate rankings: more than instances, so that they can be repartitioned.
GROUPS = 64

KEYS: Mapping[str, tuple[str, ...]] = {"ranks": ("rank",)}


@register
@dataclass(frozen=True)
class TopN(App):
    """Rank words in two steps: counts, rankings of groups of words, one ranking of all.

    As in Storm's starter (Sra fig. 1 and 2, Ts fig. 5): ``words -> count -> rank -> total``, by
    fields, by fields, and global. Words go to 64 intermediate rankings by hash.

    The result is the `n` most frequent words since the start of the stream, as
    ``(rank, word, n)``; of equally frequent words the one first in the alphabet is ahead. Storm's
    starter counts over the last seconds instead; a count that can fall again would need all words
    at every step.

    Equal words of a batch are added up before they are sent. What arrives costs about 1 microsecond
    a row to count; a word whose count changed costs about 2 to rank, and 5 if it gets to `total`.
    """

    name: ClassVar[str] = "topn"
    summary: ClassVar[str] = "words -> count -> rank -> total: the most frequent words"
    keys: ClassVar[Mapping[str, tuple[str, ...]]] = KEYS

    n: int = param(10, "Length of the ranking.", least=1, unit="words")
    vocabulary: int = param(10_000, "Different words in generated data.", least=1, unit="words")

    def content(self, zipf: float) -> Content:
        """Single words, skewed."""
        return Text(1, self.vocabulary, zipf, name="word")

    def reader(self, path: str | Path) -> Reader:
        """Read a text with one word, or any other key, a line."""
        return TextLines("word")

    def build(self, source: Any, out: Mapping[str, Sink], many: Instances) -> Pipeline:
        """Build ``words -> count -> rank -> total -> ranks``; see `App.build`."""
        return (
            Pipeline(self.name)
            .source(
                "words",
                source,
                parallelism=many.of("words"),
                hints=Hints(rate_per_s=rate_of(source), cpu_us_per_tuple=0.5, tuple_bytes=10.0),
            )
            .aggregate(
                "count",
                by="word",
                n=F.count(),
                parallelism=many.of("count"),
                hints=Hints(cpu_us_per_tuple=1.0, tuple_bytes=18.0),
            )
            .map(
                "group",
                in_groups,
                hints=Hints(cpu_us_per_tuple=0.3, tuple_bytes=22.0),
            )
            .stateful(
                "rank",
                by="group",
                update=Ranking(self.n, "group"),
                state=STATE,
                parallelism=many.of("rank"),
                hints=Hints(cpu_us_per_tuple=2.0, selectivity=0.15, tuple_bytes=18.0),
            )
            .stateful(
                "total",
                by="ranking",
                update=Ranking(self.n, "ranking", total=True),
                state=STATE,
                after=Link("rank", Grouping.GLOBAL),
                parallelism=1,
                hints=Hints(cpu_us_per_tuple=5.0, selectivity=0.1, tuple_bytes=26.0),
            )
            .sink("ranks", out["ranks"])
        )

    def expected(self, table: pa.Table) -> dict[str, pa.Table]:
        """Count and sort everything."""
        words = [word for word in table.column("word").to_pylist() if word is not None]
        return {"ranks": _ranked(words, self.n)}


@register
@dataclass(frozen=True)
class TopNMerge(App):
    """Rank words of lines in one step: the counting instances send their first, one merges them.

    As in Sl table 4: ``lines -> split -> count -> merge``, where counting instances rank what
    changed and `merge` joins the ranks of all. The result is that of `TopN`, for the words of the
    lines. Costs are those of `WordCount`; of a counting instance at most `n` words a batch go on.
    """

    name: ClassVar[str] = "topn-merge"
    summary: ClassVar[str] = "lines -> split -> count -> merge: the most frequent words"
    keys: ClassVar[Mapping[str, tuple[str, ...]]] = KEYS

    n: int = param(10, "Length of the ranking.", least=1, unit="words")
    words_per_line: int = param(10, "Words in a generated line.", least=1, unit="words")
    vocabulary: int = param(10_000, "Different words in generated lines.", least=1, unit="words")

    def content(self, zipf: float) -> Content:
        """Lines of words, the words skewed."""
        return Text(self.words_per_line, self.vocabulary, zipf)

    def reader(self, path: str | Path) -> Reader:
        """Read any text, line by line."""
        return TextLines()

    def build(self, source: Any, out: Mapping[str, Sink], many: Instances) -> Pipeline:
        """Build ``lines -> split -> count -> merge -> ranks``; see `App.build`."""
        return (
            counting(self.name, source, many, self.words_per_line)
            .map(
                "first",
                partial(first, n=self.n),
                hints=Hints(cpu_us_per_tuple=0.5, selectivity=0.01, tuple_bytes=18.0),
            )
            .stateful(
                "merge",
                by="ranking",
                update=Ranking(self.n, "ranking", total=True),
                state=STATE,
                after=Link("first", Grouping.GLOBAL),
                parallelism=1,
                hints=Hints(cpu_us_per_tuple=5.0, tuple_bytes=26.0),
            )
            .sink("ranks", out["ranks"])
        )

    def expected(self, table: pa.Table) -> dict[str, pa.Table]:
        """Count and sort everything."""
        return {"ranks": _ranked(word_list(table.column("line").to_pylist()), self.n)}


def in_groups(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give words to groups by hash."""
    groups = (hash_keys(batch.column("word")) % np.uint64(GROUPS)).astype(np.int32)
    return batch.append_column("group", pa.array(groups))


def first(batch: pa.RecordBatch, *, n: int) -> pa.Table:
    """Keep the most frequent words of those whose count changed.

    No word of the final ranking is lost: at its last change it had at most `n` - 1 words before it,
    here as anywhere, since counts only grow.
    """
    ranking = pa.array(np.zeros(batch.num_rows, dtype=np.int8))
    rows = pa.Table.from_batches([batch.append_column("ranking", ranking)])
    return top(rows, n, "ranking").select(["ranking", "word", "n"])


def _ranked(words: list[str], n: int) -> pa.Table:
    rows = sorted(counted(words).to_pylist(), key=lambda row: (-row["n"], row["word"].encode()))[:n]
    schema = pa.schema([("rank", pa.int64()), ("word", pa.string()), ("n", pa.int64())])
    return pa.Table.from_pylist([{"rank": i + 1, **row} for i, row in enumerate(rows)], schema)
