"""A traced network and the records of its kernels, as a result file has them."""

from deepbench.networks.predictions.predict import needs, yardstick
from deepbench.networks.traces.trace import Trace, TracedCall
from tests.help import samples

GEMM = "gemm m=64 n=32 k=16 a_t=0 b_t=0 forward f32 beta=0"
RELU = "elementwise kind=relu n=1000 forward f32"
PARAMETERS = 1000


def network(is_training=True):
    """Two products and a function in two layers, and an operator of which only the bytes are known."""
    calls = [
        TracedCall("aten.mm", GEMM, "layers.0.first", (0,), (1,), 300),
        TracedCall("aten.relu", RELU, "layers.0.act", (1,), (2,), 200),
        TracedCall("aten.cat", None, "", (2,), (3,), 3072),
        TracedCall("aten.mm", GEMM, "layers.1.first", (3,), (1,), 300),
    ]
    return Trace("net, batch 4", "net.py:build", is_training, tuple(calls), (100, 200, 100, 200), 1, PARAMETERS)


def kernels(library="torch", seconds=1e-3, **options):
    """All kernels of the network and the additions; a product takes `seconds`."""
    found = []
    cases = [case for need in needs(network(), library, 1, 10**6) for case in need.cases]
    for case in [*cases, *yardstick(library, 1).values()]:
        each = seconds if case.op == "gemm" else 1e-5
        make = options.get("make", samples.measured)
        found += [make(text=case.text, seconds=each, round_number=r, backend=library) for r in (1, 2, 3)]
    return found


def step(seconds, title="net, batch 4", is_training=True):
    lists = {"samples_s": [seconds] * 3, "cpu_s": [seconds] * 3, "involuntary_switches": [0] * 3, "steal_s": [0.0] * 3}
    about = {"settings": {}, "optimizer": "sgd", "threads": 1, "at": "2026-11-23T10:00:00+00:00"}
    return {"step": {"network": title, "is_training": is_training, **about, **lists}}
