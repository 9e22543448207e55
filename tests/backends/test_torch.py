"""PyTorch: what its kernels state about themselves, and how it adds the gradients of a recurrent layer."""

import numpy as np
import pytest

from deepbench.core.backend import find_backend
from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.measuring.check import check
from deepbench.measuring.heat import measure_case
from deepbench.plan.modes import Rules
from deepbench.reporting.notes import notes_of
from deepbench.results.summary import summarize

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
SHORT = Rules(least_samples=2, least_s=0.0, most_s=0.002, warm_up_s=0.001)


def computed(text):
    """A case after one call."""
    backend, case = find_backend("torch"), parse_case(text)
    op = find_op(case.op)
    backend.open()
    arrays = op.operands(case)
    kernel = backend.prepare(case, arrays)
    kernel.load()
    kernel.run()
    kernel.store()
    return case, op, arrays, kernel


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("cell", ["vanilla", "lstm", "gru"])
def test_the_record_has_the_time_of_reordering_the_weights(cell, direction):
    text = f"recurrent cell={cell} hidden=256 batch=2 timesteps=3 {direction} f32 torch threads=1"
    record = measure_case(parse_case(text), 1, SHORT, 60.0)

    assert "ok" == record["status"], record["reason"]
    assert 1e-6 < record["notes"]["convert_s"] < 1
    assert "convert_s" in [note.code for note in notes_of(summarize([record])[0])]


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_gradients_of_steps_are_added_in_16_bits(kind):
    """Exactly the numbers of a sum that is rounded after each step, from the last one to the first."""
    text = f"recurrent cell=vanilla hidden=96 batch=16 timesteps=40 backward {kind} torch threads=1"
    case, op, arrays, kernel = computed(text)
    tensors = {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()}
    y, dy = (tensors[name].to(getattr(torch, {"bf16": "bfloat16", "f16": "float16"}[kind])) for name in ("y", "dy"))
    before = torch.cat([tensors["h0"][0].to(y.dtype), y[:-1]])
    r = tensors["r"][0, 0, :, 0].t().contiguous().to(y.dtype)
    dh, in_16_bits, in_32_bits = 0, 0, 0
    for t in reversed(range(case.problem.timesteps)):
        gate = (dh + dy[t]) * (y[t] > 0)
        in_16_bits = in_16_bits + gate.t() @ before[t]
        in_32_bits = in_32_bits + (gate.t() @ before[t]).float()
        dh = gate @ r

    found = tensors["dr"][0, 0, :, 0].t()
    assert torch.equal(in_16_bits.float(), found)
    assert not torch.equal(in_32_bits, found)
    assert "16 bits over steps" == kernel.notes["sums"]
    assert check(op, case, arrays).passed


@pytest.mark.parametrize("cell", ["vanilla", "lstm", "gru"])
def test_sums_of_32_bits_have_no_note(cell):
    *_, kernel = computed(f"recurrent cell={cell} hidden=16 batch=2 timesteps=3 backward f32 torch threads=1")

    assert "sums" not in kernel.notes


def test_a_kernel_that_adds_in_16_bits_is_marked():
    text = "recurrent cell=gru hidden=16 batch=2 timesteps=3 backward bf16 torch threads=1"
    (summary,) = summarize([measure_case(parse_case(text), 1, SHORT, 60.0)])

    assert "sums over steps in 16 bits" in [note.text for note in notes_of(summary)]


def test_recurrent_gradients_of_many_steps_pass():
    """The error of 16-bit sums grows with the steps; so does the tolerance."""
    for size in ("vanilla hidden=256 batch=16 timesteps=50", "gru hidden=128 batch=8 timesteps=200"):
        case, op, arrays, _ = computed(f"recurrent cell={size} backward f16 torch threads=2")
        verdict = check(op, case, arrays)
        assert verdict.passed, verdict.sentence
