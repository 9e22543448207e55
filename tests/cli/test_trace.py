"""`deepbench trace`: what a network consists of, as a table and as a suite."""

import json
import tomllib

import pytest

pytestmark = pytest.mark.programs

NETWORK = """
import torch

def build(batch=8, width=64):
    module = torch.nn.Sequential(torch.nn.Linear(width, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    return module, torch.ones(batch, width), lambda y: y.sum()
"""


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(NETWORK)
    return "net.py:build"


@pytest.fixture
def torch():
    return pytest.importorskip("torch", exc_type=ImportError)


def test_a_network_becomes_a_suite_that_can_be_listed(torch, deepbench, network, tmp_path):
    done = deepbench("trace", network, "--train", "--set", "batch=4,width=32", "-o", "my.suite")

    assert 0 == done.returncode, done.stderr
    assert "build, batch 4, width 32: a training step, 5,514 parameters" in done.stdout
    assert "linear 128 × 4 × 32" in done.stdout
    table = tomllib.loads((tmp_path / "my.suite").read_text())
    assert "train" in table["phases"]
    listed = deepbench("list", "my.suite")
    assert "linear m=128 n=4 k=32" in listed.stdout, listed.stdout


def test_programs_get_every_kernel(torch, deepbench, network):
    found = json.loads(deepbench("trace", network, "--json").stdout)

    assert 2 * 8 * (64 * 128 + 128 * 10) + 8 * 128 == found["flop"]
    assert {"linear", "elementwise"} == {row["kernel"].split()[0] for row in found["rows"] if row["flop"] is not None}
    assert not found["training"]


def test_shapes_alone_need_no_memory(torch, deepbench, network):
    done = deepbench("trace", network, "--meta", "--set", "width=10000000")

    assert 0 == done.returncode, done.stderr
    assert "1,280,001,418 parameters" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("net.py",), "wanted a Python file and a function (mymodel.py:build), an ONNX file"),
        (("net.py:other",), "has no function other"),
        (("no.py:build",), "no.py does not exist"),
        (("net.py:build", "--set", "bach=3"), "has no argument 'bach'; it has batch, width; did you mean batch?"),
        (("net.py:build", "--set", "batch"), "--set wants NAME=VALUE, found 'batch'"),
        (("net.py:build", "-o", "my.toml"), "ends in .suite, such as my.suite; found 'my.toml'"),
        (("net.py:build", "--steps", "none"), "--steps"),
        (("wrong.py:build",), "wrong.py, line 3: ValueError: the weights are missing"),
        (("forward.py:build",), "forward.py, line 6: ZeroDivisionError: integer division or modulo by zero"),
    ],
)
def test_what_is_wrong_is_a_sentence(torch, deepbench, network, tmp_path, words, sentence):
    (tmp_path / "wrong.py").write_text(
        "import torch\ndef build():\n    raise ValueError('the weights\\nare missing')\n"
    )
    (tmp_path / "forward.py").write_text(
        "import torch\ndef build():\n    return Net(), torch.ones(2)\nclass Net(torch.nn.Module):\n"
        "    def forward(self, x):\n        return x * (1 // 0)\n"
    )

    done = deepbench("trace", *words)

    assert 64 == done.returncode
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_log_needs_no_framework(deepbench, tmp_path):
    done = deepbench("trace", "no.log")

    assert 64 == done.returncode
    assert "no.log" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_of_the_package_is_a_network_too(deepbench):
    found = json.loads(deepbench("trace", "vision/resnet18", "--set", "phase=inference,batch=2", "--json").stdout)

    assert 11_689_512 == found["parameters"]
    assert 20 == sum(r["calls"] for r in found["rows"] if r["kernel"].startswith("conv "))
    assert found["kept_bytes"] is None


JAX = """
import jax

def build(rows=8):
    shapes = jax.ShapeDtypeStruct((64, 10), "float32"), jax.ShapeDtypeStruct((rows, 64), "float32")
    return jax.grad(lambda w, x: (x @ w).sum()), shapes

def loop(n=3):
    return lambda x: jax.lax.while_loop(lambda y: y.sum() < 9, lambda y: y @ y, x), jax.numpy.ones((n, n))
"""


def test_a_function_of_jax_is_a_network_too(deepbench, tmp_path):
    pytest.importorskip("jax")
    (tmp_path / "net.py").write_text(JAX)

    found = json.loads(deepbench("trace", "net.py:build", "--train", "--set", "rows=4", "--json").stdout)
    refused = deepbench("trace", "net.py:loop")
    counted = json.loads(deepbench("trace", "net.py:loop", "--while-steps", "5", "--json").stdout)
    validated = deepbench("predict", "net.py:build", "--validate")

    assert found["training"]
    assert 2 * 64 * 10 * 4 == found["flop"]  # the gradient alone: its result does not need the product itself
    assert 64 == refused.returncode
    assert "--while-steps" in refused.stderr
    assert 5 == sum(row["calls"] for row in counted["rows"] if row["kernel"].startswith("gemm"))
    assert "is a function of JAX; wanted a PyTorch network, whose steps can be run" in validated.stderr
