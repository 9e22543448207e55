"""MovieLens 20M: 20 million ratings (Harper and Konstan, 2015), in a folder of the user."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deepbench.applications.datasets import UserFolder
from deepbench.applications.datasets.movielens import Ratings
from deepbench.core.errors import BadInput
from deepbench.core.files import open_regular

FILE = "ratings.csv"
COLUMNS = "userId,movieId,rating,timestamp"

# The file has 533 million bytes.
MOST_BYTES = 2**32


class MovieLens20M(UserFolder):
    """The file of the archive ml-20m of GroupLens."""

    name = "ml-20m"
    title = "MovieLens 20M"
    about = "20,000,263 ratings of 26,744 films by 138,493 people"
    licence = "GroupLens, University of Minnesota"
    terms = "For research; do not distribute it without permission."
    files = (FILE,)
    variable = "DEEPBENCH_ML20M"
    wanted = f"{FILE}, whose first line is {COLUMNS}"

    def load(self, folder: Path) -> Ratings:
        """All ratings."""
        path = folder / FILE
        with open_regular(path, MOST_BYTES, "ratings of MovieLens") as file:
            header = file.readline(200).decode("utf-8", "replace").strip()
            if header != COLUMNS:
                raise BadInput(f"the first line of {path} is {header!r:.80} and not {COLUMNS}")
            try:
                rows = np.loadtxt(file, delimiter=",", ndmin=2)
            except ValueError as error:
                raise BadInput(f"{path} is damaged: {error}") from None
        if rows.shape[1:] != (4,) or not len(rows):
            raise BadInput(f"{path} has no ratings of four numbers")
        users, films = (np.unique(rows[:, column], return_inverse=True)[1] for column in (0, 1))
        return Ratings(users, films, rows[:, 2].astype(np.float32), rows[:, 3])


DATASET = MovieLens20M()
