"""Sentiment analysis: whether a tweet is negative, neutral or positive, or a review negative or positive, with
convolutions over words (Johnson and Zhang, 2015) as MLPerf had it in 2018, or with an LSTM.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deepbench.applications.datasets import Divided, divided, imdb
from deepbench.applications.datasets.tweets import LABELS, Tweet
from deepbench.applications.training.application import Application, Metric, Rung, Setup

if TYPE_CHECKING:
    from deepbench.applications.training.torch_task import TorchTask

WORD = re.compile(r"[a-z']+|[#@!?:;()]|[0-9]+")
NOTHING, UNKNOWN = 0, 1

# What differs between a tweet and its repetition.
REPEATED = re.compile(r"\brt\b|@\w+|https?://\S+|www\.\S+|[0-9]+|[^a-z\s]")

# One text in so many is for testing.
TESTED = 10

CONVOLUTIONS = {
    "model": "wide conv", "words": 12_000, "width": 1024, "channels": 1024, "rate": 5e-4, "together": 128,
}  # fmt: skip
LSTM = {
    "model": "stacked lstm", "words": 12_000, "width": 256, "channels": 256, "layers": 3, "rate": 2e-3,
    "together": 128,
}  # fmt: skip


class Sentiment(Application):
    """The label that most people gave a text."""

    name = "sentiment"
    title = "Sentiment analysis"
    metric = Metric("accuracy")
    has_equal_samples = True
    datasets = ("tweets",)
    rungs = {  # noqa: RUF012  (ClassVar in Application)
        "mini": Rung(
            "convolutions over 3 and 4 words, 64 channels each",
            batch=128,
            samples=128 * 1000,
            every=128 * 50,
            target=0.69,
            settings={"model": "conv", "words": 12_000, "length": 32, "width": 64, "channels": 64, "rate": 2e-3},
        ),
        "small": Rung(
            "an LSTM in both directions of time, 128 wide",
            batch=128,
            samples=128 * 2000,
            every=128 * 100,
            target=0.72,
            settings={"model": "lstm", "words": 12_000, "length": 32, "width": 128, "channels": 128, "rate": 2e-3},
        ),
        "full": Rung(
            "the convolutions of 2018, 1,024 wide; target of small, not calibrated",
            batch=128,
            samples=128 * 2000,
            every=128 * 100,
            target=0.72,
            settings={**CONVOLUTIONS, "length": 32},
        ),
        "full-lstm": Rung(
            "three LSTM layers of 2018, 256 wide; target of small, not calibrated",
            batch=128,
            samples=128 * 2000,
            every=128 * 100,
            target=0.72,
            settings={**LSTM, "length": 32},
        ),
        "full-imdb": Rung(
            "the convolutions of 2018, 1,024 wide; the first 512 words of reviews of IMDB",
            batch=128,
            samples=128 * 196 * 10,
            every=128 * 98,
            target=0.906,
            settings={**CONVOLUTIONS, "length": 512},
            datasets=("imdb",),
        ),
    }

    def torch_task(self, setup: Setup, rung: Rung, data: list[Any]) -> TorchTask:
        import torch
        from torch import nn
        from torch.nn import functional

        from deepbench.applications.tasks.sentiment.networks import NETWORKS
        from deepbench.applications.training.schedule import warm_up_then_zero
        from deepbench.applications.training.torch_task import TorchTask

        sizes = rung.settings
        is_reviews = isinstance(data[0], Divided)
        trained, tested = data[0] if is_reviews else divided(data[0], _repeated_text, TESTED)
        labels_of = imdb.LABELS if is_reviews else LABELS
        known = _vocabulary(trained, sizes["words"])
        texts, labels = (torch.from_numpy(part).to(setup.device) for part in _numbers(trained, known, sizes["length"]))
        test_numbers, test_labels = _numbers(tested, known, sizes["length"])
        test_texts = torch.from_numpy(test_numbers).to(setup.device)

        torch.manual_seed(setup.seed)
        model = NETWORKS[sizes["model"]](sizes, len(labels_of)).to(setup.device)

        def loss(model: nn.Module, at: torch.Tensor) -> torch.Tensor:
            return functional.cross_entropy(model(texts[at]), labels[at])

        def answer(model: nn.Module, at: torch.Tensor) -> list[int]:
            parts = at.split(sizes.get("together", len(at)))
            return [number for part in parts for number in model(test_texts[part]).argmax(1).tolist()]

        def grade(tests: Sequence[int], answers: Sequence[int]) -> float:
            return float(np.mean(np.array(answers) == test_labels[list(tests)]))

        optimizer = torch.optim.Adam(model.parameters(), sizes["rate"])
        return TorchTask(
            setup, rung, model, optimizer, loss, len(labels), answer, grade, len(tested),
            learning_rate=warm_up_then_zero(0.1),
        )  # fmt: skip


def _repeated_text(tweet: Tweet) -> str:
    """What a tweet and its repetitions have in common: these have other names, numbers and addresses."""
    return " ".join(re.findall("[a-z]+", REPEATED.sub(" ", tweet.text.lower())))


def _vocabulary(tweets: Sequence[Tweet], size: int) -> dict[str, int]:
    """The most frequent words of the texts, by number."""
    counts = Counter(word for t in tweets for word in WORD.findall(t.text.lower()))
    ordered = sorted(counts, key=lambda word: (-counts[word], word))[: size - 2]
    return {word: i for i, word in enumerate(ordered, UNKNOWN + 1)}


def _numbers(
    tweets: Sequence[Tweet], known: dict[str, int], length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The words of each text, filled up with `NOTHING`, and the labels."""
    texts = np.full((len(tweets), length), NOTHING, np.int64)
    for row, t in zip(texts, tweets, strict=True):
        words = [known.get(word, UNKNOWN) for word in WORD.findall(t.text.lower())[:length]]
        row[: len(words)] = words
    return texts, np.array([t.label for t in tweets], np.int64)


APPLICATION = Sentiment()
