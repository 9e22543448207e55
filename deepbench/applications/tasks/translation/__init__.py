"""Translation: verses from Spanish to English, or sentences from German to English, with a Transformer (Vaswani and
others, 2017), or with LSTM layers and attention as in GNMT (Wu and others, 2016).
"""

from __future__ import annotations

from deepbench.applications.training.application import Application, Metric, Rung

# Both languages have one table of words, of the published size.
GNMT = {
    "model": "gnmt", "words": 32_320, "length": 50, "width": 1024, "layers": 4, "rate": 5e-4,
    "is_shared": True, "smoothing": 0.1,
}  # fmt: skip
BIG_TRANSFORMER = {
    "model": "big transformer", "words": 33_708, "length": 50, "width": 1024, "layers": 6, "heads": 16, "rate": 5e-4,
    "is_shared": True, "smoothing": 0.1,
}  # fmt: skip


class Translation(Application):
    """The perplexity of the right words in English: e to the mean negative log-probability of a word.

    A word that is not in the vocabulary counts as the word UNKNOWN.
    """

    name = "translation"
    title = "Machine translation"
    metric = Metric("perplexity", higher_is_better=False, is_share=False)
    answer_metric = Metric("BLEU")
    datasets = ("verses",)
    frameworks = ("torch", "jax")
    rungs = {  # noqa: RUF012  (ClassVar in Application)
        "mini": Rung(
            "a Transformer of 2 + 2 layers, 128 wide; verses of at most 30 words",
            batch=64,
            samples=64 * 400,
            every=64 * 40,
            target=45.0,
            settings={"model": "transformer", "words": 4000, "length": 30, "width": 128, "layers": 2, "rate": 2e-3},
        ),
        "small": Rung(
            "2 + 2 LSTM layers, 256 wide, with attention; verses of at most 40 words",
            batch=64,
            samples=64 * 2000,
            every=64 * 100,
            target=33.0,
            settings={"model": "lstm", "words": 6000, "length": 40, "width": 256, "layers": 2, "rate": 2e-3},
        ),
        "full": Rung(
            "GNMT of 2018; verses of at most 50 words; target of small, not calibrated",
            batch=128,
            samples=128 * 2400,
            every=128 * 240,
            target=33.0,
            settings=GNMT,
        ),
        "full-transformer": Rung(
            "the large Transformer of 2018; verses of at most 50 words; target of small, not calibrated",
            batch=128,
            samples=128 * 2400,
            every=128 * 240,
            target=33.0,
            settings=BIG_TRANSFORMER,
        ),
        "full-wmt": Rung(
            "GNMT of 2018; German sentences of at most 50 words; target of small, not calibrated",
            batch=128,
            samples=128 * 175_000,
            every=128 * 17_500,
            target=33.0,
            settings=GNMT,
            datasets=("wmt",),
        ),
        "full-transformer-wmt": Rung(
            "the large Transformer of 2018; German sentences of at most 50 words; target of small, not calibrated",
            batch=128,
            samples=128 * 175_000,
            every=128 * 17_500,
            target=33.0,
            settings=BIG_TRANSFORMER,
            datasets=("wmt",),
        ),
    }


APPLICATION = Translation()
