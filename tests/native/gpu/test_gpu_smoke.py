"""Every GPU library on the fake GPU: all ops, precisions, directions and settings that it is marked for."""

import pytest

from deepbench.core.backend import find_backend
from tests.backends.test_backends import pairs, smoke_results

# The convolutions of the fake are slow; `test_gpu_conv.py` and others test these libraries, too.
SLOW = ("cudnn", "miopen")


@pytest.mark.programs
@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "op"),
    [
        pytest.param(name, op, marks=[pytest.mark.long] if name in SLOW else [])
        for name, op in pairs()
        if find_backend(name).device != "cpu"
    ],
)
def test_a_gpu_library_gives_the_right_answer_through_the_fake(gpu, monkeypatch, shared_folder, name, op):
    monkeypatch.setenv("FAKE_GPU_EVEN", "1")
    results = smoke_results(name, True, shared_folder)[op]
    bad = [r for r in results if r[1] not in ("ok", "unsupported")]

    assert [] == bad[:5], f"{len(bad)} of {len(results)}"
    assert [r for r in results if r[1] == "ok"], results[:3]
