"""Our own C code for attention (`attention.c`): a loop for few queries, and what lies between products of matrices."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Call
from deepbench.core.operands import empty
from deepbench.native import library

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# As in `attention.c`.
TILE = 64


def _integers(names: str) -> tuple[tuple[str, Any], ...]:
    return tuple((name, ctypes.c_int64) for name in names.split())


def _pointers(names: str) -> tuple[tuple[str, Any], ...]:
    return tuple((name, ctypes.c_void_p) for name in names.split())


class Softmax(ctypes.Structure):
    """struct softmax."""

    _fields_ = (
        *_pointers("scores lse"),
        *_integers("rows queries columns shift window is_causal"),
        ("scale", ctypes.c_float),
    )


class Gradient(ctypes.Structure):
    """struct gradient."""

    _fields_ = (*_pointers("weights ds dy y"), *_integers("rows columns width"), ("scale", ctypes.c_float))


class Decode(ctypes.Structure):
    """struct decode."""

    _fields_ = (
        *_pointers("q k v y lengths page_table scratch"),
        *_integers("batch kv_heads group queries keys size width page is_causal window queries_are_keys parts"),
        ("scale", ctypes.c_float),
    )


def compiled() -> ctypes.CDLL:
    """The compiled code; `Unsupported` if it was not built."""
    loops = library.compiled("attention")
    if loops is None:
        raise Unsupported("the C loops for attention are not built: install gcc, then install DeepBench again")
    return loops


def pointer(array: Array, *place: int) -> int:
    """The address of an element."""
    return int(array[place].ctypes.data) if place else int(array.ctypes.data)


def decode(case: Case, arrays: Arrays) -> tuple[Call, Any]:
    """The call of the loop, and its scratch memory."""
    p, loops = case.problem, compiled()
    if loops.deepbench_attention_threads() != case.threads:
        raise Unsupported("the C loops were built without OpenMP, so they have one thread; choose threads=1")
    heads, rows = p.batch * p.kv_heads, p.group * p.queries
    # Enough parts that each thread has some, but no more than there are tiles of keys.
    parts = 1 if heads >= 4 * case.threads else -(-4 * case.threads // heads)
    parts = max(1, min(parts, p.keys // TILE))
    own = rows * p.head_size + TILE * (p.head_size + p.width)
    scratch = empty((heads * parts * rows * (p.width + 2) + case.threads * own,), "f32")
    addresses = {n: pointer(arrays[n]) for n in ("q", "k", "v", "y", "lengths", "page_table") if n in arrays}
    description = Decode(
        **addresses, scratch=pointer(scratch), batch=p.batch, kv_heads=p.kv_heads, group=p.group, queries=p.queries,
        keys=p.keys, size=p.head_size, width=p.width, page=p.page, is_causal=p.mask == "causal", window=p.window,
        queries_are_keys=p.queries == p.keys, parts=parts, scale=p.scale,
    )  # fmt: skip
    return Call(loops[f"deepbench_attention_decode_{case.precision.name}"], description), scratch
