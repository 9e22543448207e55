"""Networks that say for every default box what it shows and where that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from deepbench.applications.tasks.detection.boxes import CENTRE, SIZE, Map
from deepbench.applications.tasks.image.torch_version import ConvolutionBlock

Scores = tuple[torch.Tensor, torch.Tensor]
"""Pictures × default boxes × classes, where class 0 is nothing, and pictures × default boxes × 4."""


class Heads(nn.Module):
    """One convolution per feature map for classes, and one for places."""

    def __init__(self, channels: Sequence[int], maps: Sequence[Map], outputs: int) -> None:
        super().__init__()
        self.outputs = outputs
        pairs = list(zip(channels, (len(m.sizes) for m in maps), strict=True))
        self.classes = nn.ModuleList(nn.Conv2d(width, count * outputs, 3, 1, 1) for width, count in pairs)
        self.places = nn.ModuleList(nn.Conv2d(width, count * 4, 3, 1, 1) for width, count in pairs)

    def forward(self, features: Sequence[torch.Tensor]) -> Scores:
        def rows(convolutions: nn.ModuleList, width: int) -> torch.Tensor:
            made = (c(x).permute(0, 2, 3, 1) for c, x in zip(convolutions, features, strict=True))
            return torch.cat([y.reshape(len(y), -1, width) for y in made], 1).float()

        return rows(self.classes, self.outputs), rows(self.places, 4)


def unit(inputs: int, outputs: int, stride: int | tuple[int, int] = 1) -> nn.Sequential:
    """A convolution of 3 × 3, batch normalization and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class PageNetwork(nn.Module):
    """A feature map for each of `maps`, and a path from the coarsest to the finest one (Lin and others, 2017).

    It works on half the resolution. The finest map, a quarter as high, has more rows than columns: lines of text are
    wide and low.
    """

    def __init__(self, widths: Sequence[int], maps: Sequence[Map], outputs: int) -> None:
        super().__init__()
        first, second, width = widths
        self.stem = nn.Sequential(unit(1, first, 2), unit(first, second, (1, 2)), unit(second, width, (1, 2)))
        self.down = nn.ModuleList(unit(width, width, 2) for _ in maps[1:])
        self.up = nn.ModuleList(unit(width, width) for _ in maps[1:])
        self.heads = Heads([width] * len(maps), maps, outputs)

    def forward(self, x: torch.Tensor) -> Scores:
        features = [self.stem(functional.avg_pool2d(x, 2))]
        for down in self.down:
            features.append(down(features[-1]))
        for number in reversed(range(len(self.up))):
            finer = features[number]
            wider = functional.interpolate(features[number + 1], size=finer.shape[2:])
            features[number] = self.up[number](finer + wider)
        scores: Scores = self.heads(features)
        return scores


class Ssd(nn.Module):
    """SSD (Liu and others, 2016) on ResNet-34 up to its fourth stage, which keeps the size of its input.

    Pictures of 300 × 300 give maps of 38, 19, 10, 5, 3 and 1 squared.
    """

    def __init__(self, maps: Sequence[Map], outputs: int) -> None:
        super().__init__()
        stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        sizes = [(64, 64, 1)] * 3 + [(64, 128, 2)] + [(128, 128, 1)] * 3 + [(128, 256, 1)] + [(256, 256, 1)] * 5
        blocks = [ConvolutionBlock(*size, is_normalized=True) for size in sizes]
        self.trunk = nn.Sequential(*stem, *blocks)
        shapes = ((256, 256, 512, 2), (512, 256, 512, 2), (512, 128, 256, 2), (256, 128, 256, 1), (256, 128, 256, 1))
        self.extra = nn.ModuleList(self._smaller(*shape) for shape in shapes)
        self.heads = Heads([256, *(shape[2] for shape in shapes)], maps, outputs)
        for part in (*self.extra.modules(), *self.heads.modules()):
            if isinstance(part, nn.Conv2d):
                nn.init.xavier_uniform_(part.weight)
                nn.init.zeros_(part.bias)

    @staticmethod
    def _smaller(inputs: int, middle: int, outputs: int, stride: int) -> nn.Sequential:
        """To half the size, or without a border."""
        last = nn.Conv2d(middle, outputs, 3, stride, 1 if stride == 2 else 0)
        return nn.Sequential(nn.Conv2d(inputs, middle, 1), nn.ReLU(inplace=True), last, nn.ReLU(inplace=True))

    def forward(self, x: torch.Tensor) -> Scores:
        features = [self.trunk(x.expand(-1, 3, -1, -1))]
        for smaller in self.extra:
            features.append(smaller(features[-1]))
        scores: Scores = self.heads(features)
        return scores


