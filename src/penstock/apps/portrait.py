"""Real-time user portrait: who a user may be, from the words they search for (Sra fig. 17)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.apps.api import App, Instances, rate_of, register
from penstock.apps.searches import SCHEMA, Searches
from penstock.apps.wordcount import words_in
from penstock.apps.words import words_of
from penstock.common.arrays import IntArray
from penstock.common.key_hashing import hash_keys, mix
from penstock.common.parameters import param
from penstock.model import Grouping
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.sources.draws import stream
from penstock.pipeline.sources.files import reader_for
from penstock.pipeline.sources.generator import Content
from penstock.pipeline.sources.readers import Reader
from penstock.pipeline.steps import Hints, Link, Sink


@dataclass(frozen=True)
class Trait:
    """One trait of a portrait, and what words say about it.

    A real system asks a trained model. Here a hash of the word stands for it: two words of three
    speak for one of the values, the third says nothing. The traffic is that of the real thing, the
    cost that of a lookup, and the portraits mean nothing.

    Parameters
    ----------
    name : str
    values : tuple of str
    base : int
        Number of the first value among all values of all traits.
    """

    name: str
    values: tuple[str, ...]
    base: int

    def of(self, words: pa.Array) -> IntArray:
        """Return the number of the value that each word speaks for, or -1."""
        bits = mix(hash_keys(words) ^ stream(0, self.name))
        speaks = bits % np.uint64(3) != 0
        value = (bits >> np.uint64(32)) % np.uint64(len(self.values))
        return np.where(speaks, value.astype(np.int64), -1)

    def extract(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Turn words of users into evidence for the values."""
        value = self.of(batch.column("word"))
        said = value >= 0
        return pa.record_batch(
            {
                "user": batch.column("user").filter(pa.array(said)),
                "value": pa.array((value[said] + self.base).astype(np.int16)),
            }
        )


GENDER = Trait("gender", ("female", "male"), 0)
AGE = Trait("age", ("under 18", "18 to 29", "30 to 44", "45 to 59", "over 59"), 2)
OCCUPATION = Trait("occupation", ("crafts", "health", "office", "retired", "school", "trade"), 7)
TRAITS = (GENDER, AGE, OCCUPATION)

#: Evidence for each value: the state of a portrait.
STATE = pa.schema(
    [(f"{trait.name}: {value}", pa.int64()) for trait in TRAITS for value in trait.values]
)

PORTRAIT = pa.schema(
    [
        ("user", pa.int64()),
        *((trait.name, pa.string()) for trait in TRAITS),
        ("evidence", pa.int64()),
    ]
)


