"""Optimizers in JAX, with the arithmetic of those of the same names in `torch.optim`.

An optimizer has a rate and two functions: `begin` gives the arrays that it keeps, by its name and by that of the
parameter, and `update` gives the next parameters and arrays, in the step with this number; the first one is 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from deepbench.applications.training.jax_network import Arrays

Kept = dict[str, Arrays]


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with the momentum of Nesterov, as Sutskever and others (2013) write it."""

    rate: float
    momentum: float
    weight_decay: float = 0.0

    def begin(self, parameters: Arrays) -> Kept:
        """The running sum of the gradients."""
        return {"momentum": {name: jnp.zeros_like(p) for name, p in parameters.items()}}

    def update(
        self, parameters: Arrays, gradients: Arrays, kept: Kept, rate: jax.Array, steps: jax.Array
    ) -> tuple[Arrays, Kept]:
        """Decay is part of the gradient."""
        decayed = {name: g + self.weight_decay * parameters[name] for name, g in gradients.items()}
        sums = {name: self.momentum * kept["momentum"][name] + g for name, g in decayed.items()}
        found = {name: p - rate * (decayed[name] + self.momentum * sums[name]) for name, p in parameters.items()}
        return found, {"momentum": sums}


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba, 2014). Decay is part of the gradient, or not, as in AdamW (Loshchilov and Hutter, 2017)."""

    rate: float
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    is_decoupled: bool = False
    epsilon: float = 1e-8

    def begin(self, parameters: Arrays) -> Kept:
        """The running means of gradients and of their squares."""
        return {kind: {name: jnp.zeros_like(p) for name, p in parameters.items()} for kind in ("mean", "square")}

    def update(
        self, parameters: Arrays, gradients: Arrays, kept: Kept, rate: jax.Array, steps: jax.Array
    ) -> tuple[Arrays, Kept]:
        """Both means begin at 0, which is corrected."""
        first, second = self.betas
        if self.is_decoupled:
            parameters = {name: p * (1.0 - rate * self.weight_decay) for name, p in parameters.items()}
        elif self.weight_decay:
            gradients = {name: g + self.weight_decay * parameters[name] for name, g in gradients.items()}
        means = {name: first * kept["mean"][name] + (1.0 - first) * g for name, g in gradients.items()}
        squares = {name: second * kept["square"][name] + (1.0 - second) * g * g for name, g in gradients.items()}
        length = rate / _share(first, steps)
        root = jnp.sqrt(_share(second, steps))
        found = {
            name: p - length * means[name] / (jnp.sqrt(squares[name]) / root + self.epsilon)
            for name, p in parameters.items()
        }
        return found, {"mean": means, "square": squares}


def shortened(gradients: Arrays, longest: float) -> Arrays:
    """Gradients whose length over all parameters is at most this, as `torch.nn.utils.clip_grad_norm_` makes them."""
    length = jnp.sqrt(sum(jnp.sum(g * g) for g in gradients.values()))
    factor = jnp.minimum(1.0, longest / (length + 1e-6))
    return {name: g * factor for name, g in gradients.items()}


def _share(beta: float, steps: jax.Array) -> jax.Array:
    """1 − βⁿ, which a subtraction in float32 would make inexact for β near 1."""
    return -jnp.expm1(steps * math.log(beta))