def offsets(defaults: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """How boxes differ from default boxes, as networks say it; both are … × 4 (Liu and others, 2016, formula 2)."""
    size = defaults[..., 2:] - defaults[..., :2]
    centres = ((boxes[..., 2:] + boxes[..., :2]) - (defaults[..., 2:] + defaults[..., :2])) / 2 / size
    sizes = ((boxes[..., 2:] - boxes[..., :2]).clamp_min(1e-6) / size).log()
    return torch.cat([centres / CENTRE, sizes / SIZE], -1)


def moved(defaults: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Default boxes, moved by offsets, within the picture."""
    size = defaults[..., 2:] - defaults[..., :2]
    centres = (defaults[..., 2:] + defaults[..., :2]) / 2 + by[..., :2] * CENTRE * size
    sides = size * (by[..., 2:] * SIZE).clamp_max(5.0).exp()
    return torch.cat([centres - sides / 2, centres + sides / 2], -1).clamp(0.0, 1.0)


def ssd_loss(scores: Scores, classes: torch.Tensor, wanted: torch.Tensor, negatives: int) -> torch.Tensor:
    """Cross entropy of classes and smooth L1 of places, per default box that has a box (Liu and others, 2016, formulas
    1 to 3).

    Of the default boxes that show nothing, those that are wrong most count: `negatives` for each one that has a box.

    Args:
        scores: of the network.
        classes: pictures × default boxes; 0 for nothing.
        wanted: pictures × default boxes × 4, the offsets.
        negatives: how many.
    """
    logits, places = scores
    has_box = classes > 0
    counts = has_box.sum(1)
    entropy = functional.cross_entropy(logits.transpose(1, 2), classes, reduction="none")
    worst = entropy.detach().masked_fill(has_box, -1.0).sort(1, descending=True).values
    last = (counts * negatives).clamp(1, worst.shape[1]) - 1
    is_hard = ~has_box & (entropy >= worst.gather(1, last[:, None]))
    error = functional.smooth_l1_loss(places[has_box], wanted[has_box], reduction="sum")
    return (entropy[has_box | is_hard].sum() + error) / counts.sum().clamp_min(1)


def candidates(scores: Scores, defaults: torch.Tensor, settings: Mapping[str, Any]) -> list[NDArray[np.float32]]:
    """Of each picture the boxes and classes with the highest scores: rows of class, score, left, top, right, bottom."""
    logits, places = scores
    shares, boxes = logits.softmax(2)[:, :, 1:], moved(defaults, places)
    values, at = shares.flatten(1).topk(min(settings["candidates"], shares[0].numel()))
    classes, numbers = at % shares.shape[2], at // shares.shape[2]
    corners = boxes.gather(1, numbers[:, :, None].expand(-1, -1, 4))
    rows = torch.cat([classes[:, :, None], values[:, :, None], corners], 2).cpu().numpy()
    return [of_picture[of_picture[:, 1] >= settings["least_score"]] for of_picture in rows]


def model_and_optimizer(
    settings: Mapping[str, Any], maps: Sequence[Map], device: str
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """What the settings of a rung ask for, on the device."""
    outputs, rate = settings["outputs"], settings["rate"]
    if settings["model"] == "ssd":
        ssd = Ssd(maps, outputs).to(device)
        return ssd, torch.optim.SGD(ssd.parameters(), rate, momentum=0.9, weight_decay=5e-4)
    model = PageNetwork(settings["widths"], maps, outputs).to(device)
    return model, torch.optim.AdamW(model.parameters(), rate, weight_decay=1e-2)
