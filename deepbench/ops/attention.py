"""Scaled dot-product attention: each query takes the average of the values, weighted by how well their keys match it.

    s[i, j] = q[i] · k[j] / √head_size        p[i, :] = softmax of s[i, :] over the visible keys        y = p · v

(Vaswani et al., "Attention is all you need", 2017). Query heads share key-value heads in groups: head h uses
h // (heads / kv_heads) (Ainslie et al., "GQA", 2023). Arrays are row-major:

    q, y (batch, heads, queries, size)            k, v (batch, kv_heads, keys, size)

`v` and `y` have `value_size` numbers per head where that differs from `head_size`, as in multi-head latent attention.

- `mask=causal` aligns the last query with the last key, so it serves prefill (queries = keys) and decode with a cache
  (queries < keys). Query i sees the keys up to i + keys - queries, and with `window` only the last so many of these.
- With `page`, k and v are a cache of pages, (pages, kv_heads, page, size), in shuffled order: `page_table` (batch, most
  pages of a sequence) lists the pages of each sequence (Kwon et al., "PagedAttention", 2023).
- With `cache_type=f8e4m3`, k and v are 8-bit floats without scales, as in a cache that saves memory; q and y have the
  type of the data. Only the forward pass has it.
- With `lengths=spread`, sequences have fewer keys than `keys`, except one: `lengths` has the numbers. Where
  queries = keys, they have fewer queries, too. What a kernel writes to the rows of padding does not matter.

The backward pass has the gradient `dy` (zero in padding), the result `y`, and `lse` (batch, heads, queries), the
logarithm of the sum of exp(s) of each query. With dp = dy · vᵀ and ds = p · (dp - sum of dy · y),

    dq = ds · k / √head_size        dk = dsᵀ · q / √head_size        dv = pᵀ · dy

where dk and dv are summed over the heads of a group. There are no pages in the backward pass.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput
from deepbench.core.lowering import MatrixProduct
from deepbench.core.parts import Expected, PartsOp, Tensor
from deepbench.core.precision import BITS, STORAGE_ROUNDOFF, Precision
from deepbench.core.problem import BaseProblem, check_spread, choice, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# Queries are so much larger than the other data that scores vary by more than 1, as in a trained model. With small
# scores, all weights would be nearly equal, and a wrong scale would hardly show.
QUERY_SIZE = 4

# Rounding scores and weights to 16 bits: so many standard deviations (an error is at most twice its own).
STORED_UNITS = 4.0

# Lists of the lengths of sequences: one may have thousands, and lists of workloads many.
MOST_REMEMBERED = 1024

# Sequences of different lengths, which are drawn for each problem: more than servers compute at once.
MOST_SPREAD = 2048

# Queries of one head whose results are computed together when the inputs of the backward pass are prepared.
PREPARED_QUERIES = 256


@dataclass(frozen=True)
class Attention(BaseProblem):
    """`batch` sequences; `window`, `page` and `value_size` are 0 where there is none."""

    batch: int = size()
    heads: int = size()
    kv_heads: int = size()
    queries: int = size()
    keys: int = size()
    head_size: int = size()
    value_size: int = size(0, least=0, omit_default=True)
    mask: str = choice("none", "causal", default="none")
    window: int = size(0, least=0, omit_default=True)
    page: int = size(0, least=0, omit_default=True)
    lengths: str = choice("equal", "spread", default="equal")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_spread(self.lengths, self.batch)
        if self.heads % self.kv_heads:
            raise BadInput(f"heads must be a multiple of kv_heads ({self.kv_heads}), found {self.heads}")
        if self.window and self.mask != "causal":
            raise BadInput("window needs mask=causal")
        if self.mask == "causal" and self.queries > self.keys:
            raise BadInput(f"with mask=causal, queries must be at most keys ({self.keys}), found {self.queries}")
        if self.lengths == "spread" and self.batch > MOST_SPREAD:
            raise BadInput(f"with lengths=spread, batch must be at most {MOST_SPREAD}, found {self.batch}")
        if self.value_size == self.head_size:
            object.__setattr__(self, "value_size", 0)  # equal problems have one text
        if self.window >= self.keys:
            object.__setattr__(self, "window", 0)

    @property
    def width(self) -> int:
        """Numbers per head of the values and the result."""
        return self.value_size or self.head_size

    @property
    def group(self) -> int:
        """Query heads that share a key-value head."""
        return self.heads // self.kv_heads

    @property
    def scale(self) -> float:
        """By which scores are multiplied."""
        return 1 / math.sqrt(self.head_size)

    @property
    def key_counts(self) -> tuple[int, ...]:
        """The number of keys of each sequence."""
        return _key_counts(self)

    @property
    def sequences(self) -> Mapping[int, int]:
        """How many sequences have so many keys."""
        return {self.keys: self.batch} if self.lengths == "equal" else Counter(self.key_counts)

    def query_count(self, keys: int) -> int:
        """The number of queries of a sequence with so many keys."""
        return keys if self.queries == self.keys else self.queries

    def visible(self, query: int, keys: int) -> tuple[int, int]:
        """The first key that a query sees, and the one after the last, in a sequence with so many keys."""
        if self.mask == "none":
            return 0, keys
        end = query + keys - self.query_count(keys) + 1
        return max(0, end - self.window) if self.window else 0, end

    def first_key(self, keys: int) -> int:
        """The first key that any query of a sequence with so many keys sees."""
        return self.visible(0, keys)[0]

    def pairs(self) -> int:
        """Visible pairs of a query and a key in one head, in all sequences."""
        return sum(count * _pairs(self, keys) for keys, count in self.sequences.items())


@lru_cache(MOST_REMEMBERED)
def _key_counts(problem: Attention) -> tuple[int, ...]:
    if problem.lengths == "equal":
        return (problem.keys,) * problem.batch
    from deepbench.core.operands import generator

    least = -(-problem.keys // 4)
    if problem.queries < problem.keys:
        least = max(least, problem.queries)
    counts = generator(stream=98).integers(least, problem.keys, problem.batch, endpoint=True)
    counts[counts.argmax()] = problem.keys
    return tuple(counts.tolist())


@lru_cache(MOST_REMEMBERED)
def _pairs(problem: Attention, keys: int) -> int:
    queries = problem.query_count(keys)
    if problem.mask == "none":
        return queries * keys
    # Query i sees min(i + 1 + keys - queries, window) keys.
    most, all_seen = problem.window or keys, keys - queries
    growing = max(0, min(queries, most - all_seen))  # queries that see fewer keys than the window
    return growing * all_seen + growing * (growing + 1) // 2 + (queries - growing) * most


class AttentionOp(PartsOp):
    name = "attention"
    Problem = Attention
    directions = ("forward", "backward")
    outputs = ("y", "dq", "dk", "dv")
    settings = {  # noqa: RUF012  (ClassVar in Op)
        "algorithm": ("default", "composed", "graph"),
        "cache_type": ("same", "f8e4m3"),
    }
    variants = ("algorithm",)
    rare_settings = ("cache_type",)
    sweep_field = "batch"
    smoke = (
        Attention(1, 1, 1, 1, 1, 1),
        Attention(2, 4, 2, 1, 37, 16, mask="causal"),
        Attention(2, 3, 3, 33, 33, 20, mask="causal"),
        Attention(3, 4, 2, 1, 70, 16, mask="causal", page=16, lengths="spread"),
        Attention(2, 2, 1, 40, 40, 8, mask="causal", window=7),
        Attention(1, 4, 1, 5, 29, 24, value_size=16),
        Attention(3, 2, 1, 19, 19, 32, mask="causal", lengths="spread"),
        Attention(2, 4, 2, 17, 45, 32),
        Attention(1, 5, 1, 2, 201, 64, mask="causal", window=130),
    )

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are summed in f32."""
        return precision.name in ("f32", "bf16", "f16")

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """Gradients are those of a pass without a cache."""
        return ("cache_type",) if direction == "backward" else ()

    def result_type(self, case: Case) -> str:
        """All outputs have the type of the data."""
        return case.precision.data

    def cache_type(self, case: Case) -> str:
        """The type of keys and values."""
        chosen: str = case.settings["cache_type"]
        return case.precision.data if chosen == "same" or case.direction == "backward" else chosen

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """The arrays at the top of this file."""
        p, kind, cached = case.problem, case.precision.data, self.cache_type(case)
        q, y = (Tensor((p.batch, p.heads, p.queries, n), kind) for n in (p.head_size, p.width))
        k, v = (Tensor((p.batch, p.kv_heads, p.keys, n), cached) for n in (p.head_size, p.width))
        lengths = {"lengths": Tensor((p.batch,), "s32")} if p.lengths == "spread" else {}
        if case.direction == "backward":
            lse = Tensor((p.batch, p.heads, p.queries), "f32")
            # `y` is an input here, and `outputs` names it for the forward pass: so its name is another one.
            return {"q": q, "k": k, "v": v, "dy": y, "result": y, "lse": lse, **lengths, "dq": q, "dk": k, "dv": v}
        if not p.page:
            return {"q": q, "k": k, "v": v, **lengths, "y": y}
        pages = sum(-(-keys // p.page) * count for keys, count in p.sequences.items())
        k, v = (Tensor((pages, p.kv_heads, p.page, n), cached) for n in (p.head_size, p.width))
        table = Tensor((p.batch, -(-p.keys // p.page)), "s32")
        return {"q": q, "k": k, "v": v, "page_table": table, **lengths, "y": y}

    def fill(self, case: Case, name: str, array: Array, stream: int) -> None:
        """Random numbers, the numbers of keys, and pages in shuffled order."""
        import numpy as np

        from deepbench.core.operands import generator

        p = case.problem
        if name == "lengths":
            array[...] = p.key_counts
        elif name == "page_table":
            array[...] = 0
            pages = [-(-keys // p.page) for keys in p.key_counts]
            order, start = generator(stream).permutation(sum(pages)), 0
            for row, count in zip(array, pages, strict=True):
                row[:count] = order[start : start + count]
                start += count
        else:
            super().fill(case, name, array, stream)
            if name == "q":
                np.multiply(array, array.dtype.type(QUERY_SIZE), out=array)
            if name == "dy":
                for rows, keys in zip(array, p.key_counts, strict=True):
                    rows[:, p.query_count(keys) :] = 0

    def operands(self, case: Case) -> Arrays:
        """Random numbers; `result` and `lse` are those of the forward pass in f32."""
        arrays = super().operands(case)
        if case.direction == "backward":
            _forward(case.problem, arrays)
        return arrays

    def reset(self, case: Case, arrays: Arrays) -> None:
        """Poison, and zeros in the rows of padding, which a kernel need not write."""
        super().reset(case, arrays)
        p = case.problem
        for name in set(self.outputs) & arrays.keys():
            for rows, keys in zip(arrays[name], p.key_counts, strict=True):
                rows[:, p.query_count(keys) if name in ("y", "dq") else keys :] = 0

    def parts(self, case: Case) -> int:
        """Queries of all heads."""
        return int(case.problem.batch * case.problem.heads * case.problem.queries)

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """docs/formulas.md derives the tolerances."""
        import numpy as np

        p = case.problem
        head = _Head(case, arrays)
        if case.direction == "forward":
            yield _assembled("y", arrays["y"], parts, p.queries, head.results)
            return
        yield _assembled("dq", arrays["dq"], parts, p.queries, head.query_gradients)
        queries, keys = self.parts(case), p.batch * p.kv_heads * p.keys
        of_keys = np.arange(keys)
        if parts.size < queries:
            of_keys = np.unique(np.rint(parts * ((keys - 1) / max(1, queries - 1))).astype(np.int64))
        yield _assembled("dk", arrays["dk"], of_keys, p.keys, lambda *place: head.key_gradients(*place)[:2])
        yield _assembled("dv", arrays["dv"], of_keys, p.keys, lambda *place: head.key_gradients(*place)[2:])

    def flop(self, case: Case) -> int:
        """Products of visible pairs only: two products forward, five backward, as in FlashAttention."""
        p = case.problem
        sizes = 2 * (p.head_size + p.width) if case.direction == "forward" else 6 * p.head_size + 4 * p.width
        return int(p.pairs() * p.heads * sizes)

    def matrix_products(self, case: Case) -> tuple[MatrixProduct, ...]:
        """Of each head, the scores and the result; in the backward pass the scores again, and four gradients.

        Each is a whole product: pairs of a query and a key that a mask hides are computed, too.
        """
        p, products = case.problem, []
        for keys, sequences in sorted(p.sequences.items()):
            rows, seen, heads = p.query_count(keys), keys - p.first_key(keys), sequences * p.heads
            of_keys = f"{keys}_keys_" if len(p.sequences) > 1 else ""
            sizes = {"scores": (rows, seen, p.head_size), "result": (rows, p.width, seen)}
            if case.direction == "backward":
                sizes = {
                    "scores": (rows, seen, p.head_size),
                    "weights_gradient": (rows, seen, p.width),
                    "values_gradient": (seen, p.width, rows),
                    "queries_gradient": (rows, p.head_size, seen),
                    "keys_gradient": (seen, p.head_size, rows),
                }
            products += [MatrixProduct(of_keys + role, *size, heads) for role, size in sizes.items()]
        return tuple(products)

    def other_flop(self, case: Case) -> dict[str, int]:
        """`unmasked`: of all pairs of a query and a key, with sequences of equal length."""
        p = case.problem
        return {"unmasked": self.flop(case) // max(1, p.pairs()) * p.batch * p.queries * p.keys}

    def traffic_bytes(self, case: Case, capacity: int | None = None) -> int:
        """Each array once, and no padding. Of keys and values those that a query sees; their gradients are all written.

        The gradients of keys that no query sees are zero.
        """
        p, element, cached = case.problem, BITS[case.precision.data] // 8, BITS[self.cache_type(case)] // 8
        sequences = p.sequences.items()
        queries = sum(p.query_count(keys) * count for keys, count in sequences) * p.heads
        seen = sum((keys - p.first_key(keys)) * count for keys, count in sequences) * p.kv_heads
        tables = [t.bytes for name, t in self.tensors(case).items() if name in ("lengths", "page_table")]
        rows, more = queries, sum(tables) + seen * (p.head_size + p.width) * cached
        if case.direction == "backward":
            # q, dq, dy and the result; k, v and their gradients; and lse.
            rows += queries + sum(keys * count for keys, count in sequences) * p.kv_heads
            more += 4 * queries
        total = rows * (p.head_size + p.width) * element + more
        return 0 if capacity is not None and total <= capacity else int(total)

    def title(self, problem: Any) -> str:
        """`8 × 32/8 heads, 1 → 4096, 128`: batch, heads and key-value heads, queries and keys, and the head's size."""
        p = problem
        heads = f"{p.heads}/{p.kv_heads}" if p.group > 1 else f"{p.heads}"
        words = [f"{p.batch} × {heads} heads, {p.queries} → {p.keys}", f"{p.head_size}"]
        words[1] += f"/{p.value_size}" if p.value_size else ""
        words += ["causal"] if p.mask == "causal" and p.queries > 1 and not p.window else []
        words += [f"window {p.window}"] if p.window else []
        words += [f"pages of {p.page}"] if p.page else []
        words += ["spread"] if p.lengths == "spread" else []
        return ", ".join(words)


def _assembled(output: str, stored: Array, parts: Array, of_head: int, compute: Any) -> Expected:
    """What rows of an output should be. `compute(sequence, head, rows)` returns these rows and their tolerance."""
    import numpy as np

    want = np.empty((parts.size, stored.shape[-1]))
    tolerance = np.empty_like(want)
    heads = parts // of_head
    starts = np.flatnonzero(np.diff(heads, prepend=-1))
    for start, end in zip(starts, [*starts[1:], parts.size], strict=True):
        place = divmod(int(heads[start]), stored.shape[1])
        want[start:end], tolerance[start:end] = compute(*place, parts[start:end] % of_head)
    got = stored.reshape(-1, stored.shape[-1])[parts]
    shape = stored.shape if parts.size == stored.size // stored.shape[-1] else want.shape
    return Expected(output, got.reshape(shape), want.reshape(shape), tolerance.reshape(shape))


class _Head:
    """Computes rows of one sequence and head in float64, with their tolerances."""

    def __init__(self, case: Case, arrays: Arrays) -> None:
        from deepbench.core.tolerance import TOLERANCE_UNITS

        self.problem = case.problem
        self.arrays = arrays
        self.unit = TOLERANCE_UNITS * case.precision.roundoff
        self.stored = STORED_UNITS * STORAGE_ROUNDOFF[case.precision.data]
        self.gradients: tuple[Any, tuple[Array, ...]] = (None, ())

    def results(self, sequence: int, head: int, rows: Array) -> tuple[Array, Array]:
        """Rows of y. Padding may be anything finite."""
        import numpy as np

        p, count = self.problem, self.problem.query_count(self.problem.key_counts[sequence])
        want, tolerance = np.zeros((rows.size, p.width)), np.full((rows.size, p.width), np.inf)
        valid = rows < count
        k, v = self._keys("k", sequence, head // p.group), self._keys("v", sequence, head // p.group)
        s, error = self._scores(self._rows("q", sequence, head, rows[valid]), k, rows[valid], 0)
        weights = np.exp(s - s.max(axis=1, keepdims=True, initial=-np.inf))
        weights /= weights.sum(axis=1, keepdims=True)
        y = weights @ v
        spread = (weights * error) ** 2
        square = 2 * (spread @ v**2 + spread.sum(axis=1, keepdims=True) * y**2)
        want[valid] = y
        tolerance[valid] = np.sqrt(square) + self.unit * _norm(weights, 1) * _norm(v, 0)
        return want, tolerance

    def query_gradients(self, sequence: int, head: int, rows: Array) -> tuple[Array, Array]:
        """Rows of dq."""
        import numpy as np

        p, count = self.problem, self.problem.query_count(self.problem.key_counts[sequence])
        want, tolerance = np.zeros((rows.size, p.head_size)), np.full((rows.size, p.head_size), np.inf)
        valid = rows < count
        k, v = self._keys("k", sequence, head // p.group), self._keys("v", sequence, head // p.group)
        weights, _, ds, error, of_row = self._score_gradients(sequence, head, rows[valid], k, v, 0)
        dq = p.scale * ds @ k
        want[valid] = dq
        tolerance[valid] = p.scale * (
            np.sqrt(error**2 @ k**2) + of_row * np.abs(weights @ k) + self.unit * _norm(ds, 1) * _norm(k, 0)
        ) + self.unit * np.abs(dq)
        return want, tolerance

    def key_gradients(self, sequence: int, kv_head: int, columns: Array) -> tuple[Array, ...]:
        """Rows of dk and their tolerance, and the same of dv."""
        import numpy as np

        place = (sequence, kv_head, columns.tobytes())
        if self.gradients[0] == place:
            return self.gradients[1]
        p, keys = self.problem, self.problem.key_counts[sequence]
        valid = columns < keys
        chosen = columns[valid]
        shapes = (columns.size, p.head_size), (columns.size, p.width)
        dk, dv = (np.zeros(shape) for shape in shapes)
        dk2, dv2 = (np.zeros(shape) for shape in shapes)
        rows = np.arange(p.query_count(keys))
        k, v = (self._keys(name, sequence, kv_head)[chosen] for name in "kv")
        for head in range(kv_head * p.group, (kv_head + 1) * p.group):
            q, dy = self._rows("q", sequence, head, rows), self._rows("dy", sequence, head, rows)
            weights, error, ds, ds_error, of_row = self._score_gradients(sequence, head, rows, k, v, chosen)
            one_dk, one_dv = p.scale * ds.T @ q, weights.T @ dy
            dk[valid] += one_dk
            dv[valid] += one_dv
            variance = (ds_error**2 + (weights * of_row) ** 2).T @ q**2
            sums = self.unit * _norm(ds.T, 1) * _norm(q, 0)
            dk2[valid] += p.scale**2 * (variance + sums**2) + (self.stored * one_dk) ** 2
            sums = self.unit * _norm(weights.T, 1) * _norm(dy, 0)
            dv2[valid] += ((weights * error) ** 2).T @ dy**2 + sums**2 + (self.stored * one_dv) ** 2
        dk_tolerance, dv_tolerance = np.sqrt(dk2), np.sqrt(dv2)
        dk_tolerance[~valid], dv_tolerance[~valid] = np.inf, np.inf
        self.gradients = place, (dk, dk_tolerance, dv, dv_tolerance)
        return self.gradients[1]

    def _score_gradients(
        self, sequence: int, head: int, rows: Array, k: Array, v: Array, columns: Any
    ) -> tuple[Array, ...]:
        """Weights, their relative error, ds, its error for each pair, and the error of a row's sum of dy · y."""
        import numpy as np

        q, dy, y = (self._rows(name, sequence, head, rows) for name in ("q", "dy", "result"))
        s, error = self._scores(q, k, rows, columns, self.problem.key_counts[sequence])
        lse = self.arrays["lse"][sequence, head, rows].astype(np.float64)[:, None]
        weights = np.exp(s - lse)
        dp, product = dy @ v.T, dy * y
        of_row = self.unit * _norm(dy, 1) * _norm(y, 1) + self.stored * _norm(product, 1)
        difference = dp - product.sum(axis=1, keepdims=True)
        of_pair = self.unit * _norm(dy, 1) * _norm(v, 1).T + self.stored * np.abs(dp)
        of_pair = np.sqrt((error**2 + self.stored**2) * difference**2 + of_pair**2)
        return weights, error, weights * difference, weights * of_pair, of_row

    def _scores(self, q: Array, k: Array, rows: Array, columns: Any, keys: int | None = None) -> tuple[Array, Array]:
        """Scores, -inf where a query does not see a key, and the relative error of their exponentials."""
        import numpy as np

        p = self.problem
        keys = k.shape[0] if keys is None else keys
        s = p.scale * q @ k.T
        error = self.unit * (1 + p.scale * _norm(q, 1) * _norm(k, 1).T) + self.stored * (1 + np.abs(s))
        if p.mask == "causal":
            column = np.arange(k.shape[0]) if isinstance(columns, int) else columns
            end = (rows + keys - p.query_count(keys) + 1)[:, None]
            seen = column < end
            if p.window:
                seen &= column >= end - p.window
            s[~seen] = -np.inf
        return s, error

    def _rows(self, name: str, sequence: int, head: int, rows: Array) -> Array:
        import numpy as np

        values: Array = self.arrays[name][sequence, head, rows].astype(np.float64)
        return values

    def _keys(self, name: str, sequence: int, kv_head: int) -> Array:
        """Keys or values of a sequence, out of their pages if there are any."""
        import numpy as np

        keys, page = self.problem.key_counts[sequence], self.problem.page
        if "page_table" not in self.arrays:
            values: Array = self.arrays[name][sequence, kv_head, :keys].astype(np.float64)
            return values
        pages = self.arrays["page_table"][sequence, : -(-keys // page)]
        together: Array = self.arrays[name][pages, kv_head].astype(np.float64)
        return together.reshape(-1, together.shape[-1])[:keys]


def _norm(values: Array, axis: int) -> Array:
    """Euclidean norms along an axis, which stays."""
    import numpy as np

    norms: Array = np.sqrt((values**2).sum(axis=axis, keepdims=True))
    return norms


def _forward(p: Attention, arrays: Arrays) -> None:
    """Write `result` and `lse`, from f32 products of some queries at a time. Padding is zero."""
    import numpy as np

    arrays["result"][...], arrays["lse"][...] = 0, 0
    for sequence, keys in enumerate(p.key_counts):
        for head in range(p.heads):
            k, v = (arrays[name][sequence, head // p.group, :keys].astype(np.float32) for name in "kv")
            for start in range(0, p.query_count(keys), PREPARED_QUERIES):
                rows = np.arange(start, min(start + PREPARED_QUERIES, p.query_count(keys)))
                first, end = p.visible(start, keys)[0], p.visible(int(rows[-1]), keys)[1]
                s = (arrays["q"][sequence, head, rows].astype(np.float32) @ k[first:end].T) * np.float32(p.scale)
                if p.mask == "causal":
                    last, column = (rows + keys - p.query_count(keys))[:, None], np.arange(first, end)
                    s[(column > last) | (column <= last - (p.window or keys))] = -np.inf
                most = s.max(axis=1, keepdims=True)
                np.exp(s - most, out=s)
                total = s.sum(axis=1, keepdims=True)
                arrays["result"][sequence, head, rows] = s @ v[first:end] / total
                arrays["lse"][sequence, head, rows] = (most + np.log(total))[:, 0]


OP = AttentionOp()
