"""Translation in JAX: the JaxTransformer alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from deepbench.applications.tasks.translation.common import (
    BEGIN,
    BETAS,
    DROPOUT,
    EVALUATED,
    HEAD_WIDTH,
    LONGEST_GRADIENT,
    NOTHING,
    WARM_UP,
    WEIGHT_DECAY,
    examples,
)
from deepbench.applications.training.application import Rung, Setup
from deepbench.applications.training.jax_network import Arrays, Initial, JaxNetwork, cross_entropy
from deepbench.applications.training.jax_optimizers import Adam
from deepbench.applications.training.jax_task import JaxTask
from deepbench.applications.training.schedule import warm_up_then_zero
from deepbench.core.errors import Unsupported


def initial(sizes: Mapping[str, Any], seed: int) -> Initial:
    """A new network. As in `torch.nn.Transformer`, matrices are those of Glorot and Bengio."""
    found, width = Initial(seed), sizes["width"]
    for name in ("source", "target"):
        found.normal(f"{name}.weight", (sizes["words"], width), width**-0.5)
    found.normal("places", (sizes["length"] + 2, width), 0.02)
    for half, attentions in (("encoder", ("self_attn",)), ("decoder", ("self_attn", "multihead_attn"))):
        for number in range(sizes["layers"]):
            layer = f"body.{half}.layers.{number}"
            for attention in attentions:
                found.xavier(f"{layer}.{attention}.in_proj_weight", 3 * width, width)
                found.constant(f"{layer}.{attention}.in_proj_bias", 3 * width, 0.0)
                found.xavier(f"{layer}.{attention}.out_proj.weight", width, width)
                found.constant(f"{layer}.{attention}.out_proj.bias", width, 0.0)
            for name, inputs, outputs in (("linear1", width, 4 * width), ("linear2", 4 * width, width)):
                found.xavier(f"{layer}.{name}.weight", outputs, inputs)
                found.uniform(f"{layer}.{name}.bias", (outputs,), inputs**-0.5)
            for i in range(len(attentions) + 1):
                found.norm(f"{layer}.norm{i + 1}", width)
        found.norm(f"body.{half}.norm", width)
    return found


class JaxTransformer:
    """The two halves of the network."""

    def __init__(self, net: JaxNetwork, sizes: Mapping[str, Any]) -> None:
        self._net, self._sizes = net, sizes

    def encoded(self, x: jax.Array) -> jax.Array:
        """What is seen of the source (batch, places): (batch, places, width)."""
        is_word = (x != NOTHING)[:, None, None]
        z = self._placed("source", x)
        for number in range(self._sizes["layers"]):
            layer = f"body.encoder.layers.{number}"
            y = self._net.layer_norm(f"{layer}.norm1", z)
            z = z + self._attention(f"{layer}.self_attn", y, y, is_word)
            z = z + self._forward(layer, self._net.layer_norm(f"{layer}.norm2", z))
        return self._net.layer_norm("body.encoder.norm", z)

    def logits(self, x: jax.Array, seen: jax.Array, y: jax.Array) -> jax.Array:
        """Of the word after each place of y: (batch, places, words). `seen` is the source x, encoded."""
        is_word = (x != NOTHING)[:, None, None]
        is_earlier = jnp.tri(y.shape[1], dtype=bool)[None, None]
        z = self._placed("target", y)
        for number in range(self._sizes["layers"]):
            layer = f"body.decoder.layers.{number}"
            made = self._net.layer_norm(f"{layer}.norm1", z)
            z = z + self._attention(f"{layer}.self_attn", made, made, is_earlier)
            made = self._net.layer_norm(f"{layer}.norm2", z)
            z = z + self._attention(f"{layer}.multihead_attn", made, seen, is_word)
            z = z + self._forward(layer, self._net.layer_norm(f"{layer}.norm3", z))
        found = self._net.layer_norm("body.decoder.norm", z)
        return self._net.product("btw,vw->btv", found, self._net.parameters["target.weight"])

    def _placed(self, name: str, words: jax.Array) -> jax.Array:
        table, places = self._net.parameters[f"{name}.weight"], self._net.parameters["places"]
        return table[words] * self._sizes["width"] ** 0.5 + places[: words.shape[1]]

    def _attention(self, name: str, x: jax.Array, y: jax.Array, is_seen: jax.Array) -> jax.Array:
        found = self._net.attention(name, x, y, is_seen, self._sizes["width"] // HEAD_WIDTH, DROPOUT)
        return self._net.dropout(found, DROPOUT)

    def _forward(self, layer: str, x: jax.Array) -> jax.Array:
        y = self._net.dropout(jax.nn.relu(self._net.linear(f"{layer}.linear1", x)), DROPOUT)
        return self._net.dropout(self._net.linear(f"{layer}.linear2", y), DROPOUT)


def losses(net: JaxNetwork, sizes: Mapping[str, Any], x: jax.Array, y: jax.Array) -> jax.Array:
    """−log of the probability of each word of y but the first, and 0 where there is none: (batch, places of y − 1)."""
    network = JaxTransformer(net, sizes)
    found = cross_entropy(network.logits(x, network.encoded(x), y[:, :-1]), y[:, 1:])
    return jnp.where(y[:, 1:] != NOTHING, found, 0.0)


def task(setup: Setup, rung: Rung, data: list[Any]) -> JaxTask:
    """A run; `data` has the verses."""
    sizes = rung.settings
    if sizes["model"] != "transformer":
        raise Unsupported(f"the rung {setup.rung} of translation has no version in JAX; choose torch, or the rung mini")
    found = examples(data[0], rung)

    def loss(net: JaxNetwork, data: Arrays, at: jax.Array) -> jax.Array:
        y = data["target"][at]
        return losses(net, sizes, data["source"][at], y).sum() / (y[:, 1:] != NOTHING).sum()

    def tested(net: JaxNetwork, data: Arrays, at: jax.Array) -> jax.Array:
        return losses(net, sizes, data["test_source"][at], data["test_target"][at]).sum(1)

    def evaluate(task: JaxTask) -> float:
        total = task.apply(compiled, range(task.tests), EVALUATED).sum(dtype=np.float64)
        return float(np.exp(total / found.tested_words))

    def predict(net: JaxNetwork, data: Arrays, at: jax.Array) -> jax.Array:
        """The most likely word at each place, one after the other."""
        network, x = JaxTransformer(net, sizes), data["test_source"][at]
        seen = network.encoded(x)

        def longer(place: jax.Array, y: jax.Array) -> jax.Array:
            return y.at[:, place + 1].set(network.logits(x, seen, y)[:, place].argmax(1))

        y = jnp.full((len(at), sizes["length"] + 1), NOTHING).at[:, 0].set(BEGIN)
        return lax.fori_loop(0, sizes["length"], longer, y)

    optimizer = Adam(sizes["rate"], BETAS, WEIGHT_DECAY, is_decoupled=True)
    arrays = {name: getattr(found, name) for name in ("source", "target", "test_source", "test_target")}
    run = JaxTask(
        setup, rung, initial(sizes, setup.seed), optimizer, arrays, loss, len(found.source),
        predict, lambda rows: found.texts(rows.tolist()), found.grade, len(found.test_source),
        evaluate=evaluate, learning_rate=warm_up_then_zero(WARM_UP), longest_gradient=LONGEST_GRADIENT,
    )  # fmt: skip
    compiled = run.compiled(tested)
    return run
