"""COCO 2017: photographs with the boxes of things of 80 classes (Lin and others, 2014), in a folder of the user."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from deepbench.applications.datasets import Divided, UserFolder, needed, photograph
from deepbench.core.errors import BadInput
from deepbench.core.files import read_regular

ANNOTATIONS = "annotations"
TRAIN, TEST = "train2017", "val2017"

SIDE = 300
"""Width and height of a picture as a network gets it; photographs are stretched to it."""

# That of the training photographs has 448 million bytes.
MOST_BYTES = 2**31


class CocoPhotographs:
    """Photographs that are read when they are asked for, and the boxes on each."""

    def __init__(
        self, folder: Path, names: list[str], boxes: list[NDArray[np.float32]], classes: list[NDArray[np.int64]]
    ) -> None:
        self._folder, self._names = folder, names
        self.boxes = boxes
        """Of each photograph: rows of left, top, right, bottom, as shares of its width and height."""
        self.classes = classes
        """Of each box: the place of its category among all, in the order of their numbers."""

    def __len__(self) -> int:
        return len(self._names)

    def picture(self, number: int, region: Sequence[float] = (0.0, 0.0, 1.0, 1.0)) -> NDArray[np.uint8]:
        """A region of a photograph, 3 × `SIDE` × `SIDE`; `BadInput` where it is damaged.

        Args:
            number: of the photograph.
            region: left, top, right, bottom as shares of its width and height.
        """

        def part(width: int, height: int) -> tuple[float, ...]:
            return tuple(share * size for share, size in zip(region, (width, height) * 2, strict=True))

        return np.ascontiguousarray(photograph("coco", self._folder / self._names[number], SIDE, part))


class CocoFolder(UserFolder):
    """The files of https://cocodataset.org as they are unpacked there."""

    name = "coco"
    title = "COCO 2017"
    about = "118,000 photographs with boxes of things of 80 classes, and 5,000 for testing"
    licence = "annotations CC-BY-4.0, COCO Consortium"
    terms = "The photographs are those of users of Flickr, each under its own licence."
    files = tuple(f"{ANNOTATIONS}/instances_{name}.json" for name in (TRAIN, TEST))
    variable = "DEEPBENCH_COCO"
    wanted = f"{files[0]}, {files[1]} and the photographs in {TRAIN} and {TEST}"

    def load(self, folder: Path) -> Divided[CocoPhotographs]:
        """All annotations. Photographs for training without a box are left out."""
        needed("coco", "PIL.Image", "Pillow")
        return Divided(_photographs(folder, TRAIN), _photographs(folder, TEST))


def _photographs(folder: Path, name: str) -> CocoPhotographs:
    path = folder / ANNOTATIONS / f"instances_{name}.json"
    content = read_regular(path, MOST_BYTES, "annotations of COCO")
    try:
        return _of_annotations(folder / name, orjson.loads(content), needs_box=name == TRAIN)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise BadInput(f"{path} is damaged or no file with annotations of COCO: {reason}") from None


def _of_annotations(folder: Path, content: Any, needs_box: bool) -> CocoPhotographs:
    """The photographs of a file in their order. Boxes of crowds and those without an area are left out."""
    places = {number: place for place, number in enumerate(sorted(c["id"] for c in content["categories"]))}
    images = {image["id"]: image for image in content["images"]}
    rows: dict[int, list[list[float]]] = {number: [] for number in images}
    for note in content["annotations"]:
        left, top, width, height = (float(value) for value in note["bbox"])
        if not note.get("iscrowd") and width > 0 and height > 0:
            rows[note["image_id"]].append([places[note["category_id"]], left, top, left + width, top + height])
    names, boxes, classes = [], [], []
    for number, image in images.items():
        if PurePath(image["file_name"]).name != image["file_name"]:
            raise ValueError(f"{image['file_name']!r:.80} is no name of a file")
        sizes = np.array([image["width"], image["height"]] * 2, np.float32)
        if not (sizes > 0).all():
            raise ValueError(f"{image['file_name']!r:.80} has no size")
        if needs_box and not rows[number]:
            continue
        table = np.array(rows[number], np.float32).reshape(-1, 5)
        names.append(image["file_name"])
        boxes.append((table[:, 1:] / sizes).clip(0.0, 1.0))
        classes.append(table[:, 0].astype(np.int64))
    return CocoPhotographs(folder, names, boxes, classes)


DATASET = CocoFolder()
