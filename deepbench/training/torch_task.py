"""A training run in PyTorch: one loop for all applications."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from deepbench.core.errors import Unsupported
from deepbench.training.application import Rung, Setup, Task

TYPES = {"f32": None, "bf16": torch.bfloat16}


class TorchTask(Task):
    """Trains a module on batches of indices.

    Args:
        setup, rung: which run.
        model: the module, on the device.
        optimizer: a class of `torch.optim` with its arguments, or an object.
        loss: of the module and the indices of a batch: a tensor with one number.
        examples: how many examples of training there are.
        answer: of the module and the indices of test examples: one answer for each.
        grade: of the numbers of test examples and their answers: how good these are.
        tests: how many test examples there are.
        evaluate: of the module: the metric; without it, the grade of all answers.
        learning_rate: of the share of the run that is over, from 0 to 1: a factor of the optimizer's own rate.
        longest_gradient: a longer one, over all parameters, is made so long.

    Where `torch.distributed` is initialised, each rank trains on its share of every batch, and rank 0 evaluates.

    Random numbers depend on the seed and on the samples so far only, so that a run that is resumed after an evaluation
    goes on exactly like one that was not interrupted.
    """

    def __init__(
        self,
        setup: Setup,
        rung: Rung,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor],
        examples: int,
        answer: Callable[[torch.nn.Module, torch.Tensor], list[Any]],
        grade: Callable[[Sequence[int], Sequence[Any]], float],
        tests: int,
        *,
        evaluate: Callable[[torch.nn.Module], float] | None = None,
        learning_rate: Callable[[float], float] | None = None,
        longest_gradient: float | None = None,
    ) -> None:
        if setup.precision not in TYPES:
            raise Unsupported(f"training in {setup.precision} is not supported; choose {' or '.join(TYPES)}")
        self.model, self.optimizer = model, optimizer
        self.parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
        self.examples, self.tests = examples, tests
        self._loss_of, self._answer, self._grade, self._evaluate = loss, answer, grade, evaluate
        self._setup, self._learning_rate = setup, learning_rate
        self._longest_gradient = longest_gradient
        self._batch = setup.batch or rung.batch
        self._rank = distributed.get_rank() if setup.ranks > 1 else 0
        if self._batch % setup.ranks:
            raise Unsupported(f"a batch of {self._batch} cannot be shared by {setup.ranks} ranks")
        # It averages gradients over the ranks while others are still computed.
        self._replica = DistributedDataParallel(model, broadcast_buffers=False) if setup.ranks > 1 else model
        self._all_samples = setup.samples or rung.samples
        self._rates = [group["lr"] for group in optimizer.param_groups]
        self._type = TYPES[setup.precision]
        self._samples = 0
        self._epoch, self._order = -1, np.empty(0, np.int64)
        self._last: torch.Tensor | None = None
        self._begin()

    def step(self) -> None:
        if self._learning_rate is not None:
            factor = self._learning_rate(self._samples / self._all_samples)
            for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate * factor
        share = self._next()[self._rank :: self._setup.ranks]
        chosen = torch.from_numpy(share).to(self._setup.device)
        with self._precision():
            loss = self._loss_of(self._replica, chosen)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self._longest_gradient is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._longest_gradient)
        self.optimizer.step()
        self._last = loss.detach()
        self._samples += self._batch

    def rewind(self) -> None:
        """Train on the first batch next."""
        self._samples = 0

    def loss(self) -> float:
        return math.nan if self._last is None else float(self._last)

    def evaluate(self) -> float:
        if self._rank:
            quality = math.nan
        elif self._evaluate is None:
            answers = [self.answer(range(i, min(i + 1000, self.tests))) for i in range(0, self.tests, 1000)]
            quality = self._grade(range(self.tests), list(chain.from_iterable(answers)))
        else:
            self.model.eval()
            with torch.inference_mode(), self._precision():
                quality = self._evaluate(self.model)
            self.model.train()
        self._begin()
        return quality

    def answer(self, tests: Sequence[int]) -> list[Any]:
        self.model.eval()
        with torch.inference_mode(), self._precision():
            answers = self._answer(self.model, torch.tensor(tests, device=self._setup.device))
        self.model.train()
        return answers

    def grade(self, tests: Sequence[int], answers: Sequence[Any]) -> float:
        return self._grade(tests, answers)

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def restore(self, state: Mapping[str, Any], samples: int) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._samples = samples
        self._begin()

    def _precision(self) -> torch.autocast:
        return torch.autocast(self._setup.device.split(":")[0], self._type, enabled=self._type is not None)

    def _begin(self) -> None:
        """Random numbers behind an evaluation follow from the seed and the samples."""
        rank = (self._rank,) if self._rank else ()
        torch.manual_seed(int(np.random.SeedSequence((self._setup.seed, 1, self._samples, *rank)).generate_state(1)[0]))

    def _next(self) -> NDArray[np.int64]:
        """The indices of the next batch: every example once per epoch, in an order that follows from the seed."""
        found = np.empty(0, np.int64)
        while len(found) < self._batch:
            epoch, at = divmod(self._samples + len(found), self.examples)
            if epoch != self._epoch:
                chance = np.random.Generator(np.random.PCG64(np.random.SeedSequence((self._setup.seed, 0, epoch))))
                self._epoch, self._order = epoch, chance.permutation(self.examples)
            found = np.concatenate([found, self._order[at : at + self._batch - len(found)]])
        return found


def warm_up_then_zero(share: float) -> Callable[[float], float]:
    """A factor that rises from 0 during a share of the run and then falls to 0, both linearly."""
    return lambda over: min((over + 1e-3) / share, (1.0 - over) / (1.0 - share))
