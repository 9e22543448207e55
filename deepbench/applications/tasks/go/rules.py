"""Go on a small board, for many games at once.

A player may not capture its own stones, and no position of the board may occur twice (positional superko), so that no
game goes round in circles. Two passes end a game, and so does a number of moves. The score is the area: stones, and
empty points that reach one colour only (the rules of Tromp and Taylor).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
import torch

BLACK, WHITE = 1, -1


@cache
def neighbours(edge: int, device: torch.device) -> torch.Tensor:
    """Points × points: 1 where two points are next to each other."""
    row, column = np.divmod(np.arange(edge * edge), edge)
    distance = np.abs(row[:, None] - row) + np.abs(column[:, None] - column)
    return torch.from_numpy((distance == 1).astype(np.float32)).to(device)


@cache
def symmetries(edge: int, device: torch.device) -> torch.Tensor:
    """8 × points: where the value of each point comes from when the board is turned and mirrored."""
    board = np.arange(edge * edge).reshape(edge, edge)
    turned = [np.rot90(board, turns) for turns in range(4)]
    return torch.from_numpy(np.stack([part.ravel() for one in turned for part in (one, one.T)])).to(device)


@cache
def keys(edge: int, device: torch.device) -> torch.Tensor:
    """Two colours × points: random integers. Their sum over the stones of a board stands for the board (Zobrist, 1970).

    Integers of 44 bits: sums over the stones of a board are exact in floating point of 64 bits.
    """
    chance = np.random.default_rng(1970)
    return torch.from_numpy(chance.integers(1, 2**44, (2, edge * edge)).astype(np.float64)).to(device)


@dataclass
class Games:
    """Games in progress: the first dimension of every tensor counts games."""

    stones: torch.Tensor
    """Games × positions × points, the last position first: 1 is black, −1 white, 0 empty."""
    player: torch.Tensor
    """Who moves: 1 or −1."""
    passes: torch.Tensor
    """How many of the last moves were passes."""
    count: torch.Tensor
    """Moves so far."""
    seen: torch.Tensor
    """Games × moves + 1: the sum of the keys of each position; NaN for those to come."""

    @classmethod
    def begin(cls, games: int, edge: int, positions: int, limit: int, device: str = "cpu") -> Games:
        """Empty boards; a game ends after `limit` moves, and the last `positions` positions are kept."""
        seen = torch.full((games, limit + 1), torch.nan, dtype=torch.float64, device=device)
        seen[:, 0] = 0.0
        number = torch.zeros(games, dtype=torch.int64, device=device)
        stones = torch.zeros((games, positions, edge * edge), dtype=torch.int8, device=device)
        return cls(stones, torch.ones(games, dtype=torch.int8, device=device), number, number.clone(), seen)

    @classmethod
    def join(cls, parts: Sequence[Games]) -> Games:
        """All games of several."""
        return cls(*(torch.cat(tensors) for tensors in zip(*(part._tensors for part in parts), strict=True)))

    def __len__(self) -> int:
        return len(self.player)

    @property
    def edge(self) -> int:
        """Points of an edge of the board."""
        return _edge(self.stones)

    @property
    def over(self) -> torch.Tensor:
        """Which games have ended."""
        return (self.passes >= 2) | (self.count >= self.seen.shape[1] - 1)

    def at(self, index: torch.Tensor) -> Games:
        """Some of the games, each as often as it is named."""
        return Games(*(tensor[index] for tensor in self._tensors))

    def to(self, device: str) -> Games:
        """The same games on a device."""
        return Games(*(tensor.to(device) for tensor in self._tensors))

    def where(self, kept: torch.Tensor, other: Games) -> Games:
        """These games where `kept` is true, and the others elsewhere."""
        pairs = zip(self._tensors, other._tensors, strict=True)
        return Games(*(torch.where(kept.view(-1, *[1] * (a.ndim - 1)), a, b) for a, b in pairs))

    @property
    def _tensors(self) -> list[torch.Tensor]:
        return [getattr(self, field.name) for field in fields(self)]


@dataclass
class Moves:
    """What each move would do. Moves count points; the number behind the last point is a pass."""

    legal: torch.Tensor
    """Games × points + 1."""
    captured: torch.Tensor
    """Games × points × points: the stones that a move on a point captures."""
    sums: torch.Tensor
    """Games × points: the sum of the keys after the move."""

    def at(self, index: torch.Tensor) -> Moves:
        """Those of some of the games."""
        return Moves(self.legal[index], self.captured[index], self.sums[index])


def chains(stones: torch.Tensor) -> torch.Tensor:
    """Games × points × points: 1 where points of the same colour connect two points of a board, or empty points do."""
    near = neighbours(_edge(stones), stones.device)
    reached = torch.where(
        stones[:, :, None] == stones[:, None, :], near + torch.eye(len(near), device=near.device), 0.0
    )
    while True:
        further = (reached @ reached).clamp_(max=1.0)
        if torch.equal(further, reached):
            return reached
        reached = further


def moves(games: Games) -> Moves:
    """All moves of the players to move."""
    near, values = (table(games.edge, games.player.device) for table in (neighbours, keys))
    stones = games.stones[:, 0]
    empty, own = stones == 0, stones == games.player[:, None]
    liberties = chains(stones) @ (near * empty[:, None, :]) > 0
    count = liberties.sum(2)
    captured = liberties.transpose(1, 2) & (~empty & ~own & (count == 1))[:, None, :]
    breathes = (empty | (own & (count > 1))).float() @ near > 0
    black = (games.player == BLACK)[:, None]
    placed, removed = torch.where(black, values[0], values[1]), torch.where(black, values[1], values[0])
    now = games.seen.gather(1, games.count[:, None])
    sums = now + placed - (captured.double() @ removed[:, :, None])[..., 0]
    repeats = (sums[:, :, None] == games.seen[:, None, :]).any(2)
    legal = empty & (breathes | captured.any(2)) & ~repeats
    return Moves(torch.cat([legal, torch.ones_like(black)], 1), captured, sums)


def play(games: Games, moves: Moves, chosen: torch.Tensor) -> Games:
    """The games after a legal move in each."""
    points = games.stones.shape[2]
    is_pass, at = chosen == points, chosen.clamp(max=points - 1)
    rows = torch.arange(len(games), device=at.device)
    board = games.stones[:, 0].masked_fill(moves.captured[rows, at], 0)
    board[rows, at] = games.player
    board = torch.where(is_pass[:, None], games.stones[:, 0], board)
    seen, count = games.seen.clone(), games.count + 1
    seen[rows, count] = torch.where(is_pass, seen[rows, games.count], moves.sums[rows, at])
    stones = torch.cat([board[:, None], games.stones[:, :-1]], 1)
    return Games(stones, -games.player, torch.where(is_pass, games.passes + 1, 0), count, seen)


def score(stones: torch.Tensor) -> torch.Tensor:
    """Points of black less points of white on each board (games × points), without komi."""
    beside = chains(stones) @ neighbours(_edge(stones), stones.device)
    black, white = ((beside @ (stones == colour).float()[:, :, None])[..., 0] > 0 for colour in (BLACK, WHITE))
    return torch.where(stones == 0, black.int() - white.int(), stones).sum(1)


def _edge(stones: torch.Tensor) -> int:
    return round(float(stones.shape[-1] ** 0.5))
