"""Object detection: the boxes of what is on pages of documents, or on photographs, with a network that looks once (SSD,
Liu and others, 2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepbench.applications.datasets import Divided, divided
from deepbench.applications.datasets.coco import CocoPhotographs
from deepbench.applications.datasets.pages import Pages
from deepbench.applications.tasks.detection.boxes import (
    Boxes,
    Found,
    Map,
    average_precision,
    default_boxes,
    match,
    ssd_maps,
    suppressed,
)
from deepbench.applications.training.application import Application, Metric, Rung, Setup

if TYPE_CHECKING:
    import torch

    from deepbench.applications.training.torch_task import TorchTask

# One document in so many is for testing.
TESTED = 3

# Pictures of one call of the network when it is tested.
TOGETHER = 32

# Widths and heights as boxes of pages have them, in shares of the page.
PAGE_MAPS = (
    Map(75, 19, ((0.08, 0.015), (0.16, 0.016), (0.30, 0.017), (0.50, 0.017), (0.70, 0.017))),
    Map(38, 10, ((0.15, 0.040), (0.35, 0.035), (0.69, 0.030), (0.70, 0.050))),
    Map(19, 5, ((0.30, 0.075), (0.65, 0.080), (0.70, 0.130))),
    Map(10, 3, ((0.50, 0.25), (0.70, 0.25), (0.70, 0.60))),
)

BOTH: dict[str, Any] = {
    "least_overlap": 0.5,  # of a default box that is trained to find a box
    "negatives": 3,
    "candidates": 300,
    "least_score": 0.02,
    "most_overlap": 0.45,
    "most_boxes": 200,
}

# A network gets the bytes of a picture less `mean`, divided by `deviation`: near 0, and of size 1.
PAGES = {**BOTH, "mean": 235.0, "deviation": 50.0, "crops": False, "thresholds": (0.5,)}
PHOTOGRAPHS = {
    **BOTH,
    "mean": 114.0,
    "deviation": 70.0,
    "crops": True,
    "thresholds": tuple(round(0.5 + 0.05 * step, 2) for step in range(10)),
}


class PageExamples:
    """Some of the pages, in the form of `CocoPhotographs`."""

    def __init__(self, pages: Pages, chosen: Sequence[int]) -> None:
        self._pictures = pages.pictures[chosen]
        self.boxes = [pages.boxes[i] for i in chosen]
        self.classes = [pages.classes[i] for i in chosen]

    def __len__(self) -> int:
        return len(self.boxes)

    def picture(self, number: int) -> NDArray[np.uint8]:
        """1 × height × width."""
        found: NDArray[np.uint8] = self._pictures[number][None]
        return found


class Example(NamedTuple):
    """What a network is trained with."""

    picture: NDArray[np.uint8]
    """Channels × height × width."""
    boxes: Boxes
    classes: NDArray[np.int64]
    matches: NDArray[np.int64]
    """Of each default box, see `match`."""


class Detection(Application):
    """The mean average precision of the boxes that are found, see `average_precision`.

    The answer for a picture is a list of class, score, left, top, right, bottom, the best first.
    """

    name = "detection"
    title = "Object detection"
    metric = Metric("mean average precision")
    datasets = ("pages",)
    rungs = {  # noqa: RUF012  (ClassVar in Application)
        "mini": Rung(
            "pages of 150 × 150, four feature maps of 32 channels, 9,020 default boxes",
            batch=16,
            samples=16 * 280,
            every=16 * 40,
            target=0.58,
            settings={**PAGES, "model": "pages", "widths": (16, 24, 32), "outputs": 5, "rate": 4e-3},
        ),
        "small": Rung(
            "pages of 150 × 150, four feature maps of 64 channels, 9,020 default boxes",
            batch=16,
            samples=16 * 480,
            every=16 * 60,
            target=0.68,
            settings={**PAGES, "model": "pages", "widths": (24, 32, 64), "outputs": 5, "rate": 3e-3},
        ),
        "full": Rung(
            "SSD on ResNet-34, pages of 300 × 300, 8,732 default boxes",
            batch=32,
            samples=32 * 1100,
            every=32 * 110,
            target=0.58,
            settings={**PAGES, "model": "ssd", "outputs": 81, "rate": 2.5e-3},
        ),
        "full-coco": Rung(
            "SSD on ResNet-34, photographs of COCO at 300 × 300, 8,732 default boxes",
            batch=32,
            samples=32 * 220_000,
            every=32 * 11_000,
            target=0.212,
            settings={**PHOTOGRAPHS, "model": "ssd", "outputs": 81, "rate": 2.5e-3},
            datasets=("coco",),
        ),
    }

    def torch_task(self, setup: Setup, rung: Rung, data: list[Any]) -> TorchTask:
        import torch

        from deepbench.applications.tasks.detection import networks
        from deepbench.applications.training.torch_task import TorchTask, of_whole_batch, warm_up_then_zero

        settings = rung.settings
        seen, test = parts(data[0])
        maps = ssd_maps() if settings["model"] == "ssd" else PAGE_MAPS
        boxes = default_boxes(maps)
        defaults = torch.from_numpy(boxes).to(setup.device)
        threads = ThreadPoolExecutor(setup.threads)
        torch.manual_seed(setup.seed)
        model, optimizer = networks.model_and_optimizer(settings, maps, setup.device)

        def prepared(pictures: Sequence[NDArray[np.uint8]]) -> torch.Tensor:
            x = torch.from_numpy(np.stack(pictures)).to(setup.device)
            return (x.float() - settings["mean"]) / settings["deviation"]

        @cache
        def whole(number: int) -> Example:
            matches = match(boxes, seen.boxes[number], settings["least_overlap"])
            return Example(seen.picture(number), seen.boxes[number], seen.classes[number], matches)

        def part(number: int, chances: NDArray[np.float64]) -> Example:
            picture, own, classes = cropped(seen, number, chances)
            return Example(picture, own, classes, match(boxes, own, settings["least_overlap"]))

        def loss(model: torch.nn.Module, at: torch.Tensor) -> torch.Tensor:
            if settings["crops"]:
                examples = list(threads.map(part, at.tolist(), torch.rand(len(at), 6).double().numpy()))
            else:
                examples = [whole(number) for number in at.tolist()]
            classes, wanted = (np.stack(values) for values in zip(*map(trained_to, examples), strict=True))
            numbers = torch.from_numpy(classes).to(setup.device)
            found = networks.ssd_loss(
                model(prepared([example.picture for example in examples])),
                numbers,
                networks.offsets(defaults, torch.from_numpy(wanted).to(setup.device)),
                settings["negatives"],
            )
            return of_whole_batch(found, (numbers > 0).sum().clamp_min(1))

        def answer(model: torch.nn.Module, at: torch.Tensor) -> list[list[list[float]]]:
            answers = []
            for chosen in at.split(TOGETHER):
                pictures = list(threads.map(test.picture, chosen.tolist()))
                for rows in networks.candidates(model(prepared(pictures)), defaults, settings):
                    kept = suppressed(rows, settings["most_overlap"])[: settings["most_boxes"]]
                    answers.append([[int(row[0]), *row[1:].tolist()] for row in kept])
            return answers

        def grade(tests: Sequence[int], answers: Sequence[Sequence[Found]]) -> float:
            own = [test.boxes[i] for i in tests]
            return average_precision(answers, own, [test.classes[i] for i in tests], settings["thresholds"])

        return TorchTask(
            setup, rung, model, optimizer, loss, len(seen), answer, grade, len(test),
            learning_rate=warm_up_then_zero(0.1), longest_gradient=10.0,
        )  # fmt: skip


def parts(data: Pages | Divided[CocoPhotographs]) -> Divided[Any]:
    """For training and for testing. A document is in one of both as a whole, as the checksum of its path says."""
    if isinstance(data, Divided):
        return data
    numbers = range(len(data.documents))
    return Divided(*(PageExamples(data, part) for part in divided(numbers, lambda n: data.documents[n], TESTED)))


def trained_to(example: Example) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """What the network should say for each default box: the class, where 0 is nothing, and the box."""
    classes = np.append(example.classes + 1, 0)[example.matches]
    boxes = np.concatenate([example.boxes, np.zeros((1, 4))])[example.matches]
    return classes, boxes.astype(np.float32)


def cropped(
    photographs: Any, number: int, chances: NDArray[np.float64]
) -> tuple[NDArray[np.uint8], Boxes, NDArray[np.int64]]:
    """A part of a photograph, sometimes mirrored, and the boxes with their centre in it (Liu and others, 2016, section
    2.2, without the demand on overlaps).

    One photograph of three stays whole, and so does one without a box in the part.

    Args:
        photographs: `deepbench.applications.datasets.coco.Photographs`.
        number: of the photograph.
        chances: six numbers from 0 to 1: for the choice, the width, the height, the place and the mirror.
    """
    boxes, classes = photographs.boxes[number], photographs.classes[number]
    sizes = 0.3 + 0.7 * chances[1:3]
    start = chances[3:5] * (1 - sizes)
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    kept = ((centres >= start) & (centres <= start + sizes)).all(1)
    if chances[0] < 1 / 3 or not kept.any():
        start, sizes, kept = np.zeros(2), np.ones(2), np.ones(len(boxes), bool)
    picture = photographs.picture(number, (*start, *(start + sizes)))
    own = ((boxes[kept] - np.tile(start, 2)) / np.tile(sizes, 2)).clip(0.0, 1.0).astype(np.float32)
    if chances[5] < 0.5:
        picture, own = picture[:, :, ::-1], own[:, [2, 1, 0, 3]] * [-1, 1, -1, 1] + [1, 0, 1, 0]
    return picture, own.astype(np.float32), classes[kept]


APPLICATION = Detection()
