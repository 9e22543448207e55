"""Image recognition: pictures of clothes in ten classes, with a small residual network (He and others, 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deepbench.training.application import Application, Metric, Rung, Setup

if TYPE_CHECKING:
    from deepbench.training.torch_task import TorchTask


class Image(Application):
    """Which of ten kinds of clothes a picture shows."""

    name = "image"
    title = "Image recognition"
    metric = Metric("accuracy")
    has_equal_samples = True
    datasets = ("fashion-mnist",)
    rungs = {  # noqa: RUF012  (ClassVar in Application)
        "mini": Rung(
            "a residual network of 8 layers with 16 to 64 channels",
            batch=256,
            samples=184_320,
            every=15_360,
            target=0.90,
            trivial=0.10,
            settings={"widths": (16, 32, 64), "blocks": 1, "rate": 0.2},
        ),
        "small": Rung(
            "a residual network of 14 layers with 32 to 128 channels",
            batch=256,
            samples=921_600,
            every=61_440,
            target=0.925,
            trivial=0.10,
            settings={"widths": (32, 64, 128), "blocks": 2, "rate": 0.2},
        ),
    }

    def torch_task(self, setup: Setup, rung: Rung, data: list[Any]) -> TorchTask:
        import torch
        from torch import nn
        from torch.nn import functional

        from deepbench.training.torch_task import TorchTask, warm_up_then_zero

        class Block(nn.Module):
            def __init__(self, inputs: int, outputs: int, stride: int) -> None:
                super().__init__()
                self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
                self.first_norm = nn.BatchNorm2d(outputs)
                self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
                self.second_norm = nn.BatchNorm2d(outputs)
                is_same = inputs == outputs and stride == 1
                self.shortcut = nn.Identity() if is_same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                y = functional.relu(self.first_norm(self.first(x)))
                return functional.relu(self.second_norm(self.second(y)) + self.shortcut(x))

        torch.manual_seed(setup.seed)
        widths = rung.settings["widths"]
        layers: list[nn.Module] = [nn.Conv2d(1, widths[0], 3, 2, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()]
        for before, width in zip((widths[0], *widths), widths, strict=False):
            for block in range(rung.settings["blocks"]):
                first = block == 0
                layers.append(Block(before if first else width, width, 2 if first and width != widths[0] else 1))
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10)]
        model = nn.Sequential(*layers).to(setup.device)

        (pictures,) = data
        seen, wanted, test = (torch.from_numpy(part.copy()).to(setup.device) for part in pictures[:3])
        labels = pictures[3]

        def prepared(chosen: torch.Tensor) -> torch.Tensor:
            return chosen.float().sub_(73.0).div_(90.0)[:, None]

        def loss(model: nn.Module, at: torch.Tensor) -> torch.Tensor:
            x = prepared(seen[at])
            if torch.rand(()) < 0.5:
                x = x.flip(3)
            return functional.cross_entropy(model(x), wanted[at].long(), label_smoothing=0.05)

        def answer(model: nn.Module, at: torch.Tensor) -> list[int]:
            found: list[int] = model(prepared(test[at])).argmax(1).tolist()
            return found

        def grade(tests: Sequence[int], answers: Sequence[int]) -> float:
            return float(np.mean(np.array(answers) == labels[list(tests)]))

        optimizer = torch.optim.SGD(
            model.parameters(), rung.settings["rate"], momentum=0.9, weight_decay=5e-4, nesterov=True
        )
        return TorchTask(
            setup,
            rung,
            model,
            optimizer,
            loss,
            len(seen),
            answer,
            grade,
            len(test),
            learning_rate=warm_up_then_zero(0.2),
        )


APPLICATION = Image()
