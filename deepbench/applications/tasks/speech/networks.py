"""Networks from frames of sound to probabilities of letters, in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


class SpeechNetwork(nn.Module):
    """Two convolutions, and GRU layers in both directions."""

    def __init__(self, sizes: Mapping[str, Any], bands: int, outputs: int) -> None:
        super().__init__()
        channels, hidden = sizes["channels"], sizes["hidden"]
        self.conv = nn.Conv2d(1, channels, (11, 11), (2, 2), (5, 5))
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, (5, 5), (2, 2), (2, 2))
        self.second_norm = nn.BatchNorm2d(channels)
        self.layers = nn.GRU(channels * bands // 4, hidden, sizes["layers"], batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, outputs)

    @staticmethod
    def frames(count: int) -> int:
        """How many results so many frames give."""
        return (count + 3) // 4

    def forward(self, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """From frames (batch, places, bands) to logarithms of probabilities (batch, results, outputs).

        Args:
            x: the frames, padded with zeros.
            counts: how many frames each of the batch has, on the CPU.
        """
        y = functional.relu(self.norm(self.conv(x[:, None])))
        # The bias and the normalization made the padding something else than zeros, which an example alone would not
        # have: without this its result would depend on the others of its batch.
        is_sound = torch.arange(y.shape[2]) < ((counts + 1) // 2)[:, None]
        y = y * is_sound[:, None, :, None].to(y)
        y = functional.relu(self.second_norm(self.second(y)))
        y = y.permute(0, 2, 1, 3).flatten(2)
        packed = pack_padded_sequence(y, _results(self, counts), batch_first=True, enforce_sorted=False)
        y, _ = pad_packed_sequence(self.layers(packed)[0], batch_first=True)
        return functional.log_softmax(self.out(y).float(), 2)


class DeepSpeech2(nn.Module):
    """Deep Speech 2 (Amodei and others, 2016) as of May 2018: two convolutions without a border in time, and GRU layers
    whose directions are added, with batch normalization between them.
    """

    def __init__(self, sizes: Mapping[str, Any], bands: int, outputs: int) -> None:
        super().__init__()
        channels, hidden = sizes["channels"], sizes["hidden"]
        self.body = nn.Sequential(
            *(nn.Conv2d(1, channels, (41, 11), (2, 2)), nn.BatchNorm2d(channels), nn.Hardtanh(0, 20)),
            *(nn.Conv2d(channels, channels, (21, 11), (2, 1)), nn.BatchNorm2d(channels), nn.Hardtanh(0, 20)),
        )
        inputs = channels * (((bands - 41) // 2 + 1 - 21) // 2 + 1)
        counts = (inputs, *[hidden] * (sizes["layers"] - 1))
        self.layers = nn.ModuleList(nn.GRU(count, hidden, bidirectional=True) for count in counts)
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in counts)
        self.out = nn.Linear(hidden, outputs, bias=False)

    @staticmethod
    def frames(count: int) -> int:
        """How many results so many frames give; at least one."""
        return max(1, (count - 11) // 2 + 1 - 10)

    def forward(self, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """From frames (batch, places, bands) to logarithms of probabilities (batch, results, outputs).

        Args:
            x: the frames, at least 31 places.
            counts: how many frames each of the batch has, on the CPU.
        """
        y = self.body(x.transpose(1, 2)[:, None]).flatten(1, 2).transpose(1, 2)
        packed = pack_padded_sequence(y, _results(self, counts), batch_first=True, enforce_sorted=False)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            both = layer(packed)[0].data.unflatten(1, (2, -1)).sum(1)
            packed = PackedSequence(norm(both), *packed[1:])
        y, _ = pad_packed_sequence(PackedSequence(self.out(packed.data), *packed[1:]), batch_first=True)
        return functional.log_softmax(y.float(), 2)


def _results(network: SpeechNetwork | DeepSpeech2, counts: torch.Tensor) -> torch.Tensor:
    return torch.tensor([network.frames(count) for count in counts.tolist()])


NETWORKS: Mapping[str, type[SpeechNetwork] | type[DeepSpeech2]] = {"small": SpeechNetwork, "deepspeech2": DeepSpeech2}
