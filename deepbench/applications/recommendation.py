"""Recommendation: which film somebody rates next, with neural collaborative filtering (NeuMF; He and others, 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deepbench.datasets.movielens import Ratings
from deepbench.training.application import Application, Metric, Rung, Setup

if TYPE_CHECKING:
    from deepbench.training.torch_task import TorchTask

# The film that was rated last competes with so many that the user has not rated, and has to be among the first ten.
OTHERS, AMONG = 99, 10

# Films that a user has not rated, for each that he has, in a batch.
NEGATIVES = 4


class Recommendation(Application):
    """The share of users whose last film is among the ten best of a hundred."""

    name = "recommendation"
    title = "Recommendation"
    metric = Metric("hit rate at 10")
    has_equal_samples = True
    datasets = ("movielens",)
    rungs = {  # noqa: RUF012  (ClassVar in Application)
        "mini": Rung(
            "NeuMF with 16 factors and layers of 64, 32 and 16",
            batch=512,
            samples=512 * 3000,
            every=512 * 200,
            target=0.58,
            trivial=0.37,
            settings={"factors": 16, "layers": (64, 32, 16), "rate": 1e-3},
        ),
        "small": Rung(
            "NeuMF with 64 factors and layers of 256, 256, 128 and 64, as in MLPerf",
            batch=1024,
            samples=1024 * 3000,
            every=1024 * 200,
            target=0.58,
            trivial=0.37,
            settings={"factors": 64, "layers": (256, 256, 128, 64), "rate": 1e-3},
        ),
    }

    def torch_task(self, setup: Setup, rung: Rung, data: list[Any]) -> TorchTask:
        import torch
        from torch import nn
        from torch.nn import functional

        from deepbench.training.torch_task import TorchTask, warm_up_then_zero

        (ratings,) = data
        users, films, tests = _split(ratings)
        people, count = int(ratings.users.max()) + 1, int(ratings.films.max()) + 1
        seen_users, seen_films, candidates = (torch.from_numpy(part).to(setup.device) for part in (users, films, tests))
        sizes = rung.settings

        class NeuMF(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                width = sizes["layers"][0] // 2
                self.user_factors, self.film_factors = (nn.Embedding(n, sizes["factors"]) for n in (people, count))
                self.users, self.films = (nn.Embedding(n, width) for n in (people, count))
                pairs = zip(sizes["layers"], sizes["layers"][1:], strict=False)
                self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
                self.out = nn.Linear(sizes["factors"] + sizes["layers"][-1], 1)
                for table in (self.user_factors, self.film_factors, self.users, self.films):
                    nn.init.normal_(table.weight, std=0.01)

            def forward(self, user: torch.Tensor, film: torch.Tensor) -> torch.Tensor:
                product = self.user_factors(user) * self.film_factors(film)
                x = torch.cat([self.users(user), self.films(film)], -1)
                for layer in self.layers:
                    x = functional.relu(layer(x))
                logits: torch.Tensor = self.out(torch.cat([product, x], -1))[..., 0]
                return logits

        torch.manual_seed(setup.seed)
        model = NeuMF().to(setup.device)

        def loss(model: nn.Module, at: torch.Tensor) -> torch.Tensor:
            user = seen_users[at].repeat(1 + NEGATIVES)
            others = torch.randint(count, (NEGATIVES * len(at),), device=at.device)
            wanted = torch.zeros(len(user), device=at.device)
            wanted[: len(at)] = 1.0
            logits = model(user, torch.cat([seen_films[at], others]))
            return functional.binary_cross_entropy_with_logits(logits, wanted)

        def answer(model: nn.Module, at: torch.Tensor) -> list[list[int]]:
            films = candidates[at]
            best = model(at[:, None].expand_as(films), films).topk(AMONG, 1).indices
            found: list[list[int]] = films.gather(1, best).tolist()
            return found

        def grade(users: Sequence[int], answers: Sequence[Sequence[int]]) -> float:
            return float(np.mean([tests[user, 0] in films for user, films in zip(users, answers, strict=True)]))

        optimizer = torch.optim.Adam(model.parameters(), sizes["rate"], weight_decay=1e-6)
        return TorchTask(
            setup, rung, model, optimizer, loss, len(users), answer, grade, people, learning_rate=warm_up_then_zero(0.1)
        )


def _split(ratings: Ratings) -> tuple[Any, Any, Any]:
    """Users and films of all ratings but the last of each user, and for each user the last film before 99 others.

    The others are the same in every run, and the user has rated none of them.
    """
    order = np.lexsort((ratings.films, ratings.times, ratings.users))
    users, films = ratings.users[order], ratings.films[order]
    is_last = np.append(users[1:] != users[:-1], True)
    chance, count = np.random.default_rng(2018), int(films.max()) + 1
    rows = []
    for user in range(int(users.max()) + 1):
        own = films[users == user]
        others = np.setdiff1d(np.arange(count), own)
        rows.append([own[-1], *chance.choice(others, OTHERS, replace=False)])
    return users[~is_last], films[~is_last], np.array(rows, np.int64)


APPLICATION = Recommendation()
