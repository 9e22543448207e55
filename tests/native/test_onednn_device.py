"""oneDNN on an engine that the host does not wait for: copies of arrays, the queue and its proofs.

The engine is that of the ordinary library, whose calls are done when they return. `tests/backends` has SYCL's.
"""

import numpy as np
import pytest

from deepbench.backends.onednn import OneDNNBackend
from deepbench.core.case import parse_case
from deepbench.core.errors import Unavailable
from deepbench.core.kernel import in_turn
from deepbench.measuring.check import check
from deepbench.native import onednn as c
from deepbench.native.onednn_device import CallQueue, OneDNNDevice, count, queued
from deepbench.native.slope import SlopeTimer

TEXTS = (
    "gemm m=24 n=17 k=9 forward f32 onednn threads=1",
    "gemm m=64 n=17 k=64 forward f32 onednn threads=1 weights=packed",
    "batched_gemm batch=3 m=8 n=5 k=7 forward f32 onednn threads=1",
    "grouped_gemm groups=9 tokens=6 m=8 k=16 backward_weights f32 onednn threads=1",
    "conv n=1 c=16 h=8 w=8 k=16 r=3 s=3 forward f32 onednn threads=1 layout=any",
    "pooling kind=max n=1 c=16 h=8 w=8 r=2 s=2 stride_h=2 stride_w=2 backward f32 onednn threads=1",
    "recurrent cell=lstm hidden=16 batch=2 timesteps=3 backward f32 onednn threads=1",
    "attention batch=1 heads=2 kv_heads=2 queries=8 keys=8 head_size=16 mask=causal backward f32 onednn threads=1",
    "layer_norm rows=7 columns=33 backward f32 onednn threads=1",
)


@pytest.fixture(scope="module")
def library():
    """The functions of oneDNN."""
    backend = OneDNNBackend()
    try:
        backend.open()
    except Unavailable as error:
        pytest.skip(str(error))
    return backend.dnn.library


@pytest.fixture(params=[False, True], ids=["in place", "copies"])
def dnn(library, request):
    return OneDNNDevice(library, c.ENGINE_CPU, 0, copies=request.param)


def prepared(dnn, text):
    """The kernel of a case on this engine, with its arrays."""
    case, backend = parse_case(text), OneDNNBackend()
    backend.dnn, arrays = dnn, case.operation.operands(case)
    return case, arrays, queued(dnn, backend.prepare(case, arrays), arrays, case.operation.outputs)


@pytest.mark.parametrize("text", TEXTS)
def test_a_kernel_is_right_again_and_again(dnn, text):
    case, arrays, kernel = prepared(dnn, text)
    inputs = {name: array.copy() for name, array in arrays.items() if name not in case.operation.outputs}
    for _ in range(2):
        case.operation.reset(case, arrays)
        kernel.load()
        kernel.device.timer(lambda repeats: 0, 1).once()
        kernel.store()
        assert check(case.operation, case, arrays).passed
    assert all((arrays[name] == array).all() for name, array in inputs.items())
    assert not dnn.copies or set(kernel.private_buffers) == set(arrays)


def test_copies_are_what_is_used_until_they_are_loaded_again(library):
    dnn = OneDNNDevice(library, c.ENGINE_CPU, 0, copies=True)
    _, arrays, kernel = prepared(dnn, "gemm m=24 n=17 k=9 forward f32 onednn threads=1 beta=0")
    wanted = arrays["b"] @ arrays["a"]
    kernel.load()
    arrays["a"].fill(0)
    kernel.device.queue.enqueue(1)
    kernel.store()
    np.testing.assert_allclose(wanted, arrays["c"], rtol=1e-5, atol=1e-5)

    kernel.load()
    kernel.device.queue.enqueue(1)
    kernel.store()
    assert not arrays["c"].any()


def test_the_queue_counts_waits_and_reads(dnn):
    _, arrays, kernel = prepared(dnn, "gemm m=24 n=17 k=9 forward f32 onednn threads=1")
    queue, product = kernel.device.queue, arrays["b"] @ arrays["a"]
    before = arrays["c"].copy()

    queue.enqueue(5)
    queue.wait()
    queue.fetch()
    queue.fetch()  # what was read before is read again
    kernel.store()
    np.testing.assert_allclose(before + 5 * product, arrays["c"], rtol=1e-4, atol=1e-4)
    assert (7, 0) == (queue.count(7), queue.count(0))
    assert queue.on_host
    queue.empty().enqueue(3)
    assert isinstance(kernel.device.timer(lambda repeats: 0, 1), SlopeTimer)


def test_reading_waits_until_the_copy_has_arrived(dnn, monkeypatch):
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            c.OneDNN.run(dnn, dnn.smallest)

    monkeypatch.setattr(dnn, "give", lambda calls: None)
    monkeypatch.setattr("deepbench.native.onednn_device.sleep", sleep)
    CallQueue(dnn, ()).fetch()

    assert 3 == len(looks)


def test_several_kernels_take_turns(dnn):
    case, arrays, kernel = prepared(dnn, "gemm m=24 n=17 k=9 forward f32 onednn threads=1 beta=0")
    other = prepared(dnn, "gemm m=24 n=17 k=9 forward f32 onednn threads=1 beta=0")
    both = in_turn([kernel, other[2]])
    for made in (kernel, other[2]):
        made.load()

    both.device.timer(lambda repeats: 0, 2).once()
    for made, results in ((kernel, arrays), (other[2], other[1])):
        made.store()
        assert check(case.operation, case, results).passed


def test_zeros_come_after_the_calls_before_them(dnn):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    target = np.ones_like(array)
    dnn.run([*dnn._copy(array, target), *dnn.zeros(target)])
    dnn.download([target])

    assert not target.any()
    assert array.any()


def test_engines_are_counted(library):
    assert 1 == count(library, c.ENGINE_CPU)
    assert 0 == count(library, c.ENGINE_GPU)
