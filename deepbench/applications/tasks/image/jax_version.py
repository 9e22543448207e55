"""Image recognition in JAX."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from deepbench.applications.tasks.image import common
from deepbench.applications.training.application import Rung, Setup
from deepbench.applications.training.jax_network import Arrays, Initial, JaxNetwork, cross_entropy
from deepbench.applications.training.jax_optimizers import SGD
from deepbench.applications.training.jax_task import JaxTask
from deepbench.applications.training.schedule import warm_up_then_zero
from deepbench.core.errors import Unsupported


def initial(rung: Rung, seed: int) -> Initial:
    """A new network. The number of a layer is its place in that of PyTorch."""
    found, widths, blocks = Initial(seed), rung.settings["widths"], common.blocks(rung)
    found.conv("0", 1, widths[0], 3)
    found.batch_norm("1", widths[0])
    for number, (inputs, outputs, stride) in enumerate(blocks, 3):
        found.conv(f"{number}.first", inputs, outputs, 3)
        found.batch_norm(f"{number}.first_norm", outputs)
        found.conv(f"{number}.second", outputs, outputs, 3)
        found.batch_norm(f"{number}.second_norm", outputs)
        if inputs != outputs or stride != 1:
            found.conv(f"{number}.shortcut", inputs, outputs, 1)
    found.linear(f"{len(blocks) + 5}", widths[-1], common.CLASSES)
    return found


def block(net: JaxNetwork, name: str, x: jax.Array, stride: int) -> jax.Array:
    """Two convolutions with a way around them."""
    y = jax.nn.relu(net.batch_norm(f"{name}.first_norm", net.conv(f"{name}.first", x, stride, 1)))
    y = net.batch_norm(f"{name}.second_norm", net.conv(f"{name}.second", y, 1, 1))
    is_same = f"{name}.shortcut.weight" not in net.parameters
    return jax.nn.relu(y + (x if is_same else net.conv(f"{name}.shortcut", x, stride, 0)))


def logits(rung: Rung, net: JaxNetwork, x: jax.Array) -> jax.Array:
    """From pictures (batch, 28, 28, 1) to logits (batch, classes)."""
    blocks = common.blocks(rung)
    x = jax.nn.relu(net.batch_norm("1", net.conv("0", x, 2, 1)))
    for number, (_, _, stride) in enumerate(blocks, 3):
        x = block(net, f"{number}", x, stride)
    return net.linear(f"{len(blocks) + 5}", x.mean((1, 2)))


def task(setup: Setup, rung: Rung, data: list[Any]) -> JaxTask:
    """A run; `data` has pictures and labels for training, and pictures and labels for testing."""
    if "widths" not in rung.settings:
        raise Unsupported(f"the rung {setup.rung} of image has no version in JAX; choose torch, or the rung small")
    (pictures,) = data
    seen, wanted, test, labels = pictures

    def prepared(chosen: jax.Array) -> jax.Array:
        return (chosen.astype(jnp.float32)[..., None] - common.MEAN) / common.SCALE

    def loss(net: JaxNetwork, data: Arrays, at: jax.Array) -> jax.Array:
        x = prepared(data["seen"][at])
        x = jnp.where(jax.random.bernoulli(net.key()), x[:, :, ::-1], x)
        return cross_entropy(logits(rung, net, x), data["wanted"][at].astype(int), common.SMOOTHING).mean()

    def predict(net: JaxNetwork, data: Arrays, at: jax.Array) -> jax.Array:
        return logits(rung, net, prepared(data["test"][at])).argmax(1)

    optimizer = SGD(rung.settings["rate"], common.MOMENTUM, common.WEIGHT_DECAY)
    return JaxTask(
        setup, rung, initial(rung, setup.seed), optimizer, {"seen": seen, "wanted": wanted, "test": test}, loss,
        len(seen), predict, lambda rows: rows.tolist(), partial(common.grade, labels), len(test),
        learning_rate=warm_up_then_zero(common.WARM_UP),
    )  # fmt: skip
