"""Rounds of self-play, and training on their positions, in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed, nn
from torch.nn import functional

from deepbench.applications.tasks.go import match, rules, self_play
from deepbench.applications.tasks.go.gtp import GnuGo
from deepbench.applications.tasks.go.match import Openings
from deepbench.applications.tasks.go.network import GoNetwork, planes
from deepbench.applications.tasks.go.rules import Games
from deepbench.applications.tasks.go.self_play import Positions, Search
from deepbench.applications.training.application import Rung, Setup
from deepbench.applications.training.torch_task import TorchTask, warm_up_then_zero
from deepbench.core.errors import Unsupported

# Level and rules of the opponent. It captures dead stones before it passes, because the score counts them as alive.
OPTIONS = ("--level", "0", "--chinese-rules", "--positional-superko", "--capture-all-dead", "--never-resign")

# A match has two games from each opening. Test examples are the first positions of games behind the same openings.
OPENINGS, TURNS = 64, 4

# Of GNU Go: always as many, because its answers depend on how many there are.
PROCESSES = 2

# How the names of positions begin in a state.
ROUND = "round/"

# Games of self-play begin behind at most so many random moves.
RANDOM = 6


class GoTask(TorchTask):
    """Plays a round of games, trains so many steps on the positions of the last rounds, and so on."""

    def __init__(self, setup: Setup, rung: Rung, command: Sequence[str]) -> None:
        self._sizes = sizes = rung.settings
        if sizes["games"] % setup.ranks:
            raise Unsupported(f"{sizes['games']} games of a round cannot be shared by {setup.ranks} ranks")
        self._search = Search(sizes["komi"], sizes["considered"], sizes["sharpness"])
        self._command = [*command, *OPTIONS]
        self._rounds: list[Positions] = []
        torch.manual_seed(setup.seed)
        model = GoNetwork(sizes["edge"], sizes["positions"], sizes["filters"], sizes["blocks"]).to(setup.device)
        optimizer = torch.optim.AdamW(model.parameters(), sizes["rate"], weight_decay=1e-4)
        super().__init__(
            setup, rung, model, optimizer, self._loss_at, 1, self._moves_at, self._share_of_gnugo, OPENINGS * TURNS,
            evaluate=self._share_won, learning_rate=warm_up_then_zero(0.05),
        )  # fmt: skip
        self.examples = None

    def state(self) -> dict[str, Any]:
        rounds = {
            f"{ROUND}{i}/{name}": value.cpu().numpy()
            for i, positions in enumerate(self._rounds)
            for name, value in positions._asdict().items()
        }
        return {**super().state(), **rounds}

    def restore(self, state: Mapping[str, Any], samples: int) -> None:
        super().restore(state, samples)
        arrays = {name: value for name, value in state.items() if name.startswith(ROUND)}
        self._rounds = []
        while f"{ROUND}{len(self._rounds)}/{Positions._fields[0]}" in arrays:
            parts = [arrays[f"{ROUND}{len(self._rounds)}/{name}"].copy() for name in Positions._fields]
            found = Positions(*(torch.from_numpy(part).to(self._setup.device) for part in parts))
            count, points = len(found.player), self._sizes["edge"] ** 2
            shapes = ((count, self._sizes["positions"], points), (count,), (count, points + 1), (count,))
            if shapes != tuple(part.shape for part in found) or not count:
                raise ValueError("the positions of a round have other shapes")
            self._rounds.append(found)

    def rewind(self) -> None:
        """The same batch next; without games, once there are some."""
        self._samples = self._batch if self._rounds else 0

    def next_batch(self) -> NDArray[np.int64]:
        """The indices of the next batch among the positions of the last rounds, after a new round where one is due."""
        if self._samples // self._batch % self._sizes["steps"] == 0:
            self._rounds = [*self._rounds, self._play()][-self._sizes["rounds"] :]
        chance = np.random.default_rng(np.random.SeedSequence((self._setup.seed, 0, self._samples)))
        return chance.integers(0, sum(len(positions.player) for positions in self._rounds), self._batch)

    def _play(self) -> Positions:
        """The positions of one round of games. Each rank plays an equal share of them, and gets those of all ranks."""
        sizes, device, ranks = self._sizes, self._setup.device, self._setup.ranks
        games = sizes["games"] // ranks
        empty = Games.begin(games, sizes["edge"], sizes["positions"], self._limit, device)
        begun, _ = self_play.at_random(empty, torch.randint(RANDOM + 1, (games,), device=device))
        if ranks > 1:
            for buffer in self.model.buffers():  # statistics of batch normalization, which differ between ranks
                distributed.broadcast(buffer, 0)
        self.model.eval()
        with torch.no_grad(), self._precision():
            found = self._search.self_play(self.model, begun)
        self.model.train()
        return _of_all_ranks(found, ranks) if ranks > 1 else found

    def _loss_at(self, model: nn.Module, at: torch.Tensor) -> torch.Tensor:
        """The cross-entropy of the moves and the squared error of the value, on boards that are turned at random."""
        stones, player, policy, result = (torch.cat(parts)[at] for parts in zip(*self._rounds, strict=True))
        symmetries = rules.symmetries(self._sizes["edge"], stones.device)
        source = symmetries[torch.randint(8, (len(at),), device=at.device)]
        stones = stones.gather(2, source[:, None].expand_as(stones))
        policy = torch.cat([policy[:, :-1].gather(1, source), policy[:, -1:]], 1)
        logits, value = model(planes(stones, player))
        return functional.cross_entropy(logits, policy) + functional.mse_loss(value, result)

    def _share_won(self, model: nn.Module) -> float:
        with self._gnugo() as gnugo:
            return match.share_won(
                lambda games, moves: self._search.look(model, games, moves)[0], gnugo, self._openings, self._search.komi
            )

    def _moves_at(self, model: nn.Module, at: torch.Tensor) -> list[int]:
        """The likeliest legal move of the network."""
        games = self._tests[0].at(at)
        logits, _ = model(planes(games.stones, games.player))
        found: list[int] = logits.masked_fill(~rules.moves(games).legal, -torch.inf).argmax(1).tolist()
        return found

    def _share_of_gnugo(self, tests: Sequence[int], answers: Sequence[int]) -> float:
        wanted = self._tests[1]
        return float(np.mean([move == wanted[test] for test, move in zip(tests, answers, strict=True)]))

    @property
    def _limit(self) -> int:
        """Moves of a game at most: of three on each point."""
        return 3 * int(self._sizes["edge"]) ** 2

    @cached_property
    def _openings(self) -> Openings:
        sizes = self._sizes
        return match.fixed_openings(OPENINGS, sizes["edge"], sizes["positions"], self._limit, self._setup.device)

    @cached_property
    def _tests(self) -> tuple[Games, list[int]]:
        """Positions, and the moves of GNU Go. They take a few seconds, which a run that only trains does not need."""
        with self._gnugo() as gnugo:
            return match.next_moves(gnugo, self._openings, TURNS)

    def _gnugo(self) -> GnuGo:
        return GnuGo(self._command, self._sizes["edge"], self._search.komi, PROCESSES)


def _of_all_ranks(own: Positions, ranks: int) -> Positions:
    """The positions of all ranks in the order of the ranks. Ranks exchange equal sizes, so shorter ones are filled."""
    count = torch.tensor([len(own.player)], device=own.player.device)
    counts = [torch.empty_like(count) for _ in range(ranks)]
    distributed.all_gather(counts, count)
    longest = max(map(int, counts))
    found = []
    for value in own:
        filled = torch.cat([value, value.new_zeros(longest - len(value), *value.shape[1:])])
        every = [torch.empty_like(filled) for _ in range(ranks)]
        distributed.all_gather(every, filled)
        found.append(torch.cat([part[: int(n)] for part, n in zip(every, counts, strict=True)]))
    return Positions(*found)
