"""Reviews of films that are negative or positive (Maas and others, 2011), in a folder of the user."""

from __future__ import annotations

from pathlib import Path

from deepbench.applications.datasets import Divided, UserFolder
from deepbench.applications.datasets.tweets import Tweet
from deepbench.core.files import read_regular

LABELS = ("negative", "positive")

# A review has some kilobytes.
MOST_BYTES = 2**20


class Imdb(UserFolder):
    """The archive aclImdb as it is unpacked."""

    name = "imdb"
    title = "Reviews of IMDB"
    about = "50,000 reviews of films in English, half of them for testing"
    licence = "none is stated"
    terms = "The texts are those of their authors: use them, but do not distribute them."
    files = tuple(f"{part}/{label}/*.txt" for part in ("train", "test") for label in ("neg", "pos"))
    variable = "DEEPBENCH_IMDB"
    wanted = ", ".join(files)

    def load(self, folder: Path) -> Divided[list[Tweet]]:
        """All reviews with the index of their label in `LABELS`, by label and name."""
        return Divided(*(_reviews(folder / part) for part in ("train", "test")))


def _reviews(folder: Path) -> list[Tweet]:
    found = []
    for label, name in enumerate(("neg", "pos")):
        for path in sorted((folder / name).glob("*.txt")):
            text = read_regular(path, MOST_BYTES, "a review").decode("utf-8", "replace")
            found.append(Tweet(text.replace("<br />", " "), label))
    return found


DATASET = Imdb()
