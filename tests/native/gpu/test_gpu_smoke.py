"""Every GPU library on the fake GPU: all ops, precisions, directions and settings that it is marked for."""

import pytest

from deepbench.core.backend import find_backend
from tests.backends.test_backends import LEFT_OUT, pairs, smoke_results

# The convolutions of the fake are slow; `test_gpu_conv.py` and others test these libraries, too.
SLOW = ("cudnn", "miopen")


@pytest.mark.programs
@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "op", "is_thorough"),
    [
        pytest.param(name, op, is_thorough, marks=[pytest.mark.long] if is_thorough else [])
        for name, op in pairs()
        for is_thorough in (False, True)
        if find_backend(name).device != "cpu" and (is_thorough or name not in SLOW)
    ],
)
def test_a_gpu_library_gives_the_right_answer_through_the_fake(gpu, monkeypatch, shared_folder, name, op, is_thorough):
    monkeypatch.setenv("FAKE_GPU_EVEN", "1")
    results = smoke_results(name, True, shared_folder, is_thorough)[op]
    bad = [r for r in results if r[1] not in ("ok", "unsupported", LEFT_OUT)]

    assert [] == bad[:5], f"{len(bad)} of {len(results)}"
    assert [r for r in results if r[1] == "ok"], results[:3]
