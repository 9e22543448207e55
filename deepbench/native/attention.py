"""Our own C code for attention (`attention.c`): a loop for few queries, and what lies between products of matrices."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Call
from deepbench.core.operands import empty
from deepbench.native import library

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# As in `attention.c`: keys that are looked at together, and the floats that a row is rounded up to.
TILE = 64
ROUND = 32

# Attention that is composed of products computes the scores of some queries and heads at a time, so that they stay in
# the caches, and so that no scores are computed that a causal mask hides from all queries.
BLOCK_QUERIES = 256
BLOCK_SCORES = 2**21


@dataclass(frozen=True)
class AttentionBlock:
    """Scores that are computed together: of all heads of some key-value heads, some queries, and the keys they see."""

    sequence: int
    pair: int
    """The first key-value head, counted over all sequences."""
    pairs: int
    queries: range
    keys: range
    shift: int
    """Query i of the block sees the keys of the block up to i + shift, if the mask is causal."""
    is_masked: bool
    """Whether a query does not see some of the keys."""


def blocks(problem: Any) -> Iterator[AttentionBlock]:
    """Blocks that cover all visible pairs of queries and keys."""
    p = problem
    equal = len(set(p.key_counts)) == 1
    for sequence, keys in enumerate(p.key_counts[:1] if equal else p.key_counts):
        count = p.query_count(keys)
        step = count if p.group * count <= 2 * BLOCK_QUERIES else BLOCK_QUERIES
        for start in range(0, count, step):
            queries = range(start, min(start + step, count))
            ends = [p.visible(query, keys) for query in (queries[0], queries[-1])]
            visible = range(ends[0][0], ends[1][1])
            heads = p.batch * p.kv_heads if equal else p.kv_heads
            together = max(1, min(heads, BLOCK_SCORES // (p.group * len(queries) * len(visible))))
            shift = keys - count + start - visible.start
            for pair in range(0, heads, together):
                yield AttentionBlock(
                    sequence, sequence * p.kv_heads + pair, min(together, heads - pair), queries, visible, shift,
                    is_masked=ends[0] != ends[1],
                )  # fmt: skip


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
        *_integers("batch kv_heads group queries keys size width page is_causal window queries_are_keys is_bf16 parts"),
        ("scale", ctypes.c_float),
    )


def load_openmp() -> None:
    """Make the functions of an OpenMP runtime known to `_attention.so`: of the loaded one, else of that in our wheel.

    Without either, as in a checkout, it is the one of the system, if there is one.
    """
    for path in (library.openmp_runtime(), library.own_openmp(), "libgomp.so.1"):
        with contextlib.suppress(OSError):
            if path is not None:
                ctypes.CDLL(path, mode=os.RTLD_GLOBAL)
                return


@cache
def compiled() -> ctypes.CDLL:
    """The compiled code; `Unsupported` if it was not built.

    It is not linked to an OpenMP runtime, but uses the one that the library of matrix products has loaded: the threads
    of two runtimes would wait for each other on the same cores.
    """
    load_openmp()
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
    if loops.deepbench_threads() != case.threads:
        raise Unsupported("the C loops were built without OpenMP, so they have one thread; choose threads=1")
    heads, rows = p.batch * p.kv_heads, p.group * p.queries
    # Enough parts that each thread has some, but no more than there are tiles of keys.
    parts = 1 if heads >= 4 * case.threads else -(-4 * case.threads // heads)
    parts = max(1, min(parts, p.keys // TILE))
    size, width = (-(-n // ROUND) * ROUND for n in (p.head_size, p.width))
    own = rows * size + TILE * (size + width)
    scratch = empty((heads * parts * rows * (width + ROUND) + case.threads * own,), "f32")
    addresses = {n: pointer(arrays[n]) for n in ("q", "k", "v", "y", "lengths", "page_table") if n in arrays}
    description = Decode(
        **addresses, scratch=pointer(scratch), batch=p.batch, kv_heads=p.kv_heads, group=p.group, queries=p.queries,
        keys=p.keys, size=p.head_size, width=p.width, page=p.page, is_causal=p.mask == "causal", window=p.window,
        queries_are_keys=p.queries == p.keys, is_bf16=case.precision.name == "bf16", parts=parts, scale=p.scale,
    )  # fmt: skip
    return Call(loops.deepbench_attention_decode, description), scratch


def softmax(case: Case, block: AttentionBlock, rows: int, scores: int, lse: int | None = None) -> Call:
    """Softmax of `rows` rows of scores of a block, in place; exponentials of scores less `lse` if that is given."""
    p = case.problem
    description = Softmax(
        scores=scores, lse=lse, rows=rows, queries=len(block.queries), columns=len(block.keys), shift=block.shift,
        window=p.window, is_causal=block.is_masked, scale=p.scale,
    )  # fmt: skip
    return Call(compiled().deepbench_attention_softmax, description)


def gradient(case: Case, block: AttentionBlock, rows: int, weights: int, ds: int, dy: int, y: int) -> Call:
    """ds = scale · weights · (ds - sum of dy · y), for `rows` rows of a block."""
    p = case.problem
    description = Gradient(
        weights=weights, ds=ds, dy=dy, y=y, rows=rows, columns=len(block.keys), width=p.width, scale=p.scale
    )
    return Call(compiled().deepbench_attention_gradient, description)


def collected(case: Case, arrays: Arrays) -> tuple[list[Call], dict[str, Array]]:
    """The calls that copy the pages of k and v in order, and the arrays (batch, kv_heads, keys, size) they copy to."""
    p, calls, together = case.problem, [], dict[str, Any]()
    table = arrays["page_table"]
    for name in "kv":
        cache = arrays[name]
        width = cache.shape[-1]
        together[name] = empty((p.batch, p.kv_heads, table.shape[1] * p.page, width), case.precision.data)
        page_bytes = p.page * width * cache.itemsize
        calls.append(
            Call(
                compiled().deepbench_attention_collect,
                cache,
                together[name],
                table,
                p.batch,
                p.kv_heads,
                table.shape[1],
                page_bytes,
            )
        )
    return calls, together


def additive_mask(case: Case, kind: str) -> Array | None:
    """0 where a query sees a key, else -inf; None if all queries see all keys.

    For the rows of each sequence, or of one if all are equal: (sequences, 1, queries of a group, keys).
    """
    import numpy as np

    p = case.problem
    lengths = p.key_counts if p.lengths == "spread" else (p.keys,)
    if lengths == (p.keys,) and (p.mask == "none" or (p.queries == 1 and not p.window)):
        return None
    mask = empty((len(lengths), 1, p.group * p.queries, p.keys), kind)
    columns = np.arange(p.keys)
    for rows, keys in zip(mask[:, 0], lengths, strict=True):
        of_head = rows.reshape(p.group, p.queries, p.keys)
        for query in range(p.queries):
            # Rows of padding see what the last query sees.
            first, end = p.visible(min(query, p.query_count(keys) - 1), keys)
            of_head[:, query] = np.where((columns >= first) & (columns < end), 0, -np.inf)
    return mask
