"""German and English sentences, such as those of WMT, in a folder of the user."""

from __future__ import annotations

from pathlib import Path

from deepbench.applications.datasets import Divided, UserFolder
from deepbench.core.errors import BadInput
from deepbench.core.files import read_regular

TRAIN, TEST = "train", "test"
SOURCE, TARGET = "de", "en"

# The German half of WMT 2016 has 730 million bytes.
MOST_BYTES = 2**32

Pair = tuple[str, str]
"""A sentence, and its translation."""


class Wmt(UserFolder):
    """Two files for training and two for testing; equal lines are translations of each other."""

    name = "wmt"
    title = "WMT, German and English"
    about = "pairs of a German and an English sentence: 4.5 million in 2016, and 3,000 for testing"
    licence = "each corpus has its own"
    files = tuple(f"{part}.{language}" for part in (TRAIN, TEST) for language in (SOURCE, TARGET))
    variable = "DEEPBENCH_WMT"
    wanted = f"{', '.join(files)}: text in UTF-8, a sentence per line"

    def load(self, folder: Path) -> Divided[list[Pair]]:
        """All pairs of which no half is empty, in the order of the files."""
        return Divided(*(_pairs(folder, part) for part in (TRAIN, TEST)))


def _pairs(folder: Path, part: str) -> list[Pair]:
    paths = [folder / f"{part}.{language}" for language in (SOURCE, TARGET)]
    sides = [read_regular(path, MOST_BYTES, "sentences").decode("utf-8", "replace").split("\n") for path in paths]
    lines = [len(side) - (not side[-1]) for side in sides]
    if lines[0] != lines[1]:
        raise BadInput(f"{paths[0]} has {lines[0]} lines, and {paths[1].name} has {lines[1]}")
    found = [(a, b) for a, b in zip(*sides, strict=False) if a.strip() and b.strip()]
    if not found:
        raise BadInput(f"{paths[0]} and {paths[1].name} have no sentences")
    return found


DATASET = Wmt()
