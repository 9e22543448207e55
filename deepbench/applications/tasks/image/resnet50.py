"""ResNet-50 (He and others, 2015) with the stride of a block in its convolution of 3 × 3, on pictures of 224 × 224."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from deepbench.applications.datasets import Divided
from deepbench.applications.datasets.imagenet import SIDE, ImageNetPhotographs
from deepbench.applications.tasks.image import common
from deepbench.applications.training.application import Rung, Setup
from deepbench.applications.training.schedule import warm_up_then_zero
from deepbench.applications.training.torch_task import TorchTask

# Blocks, and channels within a block, of each stage; a stage has four times as many channels.
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
OUTPUTS = 1000

# Of the bytes of red, green and blue in ImageNet.
MEANS, DEVIATIONS = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)

MOMENTUM, WEIGHT_DECAY, WARM_UP = 0.9, 1e-4, 5 / 90

# Pictures of one call of the network when it is tested.
TOGETHER = 64


class Bottleneck(nn.Module):
    """Convolutions of 1 × 1, 3 × 3 and 1 × 1 with a way around them."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            *(nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)),
        )
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """From (batch, inputs, height, width) to (batch, 4 · width, height / stride, width / stride)."""
        return functional.relu(self.body(x) + self.shortcut(x))


def network() -> nn.Sequential:
    """From pictures (batch, 3, 224, 224) to logits (batch, 1000)."""
    blocks, inputs = [], 64
    for stage, (count, width) in enumerate(STAGES):
        for number in range(count):
            blocks.append(Bottleneck(inputs, width, 2 if stage and not number else 1))
            inputs = 4 * width
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, OUTPUTS))


def task(setup: Setup, rung: Rung, data: list[Any]) -> TorchTask:
    """A run; `data` has small grey pictures, or ImageNet."""
    (pictures,) = data
    source = PhotographExamples(setup, pictures) if isinstance(pictures, Divided) else Enlarged(setup, pictures)
    torch.manual_seed(setup.seed)
    model = network().to(setup.device)

    def loss(model: nn.Module, at: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(source.seen(at)), source.wanted[at])

    def answer(model: nn.Module, at: torch.Tensor) -> list[int]:
        return [number for part in at.split(TOGETHER) for number in model(source.test(part)).argmax(1).tolist()]

    optimizer = torch.optim.SGD(model.parameters(), rung.settings["rate"], MOMENTUM, weight_decay=WEIGHT_DECAY)
    return TorchTask(
        setup, rung, model, optimizer, loss, len(source.wanted), answer, partial(common.grade, source.labels),
        len(source.labels), learning_rate=warm_up_then_zero(WARM_UP),
    )  # fmt: skip


class Enlarged:
    """Small grey pictures, made larger on the device and repeated for three colours."""

    def __init__(self, setup: Setup, pictures: Any) -> None:
        self._seen, wanted, self._test = (torch.from_numpy(part.copy()).to(setup.device) for part in pictures[:3])
        self.wanted, self.labels = wanted.long(), pictures[3]

    def seen(self, at: torch.Tensor) -> torch.Tensor:
        """Pictures for training (batch, 3, 224, 224); half of all batches are mirrored."""
        found = self._large(self._seen[at])
        return found.flip(3) if torch.rand(()) < 0.5 else found

    def test(self, at: torch.Tensor) -> torch.Tensor:
        """Pictures for testing (batch, 3, 224, 224)."""
        return self._large(self._test[at])

    def _large(self, chosen: torch.Tensor) -> torch.Tensor:
        x = chosen.float().sub_(common.MEAN).div_(common.SCALE)[:, None]
        return functional.interpolate(x, size=(SIDE, SIDE), mode="bilinear").expand(-1, 3, -1, -1)


class PhotographExamples:
    """Photographs of ImageNet; threads read them."""

    def __init__(self, setup: Setup, data: Divided[ImageNetPhotographs]) -> None:
        self._device, self._data = setup.device, data
        self._threads = ThreadPoolExecutor(setup.threads)
        self._means, self._deviations = (
            torch.tensor(values, device=setup.device)[:, None, None] for values in (MEANS, DEVIATIONS)
        )
        self.wanted, self.labels = torch.from_numpy(data.train.classes).to(setup.device), data.test.classes

    def seen(self, at: torch.Tensor) -> torch.Tensor:
        """Parts of photographs for training (batch, 3, 224, 224)."""
        chances = torch.rand(len(at), 5).double().numpy()
        return self._prepared(list(self._threads.map(self._data.train.picture, at.tolist(), chances)))

    def test(self, at: torch.Tensor) -> torch.Tensor:
        """The middle of photographs for testing (batch, 3, 224, 224)."""
        return self._prepared(list(self._threads.map(self._data.test.picture, at.tolist())))

    def _prepared(self, pictures: Sequence[np.ndarray[Any, np.dtype[np.uint8]]]) -> torch.Tensor:
        x = torch.from_numpy(np.stack(pictures)).to(self._device).float()
        return x.sub_(self._means).div_(self._deviations)
