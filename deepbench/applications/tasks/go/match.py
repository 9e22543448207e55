"""Games against GNU Go, and moves of GNU Go, from fixed openings."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from deepbench.applications.tasks.go import rules, self_play
from deepbench.applications.tasks.go.gtp import GnuGo
from deepbench.applications.tasks.go.rules import Games, Moves

Player = Callable[[Games, Moves], torch.Tensor]
"""Chooses a legal move in each game."""


class Openings(NamedTuple):
    """Games of equal length, and their moves."""

    games: Games
    played: list[list[int]]


def fixed_openings(count: int, edge: int, positions: int, limit: int, device: str) -> Openings:
    """The same openings in every run: three random moves. Black, who moved first, is not better off behind them."""
    empty = Games.begin(count, edge, positions, limit)
    chance = torch.Generator().manual_seed(2018)
    games, played = self_play.at_random(empty, torch.full((count,), 3), chance)
    return Openings(games.to(device), played)


def share_won(player: Player, gnugo: GnuGo, openings: Openings, komi: float) -> float:
    """The share of games that a player wins against GNU Go: from each opening one with each colour."""
    count, device = len(openings.games), openings.games.player.device
    numbers = torch.arange(2 * count, device=device)
    is_black, won = numbers < count, torch.zeros(2 * count, device=device)
    games, played = openings.games.at(numbers % count), [list(moves) for moves in openings.played * 2]
    while len(games):
        moves = rules.moves(games)
        own = is_black[numbers] == (games.player == rules.BLACK)
        chosen = torch.empty_like(numbers)
        if own.any():
            chosen[own] = player(games.at(own), moves.at(own))
        answers = gnugo.moves([played[number] for number in numbers[~own].tolist()])
        chosen[~own] = torch.tensor(answers, dtype=chosen.dtype, device=device)
        assert moves.legal.gather(1, chosen[:, None]).all(), "both know the same rules"
        for number, move in zip(numbers.tolist(), chosen.tolist(), strict=True):
            played[number].append(move)
        games = rules.play(games, moves, chosen)
        over = games.over
        won[numbers[over]] = self_play.results(games.at(over), komi)
        games, numbers = games.at(~over), numbers[~over]
    return float(((won > 0) == is_black).float().mean())


def next_moves(gnugo: GnuGo, openings: Openings, turns: int) -> tuple[Games, list[int]]:
    """The first positions of games of GNU Go against itself, as many from each opening, and its move in each."""
    games, played = openings.games, [list(moves) for moves in openings.played]
    index, kept, found = torch.arange(len(games), device=games.player.device), [], []
    for _ in range(turns):
        answers = gnugo.moves(played)
        kept.append(games)
        found += answers
        games = rules.play(games, rules.moves(games), torch.tensor(answers, device=index.device))
        played = [[*before, move] for before, move in zip(played, answers, strict=True)]
    return Games.join(kept), found
