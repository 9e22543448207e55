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

from deepbench.applications.training.application import Rung, Setup, Task
from deepbench.applications.training.schedule import Order, random_seed, rate_factor
from deepbench.applications.training.schedule import warm_up_then_zero as warm_up_then_zero
from deepbench.backends.torch import tensor
from deepbench.core.errors import Unsupported

# How the names of a state begin: values of the model, and those of the optimizer by the number of the parameter.
MODEL, OPTIMIZER = "model/", "optimizer/"

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
        self._order = Order(setup.seed, examples, self._batch)
        self._all_samples = setup.samples or rung.samples
        factor = rate_factor(self._batch, rung.batch, isinstance(optimizer, torch.optim.SGD))
        self._rates = [group["lr"] * factor for group in optimizer.param_groups]
        self.optimizer_name, self.learning_rate = type(optimizer).__name__, self._rates[0]
        if setup.device != "cpu":
            self.device_name = torch.cuda.get_device_name(setup.device)
            # PyTorch multiplies with 10 bits of the significand in some operators of f32, unless it is told not to.
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        for group, rate in zip(optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate
        self._type = TYPES[setup.precision]
        self._samples = 0
        self._last: torch.Tensor | None = None
        self._begin()

    def step(self) -> None:
        if self._learning_rate is not None:
            factor = self._learning_rate(self._samples / self._all_samples)
            for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate * factor
        share = self.next_batch()[self._rank :: self._setup.ranks]
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

    def next_batch(self) -> NDArray[np.int64]:
        """The indices of the next batch, of all ranks together."""
        return self._order.batch(self._samples)

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
        model = {f"{MODEL}{name}": _array(value) for name, value in self.model.state_dict().items()}
        optimizer = {
            f"{OPTIMIZER}{number}/{name}": _array(value) if isinstance(value, torch.Tensor) else value
            for number, values in self.optimizer.state_dict()["state"].items()
            for name, value in values.items()
        }
        return {**model, **optimizer}

    def restore(self, state: Mapping[str, Any], samples: int) -> None:
        values = {k: tensor(torch, v.copy()) if isinstance(v, np.ndarray) else v for k, v in state.items()}
        of_model = {k.removeprefix(MODEL): v for k, v in values.items() if k.startswith(MODEL)}
        of_optimizer: dict[int, dict[str, Any]] = {}
        for key, value in values.items():
            if key.startswith(OPTIMIZER):
                number, name = key.removeprefix(OPTIMIZER).split("/")
                of_optimizer.setdefault(int(number), {})[name] = value
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        for at, kept in of_optimizer.items():
            for name, value in kept.items():
                if isinstance(value, torch.Tensor) and value.ndim and value.shape != parameters[at].shape:
                    raise ValueError(f"{name} of parameter {at} has the shape {tuple(value.shape)}")
        self.model.load_state_dict(of_model)
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": of_optimizer})
        self._samples = samples
        self._begin()

    def _precision(self) -> torch.autocast:
        return torch.autocast(self._setup.device.split(":")[0], self._type, enabled=self._type is not None)

    def _begin(self) -> None:
        """Random numbers behind an evaluation follow from the seed and the samples."""
        torch.manual_seed(random_seed(self._setup.seed, self._samples, self._rank))


def of_whole_batch(loss: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """The share of this rank in the mean loss of a batch, for losses that are means over `count` things such as words.

    Gradients are averaged over the ranks, whose shares of the batch may have different counts: so each weighs as much
    as it counts. `loss` itself with one rank.
    """
    if not distributed.is_initialized():
        return loss
    mean = count.detach().float().clone()
    distributed.all_reduce(mean)
    return loss * (count * distributed.get_world_size() / mean)


def _array(value: torch.Tensor) -> NDArray[Any]:
    """A copy as an array. PyTorch gives NumPy no bfloat16, so the bits are reinterpreted."""
    copy = value.detach().cpu().clone()
    is_narrow = copy.dtype == torch.bfloat16
    found: NDArray[Any] = copy.view(torch.int16).numpy().view("bfloat16") if is_narrow else copy.numpy()
    return found
