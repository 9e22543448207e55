"""PaddlePaddle: what its kernels state about themselves, and how it is missing."""

import importlib.util
import sys

import numpy as np
import pytest

from deepbench.core.backend import find_backend
from deepbench.core.case import parse_case
from deepbench.core.errors import Unavailable
from deepbench.measuring.heat import measure_case
from deepbench.plan.modes import Rules

SHORT = Rules(least_samples=2, least_s=0.0, most_s=0.002, warm_up_s=0.001)
needs_paddle = pytest.mark.skipif(importlib.util.find_spec("paddle") is None, reason="needs PaddlePaddle")


def test_without_it_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "paddle", None)

    with pytest.raises(Unavailable, match=r"^PaddlePaddle not found \(.*\); pip install paddlepaddle$"):
        find_backend("paddle").open()


@needs_paddle
@pytest.mark.parametrize("threads", [1, 2])
def test_a_product_is_added_in_place_with_the_threads_of_the_case(threads):
    record = measure_case(
        parse_case(f"gemm m=64 n=32 k=48 a_t=1 b_t=0 forward f32 paddle threads={threads}"), 1, SHORT, 60.0
    )

    assert "ok" == record["status"], record["reason"]
    assert "addmm_ and transpose" == record["notes"]["implementation"]
    assert ("PaddlePaddle", True) == (record["library_title"], record["framework"])
    assert record["library"]["version"]
    assert record["library"]["build"].startswith("commit ")
    assert str(threads) == record["process"]["environment"]["FLAGS_paddle_num_threads"]


@needs_paddle
@pytest.mark.parametrize(
    "text",
    [
        "linear m=64 n=8 k=32 forward f32 paddle threads=1 activation=gelu",
        "recurrent cell=gru hidden=32 batch=2 timesteps=3 backward f32 paddle threads=1",
    ],
)
def test_the_record_has_the_time_of_reordering_the_weights(text):
    record = measure_case(parse_case(text), 1, SHORT, 60.0)

    assert "ok" == record["status"], record["reason"]
    assert 1e-7 < record["notes"]["convert_s"] < 1


@needs_paddle
@pytest.mark.parametrize("kind", ["elu", "gelu", "tanh"])
def test_a_gradient_that_loses_digits_is_not_offered(kind):
    """The gradient of elu in PaddlePaddle is dy · (result + 1), which is why it is left out."""
    record = measure_case(parse_case(f"elementwise kind={kind} n=64 backward f32 paddle threads=1"), 1, SHORT, 60.0)

    assert ("unsupported" if kind == "elu" else "ok") == record["status"], record["reason"]
    assert kind != "elu" or "loses digits" in record["reason"]


@needs_paddle
def test_why_the_gradient_of_elu_is_left_out():
    backend = find_backend("paddle")
    backend.open()
    a = np.linspace(-8, -6, 1001, dtype=np.float32)
    x = backend._tensor(a)
    gradient = backend.paddle._C_ops.elu_grad(x, backend.paddle.nn.functional.elu(x), backend.paddle.ones_like(x), 1.0)

    error = np.abs(gradient.numpy() / np.exp(a.astype(np.float64)) - 1).max()
    assert 1e-5 < error < 1e-3
