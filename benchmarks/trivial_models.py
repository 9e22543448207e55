"""What trivial models reach on the data of the applications: every target has to be clearly better.

    python benchmarks/trivial_models.py [APPLICATION...]

Image: the class of the nearest picture. Sentiment: the most frequent class. Recommendation: the most popular films.
Translation: words by their frequency. Speech: the one training text that is nearest to all tests. Detection: bands of
rows with ink, called all four classes. Go: a player that captures as many stones as it can.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from deepbench.applications import datasets
from deepbench.applications.datasets.pages import CLASSES
from deepbench.applications.tasks import detection, sentiment, speech
from deepbench.applications.tasks.detection.boxes import average_precision
from deepbench.applications.tasks.go import match, rules
from deepbench.applications.tasks.go.rules import Games, Moves
from deepbench.applications.tasks.go.task import GoTask
from deepbench.applications.tasks.recommendation import common as recommendation
from deepbench.applications.tasks.translation import common as translation
from deepbench.applications.training.application import Setup, find_application

# Pixels that are darker are ink, and a band of rows with ink may contain so many without it.
INK, GAP = 200, 3

# Of Go, against GNU Go.
MATCHES = 10


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
    trained, tested = datasets.divided(_load("tweets"), sentiment._repeated_text, sentiment.TESTED)
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
    trained, tested = speech.parts(_load("prompts"), speech.APPLICATION.rungs[rung].settings)
    texts, tests = {speech._letters(p.text) for p in trained}, [speech._letters(p.text) for p in tested]
    return min(sum(speech.edits(text, t) for t in tests) / sum(map(len, tests)) for text in texts)


def of_detection() -> float:
    """Mean average precision of the bands of rows with ink of each page, each called all classes."""
    _, tests = detection.parts(_load("pages"))
    found = [
        [(kind, 1.0, *band) for band in bands(tests.picture(i)[0]) for kind in range(len(CLASSES))]
        for i in range(len(tests))
    ]
    return average_precision(found, tests.boxes, tests.classes, (0.5,))


def bands(picture: np.ndarray) -> list[np.ndarray]:
    """Left, top, right, bottom of each band of rows with ink, as shares of the page."""
    inked = np.flatnonzero((picture < INK).any(1))
    parts = np.split(inked, np.flatnonzero(np.diff(inked) > GAP + 1) + 1) if len(inked) else []
    found = []
    for part in parts:
        columns = np.flatnonzero((picture[part[0] : part[-1] + 1] < INK).any(0))
        box = np.array([columns[0], part[0], columns[-1] + 1, part[-1] + 1])
        found.append(box / len(picture))
    return found


def of_go(rung: str = "mini", captures: bool = True) -> float:
    """The share of games that a player wins against GNU Go which captures as many stones as it can, or moves at random.

    It never fills its own eyes. The mean of `MATCHES` matches, which have different random numbers.
    """
    task = GoTask(Setup("go", rung), find_application("go").rungs[rung], _load("gnugo"))
    chance = torch.Generator().manual_seed(0)

    def choose(games: Games, moves: Moves) -> torch.Tensor:
        """The move that captures most; of several a random one. A pass is the last choice."""
        near = rules.neighbours(games.edge, games.player.device)
        own = (games.stones[:, 0] == games.player[:, None]).float()
        is_eye = own @ near == near.sum(0)
        usable = moves.legal[:, :-1] & ~is_eye
        value = captures * moves.captured.sum(2) + torch.rand(usable.shape, generator=chance)
        best = value.masked_fill(~usable, -1.0).max(1)
        return torch.where(best.values < 0, usable.shape[1], best.indices)

    with task._gnugo() as gnugo:
        won = [match.share_won(choose, gnugo, task._openings, task._search.komi) for _ in range(MATCHES)]
    return sum(won) / MATCHES


MODELS: dict[str, Callable[[], float]] = {
    "detection": of_detection,
    "go": of_go,
    "go, random moves": partial(of_go, captures=False),
    "go, small": partial(of_go, "small"),
    "go, small, random moves": partial(of_go, "small", captures=False),
    "image": image,
    "recommendation": of_recommendation,
    "sentiment": of_sentiment,
    "speech": of_speech,
    "speech, small": partial(of_speech, "small"),
    "translation": of_translation,
    "translation, small": partial(of_translation, "small"),
    "translation, full": partial(of_translation, "full"),
    "translation, full-transformer": partial(of_translation, "full-transformer"),
}


def _load(name: str) -> list:
    return datasets.find(datasets.find_dataset(name)).load()


if __name__ == "__main__":
    names = {name: name.split(",")[0] for name in MODELS}
    wanted = sys.argv[1:] or names.values()
    if unknown := set(wanted) - set(names.values()):
        sys.exit(f"no application {', '.join(sorted(unknown))}; choose from {', '.join(dict.fromkeys(names.values()))}")
    for name, application in names.items():
        if application in wanted:
            print(f"{name}: {MODELS[name]():.4f}", flush=True)
