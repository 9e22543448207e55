"""Games of a network against itself, in which it looks one move ahead.

The search is that of Gumbel AlphaZero (Danihelka and others, 2022) with one visit of each move that it considers, so
that all positions of a turn are one batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from deepbench.applications.tasks.go import rules
from deepbench.applications.tasks.go.network import planes
from deepbench.applications.tasks.go.rules import Games, Moves


class Positions(NamedTuple):
    """What a network learns from: the first dimension of every tensor counts positions."""

    stones: torch.Tensor
    player: torch.Tensor
    policy: torch.Tensor
    """Positions × points + 1: the probabilities of all moves after looking ahead."""
    result: torch.Tensor
    """1 where the player to move won the game, −1 where it lost."""


def results(games: Games, komi: float) -> torch.Tensor:
    """Who wins as the boards are: 1 black, −1 white, who gets the komi."""
    return torch.where(rules.score(games.stones[:, 0]) > komi, 1.0, -1.0)


@dataclass(frozen=True)
class Search:
    """Looks one move ahead."""

    komi: float
    considered: int
    """Moves that are tried in each position: those with the largest sum of logit and noise."""
    sharpness: float
    """How much a sure win adds to the logit of a move."""

    def look(
        self, model: nn.Module, games: Games, moves: Moves, noise: torch.Tensor | float = 0.0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The move in each game, and improved probabilities of all moves (games × points + 1).

        `noise` (games × points + 1) follows Gumbel's distribution in self-play, so that moves are drawn from the
        improved probabilities, and is 0 in a match.
        """
        logits, value = model(planes(games.stones, games.player))
        logits = logits.masked_fill(~moves.legal, -torch.inf)
        tried = (logits + noise).topk(min(self.considered, logits.shape[1]), 1).indices
        legal = moves.legal.gather(1, tried)
        gained = self._gained(model, games, moves, torch.where(legal, tried, logits.shape[1] - 1))
        # Other moves get the value of the position: the mean of what the network says and of what was tried.
        weights = torch.where(legal, logits.softmax(1).gather(1, tried), 0.0)
        mean = (weights * gained).sum(1) / weights.sum(1).clamp(min=1e-9)
        count = legal.sum(1)
        position = ((value + count * mean) / (1 + count))[:, None]
        gains = position.expand_as(logits).scatter(1, tried, torch.where(legal, gained, position))
        improved = logits + self.sharpness * gains
        best = (improved + noise).gather(1, tried).argmax(1, keepdim=True)
        return tried.gather(1, best)[:, 0], improved.softmax(1)

    def _gained(self, model: nn.Module, games: Games, moves: Moves, tried: torch.Tensor) -> torch.Tensor:
        """What each move brings its player, from −1 to 1: the result where it ends the game, or as the network says."""
        rows = torch.arange(len(games), device=tried.device).repeat_interleave(tried.shape[1])
        after = rules.play(games.at(rows), moves.at(rows), tried.flatten())
        value = model(planes(after.stones, after.player))[1]
        gained: torch.Tensor = torch.where(after.over, results(after, self.komi) * -after.player, -value)
        return gained.view_as(tried)

    def self_play(self, model: nn.Module, games: Games) -> Positions:
        """Play all games to their end, and remember every position."""
        numbers = torch.arange(len(games), device=games.player.device)
        won = torch.zeros(len(games), device=numbers.device)
        kept = []
        while len(games):
            moves = rules.moves(games)
            uniform = torch.rand(moves.legal.shape, device=numbers.device).clamp(min=1e-20)
            chosen, policy = self.look(model, games, moves, -(-uniform.log()).clamp(min=1e-20).log())
            kept.append((games.stones, games.player, policy, numbers))
            games = rules.play(games, moves, chosen)
            over = games.over
            won[numbers[over]] = results(games.at(over), self.komi)
            games, numbers = games.at(~over), numbers[~over]
        stones, player, policy, number = (torch.cat(parts) for parts in zip(*kept, strict=True))
        return Positions(stones, player, policy, won[number] * player)


def at_random(
    games: Games, counts: torch.Tensor, chance: torch.Generator | None = None
) -> tuple[Games, list[list[int]]]:
    """The games after so many random legal moves in each, and these moves. No move is a pass unless it has to be."""
    played: list[list[int]] = [[] for _ in range(len(games))]
    for turn in range(int(counts.max())):
        moves = rules.moves(games)
        weights = moves.legal.float()
        weights[:, -1] = 1e-9
        chosen = torch.multinomial(weights, 1, generator=chance)[:, 0]
        games = games.where(counts <= turn, rules.play(games, moves, chosen))
        for number, (move, count) in enumerate(zip(chosen.tolist(), counts.tolist(), strict=True)):
            played[number] += [move] if turn < count else []
    return games, played
