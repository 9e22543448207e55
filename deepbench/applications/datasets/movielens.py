"""MovieLens 100k: who rated which film, and when (GroupLens, 1998)."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepbench.applications.datasets import Dataset, Package

FILE = "recbole/dataset_example/ml-100k/ml-100k.inter"


class Ratings(NamedTuple):
    """One number of each rating, in the order of the file. Users and films count from 0."""

    users: NDArray[np.int64]
    films: NDArray[np.int64]
    stars: NDArray[np.float32]
    """From 1 to 5."""
    times: NDArray[np.float64]
    """Seconds since 1970."""


class MovieLens(Dataset):
    """The file of the package recbole."""

    name = "movielens"
    title = "MovieLens 100k"
    about = "100,000 ratings of 1,682 films by 943 people"
    licence = "GroupLens, University of Minnesota"
    terms = "For research; do not distribute it without permission."
    packages = (
        Package(
            "pypi", "recbole", "1.2.1", 2_130_151, "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407"
        ),
    )
    files = (FILE,)
    digest = "939eaad4dac5e4013d8545ca5e2c734698f4a675c6fede52ffa8938250b0130f"

    def load(self, folder: Path) -> Ratings:
        """All ratings."""
        rows = list(csv.reader(io.StringIO((folder / FILE).read_text()), delimiter="\t"))[1:]
        users, films, stars, times = zip(*rows, strict=True)
        return Ratings(
            np.unique(np.array(users, int), return_inverse=True)[1],
            np.unique(np.array(films, int), return_inverse=True)[1],
            np.array(stars, np.float32),
            np.array(times, float),
        )


DATASET = MovieLens()
