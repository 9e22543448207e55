"""PyTorch on a device: the copies, the queue and its proofs, with a make-believe accelerator on the CPU."""

import pytest

from deepbench.core.backend import find_backend
from deepbench.core.case import parse_case
from deepbench.core.errors import Unavailable
from deepbench.measuring.check import check

torch = pytest.importorskip("torch", reason="PyTorch not found; pip install torch")
pytestmark = pytest.mark.torch

from deepbench.backends.torch import device, tensor  # noqa: E402


class Accelerator:
    """What `torch.accelerator` says of a device that is the CPU."""

    def __init__(self, kind="cuda", count=2):
        self.kind, self.count, self.synchronized = kind, count, 0

    def is_available(self):
        return True

    def current_accelerator(self):
        return torch.device(self.kind)

    def device_count(self):
        return self.count

    def synchronize(self, place):
        self.synchronized += 1


@pytest.fixture
def accelerator(monkeypatch):
    made = Accelerator()
    monkeypatch.setattr(torch, "accelerator", made)
    return made


def test_a_device_is_found_by_our_name(accelerator):
    assert torch.device("cpu") == device.find(torch, "cpu")
    assert torch.device("cuda", 0) == device.find(torch, "cuda")
    assert torch.device("cuda", 1) == device.find(torch, "cuda:1")
    for wanted in ("cuda:2", "hip", "xpu"):
        with pytest.raises(Unavailable, match=f"reaches cuda with 2 devices, not {wanted}"):
            device.find(torch, wanted)
    accelerator.kind = "xpu"
    assert torch.device("xpu", 0) == device.find(torch, "xpu")


@pytest.mark.parametrize(
    "text",
    [
        "gemm m=24 n=17 k=9 forward f32 torch threads=1",
        "gemm m=24 n=17 k=9 forward f32 torch threads=1 beta=0",
        "softmax rows=7 columns=33 backward f32 torch threads=1",
        "rms_norm rows=7 columns=33 backward f32 torch threads=1",
        "attention batch=1 heads=2 kv_heads=2 queries=8 keys=8 head_size=16 backward f32 torch threads=1",
        "conv n=1 c=4 h=8 w=8 k=8 r=3 s=3 backward_weights f32 torch threads=1",
    ],
)
def test_a_kernel_works_on_copies_and_copies_its_results_back(accelerator, text):
    backend, case = find_backend("torch"), parse_case(text)
    backend.select("cpu")
    backend.open()
    arrays = case.operation.operands(case)
    inputs = {name: array.copy() for name, array in arrays.items() if name not in case.operation.outputs}
    placed = backend.placed = device.Placed(torch, torch.device("cpu"), lambda array: tensor(torch, array))
    try:
        plain = find_backend("torch")
        method = super(type(plain), plain).prepare
        kernel = placed.kernel(method(case, arrays), arrays, case.operation.outputs)
    finally:
        backend.placed = None
    for _ in range(2):  # loading again must not break what autograd keeps
        case.operation.reset(case, arrays)
        kernel.load()
        kernel.device.timer(lambda repeats: 0, 1).once()
        kernel.store()
        assert check(case.operation, case, arrays).passed
    assert all((arrays[name] == array).all() for name, array in inputs.items())
    assert set(arrays) == set(kernel.private_buffers)


def test_the_queue_counts_waits_and_times(accelerator):
    calls = []
    queue = device.TorchQueue(torch, torch.device("cpu"), lambda: calls.append(1))

    queue.enqueue(5)
    assert 5 == len(calls)
    assert 7 == queue.count(7)
    assert queue.elapsed(lambda: None) >= 0
    assert queue.empty() is not None
    assert queue.loop(4) is None  # the CPU records no graphs
    assert accelerator.synchronized
