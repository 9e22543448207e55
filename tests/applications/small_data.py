"""Small data that tests invent, in the form in which data sets load it."""

import numpy as np

from deepbench.applications.datasets.movielens import Ratings
from deepbench.applications.datasets.prompts import Prompt
from deepbench.applications.datasets.tweets import Tweet

WORDS = [f"w{chr(97 + i)}" for i in range(26)]


def pictures(train=70, test=30):
    """Noise in ten classes; a bright bar shows the class."""
    chance = np.random.default_rng(1)
    images = [chance.integers(0, 128, (n, 28, 28)).astype(np.uint8) for n in (train, test)]
    labels = [chance.integers(0, 10, n).astype(np.uint8) for n in (train, test)]
    for part, classes in zip(images, labels, strict=True):
        for picture, label in zip(part, classes, strict=True):
            picture[2 * label + 4 : 2 * label + 6] += 127
    return images[0], labels[0], images[1], labels[1]


def ratings():
    """Each of 20 people has rated 10 of 150 films."""
    chance = np.random.default_rng(2)
    films = np.concatenate([chance.permutation(150)[:10] for _ in range(20)])
    films[:3] = 147, 148, 149
    return Ratings(np.repeat(np.arange(20), 10), films, np.ones(200, np.float32), chance.permutation(200) * 1.0)


def verses():
    """Texts of one to nine words."""
    chance = np.random.default_rng(3)
    return [tuple(" ".join(chance.choice(WORDS, chance.integers(1, 10))) for _ in range(2)) for _ in range(400)]


def tweets():
    """Texts of nine words; the last one says the label."""
    chance = np.random.default_rng(4)
    labels = chance.integers(0, 3, 300).tolist()
    return [Tweet(" ".join([*chance.choice(WORDS, 8), ("bad", "so", "good")[label]]), label) for label in labels]


def prompts():
    """Three tones that stand for the letters a, b and c, in words of two to five letters."""
    chance = np.random.default_rng(5)
    found = []
    for number in range(120):
        letters = chance.integers(0, 3, chance.integers(2, 6))
        times = np.arange(2000) / 8000
        tones = [np.sin(2 * np.pi * (300, 900, 2000)[letter] * times) for letter in letters]
        sound = np.concatenate(tones) + chance.normal(0, 0.02, 2000 * len(letters))
        found.append(Prompt(f"{number:03}", "".join("abc"[letter] for letter in letters), sound.astype(np.float32)))
    return found
