"""Networks from the words of a text to the logits of its label, in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

NOTHING = 0
"""The number of the word that fills up a text."""

# Of a place without a word, before the maximum over all places.
LOWEST = -1e4


class Convolutions(nn.Module):
    """Convolutions over three and four words, and the maximum over all places."""

    def __init__(self, sizes: Mapping[str, Any], outputs: int) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes["words"], sizes["width"], padding_idx=NOTHING)
        self.windows = nn.ModuleList(nn.Conv1d(sizes["width"], sizes["channels"], n) for n in (3, 4))
        self.out = nn.Linear(2 * sizes["channels"], outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """From words (batch, places) to logits (batch, outputs)."""
        words = functional.dropout(self.words(x), 0.3, self.training).transpose(1, 2)
        found = torch.cat([functional.relu(window(words)).amax(2) for window in self.windows], 1)
        logits: torch.Tensor = self.out(functional.dropout(found, 0.5, self.training))
        return logits


class RecurrentClassifier(nn.Module):
    """LSTM cells in both directions, and the maximum over all places."""

    def __init__(self, sizes: Mapping[str, Any], outputs: int) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes["words"], sizes["width"], padding_idx=NOTHING)
        self.layer = nn.LSTM(sizes["width"], sizes["channels"], batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * sizes["channels"], outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """From words (batch, places) to logits (batch, outputs)."""
        words = functional.dropout(self.words(x), 0.3, self.training)
        found = self.layer(words)[0].masked_fill((x == NOTHING)[..., None], LOWEST).amax(1)
        logits: torch.Tensor = self.out(functional.dropout(found, 0.5, self.training))
        return logits


class WideConvolutions(Convolutions):
    """The convolutions of 2018: a result for each place, ELU, and no dropout."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """From words (batch, places) to logits (batch, outputs)."""
        words, is_nothing = self.words(x).transpose(1, 2), fills_up(x)[:, None]
        found = []
        for window in self.windows:
            (size,) = window.kernel_size
            wide = functional.pad(words, (size // 2, (size - 1) // 2))
            found.append(functional.elu(window(wide)).masked_fill(is_nothing, LOWEST).amax(2))
        logits: torch.Tensor = self.out(torch.cat(found, 1))
        return logits


class StackedRecurrent(nn.Module):
    """The LSTM layers of 2018: every second one runs backwards, and each passes on its result and the product of its
    input, which PyTorch does not return, so it is computed again.
    """

    def __init__(self, sizes: Mapping[str, Any], outputs: int) -> None:
        super().__init__()
        width, hidden, layers = sizes["width"], sizes["channels"], sizes["layers"]
        self.words = nn.Embedding(sizes["words"], width, padding_idx=NOTHING)
        inputs = (width, *[5 * hidden] * (layers - 1))
        self.layers = nn.ModuleList(nn.LSTM(size, hidden, batch_first=True) for size in inputs)
        self.out = nn.Linear(5 * hidden, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """From words (batch, places) to logits (batch, outputs)."""
        y, is_nothing, order = self.words(x), fills_up(x)[..., None], backwards(x)
        for number, layer in enumerate(self.layers):
            product = functional.linear(y, layer.weight_ih_l0, layer.bias_ih_l0)
            made = self._ordered(layer(self._ordered(y, order))[0], order) if number % 2 else layer(y)[0]
            y = torch.cat([product, made], 2)
        logits: torch.Tensor = self.out(y.masked_fill(is_nothing, LOWEST).amax(1))
        return logits

    @staticmethod
    def _ordered(x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        return x.gather(1, order[..., None].expand_as(x))


def fills_up(x: torch.Tensor) -> torch.Tensor:
    """Which places (batch, places) have no word; the first one counts as a word."""
    found = x == NOTHING
    found[:, 0] = False
    return found


def backwards(x: torch.Tensor) -> torch.Tensor:
    """The places (batch, places) with the words of each text in reverse, and what fills it up behind them."""
    count = (~fills_up(x)).sum(1, keepdim=True)
    return (count - 1 - torch.arange(x.shape[1], device=x.device)) % x.shape[1]


NETWORKS: Mapping[str, type[nn.Module]] = {
    "conv": Convolutions,
    "lstm": RecurrentClassifier,
    "wide conv": WideConvolutions,
    "stacked lstm": StackedRecurrent,
}
