"""Made-up text: lines of words from a made-up vocabulary, by Zipf's law."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.arrays import IntArray
from penstock.common.keywords import class_keywords
from penstock.model import InvalidValue
from penstock.pipeline.sources.draws import Draws, shuffled
from penstock.pipeline.sources.zipf import Zipf

_CONSONANTS, _VOWELS = "bdfghjklmnprstvw", "aeiou"
_SYLLABLES = [consonant + vowel for consonant in _CONSONANTS for vowel in _VOWELS]


@lru_cache(maxsize=8)
def vocabulary(size: int, seed: int = 0) -> pa.StringArray:
    """Make so many different words, the same ones for the same seed, in a random order.

    A word's length does not follow its rank. Vocabularies are made anew in every process that asks
    for them, so that a source that has one is small when it is sent.

    Examples
    --------
    >>> vocabulary(4, seed=3).to_pylist()
    ['be', 'ba', 'bo', 'bi']
    """
    words = []
    for number in range(size):
        # Bijective numeration: every number is a word, every word a number.
        word, rest = "", number + 1
        while rest:
            rest, digit = divmod(rest - 1, len(_SYLLABLES))
            word = _SYLLABLES[digit] + word
        words.append(word)
    return pa.array(words, pa.string()).take(pa.array(shuffled(seed, "vocabulary", size)))


@lru_cache(maxsize=8)
def _spaced(size: int, seed: int) -> pa.StringArray:
    """All words with a space behind them, then all without."""
    words = vocabulary(size, seed)
    blanks = pa.array([" "] * size)
    joined = pc.binary_join_element_wise(words, blanks, "")
    return pa.concat_arrays([joined, words])


def lines_of(ranks: IntArray, words_per_line: int, size: int, seed: int) -> pa.StringArray:
    """Join words of a vocabulary, given by their ranks, to lines.

    The words, spaces included, are gathered into one buffer; a line is every so many words of it,
    so that nothing is copied a second time.
    """
    lines = len(ranks) // words_per_line
    chosen = ranks.reshape(lines, words_per_line).copy()
    chosen[:, -1] += size
    words = _spaced(size, seed).take(pa.array(chosen.ravel()))
    _, offsets, content = words.buffers()
    starts = np.frombuffer(offsets, dtype=np.int32)[: len(words) + 1 : words_per_line]
    return pa.StringArray.from_buffers(lines, pa.py_buffer(starts.copy()), content)


@class_keywords
@dataclass(frozen=True)
class Text:
    """Content of a generator: lines of words.

    Parameters
    ----------
    words_per_line : int
        1 makes single words.
    vocabulary : int
        Number of different words.
    zipf : float
        Coefficient of the words, 0.0 to 2.0.
    name : str
        Name of the column.
    vocabulary_seed : int
        Seed of the words themselves, apart from the order in which they come.
    """

    words_per_line: int = 10
    vocabulary: int = 10_000
    zipf: float = 1.0
    name: str = "line"
    vocabulary_seed: int = 0

    def __post_init__(self) -> None:
        for name in ("words_per_line", "vocabulary"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidValue(name, "Text", "a whole number of at least 1", value)
        Zipf(self.vocabulary, self.zipf)

    @property
    def schema(self) -> pa.Schema:
        """One column."""
        return pa.schema([(self.name, pa.string())])

    def columns(self, draws: Draws) -> Mapping[str, Any]:
        """Draw the words of every line."""
        uniform = draws.uniform("word", self.words_per_line)
        ranks = Zipf(self.vocabulary, self.zipf).ranks(uniform)
        return {
            self.name: lines_of(ranks, self.words_per_line, self.vocabulary, self.vocabulary_seed)
        }
