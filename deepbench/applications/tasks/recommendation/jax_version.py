"""Recommendation in JAX."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from deepbench.applications.tasks.recommendation.common import AMONG, NEGATIVES, OTHERS, WARM_UP, examples
from deepbench.applications.training.application import Rung, Setup
from deepbench.applications.training.jax_network import Arrays, Initial, JaxNetwork, binary_cross_entropy
from deepbench.applications.training.jax_optimizers import Adam
from deepbench.applications.training.jax_task import JaxTask
from deepbench.applications.training.schedule import warm_up_then_zero


def initial(people: int, count: int, sizes: Mapping[str, Any], seed: int) -> Initial:
    """A new network for so many people and films."""
    found, width = Initial(seed), sizes["layers"][0] // 2
    for name, rows, columns in (
        *(("user_factors", people, sizes["factors"]), ("film_factors", count, sizes["factors"])),
        *(("users", people, width), ("films", count, width)),
    ):
        found.normal(f"{name}.weight", (rows, columns), 0.01)
    for number, (inputs, outputs) in enumerate(pairwise(sizes["layers"])):
        found.linear(f"layers.{number}", inputs, outputs)
    found.linear("out", sizes["factors"] + sizes["layers"][-1], 1)
    return found


def logits(sizes: Mapping[str, Any], net: JaxNetwork, user: jax.Array, film: jax.Array) -> jax.Array:
    """How likely it is that these users rate these films: arrays of one shape."""
    tables = net.parameters
    product = tables["user_factors.weight"][user] * tables["film_factors.weight"][film]
    x = jnp.concatenate([tables["users.weight"][user], tables["films.weight"][film]], -1)
    for number in range(len(sizes["layers"]) - 1):
        x = jax.nn.relu(net.linear(f"layers.{number}", x))
    return net.linear("out", jnp.concatenate([product, x], -1))[..., 0]


def task(setup: Setup, rung: Rung, data: list[Any]) -> JaxTask:
    """A run; `data` has the ratings."""
    sizes = rung.settings
    found = examples(data[0], sizes.get("others", OTHERS))
    people = len(found.tests)

    def loss(net: JaxNetwork, data: Arrays, at: jax.Array) -> jax.Array:
        user = jnp.tile(data["users"][at], 1 + NEGATIVES)
        others = jax.random.randint(net.key(), (NEGATIVES * len(at),), 0, found.catalogue)
        wanted = jnp.arange(len(user)) < len(at)
        film = jnp.concatenate([data["films"][at], others])
        return binary_cross_entropy(logits(sizes, net, user, film), wanted).mean()

    def predict(net: JaxNetwork, data: Arrays, at: jax.Array) -> jax.Array:
        choice = jnp.roll(data["tests"][at], -1, 1)  # the right film comes last, so ties count against it
        _, best = lax.top_k(logits(sizes, net, jnp.broadcast_to(at[:, None], choice.shape), choice), AMONG)
        return jnp.take_along_axis(choice, best, 1)

    return JaxTask(
        setup, rung, initial(people, found.catalogue, sizes, setup.seed), Adam(sizes["rate"]),
        {"users": found.users, "films": found.films, "tests": found.tests}, loss, len(found.users),
        predict, lambda rows: rows.tolist(), found.grade, people, learning_rate=warm_up_then_zero(WARM_UP),
    )  # fmt: skip
