"""AOCL: what it must refuse, because the library prints a message and leaves the result as it was, or worse."""

import pytest

from deepbench.backends import aocl
from deepbench.core.case import parse_case
from deepbench.core.errors import Unavailable, Unsupported

WITHOUT = {
    "f32": ("avx2", "weights=packed"),
    "bf16": ("avx512_bf16", ""),
    "i8": ("avx512_vnni", ""),
    "i8u8": ("avx512_vnni", ""),
}


class Unopened(aocl.AOCL):
    """The backend without its library, which has kernels for this processor."""

    def __init__(self, processor):
        self.processor = processor

    def _kernels(self):
        return self.processor


def prepare(backend, text):
    case = parse_case(text)
    return backend.prepare(case, case.operation.operands(case))


@pytest.mark.parametrize("kind", WITHOUT)
@pytest.mark.parametrize("op", ["gemm m=4 n=3 k=5", "batched_gemm batch=2 m=4 n=3 k=5"])
def test_what_the_processor_has_no_instructions_for_is_refused(op, kind, monkeypatch):
    needed, setting = WITHOUT[kind]
    monkeypatch.setattr(aocl, "instructions", lambda: [*{"avx2", "avx512_bf16", "avx512_vnni"} - {needed}])

    with pytest.raises(Unsupported, match=f"multiplies {kind} with {needed} instructions"):
        prepare(Unopened("zen4"), f"{op} forward {kind} aocl threads=1 {setting if op.startswith('gemm') else ''}")


@pytest.mark.parametrize("kind", ["bf16", "i8", "i8u8"])
def test_what_kernels_for_avx2_cannot_is_refused(kind, monkeypatch):
    monkeypatch.setattr(aocl, "instructions", lambda: ["avx2", "avx512_bf16", "avx512_vnni"])

    with pytest.raises(Unsupported, match="unset AOCL_ENABLE_INSTRUCTIONS"):
        prepare(Unopened("zen3"), f"gemm m=4 n=3 k=5 forward {kind} aocl threads=1")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sparse_gemm m=4 n=3 k=8 sparsity=50 forward f32 aocl threads=1 beta=0", "keeps its NaN"),
        ("sparse_gemm m=1 n=3 k=1000000000 sparsity=99 forward f32 aocl threads=1", "with 32 bits"),
    ],
)
def test_what_sparse_products_cannot_is_refused(text, reason):
    with pytest.raises(Unsupported, match=reason):
        aocl.BACKEND.prepare(parse_case(text), {})


@pytest.mark.parametrize(("threads", "groups"), [(1, [9]), (2, [1] * 9), (8, [4, 4, 1])])
def test_each_product_of_a_group_has_two_threads(threads, groups):
    backend = aocl.AOCL()
    try:
        backend.open()
    except Unavailable as error:
        pytest.skip(str(error))

    (call,) = prepare(backend, f"batched_gemm batch=9 m=4 n=3 k=5 forward f32 aocl threads={threads}").calls

    assert (len(groups), groups) == (call.arguments[14], list(call.arguments[15]))
