"""Recommendation in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from deepbench.applications.tasks.recommendation.common import AMONG, NEGATIVES, OTHERS, WARM_UP, examples
from deepbench.applications.training.application import Rung, Setup
from deepbench.applications.training.schedule import warm_up_then_zero
from deepbench.applications.training.torch_task import TorchTask

# Pairs of a user and a film of one call of the network when it is tested.
TOGETHER = 100_000


class NeuMF(nn.Module):
    """From users and films, arrays of one shape, to logits of the same shape."""

    def __init__(self, people: int, count: int, sizes: Mapping[str, Any]) -> None:
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
        """How likely it is that these users rate these films."""
        product = self.user_factors(user) * self.film_factors(film)
        x = torch.cat([self.users(user), self.films(film)], -1)
        for layer in self.layers:
            x = functional.relu(layer(x))
        logits: torch.Tensor = self.out(torch.cat([product, x], -1))[..., 0]
        return logits


def task(setup: Setup, rung: Rung, data: list[Any]) -> TorchTask:
    """A run; `data` has the ratings."""
    found = examples(data[0], rung.settings.get("others", OTHERS))
    people = len(found.tests)
    users, films, candidates = (torch.from_numpy(part).to(setup.device) for part in found[:3])
    torch.manual_seed(setup.seed)
    model = NeuMF(people, found.catalogue, rung.settings).to(setup.device)

    def loss(model: nn.Module, at: torch.Tensor) -> torch.Tensor:
        user = users[at].repeat(1 + NEGATIVES)
        others = torch.randint(found.catalogue, (NEGATIVES * len(at),), device=at.device)
        wanted = torch.zeros(len(user), device=at.device)
        wanted[: len(at)] = 1.0
        logits = model(user, torch.cat([films[at], others]))
        return functional.binary_cross_entropy_with_logits(logits, wanted)

    def answer(model: nn.Module, at: torch.Tensor) -> list[list[int]]:
        lists: list[list[int]] = []
        for some in at.split(max(1, TOGETHER // candidates.shape[1])):
            # The right film comes last, and a stable sort keeps this order, so ties count against it.
            choice = candidates[some].roll(-1, 1)
            scores = model(some[:, None].expand_as(choice), choice)
            best = scores.sort(dim=1, descending=True, stable=True).indices[:, :AMONG]
            lists += choice.gather(1, best).tolist()
        return lists

    optimizer = torch.optim.Adam(model.parameters(), rung.settings["rate"])
    return TorchTask(
        setup, rung, model, optimizer, loss, len(users), answer, found.grade, people,
        learning_rate=warm_up_then_zero(WARM_UP),
    )  # fmt: skip
