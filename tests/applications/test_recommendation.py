"""Recommendation: a model that says the same of all films is right about none."""

import numpy as np
import pytest

from deepbench.applications.datasets.movielens import Ratings
from deepbench.applications.training.application import Setup, find_application

torch = pytest.importorskip("torch")


def test_ties_count_against_the_right_film():
    chance = np.random.default_rng(7)
    users, films = np.repeat(np.arange(6), 8), np.concatenate([chance.choice(200, 8, replace=False) for _ in range(6)])
    ratings = Ratings(users, films, np.ones(48, np.float32), np.arange(48.0))
    application = find_application("recommendation")
    task = application.torch_task(Setup("recommendation", "mini"), application.rungs["mini"], [ratings])
    with torch.no_grad():
        for parameter in task.model.parameters():
            parameter.zero_()

    assert 0.0 == task.evaluate()
