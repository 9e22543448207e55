"""The check passes right kernels of every operation with room, and finds each of the mistakes that they may contain."""

import importlib
import pkgutil

import pytest

from deepbench.core import parts, rows
from deepbench.ops import group_norm
from tests.ops import wrong_kernels


def kernels():
    """Of all modules, in the order of their cases, so that those of one case share its operands."""
    names = [module.name for module in pkgutil.iter_modules(wrong_kernels.__path__, f"{wrong_kernels.__name__}.")]
    found = [kernel for name in names for kernel in importlib.import_module(name).KERNELS]
    return sorted(found, key=lambda kernel: kernel.text)


KERNELS = kernels()


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.mistake is None], ids=lambda kernel: kernel.id)
def test_a_right_kernel_passes_with_room(kernel):
    verdict = kernel.verdict()

    assert verdict.passed, verdict.sentence
    if " f32" in kernel.text:
        assert verdict.error < 0.5
    elif kernel.exact:
        assert kernel.error() < 0.5


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.mistake is not None], ids=lambda kernel: kernel.id)
def test_a_wrong_kernel_is_found(kernel):
    assert not kernel.verdict().passed


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ("batch_norm n=3 c=90 h=5 w=7 backward f32", ["dscale zero", "mean of the gradient forgotten"]),
        ("batch_norm n=3 c=90 h=5 w=7 backward f32 layout=nhwc", ["dscale zero", "mean of the gradient forgotten"]),
        ("group_norm n=4 c=96 h=5 w=7 groups=24 backward f32", ["dscale zero", "last image not summed"]),
        ("layer_norm rows=70 columns=999 backward f32", ["dscale zero", "last row of the sums forgotten"]),
        ("rms_norm rows=70 columns=999 backward f32", ["dscale zero", "last row of the sums forgotten"]),
        ("rope tokens=70 heads=3 dim=16 forward f32", ["other sign"]),
    ],
)
def test_a_sample_of_a_large_problem_finds_mistakes(monkeypatch, text, mistakes):
    monkeypatch.setattr(parts, "FULL_CHECK_WORK", 0)
    for module in (rows, group_norm):
        monkeypatch.setattr(module, "SAMPLED_ELEMENTS", 0)
    evaluate = importlib.import_module(f"{wrong_kernels.__name__}.{text.split()[0]}").kernel
    right, *wrong = (
        wrong_kernels.Kernel(text, m, evaluate).verdict() for m in (None, "last row not written", *mistakes)
    )

    assert right.passed
    assert " parts" in right.how
    assert not any(verdict.passed for verdict in wrong)


def test_no_kernel_is_there_twice():
    assert len({kernel.id for kernel in KERNELS}) == len(KERNELS)
