"""Translation: verses from Spanish to English, with a Transformer (Vaswani and others, 2017), or with LSTM layers and
attention as in GNMT (Wu and others, 2016).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deepbench.training.application import Application, Metric, Rung, Setup

if TYPE_CHECKING:
    from deepbench.training.torch_task import TorchTask

WORD = re.compile(r"[^\W\d_]+|[^\w\s]")
NOTHING, UNKNOWN, BEGIN, END = range(4)

# One verse in so many is for testing.
TESTED = 60


class Translation(Application):
    """The perplexity of the right English words: e to the mean negative log-probability of a word.

    A word that is not in the vocabulary counts as the word UNKNOWN.
    """

    name = "translation"
    title = "Machine translation"
    metric = Metric("perplexity", higher_is_better=False, is_share=False)
    answer_metric = Metric("BLEU")
    trivial_model = "words by their frequency"
    datasets = ("verses",)
    rungs = {  # noqa: RUF012  (ClassVar in Application)
        "mini": Rung(
            "a Transformer of 2 + 2 layers, 128 wide; verses of at most 30 words",
            batch=64,
            samples=64 * 400,
            every=64 * 40,
            target=40.0,
            trivial=245.0,
            settings={"model": "transformer", "words": 4000, "length": 30, "width": 128, "layers": 2, "rate": 2e-3},
        ),
        "small": Rung(
            "2 + 2 LSTM layers, 256 wide, with attention; verses of at most 40 words",
            batch=64,
            samples=64 * 2000,
            every=64 * 100,
            target=25.0,
            trivial=245.0,
            settings={"model": "lstm", "words": 6000, "length": 40, "width": 256, "layers": 2, "rate": 2e-3},
        ),
    }

    def torch_task(self, setup: Setup, rung: Rung, data: list[Any]) -> TorchTask:
        import torch
        from torch import nn
        from torch.nn import functional

        from deepbench.training.torch_task import TorchTask, warm_up_then_zero

        sizes = rung.settings
        (verses,) = data
        pairs = [tuple(WORD.findall(text.lower()) for text in verse) for verse in verses]
        pairs = [pair for pair in pairs if max(map(len, pair)) <= sizes["length"]]
        tested = [_is_tested(pair[0]) for pair in pairs]
        parts = []
        for side in (0, 1):
            texts = [pair[side] for pair in pairs]
            known = _vocabulary((t for t, test in zip(texts, tested, strict=True) if not test), sizes["words"])
            numbers = _numbers(texts, known, sizes["length"] + 2)
            parts.append(
                [torch.from_numpy(numbers[np.array(tested) == which]).to(setup.device) for which in (False, True)]
            )
        (source, test_source), (target, test_target) = parts
        words = {number: word for word, number in known.items()} | dict.fromkeys(range(END + 1), "?")
        wanted = [pair[1] for pair, test in zip(pairs, tested, strict=True) if test]

        class Transformer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                width, layers = sizes["width"], sizes["layers"]
                self.source, self.target = (nn.Embedding(sizes["words"], width, NOTHING) for _ in range(2))
                self.places = nn.Parameter(torch.randn(sizes["length"] + 2, width) * 0.02)
                self.body = nn.Transformer(
                    width, width // 32, layers, layers, 4 * width, 0.1, batch_first=True, norm_first=True
                )
                for table in (self.source, self.target):
                    nn.init.normal_(table.weight, std=width**-0.5)

            def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                scale = sizes["width"] ** 0.5
                seen = self.source(x) * scale + self.places[: x.shape[1]]
                made = self.target(y) * scale + self.places[: y.shape[1]]
                later = nn.Transformer.generate_square_subsequent_mask(y.shape[1], y.device)
                is_nothing = torch.zeros(x.shape, device=x.device).masked_fill(x == NOTHING, float("-inf"))
                found = self.body(
                    seen, made, tgt_mask=later, src_key_padding_mask=is_nothing, memory_key_padding_mask=is_nothing,
                    tgt_is_causal=True,
                )  # fmt: skip
                return functional.linear(found, self.target.weight)

        class Recurrent(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                width, layers = sizes["width"], sizes["layers"]
                self.source, self.target = (nn.Embedding(sizes["words"], width, NOTHING) for _ in range(2))
                self.encoder = nn.LSTM(width, width // 2, layers, batch_first=True, bidirectional=True, dropout=0.2)
                self.decoder = nn.LSTM(width, width, layers, batch_first=True, dropout=0.2)
                self.join = nn.Linear(2 * width, width)
                for table in (self.source, self.target):
                    nn.init.normal_(table.weight, std=width**-0.5)

            def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                seen, _ = self.encoder(self.source(x))
                made, _ = self.decoder(self.target(y))
                scores = (made @ seen.transpose(1, 2)).masked_fill((x == NOTHING)[:, None], -1e4)
                found = torch.tanh(self.join(torch.cat([made, scores.softmax(2) @ seen], 2)))
                return functional.linear(functional.dropout(found, 0.2, self.training), self.target.weight)

        torch.manual_seed(setup.seed)
        model = (Transformer() if sizes["model"] == "transformer" else Recurrent()).to(setup.device)

        def losses(model: nn.Module, x: torch.Tensor, y: torch.Tensor, how: str, smoothing: float) -> torch.Tensor:
            x, y = x[:, : int((x != NOTHING).sum(1).max())], y[:, : int((y != NOTHING).sum(1).max())]
            logits = model(x, y[:, :-1])
            return functional.cross_entropy(
                logits.flatten(0, 1), y[:, 1:].flatten(), ignore_index=NOTHING, reduction=how, label_smoothing=smoothing
            )

        def loss(model: nn.Module, at: torch.Tensor) -> torch.Tensor:
            return losses(model, source[at], target[at], "mean", 0.0)

        def evaluate(model: nn.Module) -> float:
            total = sum(
                float(losses(model, test_source[i : i + 128], test_target[i : i + 128], "sum", 0.0))
                for i in range(0, len(test_source), 128)
            )
            return float(np.exp(total / int((test_target[:, 1:] != NOTHING).sum())))

        def answer(model: nn.Module, at: torch.Tensor) -> list[list[str]]:
            """The most likely word at each place, one after the other."""
            x = test_source[at]
            x = x[:, : int((x != NOTHING).sum(1).max())]
            y = torch.full((len(at), 1), BEGIN, device=x.device)
            for _ in range(sizes["length"]):
                y = torch.cat([y, model(x, y)[:, -1].argmax(1, keepdim=True)], 1)
                if bool((y == END).any(1).all()):
                    break
            return [[words[i] for i in takewhile(END.__ne__, row[1:])] for row in y.tolist()]

        def grade(tests: Sequence[int], answers: Sequence[Sequence[str]]) -> float:
            return bleu(answers, [wanted[i] for i in tests])

        optimizer = torch.optim.AdamW(model.parameters(), sizes["rate"], (0.9, 0.98), weight_decay=1e-2)
        return TorchTask(
            setup, rung, model, optimizer, loss, len(source), answer, grade, len(test_source),
            evaluate=evaluate, learning_rate=warm_up_then_zero(0.1), longest_gradient=1.0,
        )  # fmt: skip


def _is_tested(words: Sequence[str]) -> bool:
    return int(hashlib.sha256(" ".join(words).encode()).hexdigest()[:8], 16) % TESTED == 0


def _vocabulary(texts: Iterable[Sequence[str]], size: int) -> dict[str, int]:
    counts = Counter(word for text in texts for word in text)
    ordered = sorted(counts, key=lambda word: (-counts[word], word))[: size - 1 - END]
    return {word: i for i, word in enumerate(ordered, END + 1)}


def _numbers(texts: Sequence[Sequence[str]], known: dict[str, int], length: int) -> NDArray[np.int64]:
    """The words of each text between `BEGIN` and `END`, filled up with `NOTHING`."""
    found = np.full((len(texts), length), NOTHING, np.int64)
    for row, text in zip(found, texts, strict=True):
        row[: len(text) + 2] = [BEGIN, *(known.get(word, UNKNOWN) for word in text), END]
    return found


def bleu(found: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> float:
    """How much texts resemble the right ones, from 0 to 1 (Papineni and others, 2002).

    It is the geometric mean of the shares of right words, and of right sequences of two, three and four words, times a
    penalty for texts that are too short.
    """
    logs = 0.0
    for n in range(1, 5):
        right = total = 0
        for text, other in zip(found, wanted, strict=True):
            has, may_have = (Counter(zip(*(t[i:] for i in range(n)), strict=False)) for t in (text, other))
            right += (has & may_have).total()
            total += has.total()
        if not right:
            return 0.0
        logs += np.log(right / total) / 4
    lengths = sum(map(len, wanted)) / sum(map(len, found))
    return float(np.exp(logs + min(0.0, 1.0 - lengths)))


APPLICATION = Translation()
