"""Image recognition in PyTorch."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from deepbench.applications.tasks.image import common, resnet50
from deepbench.applications.training.application import Rung, Setup
from deepbench.applications.training.schedule import warm_up_then_zero
from deepbench.applications.training.torch_task import TorchTask


class ConvolutionBlock(nn.Module):
    """Two convolutions with a way around them, which may be normalized where sizes differ (He and others, 2015)."""

    def __init__(self, inputs: int, outputs: int, stride: int, is_normalized: bool = False) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            if is_normalized:
                self.shortcut = nn.Sequential(self.shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """From (batch, inputs, height, width) to (batch, outputs, height / stride, width / stride)."""
        y = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(y)) + self.shortcut(x))


def network(rung: Rung) -> nn.Sequential:
    """From pictures (batch, 1, 28, 28) to logits (batch, classes)."""
    widths = rung.settings["widths"]
    return nn.Sequential(
        *(nn.Conv2d(1, widths[0], 3, 2, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()),
        *(ConvolutionBlock(*sizes) for sizes in common.blocks(rung)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], common.CLASSES)),
    )


def task(setup: Setup, rung: Rung, data: list[Any]) -> TorchTask:
    """A run; `data` has pictures and labels for training, and pictures and labels for testing."""
    if "model" in rung.settings:
        return resnet50.task(setup, rung, data)
    torch.manual_seed(setup.seed)
    model = network(rung).to(setup.device)
    (pictures,) = data
    seen, wanted, test = (torch.from_numpy(part.copy()).to(setup.device) for part in pictures[:3])

    def prepared(chosen: torch.Tensor) -> torch.Tensor:
        return chosen.float().sub_(common.MEAN).div_(common.SCALE)[:, None]

    def loss(model: nn.Module, at: torch.Tensor) -> torch.Tensor:
        x = prepared(seen[at])
        if torch.rand(()) < 0.5:
            x = x.flip(3)
        return functional.cross_entropy(model(x), wanted[at].long(), label_smoothing=common.SMOOTHING)

    def answer(model: nn.Module, at: torch.Tensor) -> list[int]:
        found: list[int] = model(prepared(test[at])).argmax(1).tolist()
        return found

    optimizer = torch.optim.SGD(
        model.parameters(), rung.settings["rate"], common.MOMENTUM, weight_decay=common.WEIGHT_DECAY, nesterov=True
    )
    return TorchTask(
        setup, rung, model, optimizer, loss, len(seen), answer, partial(common.grade, pictures[3]), len(test),
        learning_rate=warm_up_then_zero(common.WARM_UP),
    )  # fmt: skip
