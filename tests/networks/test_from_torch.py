"""Traces of PyTorch networks: their FLOP, parameters and counts are those of the suites of MLPerf and of PyTorch."""

import sys
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from deepbench.core.case import parse_pattern  # noqa: E402
from deepbench.networks import program  # noqa: E402
from deepbench.networks.from_torch import trace_torch  # noqa: E402
from deepbench.plan.suites import pass_of, read_suite  # noqa: E402
from deepbench.report.traces import flop_of  # noqa: E402

NETWORKS = Path(__file__).parents[2] / "benchmarks" / "networks.py"

# The operations whose FLOP PyTorch counts.
PRODUCTS = ("gemm", "linear", "batched_gemm", "conv", "attention")


def traced(name, is_training=False, device="cpu", optimizer="sgd", **settings):
    settings = {n: str(v) for n, v in settings.items()}
    loaded = program.load(f"{NETWORKS}:{name}", settings, is_training, optimizer, device)
    return trace_torch(loaded.run, loaded.modules, loaded.title, name, is_training), loaded


def flop(trace, ops=PRODUCTS):
    return sum(flop_of(kernel) * count for kernel, count in trace.counts.items() if kernel.split()[0] in ops)


# ---- networks of MLPerf, which need no memory on the device `meta`

MLPERF = {
    "resnet50_v15": ("resnet", {"batch": 64}),
    "bert_large": ("bert", {"batch": 24}),
    "gnmt": ("gnmt", {"batch": 128}),
    "deepspeech2": ("deepspeech2", {"batch": 8}),
    "dlrm_dcnv2": ("dlrm", {"batch": 8192}),
    "unet3d": ("unet3d", {"batch": 2}),
}


def work_of_suite(name):
    """FLOP of a training step by kernel, products and linear layers alike."""
    found = Counter()
    for entry in read_suite(f"mlperf/{name}:phase=train"):
        p = entry.pattern
        text = " ".join([p.op, p.problem.text, p.direction or "forward", "f32"])
        if not p.op.startswith("all"):
            found[p.op, p.direction, flop_of(text)] += entry.source["count"]
    return found


@pytest.mark.parametrize("name", MLPERF)
def test_parameters_are_those_of_mlperf(name):
    build, settings = MLPERF[name]
    trace, _ = traced(build, device="meta", **settings)

    stated = {"dlrm_dcnv2": 26151671809}
    from deepbench.plan.suites import SUITES
    import tomllib

    own = tomllib.loads((SUITES / "mlperf" / f"{name}.toml").read_text())["sizes"]["parameters"]
    assert trace.parameters == stated.get(name, own)
