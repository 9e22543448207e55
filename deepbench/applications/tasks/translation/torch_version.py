"""Translation in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from deepbench.applications.tasks.translation.common import (
    BEGIN,
    BETAS,
    DROPOUT,
    END,
    EVALUATED,
    HEAD_WIDTH,
    LONGEST_GRADIENT,
    NOTHING,
    WARM_UP,
    WEIGHT_DECAY,
    examples,
)
from deepbench.applications.tasks.translation.published import BigTransformer, Gnmt
from deepbench.applications.training.application import Rung, Setup
from deepbench.applications.training.schedule import warm_up_then_zero
from deepbench.applications.training.torch_task import TorchTask, of_whole_batch


class TorchTransformer(nn.Module):
    """Layers with attention in both halves."""

    def __init__(self, sizes: Mapping[str, Any]) -> None:
        super().__init__()
        width, layers = sizes["width"], sizes["layers"]
        self.source, self.target = (nn.Embedding(sizes["words"], width, NOTHING) for _ in range(2))
        self.places = nn.Parameter(torch.randn(sizes["length"] + 2, width) * 0.02)
        heads = width // HEAD_WIDTH
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, DROPOUT, batch_first=True, norm_first=True)
        # PyTorch warns that these layers have no nested tensors, unless it is told that none are wanted.
        encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.body = nn.Transformer(
            width, heads, layers, layers, 4 * width, DROPOUT, custom_encoder=encoder, batch_first=True, norm_first=True
        )
        self.scale = width**0.5
        for table in (self.source, self.target):
            nn.init.normal_(table.weight, std=width**-0.5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """From words (batch, places) of both languages to logits (batch, places of y, words) of the next word."""
        seen = self.source(x) * self.scale + self.places[: x.shape[1]]
        made = self.target(y) * self.scale + self.places[: y.shape[1]]
        later = nn.Transformer.generate_square_subsequent_mask(y.shape[1], y.device)
        is_nothing = torch.zeros(x.shape, device=x.device).masked_fill(x == NOTHING, float("-inf"))
        found = self.body(
            seen, made, tgt_mask=later, src_key_padding_mask=is_nothing, memory_key_padding_mask=is_nothing,
            tgt_is_causal=True,
        )  # fmt: skip
        return functional.linear(found, self.target.weight)


class RecurrentTranslator(nn.Module):
    """Layers with LSTM cells in both halves, and attention between them."""

    def __init__(self, sizes: Mapping[str, Any]) -> None:
        super().__init__()
        width, layers = sizes["width"], sizes["layers"]
        self.source, self.target = (nn.Embedding(sizes["words"], width, NOTHING) for _ in range(2))
        self.encoder = nn.LSTM(width, width // 2, layers, batch_first=True, bidirectional=True, dropout=0.2)
        self.decoder = nn.LSTM(width, width, layers, batch_first=True, dropout=0.2)
        self.join = nn.Linear(2 * width, width)
        for table in (self.source, self.target):
            nn.init.normal_(table.weight, std=width**-0.5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """From words (batch, places) of both languages to logits (batch, places of y, words) of the next word."""
        lengths = (x != NOTHING).sum(1).cpu()  # what fills a verse up must not reach the layer that reads backwards
        packed = nn.utils.rnn.pack_padded_sequence(self.source(x), lengths, batch_first=True, enforce_sorted=False)
        seen, _ = nn.utils.rnn.pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=x.shape[1])
        made, _ = self.decoder(self.target(y))
        scores = (made @ seen.transpose(1, 2)).masked_fill((x == NOTHING)[:, None], -1e4)
        found = torch.tanh(self.join(torch.cat([made, scores.softmax(2) @ seen], 2)))
        return functional.linear(functional.dropout(found, 0.2, self.training), self.target.weight)


MODELS: Mapping[str, type[nn.Module]] = {
    "transformer": TorchTransformer,
    "lstm": RecurrentTranslator,
    "gnmt": Gnmt,
    "big transformer": BigTransformer,
}


def task(setup: Setup, rung: Rung, data: list[Any]) -> TorchTask:
    """A run; `data` has the verses, or sentences of WMT."""
    sizes, found = rung.settings, examples(data[0], rung)
    source, target, test_source, test_target = (torch.from_numpy(part).to(setup.device) for part in found[:4])
    torch.manual_seed(setup.seed)
    model = MODELS[sizes["model"]](sizes).to(setup.device)

    def losses(model: nn.Module, x: torch.Tensor, y: torch.Tensor, how: str, smoothing: float = 0.0) -> torch.Tensor:
        x, y = x[:, : int((x != NOTHING).sum(1).max())], y[:, : int((y != NOTHING).sum(1).max())]
        logits = model(x, y[:, :-1])
        return functional.cross_entropy(
            logits.flatten(0, 1), y[:, 1:].flatten(),
            ignore_index=NOTHING, reduction=how, label_smoothing=smoothing,
        )  # fmt: skip

    def loss(model: nn.Module, at: torch.Tensor) -> torch.Tensor:
        words = (target[at][:, 1:] != NOTHING).sum()
        return of_whole_batch(losses(model, source[at], target[at], "mean", sizes.get("smoothing", 0.0)), words)

    def evaluate(model: nn.Module) -> float:
        pairs = zip(test_source.split(EVALUATED), test_target.split(EVALUATED), strict=True)
        total = sum(float(losses(model, x, y, "sum")) for x, y in pairs)
        return float(np.exp(total / found.tested_words))

    def answer(model: nn.Module, at: torch.Tensor) -> list[list[str]]:
        """The most likely word at each place, one after the other."""
        x = test_source[at]
        x = x[:, : int((x != NOTHING).sum(1).max())]
        y = torch.full((len(at), 1), BEGIN, device=x.device)
        for _ in range(sizes["length"]):
            y = torch.cat([y, model(x, y)[:, -1].argmax(1, keepdim=True)], 1)
            if bool((y == END).any(1).all()):
                break
        return found.texts(y.tolist())

    optimizer = torch.optim.AdamW(model.parameters(), sizes["rate"], BETAS, weight_decay=WEIGHT_DECAY)
    return TorchTask(
        setup, rung, model, optimizer, loss, len(source), answer, found.grade, len(test_source),
        evaluate=evaluate, learning_rate=warm_up_then_zero(WARM_UP), longest_gradient=LONGEST_GRADIENT,
    )  # fmt: skip
