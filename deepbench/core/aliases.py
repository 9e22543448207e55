"""Words that other programs use for what has another name here. They are suggested, and never accepted.

The text of a case is its key in every file, so one precision or library must not have two spellings.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from deepbench.core.errors import BadInput, shorten

# Our word: the words of others, as `_squashed` leaves them. A word may stand for several of ours. Spellings that differ
# only in case, hyphens and underscores, such as `all-reduce` or `cublas-lt`, need no entry.
ALIASES = {
    # precisions
    "f32": "fp32 float32 float single",
    "bf16": "bfloat16 bfloat brainfloat16",
    "f16": "fp16 float16 half",
    "tf32": "tfloat32 tensorfloat32",
    "f8e4m3": "fp8 float8 f8 e4m3 fp8e4m3 float8e4m3 float8e4m3fn",
    "f8e5m2": "fp8 float8 f8 e5m2 fp8e5m2 float8e5m2",
    "nvfp4": "fp4 float4 f4 e2m1 f4e2m1 float4e2m1 float4e2m1fn",
    "i8": "int8 s8",
    "i8u8": "uint8 u8 s8u8 u8s8",
    # operations
    "gemm": "matmul mm addmm sgemm matrixmultiply matrixproduct",
    "conv": "conv1d conv2d conv3d convolution convolution2d",
    "recurrent": "rnn lstm gru vanillarnn",
    "sparse_gemm": "spmm spgemm spmv sparse sparsematmul",
    "batched_gemm": "bmm batchmatmul batchedmatmul",
    "grouped_gemm": "moe groupedmm mixtureofexperts",
    "linear": "dense fc fullyconnected innerproduct",
    "weight_only_gemm": "w4a16 w8a16 woq int4gemm",
    "attention": "sdpa flashattention mha gqa mla scaleddotproductattention",
    "layer_norm": "layernorm ln layernormalization",
    "rms_norm": "rmsnorm rmsnormalization",
    "batch_norm": "batchnorm bn batchnormalization",
    "group_norm": "groupnorm gn groupnormalization",
    "rope": "rotary rotaryembedding rotaryposition",
    "top_k": "argsort sort router gating",
    "loss": "crossentropy nll bce mse smoothl1 focalloss",
    "elementwise": "eltwise pointwise activation relu gelu silu",
    "dropout": "bernoulli mask random",
    "reduction": "reduce",
    "pooling": "pool maxpool avgpool averagepool",
    "embedding_bag": "embedding embeddingbag lookup",
    "optimizer": "adam adamw sgd lamb adagrad",
    "permute_tokens": "dispatch combine permute unpermute moepermute",
    "upsample": "resize interpolate upsampling resampling nearest",
    "ctc": "ctcloss",
    "memory": "stream bandwidth membw memcpy copy triad",
    "broadcast": "bcast",
    "send_receive": "sendrecv p2p pingpong pointtopoint",
    # libraries
    "onednn": "dnnl mkldnn onednncpu libdnnl",
    "onednn_sycl": "sycl dpcpp onednndpcpp",
    "mkl": "onemkl intelmkl mklrt",
    "aocl": "aoclda aoclblas aoclsparse amdblis",
    "openblas": "blas libopenblas",
    "torch": "pytorch libtorch",
    "torch_compiled": "torchcompile inductor torchinductor",
    "paddle": "paddlepaddle",
    "iree": "ireecompiler ireeruntime",
    "openvino": "inferenceengine dldt",
    "mpich": "mpi",
    "openmpi": "mpi ompi",
    "intelmpi": "mpi impi",
    "oneccl": "ccl",
    "reference": "numpy",
    "hipblas": "rocblas",
    "hipsparse": "rocsparse",
    # directions
    "forward": "fwd inference",
    "backward": "bwd",
    "backward_data": "bwddata dgrad gradinput",
    "backward_weights": "bwdweights wgrad gradweight bwdfilter backwardfilter",
    # devices
    "cuda": "gpu nvidia",
    "hip": "gpu amd rocm",
    "xpu": "gpu intel levelzero",
}

# Types that no precision has. The words of ours that look like them are other types.
UNKNOWN_TYPES = (
    *("f64", "fp64", "float64", "double", "mxfp4", "fp6"),
    *("i4", "int4", "i16", "int16", "i32", "int32", "i64", "int64"),
)

LONGEST_WORD = 60


def _squashed(word: str) -> str:
    """`Sparse-GEMM` → `sparsegemm`."""
    return re.sub("[^a-z0-9]", "", word[:LONGEST_WORD].lower())


_OURS: dict[str, list[str]] = {word: [] for word in UNKNOWN_TYPES}
for _our, _theirs in ALIASES.items():
    for _their in _theirs.split():
        _OURS.setdefault(_their, []).append(_our)


def meant(word: str, known: Iterable[str]) -> list[str]:
    """Which of the known words may be meant by a word that is none of them; none for a word that is."""
    words = list(known)
    if word in words:
        return []
    squashed = _squashed(word)
    if squashed and (same := [w for w in words if _squashed(w) == squashed]):
        return same
    if squashed in _OURS:
        return [w for w in _OURS[squashed] if w in words]
    import difflib  # only a mistake pays for it

    by_lower_case = {w.lower(): w for w in words}
    return [by_lower_case[w] for w in difflib.get_close_matches(word[:LONGEST_WORD].lower(), by_lower_case, 1)]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: `; did you mean f8e4m3 or f8e5m2?`, or nothing."""
    found = meant(word, known)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def refuse_unknown(words: Iterable[str], known: Collection[str], sentence: str, there_are: str = "it has") -> None:
    """`BadInput` for the first word that is not known: `a model has no phase 'trian'; it has test, train; did …`."""
    for word in words:
        if word not in known:
            names = ", ".join(known) or "none"
            raise BadInput(f"{sentence} {shorten(word)!r}; {there_are} {names}{did_you_mean(word, known)}")
