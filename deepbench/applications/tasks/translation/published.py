"""The two networks of 2018 at their published sizes, in PyTorch: layers of LSTM cells, and the large Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from deepbench.applications.tasks.translation.common import NOTHING

LSTM_DROPOUT, DROPOUT = 0.2, 0.1


class AdditiveAttention(nn.Module):
    """Scores are sums over tanh of queries and keys (Bahdanau and others, 2014), with normalized weights (Salimans and
    Kingma, 2016).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.weights = nn.Parameter(torch.empty(width).uniform_(-0.1, 0.1))
        self.length = nn.Parameter(torch.full((1,), width**-0.5))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor, seen: torch.Tensor, is_nothing: torch.Tensor) -> torch.Tensor:
        """From (batch, places, width) and the source (batch, its places, width) to (batch, places, width)."""
        made = torch.tanh(self.query(x)[:, :, None] + self.key(seen)[:, None] + self.bias)
        scores = made @ (self.weights * self.length / self.weights.norm())
        return scores.masked_fill(is_nothing[:, None], -1e4).softmax(2).to(seen.dtype) @ seen


class Gnmt(nn.Module):
    """Google's network of 2016 (Wu and others) as of 2018: 4 + 4 layers, the first one in both directions."""

    def __init__(self, sizes: Mapping[str, Any]) -> None:
        super().__init__()
        width, words = sizes["width"], sizes["words"]
        self.words = nn.Embedding(words, width, NOTHING)
        self.first = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        inputs = (2 * width, *[width] * (sizes["layers"] - 2))
        self.encoder = nn.ModuleList(nn.LSTM(size, width, batch_first=True) for size in inputs)
        self.start = nn.LSTM(width, width, batch_first=True)
        self.attention = AdditiveAttention(width)
        self.decoder = nn.ModuleList(nn.LSTM(2 * width, width, batch_first=True) for _ in range(sizes["layers"] - 1))
        self.out = nn.Linear(width, words)
        for layer in (self.words, self.first, *self.encoder, self.start, *self.decoder, self.out):
            for parameter in layer.parameters():
                nn.init.uniform_(parameter, -0.1, 0.1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """From words (batch, places) of both languages to logits (batch, places of y, words) of the next word."""
        is_nothing = x == NOTHING
        lengths = (~is_nothing).sum(1).cpu()
        packed = pack_padded_sequence(self._dropped(self.words(x)), lengths, batch_first=True, enforce_sorted=False)
        both, _ = pad_packed_sequence(self.first(packed)[0], batch_first=True, total_length=x.shape[1])
        seen, _ = self.encoder[0](self._dropped(both))
        for layer in self.encoder[1:]:
            seen = seen + layer(self._dropped(seen))[0]
        made, _ = self.start(self._dropped(self.words(y)))
        context = self.attention(made, seen, is_nothing)
        made, _ = self.decoder[0](torch.cat([self._dropped(made), context], 2))
        for layer in self.decoder[1:]:
            made = made + layer(torch.cat([self._dropped(made), context], 2))[0]
        logits: torch.Tensor = self.out(made)
        return logits

    def _dropped(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(x, LSTM_DROPOUT, self.training)


class PublishedAttention(nn.Module):
    """Several heads, and no biases."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor, seen: torch.Tensor, is_word: torch.Tensor | None = None) -> torch.Tensor:
        """From (batch, places, width) to the same shape; without `is_word` every place sees itself and earlier ones."""
        query, key, value = (
            layer(part).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer, part in ((self.query, x), (self.key, seen), (self.value, seen))
        )
        mask = None if is_word is None else is_word[:, None, None]
        dropout = DROPOUT if self.training else 0.0
        found = functional.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal=is_word is None)
        result: torch.Tensor = self.out(found.transpose(1, 2).flatten(2))
        return result


class PublishedLayer(nn.Module):
    """Attention to one's own language, perhaps to the other one, and two products; each after a normalization."""

    def __init__(self, width: int, heads: int, sees_other: bool) -> None:
        super().__init__()
        self.own = PublishedAttention(width, heads)
        self.other = PublishedAttention(width, heads) if sees_other else None
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if sees_other else 2))

    def forward(
        self,
        x: torch.Tensor,
        own_words: torch.Tensor | None,
        seen: torch.Tensor | None = None,
        other_words: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """From (batch, places, width) to the same shape."""
        y = self.norms[0](x)
        x = x + self._dropped(self.own(y, y, own_words))
        if self.other is not None:
            x = x + self._dropped(self.other(self.norms[1](x), seen, other_words))
        y = functional.relu(self.wide(self.norms[-1](x)))
        return x + self._dropped(self.narrow(self._dropped(y)))

    def _dropped(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(x, DROPOUT, self.training)


class BigTransformer(nn.Module):
    """The large network of Vaswani and others (2017) as of 2018: one table of words for both languages and for the
    result, no biases in attention, and normalization before each part.
    """

    def __init__(self, sizes: Mapping[str, Any]) -> None:
        super().__init__()
        width, layers, heads = sizes["width"], sizes["layers"], sizes["heads"]
        self.words = nn.Embedding(sizes["words"], width, NOTHING)
        self.encoder = nn.ModuleList(PublishedLayer(width, heads, False) for _ in range(layers))
        self.decoder = nn.ModuleList(PublishedLayer(width, heads, True) for _ in range(layers))
        self.seen_norm, self.made_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.xavier_uniform_(parameter)
        nn.init.normal_(self.words.weight, std=width**-0.5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """From words (batch, places) of both languages to logits (batch, places of y, words) of the next word."""
        is_word = x != NOTHING
        seen, made = self._placed(x), self._placed(y)
        for layer in self.encoder:
            seen = layer(seen, is_word)
        seen = self.seen_norm(seen)
        for layer in self.decoder:
            made = layer(made, None, seen, is_word)
        return functional.linear(self.made_norm(made), self.words.weight)

    def _placed(self, words: torch.Tensor) -> torch.Tensor:
        table: torch.Tensor = self.words(words)
        places = waves(words.shape[1], table.shape[2]).to(table.device)
        return functional.dropout(table * table.shape[2] ** 0.5 + places, DROPOUT, self.training)


def waves(places: int, width: int) -> torch.Tensor:
    """Sines and then cosines of places with wavelengths from 2π to 20,000π: (places, width) (Vaswani and others, 2017,
    section 3.5).
    """
    rates = 1e-4 ** (torch.arange(width // 2) / (width // 2 - 1))
    angles = torch.arange(places)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], 1)
