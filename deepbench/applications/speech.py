"""Speech recognition: the letters of telephone prompts, with convolutions, recurrent layers in both directions of time,
and connectionist temporal classification, as in Deep Speech 2 (Amodei and others, 2016).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deepbench.datasets.prompts import RATE, Prompt
from deepbench.training.application import Application, Metric, Rung, Setup

if TYPE_CHECKING:
    from deepbench.training.torch_task import TorchTask

LETTERS = " abcdefghijklmnopqrstuvwxyz'"
BLANK = 0

# One text in so many is for testing.
TESTED = 8

# Windows of 25 ms every 10 ms.
WINDOW, HOP, BANDS, POINTS = RATE // 40, RATE // 100, 40, 256


class Speech(Application):
    """The share of wrong letters: insertions, deletions and replacements over the letters of the right text."""

    name = "speech"
    title = "Speech recognition"
    metric = Metric("character error rate", higher_is_better=False)
    trivial_model = "the training text that is nearest to all tests"
    datasets = ("prompts",)
    rungs = {  # noqa: RUF012  (ClassVar in Application)
        "mini": Rung(
            "a convolution and two GRU layers of 128 in both directions; prompts of at most 6 s",
            batch=16,
            samples=16 * 600,
            every=16 * 50,
            target=0.42,
            trivial=0.907,
            settings={"longest_s": 6.0, "channels": 32, "hidden": 128, "layers": 2, "rate": 3e-3},
        ),
        "small": Rung(
            "a convolution and three GRU layers of 256 in both directions; prompts of at most 12 s",
            batch=16,
            samples=16 * 1500,
            every=16 * 75,
            target=0.25,
            trivial=0.912,
            settings={"longest_s": 12.0, "channels": 32, "hidden": 256, "layers": 3, "rate": 2e-3},
        ),
    }

    def torch_task(self, setup: Setup, rung: Rung, data: list[Any]) -> TorchTask:
        import torch
        from torch import nn
        from torch.nn import functional

        from deepbench.training.schedule import warm_up_then_zero
        from deepbench.training.torch_task import TorchTask

        sizes = rung.settings
        (prompts,) = data
        usable = [p for p in prompts if _letters(p.text) and len(p.sound) <= sizes["longest_s"] * RATE]
        trained, tested = ([p for p in usable if _is_tested(p) == which] for which in (False, True))
        bands = torch.from_numpy(_bands())
        window = torch.hann_window(WINDOW)

        def features(prompt: Prompt) -> torch.Tensor:
            """Frames × bands: logarithms of energy, with mean 0 and variance 1."""
            spectrum = torch.stft(torch.from_numpy(prompt.sound), POINTS, HOP, WINDOW, window, return_complex=True)
            logs = (spectrum.abs().square().T @ bands + 1e-6).log()
            return ((logs - logs.mean()) / (logs.std() + 1e-3)).to(setup.device)

        def examples(chosen: Sequence[Prompt]) -> list[tuple[torch.Tensor, torch.Tensor]]:
            texts = (_letters(p.text) for p in chosen)
            numbers = [torch.tensor([LETTERS.index(c) + 1 for c in text], device=setup.device) for text in texts]
            return list(zip(map(features, chosen), numbers, strict=True))

        seen, test = examples(trained), examples(tested)

        class Network(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv = nn.Conv2d(1, sizes["channels"], (11, 11), (2, 2), (5, 5))
                self.norm = nn.BatchNorm2d(sizes["channels"])
                self.second = nn.Conv2d(sizes["channels"], sizes["channels"], (5, 5), (2, 2), (2, 2))
                self.second_norm = nn.BatchNorm2d(sizes["channels"])
                self.layers = nn.GRU(
                    sizes["channels"] * BANDS // 4,
                    sizes["hidden"],
                    sizes["layers"],
                    batch_first=True,
                    bidirectional=True,
                )
                self.out = nn.Linear(2 * sizes["hidden"], len(LETTERS) + 1)

            def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
                y = functional.relu(self.norm(self.conv(x[:, None])))
                y = functional.relu(self.second_norm(self.second(y)))
                y = y.permute(0, 2, 1, 3).flatten(2)
                packed = nn.utils.rnn.pack_padded_sequence(y, lengths.cpu(), batch_first=True, enforce_sorted=False)
                y, _ = nn.utils.rnn.pad_packed_sequence(self.layers(packed)[0], batch_first=True)
                return functional.log_softmax(self.out(y).float(), 2)

        torch.manual_seed(setup.seed)
        model = Network().to(setup.device)

        def run(
            model: nn.Module, chosen: Sequence[tuple[torch.Tensor, torch.Tensor]]
        ) -> tuple[torch.Tensor, torch.Tensor]:
            frames = nn.utils.rnn.pad_sequence([x for x, _ in chosen], batch_first=True)
            lengths = torch.tensor([(len(x) + 3) // 4 for x, _ in chosen])
            return model(frames, lengths), lengths

        def loss(model: nn.Module, at: torch.Tensor) -> torch.Tensor:
            chosen = [seen[i] for i in at.tolist()]
            found, lengths = run(model, chosen)
            wanted = torch.cat([text for _, text in chosen])
            sizes_of = torch.tensor([len(text) for _, text in chosen])
            return functional.ctc_loss(found.transpose(0, 1), wanted, lengths, sizes_of, BLANK, zero_infinity=True)

        def answer(model: nn.Module, at: torch.Tensor) -> list[str]:
            found, lengths = run(model, [test[i] for i in at.tolist()])
            texts = []
            for row, length in zip(found.argmax(2).cpu(), lengths.tolist(), strict=True):
                kept = torch.unique_consecutive(row[:length])
                texts.append("".join(LETTERS[i - 1] for i in kept[kept != BLANK].tolist()))
            return texts

        def grade(tests: Sequence[int], answers: Sequence[str]) -> float:
            wanted = [_letters(tested[i].text) for i in tests]
            wrong = sum(edits(text, right) for text, right in zip(answers, wanted, strict=True))
            return wrong / sum(map(len, wanted))

        optimizer = torch.optim.AdamW(model.parameters(), sizes["rate"], weight_decay=1e-2)
        return TorchTask(
            setup, rung, model, optimizer, loss, len(seen), answer, grade, len(test),
            learning_rate=warm_up_then_zero(0.1), longest_gradient=5.0,
        )  # fmt: skip


def _letters(text: str) -> str:
    """The letters of a text; empty where it has digits or remarks, because nobody knows how these were spoken."""
    if re.search(r"[0-9\[\]()<>{}*#]", text):
        return ""
    return " ".join("".join(c if c in LETTERS else " " for c in text.lower().replace("’", "'")).split())


def _is_tested(prompt: Prompt) -> bool:
    """What is said twice is on one side only."""
    return int(hashlib.sha256(_letters(prompt.text).encode()).hexdigest()[:8], 16) % TESTED == 0


def _bands() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Points of a spectrum × triangular bands of equal width on the mel scale (O'Shaughnessy, 1987)."""
    mel = np.linspace(0.0, 2595 * np.log10(1 + RATE / 2 / 700), BANDS + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    points = np.linspace(0.0, RATE / 2, POINTS // 2 + 1)[:, None]
    rising, falling = (points - edges[:-2]) / np.diff(edges)[:-1], (edges[2:] - points) / np.diff(edges)[1:]
    return np.clip(np.minimum(rising, falling), 0, None).astype(np.float32)


def edits(found: Sequence[Any], wanted: Sequence[Any]) -> int:
    """The least number of insertions, deletions and replacements between two sequences (Levenshtein, 1966)."""
    row = list(range(len(wanted) + 1))
    for i, a in enumerate(found, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(wanted, 1):
            before, row[j] = row[j], min(before + (a != b), row[j] + 1, row[j - 1] + 1)
    return row[-1]


APPLICATION = Speech()
