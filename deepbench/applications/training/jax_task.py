"""A training run in JAX: one loop for all applications, the twin of `torch_task.py`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from deepbench.applications.training.application import Rung, Setup, Task
from deepbench.applications.training.jax_network import Arrays, Initial, JaxNetwork
from deepbench.applications.training.jax_optimizers import SGD, Adam, Kept, shortened
from deepbench.applications.training.schedule import Order, random_seed, rate_factor
from deepbench.core.errors import Unavailable, Unsupported

TYPES = {"f32": None, "bf16": jnp.bfloat16}

# How the names of a state begin: values of the model, and those of the optimizer.
MODEL, OPTIMIZER = "model/", "optimizer/"

Function = Callable[[JaxNetwork, Arrays, jax.Array], jax.Array]
"""Of a network, the data and the indices of examples."""


class JaxTask(Task):
    """Trains a network on batches of indices. A step is one compiled function, from the indices to the parameters.

    The first step compiles, and so does the first use of `apply` for each number of rows.

    Args: those that `TorchTask` does not have in this form are
        initial: parameters and buffers of the network.
        optimizer: changes the parameters.
        data: arrays that are needed on the device.
        loss: of the network, the data and the indices of a batch: one number.
        predict: of the network, the data and the indices of test examples: one row for each.
        answer: of what `predict` found, as an array: one answer for each.
        evaluate: of this task: the metric; without it, the grade of all answers.
    """

    def __init__(
        self,
        setup: Setup,
        rung: Rung,
        initial: Initial,
        optimizer: SGD | Adam,
        data: Mapping[str, NDArray[Any]],
        loss: Function,
        examples: int,
        predict: Function,
        answer: Callable[[NDArray[Any]], list[Any]],
        grade: Callable[[Sequence[int], Sequence[Any]], float],
        tests: int,
        *,
        evaluate: Callable[[JaxTask], float] | None = None,
        learning_rate: Callable[[float], float] | None = None,
        longest_gradient: float | None = None,
    ) -> None:
        if setup.precision not in TYPES:
            raise Unsupported(f"training in {setup.precision} is not supported; choose {' or '.join(TYPES)}")
        self._device, self._type = find_device(setup.device), TYPES[setup.precision]
        self._parameters, self._buffers = self._placed(initial.parameters), self._placed(initial.buffers)
        self._kept = jax.device_put(optimizer.begin(self._parameters), self._device)
        self._data = self._placed({name: _indexed(array) for name, array in data.items()})
        self.parameters = sum(p.size for p in self._parameters.values())
        self.examples, self.tests = examples, tests
        self._loss_of, self._optimizer, self._longest_gradient = loss, optimizer, longest_gradient
        self._answer, self._grade, self._evaluate = answer, grade, evaluate
        self._setup, self._learning_rate = setup, learning_rate
        self._batch = setup.batch or rung.batch
        self._rate = optimizer.rate * rate_factor(self._batch, rung.batch, isinstance(optimizer, SGD))
        self.optimizer_name, self.learning_rate = type(optimizer).__name__, self._rate
        if setup.device != "cpu":
            self.device_name = self._device.device_kind
        self._order = Order(setup.seed, examples, self._batch)
        self._all_samples = setup.samples or rung.samples
        self._samples = 0
        self._last: jax.Array | None = None
        self._predict = self.compiled(predict)
        self._step = jax.jit(self._updated, donate_argnums=(0, 1, 2))

    def step(self) -> None:
        factor = 1.0 if self._learning_rate is None else self._learning_rate(self._samples / self._all_samples)
        self._parameters, self._buffers, self._kept, self._last = self._step(
            *(self._parameters, self._buffers, self._kept, self._data),
            _indexed(self._order.batch(self._samples)),
            np.float32(self._rate * factor),
            np.uint32(random_seed(self._setup.seed, self._samples)),
            np.int32(self._samples // self._batch + 1),
        )
        self._samples += self._batch

    def loss(self) -> float:
        return math.nan if self._last is None else float(self._last)

    def evaluate(self) -> float:
        if self._evaluate is not None:
            return self._evaluate(self)
        return self._grade(range(self.tests), self.answer(range(self.tests)))

    def answer(self, tests: Sequence[int]) -> list[Any]:
        return self._answer(self.apply(self._predict, tests))

    def grade(self, tests: Sequence[int], answers: Sequence[Any]) -> float:
        return self._grade(tests, answers)

    def state(self) -> dict[str, Any]:
        kept = {f"{kind}/{name}": array for kind, arrays in self._kept.items() for name, array in arrays.items()}
        model = {f"{MODEL}{name}": np.array(value) for name, value in {**self._parameters, **self._buffers}.items()}
        return {**model, **{f"{OPTIMIZER}{name}": np.array(value) for name, value in kept.items()}}

    def restore(self, state: Mapping[str, Any], samples: int) -> None:
        def found(arrays: Arrays, prefix: str) -> Arrays:
            for name, array in arrays.items():
                if (shape := state[f"{prefix}{name}"].shape) != array.shape:
                    raise ValueError(f"{prefix}{name} has the shape {shape}")
            return self._placed({name: state[f"{prefix}{name}"] for name in arrays})

        self._parameters, self._buffers = found(self._parameters, MODEL), found(self._buffers, MODEL)
        self._kept = {kind: found(arrays, f"{OPTIMIZER}{kind}/") for kind, arrays in self._kept.items()}
        self._samples = samples

    def compiled(self, function: Function) -> Callable[..., jax.Array]:
        """A function for `apply`. It is compiled when it is first applied to so many rows."""

        def run(parameters: Arrays, buffers: Arrays, data: Arrays, at: jax.Array) -> jax.Array:
            return function(JaxNetwork(parameters, buffers, self._type), data, at)

        found: Callable[..., jax.Array] = jax.jit(run)
        return found

    def apply(self, function: Callable[..., jax.Array], tests: Sequence[int], most: int = 1024) -> NDArray[Any]:
        """The rows that a compiled function finds for test examples.

        The number of rows is always a power of two up to `most`, so that few functions are compiled.
        """
        chosen = _indexed(np.array(tests))
        size = min(most, 1 << (len(chosen) - 1).bit_length())
        found = []
        for i in range(0, len(chosen), size):
            part = chosen[i : i + size]
            padded = np.pad(part, (0, size - len(part)), mode="edge")
            rows = function(self._parameters, self._buffers, self._data, padded)
            found.append(np.asarray(rows)[: len(part)])
        return np.concatenate(found)

    def _updated(
        self,
        parameters: Arrays,
        buffers: Arrays,
        kept: Kept,
        data: Arrays,
        at: jax.Array,
        rate: jax.Array,
        seed: jax.Array,
        steps: jax.Array,
    ) -> tuple[Arrays, Arrays, Kept, jax.Array]:
        """Parameters, buffers and what the optimizer keeps after a step, and the loss of its batch."""

        def loss(parameters: Arrays) -> tuple[jax.Array, Arrays]:
            network = JaxNetwork(parameters, buffers, self._type, jax.random.key(seed))
            return self._loss_of(network, data, at), network.buffers

        (found, next_buffers), gradients = jax.value_and_grad(loss, has_aux=True)(parameters)
        if self._longest_gradient is not None:
            gradients = shortened(gradients, self._longest_gradient)
        next_parameters, next_kept = self._optimizer.update(parameters, gradients, kept, rate, steps)
        return next_parameters, next_buffers, next_kept, found

    def _placed(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Copies on the device: a step reuses the memory of its inputs."""
        return {name: jax.device_put(array, self._device, may_alias=False) for name, array in arrays.items()}


def find_device(name: str) -> Any:
    """A device by its name, such as `cpu`, `cuda` or `cuda:1`; `Unavailable` where there is none."""
    kind, _, number = name.partition(":")
    try:
        return jax.devices(kind)[int(number or 0)]
    except (RuntimeError, IndexError):
        remedy = "choose cpu, or install JAX for it, such as pip install 'jax[cuda12]'"
        raise Unavailable(f"JAX finds no device {name}", remedy) from None


def _indexed(array: NDArray[Any]) -> NDArray[Any]:
    """The same, where it has wide integers in the type that JAX gives to integers."""
    return array.astype(np.int32) if array.dtype == np.int64 else array
