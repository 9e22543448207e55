"""ImageNet: photographs of one of 1,000 classes (Russakovsky and others, 2015), in a folder of the user."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deepbench.applications.datasets import Divided, UserFolder, needed, photograph
from deepbench.core.errors import BadInput

TRAIN, TEST = "train", "val"
SUFFIX = ".JPEG"

SIDE = 224
"""Width and height of a picture as a network gets it."""

# Of the shorter side of a photograph, for testing: 224 pixels of 256.
CENTRE = SIDE / 256


class ImageNetPhotographs:
    """Photographs that are read when they are asked for, and the class of each."""

    def __init__(self, paths: list[str], classes: NDArray[np.int64]) -> None:
        self._paths = paths
        self.classes = classes

    def __len__(self) -> int:
        return len(self._paths)

    def picture(self, number: int, chances: NDArray[np.float64] | None = None) -> NDArray[np.uint8]:
        """A square of a photograph, 3 × `SIDE` × `SIDE`; `BadInput` where it is damaged.

        Args:
            number: of the photograph.
            chances: for training, see `random_part`, and a fifth number: less than 0.5 mirrors. None: the middle.
        """

        def part(width: int, height: int) -> tuple[float, ...]:
            return middle(width, height) if chances is None else random_part(width, height, chances)

        rows = photograph("imagenet", self._paths[number], SIDE, part)
        return np.ascontiguousarray(rows if chances is None or chances[4] >= 0.5 else rows[:, :, ::-1])


def middle(width: int, height: int) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of the square in the middle, in pixels."""
    side = min(width, height) * CENTRE
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def random_part(width: int, height: int, chances: NDArray[np.float64]) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a part with 8 to 100 % of the area, and 3 : 4 to 4 : 3 in width to height (Szegedy
    and others, 2014, section 6). A part that is wider or higher than the photograph is cut off.

    Args:
        width, height: in pixels.
        chances: numbers from 0 to 1: for the area, the ratio and the place.
    """
    area = width * height * (0.08 + 0.92 * chances[0])
    ratio = (4 / 3) ** (2 * chances[1] - 1)
    wide, high = min((area * ratio) ** 0.5, width), min((area / ratio) ** 0.5, height)
    left, top = (width - wide) * chances[2], (height - high) * chances[3]
    return left, top, left + wide, top + high


class ImageNetFolder(UserFolder):
    """A folder for each class, as most programs want it."""

    name = "imagenet"
    title = "ImageNet 2012"
    about = "1,281,167 photographs of 1,000 classes, and 50,000 for testing"
    licence = "terms of access of image-net.org"
    terms = "For research that is not commercial; do not distribute it."
    files = (f"{TEST}/*/*{SUFFIX}",)  # those for training are too many to look at each time
    variable = "DEEPBENCH_IMAGENET"
    wanted = f"{TRAIN}/<class>/*{SUFFIX} and {TEST}/<class>/*{SUFFIX}"

    def load(self, folder: Path) -> Divided[ImageNetPhotographs]:
        """The names of all photographs. A class is the place of its folder among those for training."""
        needed("imagenet", "PIL.Image", "Pillow")
        try:
            names = sorted(entry.name for entry in os.scandir(folder / TRAIN) if entry.is_dir())
            train, test = (_photographs(folder / part, names) for part in (TRAIN, TEST))
            tested = {entry.name for entry in os.scandir(folder / TEST) if entry.is_dir()}
        except OSError as error:
            raise BadInput(f"cannot read {error.filename} of the data set imagenet: {error.strerror}") from None
        if tested != set(names):
            raise BadInput(f"{TRAIN} and {TEST} in {folder} have different classes")
        if not len(train):
            raise BadInput(f"{folder / TRAIN} has no photographs *{SUFFIX}")
        return Divided(train, test)


def _photographs(folder: Path, names: list[str]) -> ImageNetPhotographs:
    paths, classes = [], []
    for number, name in enumerate(names):
        if (folder / name).is_dir():
            found = sorted(entry.path for entry in os.scandir(folder / name) if entry.name.endswith(SUFFIX))
            paths += found
            classes += [number] * len(found)
    return ImageNetPhotographs(paths, np.array(classes, np.int64))


DATASET = ImageNetFolder()
