"""What trivial models reach on the data of the applications: every target has to be clearly better.

    python benchmarks/trivial_models.py [APPLICATION...]

Image: the class of the nearest picture. Sentiment: the most frequent class. Recommendation: the most popular films.
Translation: words by their frequency. Speech: the one training text that is nearest to all tests.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np

from deepbench import datasets
from deepbench.applications import sentiment, speech
from deepbench.applications.recommendation import common as recommendation
from deepbench.applications.translation import common as translation
from deepbench.training.application import find_application


def image() -> float:
    """Accuracy of the nearest neighbour by Euclidean distance of pixels."""
    seen, labels, test, wanted = _load("fashion-mnist")
    x = seen.reshape(len(seen), -1).astype(np.float32)
    squares = (x**2).sum(1)
    right = 0
    for i in range(0, len(test), 500):
        y = test[i : i + 500].reshape(-1, x.shape[1]).astype(np.float32)
        right += int((labels[(squares - 2 * y @ x.T).argmin(1)] == wanted[i : i + 500]).sum())
    return right / len(test)


def of_sentiment() -> float:
    """Accuracy of the most frequent class of the training texts."""
    trained, tested = sentiment._split(_load("tweets"))
    (most, _), *_ = Counter(t.label for t in trained).most_common(1)
    return sum(t.label == most for t in tested) / len(tested)


def of_recommendation() -> float:
    """Hit rate of the ten most rated films among the candidates."""
    found = recommendation.examples(_load("movielens"))
    counts = np.bincount(found.films, minlength=found.catalogue)
    better = (counts[found.tests[:, 1:]] >= counts[found.tests[:, :1]]).sum(1)
    return float((better < recommendation.AMONG).mean())


def of_translation(rung: str = "mini") -> float:
    """Perplexity of the English words by their frequency in the training texts."""
    found = translation.examples(_load("verses"), find_application("translation").rungs[rung])
    trained, tested = (numbers[:, 1:][numbers[:, 1:] != 0] for numbers in (found.target, found.test_target))
    counts = np.bincount(trained, minlength=int(max(found.words)) + 1) + 1.0
    counts[translation.NOTHING] = 0
    return float(np.exp(-np.log(counts[tested] / counts.sum()).mean()))


def of_speech(rung: str = "mini") -> float:
    """Character error rate of the training text that has the least, said for every test."""
    longest = speech.APPLICATION.rungs[rung].settings["longest_s"] * speech.RATE
    usable = [p for p in _load("prompts") if speech._letters(p.text) and len(p.sound) <= longest]
    tests = [speech._letters(p.text) for p in usable if speech._is_tested(p)]
    texts = {speech._letters(p.text) for p in usable if not speech._is_tested(p)}
    return min(sum(speech.edits(text, t) for t in tests) / sum(map(len, tests)) for text in texts)


MODELS = {
    "image": image,
    "sentiment": of_sentiment,
    "recommendation": of_recommendation,
    "translation": of_translation,
    "speech": of_speech,
}


def _load(name: str) -> list:
    return datasets.find(datasets.find_dataset(name)).load()


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        print(f"{name}: {MODELS[name]():.4f}", flush=True)
