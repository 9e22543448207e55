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
OPERATIONS = sorted({kernel.op for kernel in KERNELS})


# In `make test` mistakes are made in one precision, the first of each; the others share its check.
FIRST = {}
for _kernel in KERNELS:
    FIRST.setdefault((_kernel.op, _kernel.mistake), _kernel.precision)


def of(op, is_wrong, is_thorough):
    chosen = [k for k in KERNELS if k.op == op and (k.mistake is not None) == is_wrong]
    return [k for k in chosen if is_thorough or k.precision == FIRST[k.op, k.mistake]]


# One test per operation: a test per kernel would be 3,800 tests, which take longer to start than to run.
per_operation = pytest.mark.parametrize("op", OPERATIONS)
thoroughly = pytest.mark.parametrize("is_thorough", [False, pytest.param(True, marks=pytest.mark.long)])


@per_operation
def test_right_kernels_pass_with_room(op):
    """In f32 with half of the tolerance, and so with other types before the outputs are rounded, if they are exact."""
    refused = []
    for kernel in of(op, False, True):
        verdict = kernel.verdict()
        if not verdict.passed:
            refused.append(f"{kernel.id}: {verdict.sentence}")
            continue
        error = verdict.error if " f32" in kernel.text else kernel.error() if kernel.exact else 0.0
        if not error < 0.5:
            refused.append(f"{kernel.id}: passes with {error:.2f} of the tolerance")

    assert not refused


@per_operation
@thoroughly
def test_every_wrong_kernel_is_found(op, is_thorough):
    wrong = of(op, True, is_thorough)

    assert wrong
    assert not [kernel.id for kernel in wrong if kernel.verdict().passed]


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
