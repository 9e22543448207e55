"""Layers in JAX. Parameters have the names, the shapes and the initial distributions that PyTorch gives them.

Pictures are (batch, height, width, channels).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

Arrays = dict[str, jax.Array]


class Initial:
    """The parameters and buffers of a new network. They follow from the seed."""

    def __init__(self, seed: int) -> None:
        self.parameters: dict[str, NDArray[np.float32]] = {}
        self.buffers: dict[str, NDArray[np.float32]] = {}
        self._chance = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, 2))))

    def uniform(self, name: str, shape: Sequence[int], limit: float) -> None:
        """Evenly distributed between −limit and limit."""
        self.parameters[name] = self._chance.uniform(-limit, limit, shape).astype(np.float32)

    def normal(self, name: str, shape: Sequence[int], deviation: float) -> None:
        """Normally distributed around 0."""
        self.parameters[name] = (self._chance.standard_normal(shape) * deviation).astype(np.float32)

    def constant(self, name: str, size: int, value: float) -> None:
        """A vector of equal numbers."""
        self.parameters[name] = np.full(size, value, np.float32)

    def linear(self, name: str, inputs: int, outputs: int) -> None:
        """Between ±1/√inputs, biases too, as `torch.nn.Linear`."""
        self.uniform(f"{name}.weight", (outputs, inputs), inputs**-0.5)
        self.uniform(f"{name}.bias", (outputs,), inputs**-0.5)

    def conv(self, name: str, inputs: int, outputs: int, side: int) -> None:
        """Between ±1/√(inputs·side²), without a bias, as `torch.nn.Conv2d`."""
        self.uniform(f"{name}.weight", (outputs, inputs, side, side), (inputs * side**2) ** -0.5)

    def norm(self, name: str, size: int) -> None:
        """A weight of 1 and a bias of 0."""
        self.constant(f"{name}.weight", size, 1.0)
        self.constant(f"{name}.bias", size, 0.0)

    def batch_norm(self, name: str, size: int) -> None:
        """With a running mean of 0 and a running variance of 1."""
        self.norm(name, size)
        self.buffers[f"{name}.running_mean"] = np.zeros(size, np.float32)
        self.buffers[f"{name}.running_var"] = np.ones(size, np.float32)

    def xavier(self, name: str, outputs: int, inputs: int) -> None:
        """Between ±√(6 / (inputs + outputs)) (Glorot and Bengio, 2010)."""
        self.uniform(name, (outputs, inputs), (6.0 / (inputs + outputs)) ** 0.5)


class JaxNetwork:
    """One pass through a network, whose layers are called by the names of their parameters.

    Args:
        parameters, buffers: arrays by name; `buffers` of this object are those after the pass.
        type: what products are computed in, where it is not that of their operands: bfloat16.
        key: in training, what random numbers follow from.
    """

    def __init__(self, parameters: Arrays, buffers: Arrays, type: Any = None, key: jax.Array | None = None) -> None:
        self.parameters, self.buffers = parameters, dict(buffers)
        self._type, self._key = type, key
        # GPUs may compute products of float32 with fewer bits.
        self._precision = lax.Precision.HIGHEST if type is None else None

    @property
    def is_training(self) -> bool:
        """Whether this pass changes buffers and drops values."""
        return self._key is not None

    def key(self) -> jax.Array:
        """A new key for random numbers, in training."""
        assert self._key is not None, "only training has random numbers"
        self._key, found = jax.random.split(self._key)
        return found

    def product(self, form: str, a: jax.Array, b: jax.Array) -> jax.Array:
        """`einsum` of two arrays in the type of products."""
        return jnp.einsum(form, self._narrow(a), self._narrow(b), precision=self._precision)

    def linear(self, name: str, x: jax.Array, weight: str = "weight", bias: str = "bias") -> jax.Array:
        """(…, inputs) to (…, outputs)."""
        y = self.product("...i,oi->...o", x, self.parameters[f"{name}.{weight}"])
        return y + self._narrow(self.parameters[f"{name}.{bias}"])

    def conv(self, name: str, x: jax.Array, stride: int, pad: int) -> jax.Array:
        """A convolution without a bias."""
        return lax.conv_general_dilated(
            *(self._narrow(x), self._narrow(self.parameters[f"{name}.weight"])),
            window_strides=(stride, stride),
            padding=((pad, pad), (pad, pad)),
            dimension_numbers=("NHWC", "OIHW", "NHWC"),
            precision=self._precision,
        )

    def batch_norm(self, name: str, x: jax.Array, momentum: float = 0.1, epsilon: float = 1e-5) -> jax.Array:
        """By the mean and the variance of the batch in training, and by the running ones otherwise; in float32."""
        wide = x.astype(jnp.float32)
        mean, variance = (f"{name}.running_mean", f"{name}.running_var")
        if self.is_training:
            axes, count = tuple(range(x.ndim - 1)), x.size // x.shape[-1]
            found = {mean: wide.mean(axes), variance: wide.var(axes)}
            # As PyTorch, the running variance is that of the population from which the batch is a sample.
            seen = {mean: found[mean], variance: found[variance] * (count / (count - 1))}
            for key, value in seen.items():
                self.buffers[key] = self.buffers[key] * (1.0 - momentum) + value * momentum
        else:
            found = {key: self.buffers[key] for key in (mean, variance)}
        y = (wide - found[mean]) * lax.rsqrt(found[variance] + epsilon)
        return self._scaled(name, y).astype(x.dtype)

    def layer_norm(self, name: str, x: jax.Array, epsilon: float = 1e-5) -> jax.Array:
        """By the mean and the variance of the last axis, in float32."""
        wide = x.astype(jnp.float32)
        y = (wide - wide.mean(-1, keepdims=True)) * lax.rsqrt(wide.var(-1, keepdims=True) + epsilon)
        return self._scaled(name, y)

    def dropout(self, x: jax.Array, share: float) -> jax.Array:
        """Set this share of the values to 0 in training, and make up for it."""
        if not self.is_training:
            return x
        return jnp.where(jax.random.bernoulli(self.key(), 1.0 - share, x.shape), x / (1.0 - share), 0.0)

    def attention(
        self, name: str, x: jax.Array, y: jax.Array, is_seen: jax.Array, heads: int, dropout: float
    ) -> jax.Array:
        """What each place of x (batch, places, width) sees of y, as `torch.nn.MultiheadAttention`.

        `is_seen` is whether it may: (batch or 1, 1, places of x or 1, places of y).
        """
        weights = jnp.split(self.parameters[f"{name}.in_proj_weight"], 3)
        biases = jnp.split(self._narrow(self.parameters[f"{name}.in_proj_bias"]), 3)
        query, key, value = (
            (self.product("bti,oi->bto", z, w) + b).reshape(*z.shape[:2], heads, -1)
            for z, w, b in zip((x, y, y), weights, biases, strict=True)
        )
        scores = self.product("bthd,bshd->bhts", query, key).astype(jnp.float32) * query.shape[-1] ** -0.5
        shares = self.dropout(jax.nn.softmax(jnp.where(is_seen, scores, -jnp.inf)), dropout)
        found = self.product("bhts,bshd->bthd", shares, value)
        return self.linear(f"{name}.out_proj", found.reshape(x.shape))

    def _scaled(self, name: str, x: jax.Array) -> jax.Array:
        return x * self.parameters[f"{name}.weight"] + self.parameters[f"{name}.bias"]

    def _narrow(self, x: jax.Array) -> jax.Array:
        return x if self._type is None else x.astype(self._type)


def cross_entropy(logits: jax.Array, wanted: jax.Array, smoothing: float = 0.0) -> jax.Array:
    """−log of the probability of each wanted class, in nats; `smoothing` is the share that all classes have together.

    `logits` has one more axis than `wanted`, the classes.
    """
    logs = jax.nn.log_softmax(logits.astype(jnp.float32))
    right = jnp.take_along_axis(logs, wanted[..., None], -1)[..., 0]
    return -(1.0 - smoothing) * right - smoothing * logs.mean(-1)


def binary_cross_entropy(logits: jax.Array, wanted: jax.Array) -> jax.Array:
    """−log of the probability of each wanted answer, 0 or 1, in nats."""
    wide = logits.astype(jnp.float32)
    return jnp.maximum(wide, 0.0) - wide * wanted + jnp.log1p(jnp.exp(-jnp.abs(wide)))
