"""Translation: verses from Spanish to English, with a Transformer (Vaswani and others, 2017), or with LSTM layers and
attention as in GNMT (Wu and others, 2016).
"""

from __future__ import annotations

from typing import Any

from deepbench.training.application import Application, Metric, Rung, Setup, Task


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
    frameworks = ("torch", "jax")
    rungs = {  # noqa: RUF012  (ClassVar in Application)
        "mini": Rung(
            "a Transformer of 2 + 2 layers, 128 wide; verses of at most 30 words",
            batch=64,
            samples=64 * 400,
            every=64 * 40,
            target=45.0,
            trivial=245.0,
            settings={"model": "transformer", "words": 4000, "length": 30, "width": 128, "layers": 2, "rate": 2e-3},
        ),
        "small": Rung(
            "2 + 2 LSTM layers, 256 wide, with attention; verses of at most 40 words",
            batch=64,
            samples=64 * 2000,
            every=64 * 100,
            target=25.0,
            trivial=281.3,
            settings={"model": "lstm", "words": 6000, "length": 40, "width": 256, "layers": 2, "rate": 2e-3},
        ),
    }

    def torch_task(self, setup: Setup, rung: Rung, data: list[Any]) -> Task:
        from deepbench.applications.translation.torch_version import task

        return task(setup, rung, data)

    def jax_task(self, setup: Setup, rung: Rung, data: list[Any]) -> Task:
        from deepbench.applications.translation.jax_version import task

        return task(setup, rung, data)


APPLICATION = Translation()
