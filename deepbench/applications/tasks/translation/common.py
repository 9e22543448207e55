"""What all versions of translation share."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepbench.applications.datasets import Divided, divided
from deepbench.applications.datasets.wmt import Pair
from deepbench.applications.training.application import Rung
from deepbench.core.errors import BadInput

Words = tuple[list[str], list[str]]
"""Those of a sentence, and those of its translation."""

WORD = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")
NOTHING, UNKNOWN, BEGIN, END = range(4)

# In the place of a word that is not in the vocabulary. No text has it.
UNKNOWN_TEXT = "⟨unknown⟩"

# One verse in so many is for testing.
TESTED = 60

# Verses of a step of the evaluation.
EVALUATED = 128

WARM_UP = 0.1
HEAD_WIDTH, DROPOUT = 32, 0.1
BETAS, WEIGHT_DECAY, LONGEST_GRADIENT = (0.9, 0.98), 1e-2, 1.0


class TranslationExamples(NamedTuple):
    """Sentences as numbers of words: sentences × places, between `BEGIN` and `END`, filled up with `NOTHING`."""

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    test_source: NDArray[np.int64]
    test_target: NDArray[np.int64]
    words: dict[int, str]
    """Of the language of the target, by number; the others are no words."""
    wanted: list[list[str]]
    """The words of the tested targets."""

    @property
    def tested_words(self) -> int:
        """How many words of the target are predicted in an evaluation, ends included."""
        return int((self.test_target[:, 1:] != NOTHING).sum())

    def texts(self, rows: Iterable[Sequence[int]]) -> list[list[str]]:
        """The words of translations, each up to its end."""
        return [[self.words.get(i, UNKNOWN_TEXT) for i in takewhile(END.__ne__, row[1:])] for row in rows]

    def grade(self, tests: Sequence[int], answers: Sequence[Sequence[str]]) -> float:
        """How much translations resemble the right ones."""
        return bleu(answers, [self.wanted[i] for i in tests])


def examples(data: Sequence[Pair] | Divided[list[Pair]], rung: Rung) -> TranslationExamples:
    """Sentences that are short enough: verses, divided into those for training and those for testing, or sentences that
    are divided already.
    """
    sizes = rung.settings
    if isinstance(data, Divided):
        train, test = (_short(part, sizes["length"]) for part in data)
    else:
        train, test = divided(_short(data, sizes["length"]), lambda pair: " ".join(pair[0]), TESTED)
    if not train or not test:
        raise BadInput(f"no sentences of at most {sizes['length']} words for training, or none for testing")
    if sizes.get("is_shared"):
        known = [_vocabulary((text for pair in train for text in pair), sizes["words"])] * 2
    else:
        known = [_vocabulary((pair[side] for pair in train), sizes["words"]) for side in (0, 1)]

    def numbers(part: Sequence[Words], side: int) -> NDArray[np.int64]:
        return _numbers([pair[side] for pair in part], known[side], sizes["length"] + 2)

    words = {number: word for word, number in known[1].items()}
    return TranslationExamples(
        numbers(train, 0), numbers(train, 1), numbers(test, 0), numbers(test, 1), words, [pair[1] for pair in test]
    )


def _short(pairs: Sequence[Pair], length: int) -> list[Words]:
    """The words of those pairs of which both halves have at most so many; equal words share their memory."""
    found = (tuple([sys.intern(word) for word in WORD.findall(text.lower())] for text in pair) for pair in pairs)
    return [(source, target) for source, target in found if max(len(source), len(target)) <= length]


def _vocabulary(texts: Iterable[Sequence[str]], size: int) -> dict[str, int]:
    counts = Counter(word for text in texts for word in text)
    ordered = sorted(counts, key=lambda word: (-counts[word], word))[: size - 1 - END]
    return {word: i for i, word in enumerate(ordered, END + 1)}


def _numbers(texts: Sequence[Sequence[str]], known: dict[str, int], length: int) -> NDArray[np.int64]:
    """The words of each text between `BEGIN` and `END`, filled up with `NOTHING`."""
    found = np.full((len(texts), length), NOTHING, np.int64)
    for row, text in zip(found, texts, strict=True):
        row[: len(text) + 2] = [BEGIN, *(known.get(word, UNKNOWN) for word in text), END]
    return found


def bleu(found: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> float:
    """How much texts resemble the right ones, from 0 to 1: the geometric mean of the shares of right words, pairs,
    threes and fours of words, times a penalty for texts that are too short (Papineni and others, 2002).
    """
    logs = 0.0
    for n in range(1, 5):
        right = total = 0
        for text, other in zip(found, wanted, strict=True):
            has, may_have = (Counter(zip(*(t[i:] for i in range(n)), strict=False)) for t in (text, other))
            right += (has & may_have).total()
            total += has.total()
        if not right:
            return 0.0
        logs += np.log(right / total) / 4
    lengths = sum(map(len, wanted)) / sum(map(len, found))
    return float(np.exp(logs + min(0.0, 1.0 - lengths)))