@register
@dataclass(frozen=True)
class Portrait(App):
    """Say of every user what their words speak for most.

    ``searches -> segment -> gender, age, occupation -> portrait``: a fan-out into three features
    and a join of the three by user.

    The result is, for each user of whom anything was said, the value with the most words of each
    trait, null if there were none, and the number of words that said something, counted once for
    each trait, as ``(user, gender, age, occupation, evidence)``. Of equal values the one declared
    first is taken.

    A search of three words costs about 0.5 microseconds to make and 0.3 to segment; a word costs
    0.1 for each feature, and 0.2 in the portrait if it says anything.
    """

    name: ClassVar[str] = "portrait"
    summary: ClassVar[str] = "searches -> segment -> gender, age, occupation -> portrait"
    keys: ClassVar[Mapping[str, tuple[str, ...]]] = {"portraits": ("user",)}

    users: int = param(10_000, "Different users in generated data.", least=1, unit="users")
    words: int = param(3, "Words of a generated search.", least=1, unit="words")

    def content(self, zipf: float) -> Content:
        """Make searches, the users skewed."""
        return Searches(self.users, zipf, words=self.words)

    def reader(self, path: str | Path) -> Reader:
        """Read CSV (``.tsv``: tab separated) or Parquet with the columns ``user`` and ``query``."""
        return reader_for(path, SCHEMA, ("user", "query"))

    def build(self, source: Any, out: Mapping[str, Sink], many: Instances) -> Pipeline:
        """Build the pipeline with its fan-out and join; see `App.build`."""
        built = (
            Pipeline(self.name)
            .source(
                "searches",
                source,
                parallelism=many.of("searches"),
                hints=Hints(
                    rate_per_s=rate_of(source),
                    cpu_us_per_tuple=0.5,
                    tuple_bytes=8.0 + 7.0 * self.words,
                ),
            )
            .map(
                "segment",
                segment,
                parallelism=many.stateless("segment"),
                chain=many.chain,
                hints=Hints(
                    cpu_us_per_tuple=0.1 * self.words,
                    selectivity=float(self.words),
                    tuple_bytes=18.0,
                ),
            )
        )
        for trait in TRAITS:
            built = built.map(
                trait.name,
                trait.extract,
                after="segment",
                parallelism=many.stateless(trait.name),
                chain=many.chain,
                hints=Hints(cpu_us_per_tuple=0.1, selectivity=2 / 3, tuple_bytes=10.0),
            )
        return built.stateful(
            "portrait",
            by="user",
            update=update,
            state=STATE,
            after=[Link(trait.name, Grouping.FIELDS, ("user",)) for trait in TRAITS],
            parallelism=many.of("portrait"),
            hints=Hints(cpu_us_per_tuple=0.2, selectivity=0.05, tuple_bytes=50.0),
        ).sink("portraits", out["portraits"])

    def expected(self, table: pa.Table) -> dict[str, pa.Table]:
        """Count evidence for each user, one search at a time."""
        users, queries = (table.column(name).to_pylist() for name in ("user", "query"))
        searches = [
            (user, words_in(query))
            for user, query in zip(users, queries, strict=True)
            if user is not None
        ]
        known = sorted({word for _, words in searches for word in words})
        speaks = {
            t.name: dict(zip(known, t.of(pa.array(known, pa.string())), strict=True))
            for t in TRAITS
        }
        evidence: dict[int, dict[str, list[int]]] = {}
        for user, words in searches:
            for trait in TRAITS:
                for word in words:
                    value = int(speaks[trait.name][word])
                    if value >= 0:
                        mine = evidence.setdefault(
                            user, {t.name: [0] * len(t.values) for t in TRAITS}
                        )
                        mine[trait.name][value] += 1
        rows = []
        for user in sorted(evidence):
            row: dict[str, Any] = {"user": user, "evidence": 0}
            for trait in TRAITS:
                counts = evidence[user][trait.name]
                best = counts.index(max(counts))
                row[trait.name] = trait.values[best] if counts[best] else None
                row["evidence"] += sum(counts)
            rows.append(row)
        return {"portraits": pa.Table.from_pylist(rows, PORTRAIT)}


def segment(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Turn searches into words of users."""
    batch = batch.filter(batch.column("user").is_valid())
    words, counts = words_of(batch.column("query"))
    owner = np.repeat(np.arange(batch.num_rows), counts)
    return pa.record_batch({"user": batch.column("user").take(pa.array(owner)), "word": words})


def update(batch: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Add evidence to the state of its users, and draw their portraits."""
    users, owner = np.unique(np.asarray(batch.column("user")), return_inverse=True)
    width = len(STATE)
    cell = owner * width + np.asarray(batch.column("value")).astype(np.int64)
    counts = np.bincount(cell, minlength=len(users) * width).reshape(len(users), width)
    if state.num_rows:
        # The state has only users of the batch.
        at = np.searchsorted(users, np.asarray(state.column("user")))
        known = [np.asarray(state.column(name)) for name in STATE.names]
        counts[at] += np.stack(known, axis=1)
    key = pa.array(users, pa.int64())
    changed = pa.table([key, *counts.T.copy()], names=["user", *STATE.names])
    return _portraits(key, counts), changed


def _portraits(users: pa.Array, counts: IntArray) -> pa.Table:
    drawn = []
    for trait in TRAITS:
        mine = counts[:, trait.base : trait.base + len(trait.values)]
        best = mine.argmax(axis=1)
        unknown = mine.max(axis=1) == 0
        drawn.append(pa.array(trait.values).take(pa.array(best, mask=unknown)))
    return pa.table([users, *drawn, counts.sum(axis=1)], schema=PORTRAIT)
