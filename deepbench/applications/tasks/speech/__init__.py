"""Speech recognition: the letters of telephone prompts, or of books that are read aloud, with convolutions, recurrent
layers in both directions of time, and connectionist temporal classification, as in Deep Speech 2 (Amodei and others,
2016).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from deepbench.applications.datasets import Divided, divided
from deepbench.applications.datasets.librispeech import RATE as LIBRISPEECH_RATE
from deepbench.applications.datasets.librispeech import Utterance
from deepbench.applications.datasets.prompts import RATE, Prompt
from deepbench.applications.training.application import Application, Metric, Rung, Setup

if TYPE_CHECKING:
    from deepbench.applications.training.torch_task import TorchTask

LETTERS = " abcdefghijklmnopqrstuvwxyz'"
BLANK = 0

# One text in so many is for testing.
TESTED = 8

# Windows of 25 ms every 10 ms.
WINDOW, HOP, BANDS, POINTS = RATE // 40, RATE // 100, 40, 256

# Windows of Deep Speech 2: 20 ms of LibriSpeech, and 40 ms of prompts, which have half as many samples per second.
WIDE = 320

# Frames from which Deep Speech 2 makes one letter.
LEAST = 31

DEEP_SPEECH_2 = {
    "model": "deepspeech2", "channels": 32, "hidden": 800, "layers": 5, "rate": 3e-4, "together": 20,
}  # fmt: skip

Spoken = Prompt | Utterance


class Speech(Application):
    """The share of wrong letters: insertions, deletions and replacements over the letters of the right text."""

    name = "speech"
    title = "Speech recognition"
    metric = Metric("character error rate", higher_is_better=False)
    datasets = ("prompts",)
    rungs = {  # noqa: RUF012  (ClassVar in Application)
        "mini": Rung(
            "two convolutions and two bidirectional GRU layers of 128; prompts of at most 6 s",
            batch=16,
            samples=16 * 600,
            every=16 * 50,
            target=0.42,
            settings={"longest_s": 6.0, "channels": 32, "hidden": 128, "layers": 2, "rate": 3e-3},
        ),
        "small": Rung(
            "two convolutions and three bidirectional GRU layers of 256; prompts of at most 12 s",
            batch=16,
            samples=16 * 750,
            every=16 * 50,
            target=0.32,
            settings={"longest_s": 12.0, "channels": 32, "hidden": 256, "layers": 3, "rate": 2e-3},
        ),
        "full": Rung(
            "Deep Speech 2 of May 2018; prompts of at most 12 s; target of small, not calibrated",
            batch=5,
            samples=24_000,
            every=1_200,
            target=0.32,
            settings={"longest_s": 12.0, **DEEP_SPEECH_2},
        ),
        "full-librispeech": Rung(
            "Deep Speech 2 of May 2018 on LibriSpeech, 10 epochs; target not calibrated",
            batch=5,
            samples=2_812_400,
            every=281_240,
            target=0.25,
            settings=DEEP_SPEECH_2,
            datasets=("librispeech",),
        ),
    }

    def torch_task(self, setup: Setup, rung: Rung, data: list[Any]) -> TorchTask:
        import torch
        from torch import nn
        from torch.nn import functional

        from deepbench.applications.tasks.speech.networks import NETWORKS
        from deepbench.applications.training.schedule import warm_up_then_zero
        from deepbench.applications.training.torch_task import TorchTask

        sizes = rung.settings
        trained, tested = parts(data[0], sizes)
        is_read_late = isinstance(data[0], Divided)
        hertz = LIBRISPEECH_RATE if is_read_late else RATE
        network = NETWORKS[sizes.get("model", "small")]
        threads = ThreadPoolExecutor(setup.threads)
        bands = torch.from_numpy(_bands())
        window = torch.hann_window(WINDOW)
        wide_window = torch.hamming_window(WIDE)

        def energies(sound: torch.Tensor) -> torch.Tensor:
            """Frames × bands: logarithms of energy."""
            spectrum = torch.stft(sound, POINTS, HOP, WINDOW, window, return_complex=True)
            return (spectrum.abs().square().T @ bands + 1e-6).log()

        def spectra(sound: torch.Tensor) -> torch.Tensor:
            """Frames × points of a spectrum: logarithms of 1 + amplitude; short ones are filled up."""
            spectrum = torch.stft(
                sound, WIDE, hertz // 100, WIDE, wide_window, pad_mode="constant", return_complex=True
            )
            logs = spectrum.abs().log1p().T
            return functional.pad(logs, (0, 0, 0, max(0, LEAST - len(logs))))

        def example(spoken: Spoken) -> tuple[torch.Tensor, torch.Tensor]:
            """Frames with mean 0 and variance 1, and the numbers of letters."""
            sound = torch.from_numpy(spoken.sound)
            logs = spectra(sound) if "model" in sizes else energies(sound)
            numbers = torch.tensor([LETTERS.index(c) + 1 for c in _letters(spoken.text)], device=setup.device)
            return ((logs - logs.mean()) / (logs.std() + 1e-3)).to(setup.device), numbers

        seen, test = (part if is_read_late else [example(prompt) for prompt in part] for part in (trained, tested))

        def chosen_of(part: Sequence[Any], at: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
            chosen = [part[i] for i in at.tolist()]
            return list(threads.map(example, chosen)) if is_read_late else chosen

        torch.manual_seed(setup.seed)
        points = WIDE // 2 + 1 if "model" in sizes else BANDS
        model = network(sizes, points, len(LETTERS) + 1).to(setup.device)

        def run(
            model: nn.Module, chosen: Sequence[tuple[torch.Tensor, torch.Tensor]]
        ) -> tuple[torch.Tensor, torch.Tensor]:
            frames = nn.utils.rnn.pad_sequence([x for x, _ in chosen], batch_first=True)
            counts = [len(x) for x, _ in chosen]
            return model(frames, torch.tensor(counts)), torch.tensor([network.frames(count) for count in counts])

        def loss(model: nn.Module, at: torch.Tensor) -> torch.Tensor:
            chosen = chosen_of(seen, at)
            found, lengths = run(model, chosen)
            wanted = torch.cat([text for _, text in chosen])
            sizes_of = torch.tensor([len(text) for _, text in chosen])
            return functional.ctc_loss(found.transpose(0, 1), wanted, lengths, sizes_of, BLANK, zero_infinity=True)

        def answer(model: nn.Module, at: torch.Tensor) -> list[str]:
            texts = []
            for some in at.split(sizes.get("together", len(at))):
                found, lengths = run(model, chosen_of(test, some))
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


def parts(data: Sequence[Prompt] | Divided[list[Utterance]], sizes: Mapping[str, Any]) -> Divided[Any]:
    """For training and for testing: what has letters, and of the prompts those that are short enough."""
    if isinstance(data, Divided):
        return Divided(*([u for u in part if _letters(u.text)] for part in data))
    usable = [p for p in data if _letters(p.text) and len(p.sound) <= sizes["longest_s"] * RATE]
    return divided(usable, lambda prompt: _letters(prompt.text), TESTED)


def _letters(text: str) -> str:
    """The letters of a text; empty where it has digits or remarks, because nobody knows how these were spoken."""
    if re.search(r"[0-9\[\]()<>{}*#]", text):
        return ""
    return " ".join("".join(c if c in LETTERS else " " for c in text.lower().replace("’", "'")).split())


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
