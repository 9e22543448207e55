"""Words of other programs are suggested, and never accepted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepbench.core.aliases import ALIASES, UNKNOWN_TYPES, did_you_mean, meant
from deepbench.core.backend import all_backends
from deepbench.core.case import DIRECTIONS, parse_pattern
from deepbench.core.devices import TITLES
from deepbench.core.errors import BadInput
from deepbench.core.op import all_ops
from deepbench.core.precision import PRECISIONS

KNOWN = [*PRECISIONS, *all_ops(), *all_backends(), *DIRECTIONS, *TITLES]


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ("fp32 float32 float FP32 F32", ["f32"]),
        ("fp16 half float16", ["f16"]),
        ("bfloat16", ["bf16"]),
        ("int8", ["i8"]),
        ("fp8 float8", ["f8e4m3", "f8e5m2"]),
        ("tfloat32", ["tf32"]),
        ("fp4 float4_e2m1fn", ["nvfp4"]),
        ("float8_e4m3fn e4m3", ["f8e4m3"]),
        ("matmul mm sgemm", ["gemm"]),
        ("Dense fc", ["linear"]),
        ("SDPA flash-attention", ["attention"]),
        ("conv2d convolution Conv2d", ["conv"]),
        ("lstm rnn gru LSTM", ["recurrent"]),
        ("allreduce all-reduce AllReduce", ["all_reduce"]),
        ("spmm sparse-gemm", ["sparse_gemm"]),
        ("dnnl mkldnn mkl-dnn oneDNN onedn", ["onednn"]),
        ("pytorch PyTorch", ["torch"]),
        ("cublas-lt cublas_lt", ["cublaslt"]),
        ("mpi", ["intelmpi", "mpich", "openmpi"]),
        ("fwd", ["forward"]),
        ("gpu", ["cuda", "hip", "xpu"]),
        ("f64 double int32 mxfp4", []),
        ("f32 gemm onednn forward cuda", []),  # they are known
    ],
)
def test_words_of_others_are_recognized(words, ours):
    for word in words.split():
        assert ours == sorted(meant(word, KNOWN)), word


def test_only_words_that_can_be_used_are_suggested():
    assert [] == meant("fp32", all_ops())
    assert [] == meant("matmul", PRECISIONS)
    assert "; did you mean f8e4m3 or f8e5m2?" == did_you_mean("fp8", PRECISIONS)
    assert "" == did_you_mean("nosuch", KNOWN)


def test_the_table_has_our_words_on_the_left_and_none_of_them_on_the_right():
    theirs = [word for words in ALIASES.values() for word in words.split()]

    assert set(ALIASES) <= set(KNOWN)
    assert set() == {*theirs, *UNKNOWN_TYPES} & set(KNOWN)
    assert set() == set(theirs) & set(UNKNOWN_TYPES)
    assert all(word.isalnum() and word == word.lower() for word in theirs)


@pytest.mark.parametrize("word", ["fp32", "float32", "dnnl", "fwd", "F32"])
def test_words_of_others_are_not_accepted(word):
    with pytest.raises(BadInput, match=r"is not a direction, precision or backend; a \w+ is one of .*; did you mean"):
        parse_pattern(f"gemm m=1 n=1 k=1 {word}")


@given(st.text())
def test_any_word_has_suggestions_among_the_known_ones(word):
    assert set(meant(word, KNOWN)) <= set(KNOWN)
