"""The network of AlphaGo Zero (Silver and others, 2017): a residual trunk, a policy and a value."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


def planes(stones: torch.Tensor, player: torch.Tensor) -> torch.Tensor:
    """Games × channels × edge × edge: own stones, and those of the other player, at each position; who is black.

    Args:
        stones: games × positions × points.
        player: who moves in each game.
    """
    edge = round(stones.shape[2] ** 0.5)
    own = stones * player[:, None, None]
    is_black = (player == 1)[:, None, None].expand(-1, 1, own.shape[2])
    return torch.cat([own == 1, own == -1, is_black], 1).float().unflatten(2, (edge, edge))


class ResidualBlock(nn.Module):
    """Two convolutions, beside which the input passes."""

    def __init__(self, filters: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(filters, filters, 3, 1, 1) for _ in range(2))
        self.first_norm, self.second_norm = (nn.BatchNorm2d(filters) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(y)) + x)


class GoNetwork(nn.Module):
    """Logits of all moves (games × points + 1), and who will win: from −1 to 1 for the player to move (games)."""

    def __init__(self, edge: int, positions: int, filters: int, blocks: int) -> None:
        super().__init__()
        first = [nn.Conv2d(2 * positions + 1, filters, 3, 1, 1), nn.BatchNorm2d(filters), nn.ReLU()]
        self.trunk = nn.Sequential(*first, *(ResidualBlock(filters) for _ in range(blocks)))
        policy = [nn.Linear(2 * edge**2, edge**2 + 1)]
        value = [nn.Linear(edge**2, 64), nn.ReLU(), nn.Linear(64, 1), nn.Tanh()]
        self.policy, self.value = (
            nn.Sequential(nn.Conv2d(filters, n, 1), nn.BatchNorm2d(n, affine=False), nn.ReLU(), nn.Flatten(), *layers)
            for n, layers in ((2, policy), (1, value))
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.trunk(x)
        return self.policy(y).float(), self.value(y).float()[:, 0]
