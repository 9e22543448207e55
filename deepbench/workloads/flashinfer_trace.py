"""Workloads of others: kernels that serving systems and models call, and the sizes that were recorded of them.

FlashInfer-Trace (flashinfer-ai, Apache-2.0) and SOL-ExecBench (NVIDIA, Apache-2.0) describe a kernel in a JSON file,
its definition: axes, inputs, outputs, tags, and a reference in Python. A JSON Lines file has its workloads: the values
of the axes that vary. This file finds both and says which problem of which operation a workload is, or why it is none.

The reference is never executed, nor is anything else that a file contains. The mathematics of a definition is what its
`op_type`, its tensors, its tags and its name say. Its reference must compute the same, as far as `plan/reference_code`
can say. What they leave open is refused, or stated in the note of the source. docs/models.md has the rules for people.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import from_line, printable
from deepbench.core.op import find_op
from deepbench.core.precision import SIXTEEN_BITS
from deepbench.core.problem import LARGEST_SIZE, make_problem
from deepbench.plan.expressions import evaluate
from deepbench.plan.foreign import Coverage, ForeignProblem, WorkloadFormat
from deepbench.plan.reference_code import NO_PYTHON, judge
from deepbench.plan.suites import text_of

SUFFIXES = (".json", ".jsonl")

# A folder with more of them is not one of workloads.
MOST_FILES = 20_000
MOST_WORKLOADS = 10_000

# Of a file, and of all that are read: files of others have sources and results, too.
MOST_FILE_BYTES = 16 * 2**20
MOST_BYTES = 64 * 2**20

# Characters of all references together, which are parsed: 3 s for a million. Those of FlashInfer-Trace have 400,000.
MOST_REFERENCES = 2_000_000

# The parts of a definition, and characters of a name in it.
MOST_PARTS = 500
LONGEST_NAME = 200

# Characters of the inputs and outputs that a reason lists.
MOST_WORDS = 120

# Their types that are multiplied, with the type of the result, as a precision of ours and its setting `result`.
PRECISIONS = {
    ("float32", "float32"): ("f32", None),
    ("bfloat16", "bfloat16"): ("bf16", "narrow"),
    ("bfloat16", "float32"): ("bf16", "wide"),
    ("float16", "float16"): ("f16", "narrow"),
    ("float16", "float32"): ("f16", "wide"),
    ("int8", "int32"): ("i8", None),
}

# `op_type` of functions that are computed for each element.
ELEMENTWISE = {
    **{name: name for name in ("relu", "relu6", "gelu_tanh", "silu", "sigmoid", "tanh", "add", "multiply", "swiglu")},
    **{"mul": "multiply", "silu_and_mul": "swiglu"},
}

# `op_type` that a name may begin with where a definition has none. Their tensors leave little open.
NAMED = ("gemm", "gqa_paged", "gqa_ragged", "mla_ragged", "rmsnorm")

# Words in the name of a definition that say it computes more than its `op_type`.
FURTHER = (
    *("add", "alibi", "backward", "bias", "dropout", "fused", "gated", "gelu", "mask", "masked", "quant", "quantized"),
    *("relu", "residual", "rope", "scaled", "sigmoid", "silu", "sink", "sinks", "sliding", "softcap", "softcapping"),
    *("sparse", "swiglu", "tanh", "window"),
)

# Functions of a description without a reference that say it computes more than its `op_type`, unless this has the same
# name.
CALLED = ("cos", "dropout", "gelu", "relu", "sigmoid", "silu", "sin", "softplus", "tanh")
CALL = re.compile(r"\b([a-z][a-z_0-9]{0,40})_?\(")

# A scale that is used as 1 + weight, as models of the Gemma family do.
WEIGHT = r"\(?\s*(?:weight|weights|gamma|w)\b(?:\.[a-z0-9_]+(?:\([a-z0-9_.]*\))?){0,3}"
ONE = r"\b1(?:\.0*)?"
SHIFTED = re.compile(rf"{ONE}\s*\+\s*{WEIGHT}|{WEIGHT}\s*\)?\s*\+\s*{ONE}(?![0-9.])")

# Characters of a description and of a reference that are searched.
MOST_TEXT = 100_000

# Inputs of their attention kernels. `lse`, the logarithm of the sum of exponentials, is a second output.
ATTENTION_INPUTS = ("q", "k", "v", "k_cache", "v_cache", "qo_indptr", "kv_indptr", "kv_indices", "kv_last_page_len")
SCALE = "sm_scale"
EPSILONS = ("eps", "epsilon")

# Scales that differ by less are the same number, written with fewer digits.
SAME_SCALE = 1e-5

# Sequences of one call, and steps of the search for their lengths.
MOST_SEQUENCES = 2048
MOST_STEPS = 8

# Axes that are expressions of axes that are expressions.
LONGEST_CHAIN = 20

Fields = dict[str, int | str]


class NoMatch(BadInput):
    """Why a definition or a workload is no problem of an operation of ours."""


@dataclass(frozen=True)
class DefinedArray:
    """An input or output of a definition; a `shape` of None is one number."""

    shape: tuple[str, ...] | None
    dtype: str


@dataclass(frozen=True)
class Definition:
    """A kernel as a file describes it."""

    path: Path
    name: str
    op_type: str | None
    tags: tuple[str, ...]
    axes: Mapping[str, int | str | None]
    """A number, an expression of other axes, or None where workloads have the value."""
    inputs: Mapping[str, DefinedArray]
    outputs: Mapping[str, DefinedArray]
    description: str = ""
    reference: str = ""
    """Python that computes it. It is only parsed."""

    def tagged(self, space: str) -> tuple[str, ...]:
        """What follows `space:` in the tags, such as `llama-3.1-8b` of `model:llama-3.1-8b`."""
        values = (tag.partition(":")[2].strip() for tag in self.tags if tag.startswith(f"{space}:"))
        return tuple(filter(None, values))

    @property
    def kind(self) -> str:
        """Its `op_type`; without one, what its name begins with, as the convention `{op_type}_{what}_{sizes}` says."""
        if self.op_type is not None:
            return self.op_type
        found = next((kind for kind in NAMED if self.name.startswith(f"{kind}_")), None)
        if found is None:
            raise NoMatch("it has no op_type, and its name does not begin with a known one")
        return found


@dataclass(frozen=True)
class Workload:
    """The values of the axes that vary, and of inputs that are numbers."""

    definition: str | None
    """None where the definition is the one in the same folder."""
    axes: Mapping[str, int]
    scalars: Mapping[str, float]
    is_custom: bool
    """Whether code makes its inputs."""


@dataclass(frozen=True)
class MatchedOperation:
    """Which operation computes a definition, and how a workload becomes a problem of it."""

    op: str
    precision: str
    fields: Callable[[Sizes, list[str]], Fields]
    """The fields of the problem; it adds to the list what differs from the workload."""
    settings: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    open_notes: tuple[str, ...] = ()
    """Notes that hold where the reference does not say more."""


@dataclass(frozen=True)
class Sizes:
    """The values of the axes of a definition in a workload."""

    definition: Definition
    workload: Workload
    computed: dict[str, int] = field(default_factory=dict)
    """Axes that are expressions, each evaluated once."""

    def of(self, axis: str) -> int:
        """The value of an axis, or of a number that stands in a shape; `NoMatch` if it is unknown."""
        return self._of(axis, 0)

    def product(self, axes: Iterable[str]) -> int:
        """Of several axes that lie next to each other."""
        return math.prod(map(self.of, axes))

    def _of(self, axis: str, depth: int) -> int:
        if axis not in self.definition.axes:
            if not axis.isdecimal():
                raise NoMatch(f"there is no axis {shorten(axis)}")
            return int(axis)
        value = self.definition.axes[axis]
        if isinstance(value, str):
            if depth == LONGEST_CHAIN:
                raise NoMatch(f"the axis {shorten(axis)} depends on itself, or on too many others")
            if axis not in self.computed:
                self.computed[axis] = evaluate(value.replace("//", "/"), lambda name: self._of(name, depth + 1))
            return self.computed[axis]
        given = self.workload.axes.get(axis, value)
        if given is None:
            raise NoMatch(f"its axis {shorten(axis)} has no value")
        if value is not None and given != value:
            raise NoMatch(f"its axis {shorten(axis)} is {given}, and {value} in the definition")
        return given


# ---- matching


def coverage(path: Path) -> list[Coverage]:
    """All definitions in a folder, or those of a file, with what their workloads are here.

    `BadInput` where nothing is found, or a file is damaged.
    """
    definitions, workloads = _read(path)
    if not definitions:
        what = "has workloads, but not their definition" if workloads else "has no definition of a kernel"
        wanted = "axes, inputs and outputs, as FlashInfer-Trace and SOL-ExecBench write them"
        raise BadInput(f"{printable(str(path))} {what}; wanted JSON with {wanted}")
    references = sum(len(d.reference) for d in definitions)
    if references > MOST_REFERENCES:
        what = f"{references} characters of references; at most {MOST_REFERENCES} are read"
        raise BadInput(f"{printable(str(path))} has {what}; choose some of its files")
    named: dict[str, list[Workload]] = {}
    beside: dict[Path, list[Workload]] = {}
    for file, lines in workloads.items():
        for workload in lines:
            if workload.definition is not None:
                named.setdefault(workload.definition, []).append(workload)
            else:
                beside.setdefault(file.parent, []).append(workload)
    neighbours = Counter(d.path.parent for d in definitions)
    return [
        # Workloads without a name belong to the definition beside them, if it is the only one there.
        _covered(
            d, [*named.get(d.name, ()), *(beside.get(d.path.parent, ()) if neighbours[d.path.parent] == 1 else ())]
        )
        for d in definitions
    ]


def _covered(d: Definition, workloads: Sequence[Workload]) -> Coverage:
    covered = Coverage(d.name, d.op_type, d.tagged("model"), d.tagged("stage"), len(workloads))
    try:
        match = _match(d)
    except BadInput as error:
        return replace(covered, reasons={str(error): len(workloads)})
    problems, reasons = [], Counter[str]()
    for workload in workloads:
        try:
            problems.append(_problem(match, Sizes(d, workload)))
        except BadInput as error:
            reasons[str(error)] += 1
    return replace(covered, op=match.op, precision=match.precision, problems=tuple(problems), reasons=reasons)


BY_CALLS = "of its reference, only the functions that it calls were compared"


def _match(d: Definition) -> MatchedOperation:
    """`NoMatch` says why no operation computes the definition."""
    kind = d.kind
    if kind not in MATCHERS:
        raise NoMatch(f"op_type {shorten(kind)} is not matched with any operation")
    match = MATCHERS[kind](d)
    if quantized := d.tagged("quantization"):
        raise NoMatch(f"a tag says that it is quantized ({shorten(quantized[0])}), and its tensors do not say how")
    own = set(re.split("[^a-z]+", kind.lower()))
    words = ["fused"] if "fused" in d.tags else re.split("[^a-z]+", d.name.lower())
    if further := next((word for word in words if word in FURTHER and word not in own), None):
        raise NoMatch(f"it is more than {kind}: its name or a tag says {further}")
    doubt = _require_plain(d, own, match)
    if doubt is None:
        return replace(match, notes=(*match.notes, BY_CALLS)) if match.op == "attention" else match
    note = f"its reference was not judged ({doubt}); its op_type says what it computes"
    return replace(match, notes=(*match.notes, *match.open_notes, note))


def _require_plain(d: Definition, own: set[str], match: MatchedOperation) -> str | None:
    """`NoMatch` if its reference or its words say that it computes something else. They are never executed.

    Returns why the reference does not say it, or None.
    """
    functions = [re.split("[^a-z]+", api.lower()) for api in d.tagged("fi_api")]
    if named := sorted({word for words in functions for word in words if word in FURTHER} - own):
        raise NoMatch(f"it is more than {d.kind}: its function says {named[0]}")
    arrays = [name for name, tensor in d.inputs.items() if tensor.shape is not None]
    operation = f"elementwise {ELEMENTWISE[d.kind]}" if match.op == "elementwise" else match.op
    axes = len(d.inputs[arrays[0]].shape or ())
    verdict = judge(d.reference, operation, arrays, axes, EPSILONS)
    if verdict.other:
        raise NoMatch(f"it is not {d.kind} alone: its reference {verdict.other}")
    if verdict.doubt is None:
        return None
    # Only words are left. A reference that is no Python may be a formula.
    text = d.description + d.reference * (verdict.doubt == NO_PYTHON)
    if shifted := SHIFTED.search(text):
        raise NoMatch(f"its scale is used as weight + 1 (its text says {shorten(printable(shifted[0]), 60)!r})")
    called = {found[1].rstrip("_") for found in CALL.finditer(text)} & set(CALLED)
    if further := sorted(called - own):
        raise NoMatch(f"it is more than {d.kind}: its description says {further[0]}")
    return verdict.doubt


def _problem(match: MatchedOperation, sizes: Sizes) -> ForeignProblem:
    notes = list(match.notes)
    fields = match.fields(sizes, notes)
    make_problem(find_op(match.op), fields)  # refuses sizes that are out of bounds
    if sizes.workload.is_custom:
        notes.append("random inputs (there code makes them, which is not run)")
    return ForeignProblem(match.op, match.precision, fields, match.settings, "; ".join(notes) or None)


def _unmatched(d: Definition) -> NoMatch:
    words = f"{', '.join(d.inputs)} → {', '.join(d.outputs)}"
    return NoMatch(f"{shorten(d.kind)} is not matched with these inputs and outputs: {shorten(words, MOST_WORDS)}")


def _arrays(d: Definition, count: int, scalars: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], str]]:
    """Shape and type of so many input arrays and of the output; `NoMatch` if there are more or fewer inputs."""
    numbers = [name for name, tensor in d.inputs.items() if tensor.shape is None]
    tensors = [tensor for tensor in (*d.inputs.values(), *d.outputs.values()) if tensor.shape is not None]
    if len(d.inputs) - len(numbers) != count or len(d.outputs) != 1 or not set(numbers) <= set(scalars):
        raise _unmatched(d)
    if len(tensors) != count + 1 or not all(tensor.shape for tensor in tensors):
        raise _unmatched(d)
    return [(tensor.shape or (), tensor.dtype) for tensor in tensors]


def _precision(inputs: Iterable[str], output: str) -> tuple[str, dict[str, str]]:
    """The precision of ours, and the setting `result` of products where it has one."""
    kinds = list(dict.fromkeys(inputs))
    known = PRECISIONS.get((kinds[0], output)) if len(kinds) == 1 else None
    if known is None:
        raise NoMatch(f"no precision has inputs of {' and '.join(kinds)} and results of {output}")
    return known[0], {"result": known[1]} if known[1] else {}


def _same_type(inputs: Iterable[str], output: str) -> str:
    """The precision of an operation whose result has the type of its data."""
    kinds = list(dict.fromkeys(inputs))
    precision, _ = _precision(kinds, output)
    if kinds != [output] or precision not in ("f32", *SIXTEEN_BITS):
        raise NoMatch(f"no precision of this operation has inputs of {kinds[0]} and results of {output}")
    return precision


def _gemm(d: Definition) -> MatchedOperation:
    """C (…, N) = A (…, K) · B, where B is (K, N), or (N, K) and transposed.

    Row-major matrices are column-major ones of the transposed shape, so B is our A, with the sizes m = N and k = K.
    """
    (a, a_type), (b, b_type), (c, c_type) = _arrays(d, 2)
    precision, settings = _precision((a_type, b_type), c_type)
    *rows, k = a
    n = c[-1]
    if len(b) != 2 or not rows or tuple(rows) != c[:-1] or set(b) != {n, k}:
        raise NoMatch("its arrays are not those of one product of two matrices")
    if n == k:
        raise NoMatch("both sides of its second matrix have one axis, so it may be transposed or not")
    transposed = int(b == (n, k))

    def fields(sizes: Sizes, notes: list[str]) -> Fields:
        return {"m": sizes.of(n), "n": sizes.product(rows), "k": sizes.of(k), "a_t": transposed}

    return MatchedOperation("gemm", precision, fields, {"beta": "0", **settings})


def _batched_gemm(d: Definition) -> MatchedOperation:
    """C (G, M, N) = A (G, M, K) · B, where B is (G, K, N), or (G, N, K) and transposed."""
    (a, a_type), (b, b_type), (c, c_type) = _arrays(d, 2)
    precision, settings = _precision((a_type, b_type), c_type)
    if not len(a) == len(b) == len(c) == 3 or a[:2] != c[:2] or b[0] != a[0] or set(b[1:]) != {a[2], c[2]}:
        raise NoMatch("its arrays are not those of products of equal size")
    if a[2] == c[2]:
        raise NoMatch("both sides of its second matrices have one axis, so they may be transposed or not")
    transposed = int(b[1] == c[2])

    def fields(sizes: Sizes, notes: list[str]) -> Fields:
        batch, m, n, k = map(sizes.of, (a[0], c[2], a[1], a[2]))
        return {"batch": batch, "m": m, "n": n, "k": k, "a_t": transposed}

    return MatchedOperation("batched_gemm", precision, fields, settings)


def _norm(op: str, weights: int) -> Callable[[Definition], MatchedOperation]:
    """x and y (…, columns), and a scale and perhaps a shift (columns)."""

    def match(d: Definition) -> MatchedOperation:
        from deepbench.core.rows import EPSILON

        (x, x_type), *parameters, (y, y_type) = _arrays(d, 1 + weights, EPSILONS)
        if len(x) < 2 or x != y or any(shape != x[-1:] for shape, _ in parameters):
            raise NoMatch(f"its arrays are not those of {op}")
        precision = _same_type([x_type], y_type)
        others = {kind for _, kind in parameters} - {"float32"}
        named = "scale" if weights == 1 else "scale and shift"
        typed = tuple(f"{named} in f32 ({kind} there)" for kind in sorted(others))

        def fields(sizes: Sizes, notes: list[str]) -> Fields:
            given = [v for name in EPSILONS if (v := sizes.workload.scalars.get(name)) is not None]
            there = f"{given[0]:g} there" if given else "there code has it, which is not read"
            notes.append(f"epsilon {EPSILON:g}" + f" ({there})" * (given != [EPSILON]))
            return {"rows": sizes.product(x[:-1]), "columns": sizes.of(x[-1])}

        return MatchedOperation(op, precision, fields, notes=typed)

    return match


def _softmax(d: Definition) -> MatchedOperation:
    (x, x_type), (y, y_type) = _arrays(d, 1)
    if len(x) < 2 or x != y:
        raise NoMatch("its arrays are not those of a softmax of rows")

    def fields(sizes: Sizes, notes: list[str]) -> Fields:
        return {"rows": sizes.product(x[:-1]), "columns": sizes.of(x[-1])}

    notes = ("over the last axis; there code says which, which is not read",)
    return MatchedOperation("softmax", _same_type([x_type], y_type), fields, open_notes=notes)


def _elementwise(d: Definition) -> MatchedOperation:
    kind = ELEMENTWISE[d.kind]
    *inputs, (shape, dtype) = _arrays(d, 2 if kind in ("add", "multiply", "swiglu") else 1)
    if any(other != shape for other, _ in inputs):
        raise NoMatch("its arrays have different shapes")

    def fields(sizes: Sizes, notes: list[str]) -> Fields:
        return {"kind": kind, "n": sizes.product(shape)}

    return MatchedOperation("elementwise", _same_type((kind for _, kind in inputs), dtype), fields)


def _moe(d: Definition) -> MatchedOperation:
    raise NoMatch("no operation has routing, experts and their sum in one; grouped_gemm has the products of experts")


def _latent(d: Definition) -> MatchedOperation:
    raise NoMatch("its values are a part of its keys; attention stores and reads them twice")


def _attention(d: Definition) -> MatchedOperation:
    """Grouped-query attention over a cache of pages, or over sequences that lie one after the other.

    q (tokens, heads, size), k (tokens, kv_heads, size) or (pages, page, kv_heads, size); v and the output may have
    another size. `kv_indptr` and `qo_indptr` say where the sequences begin; without `qo_indptr` each has one query.
    """
    if not {*d.inputs} <= {*ATTENTION_INPUTS, SCALE} or not {*d.outputs} <= {"output", "lse"}:
        raise _unmatched(d)
    is_paged = "k_cache" in d.inputs
    has_starts = "qo_indptr" in d.inputs
    names = ("q", *(("k_cache", "v_cache", "kv_indices") if is_paged else ("k", "v")), "kv_indptr", "output")
    names += ("qo_indptr",) * has_starts
    tensors = {**d.inputs, **d.outputs}
    if not all(name in tensors and tensors[name].shape for name in names):
        raise _unmatched(d)
    q, k, v, y, starts = (tensors[name].shape or () for name in (*names[:3], "output", "kv_indptr"))
    of_key = 4 if is_paged else 3
    if not (len(q) == len(y) == 3 and len(k) == len(v) == of_key and k[:-1] == v[:-1]):
        raise NoMatch("its arrays are not those of attention")
    if q[:2] != y[:2] or q[2] != k[-1] or v[-1] != y[2]:
        raise NoMatch("its arrays are not those of attention")
    if has_starts and "causal" not in re.split("[^a-z]+", d.name.lower()):
        raise NoMatch("its name does not say whether its mask is causal")
    precision = _same_type((tensors[name].dtype for name in names[:3]), tensors["output"].dtype)

    def fields(sizes: Sizes, notes: list[str]) -> Fields:
        tokens, heads, head_size = map(sizes.of, q)
        batch = sizes.of(starts[0]) - 1
        if batch != (sizes.of((tensors["qo_indptr"].shape or ())[0]) - 1 if has_starts else tokens):
            raise NoMatch("its queries and keys have different numbers of sequences")
        page = sizes.of(k[1]) if is_paged else 1
        pages = sizes.of((tensors["kv_indices"].shape or ())[0]) if is_paged else sizes.of(k[0])
        if batch < 1 or page < 1 or pages < batch:
            raise NoMatch("it has a sequence without keys")
        values: Fields = {"batch": batch, "heads": heads, "kv_heads": sizes.of(k[-2]), "head_size": head_size}
        values |= {"value_size": sizes.of(v[-1]), "mask": "causal", **({"page": page} if is_paged else {})}
        if values["value_size"] == head_size:
            del values["value_size"]
        given = sizes.workload.scalars.get(SCALE)
        usual = 1 / math.sqrt(head_size) if head_size else math.nan
        if given is not None and not math.isclose(given, usual, rel_tol=SAME_SCALE):
            notes.append(f"scores times {usual:.4g} ({given:.4g} there)")
        if page > 1:
            notes.append("the last page of each sequence is full; there a file says how full, which is not read")
        if has_starts and tokens > pages * page:
            raise NoMatch("it has more queries than keys")
        if batch == 1:
            return {**values, "queries": tokens if has_starts else 1, "keys": pages * page}
        if has_starts and (tokens != pages or page > 1):
            raise NoMatch("the queries and keys of each sequence are in a file that is not read")
        return _spread(values, has_starts, pages, page, notes)

    layout = f"arrays by {'page, ' * is_paged}head, position (there by {'page, ' * is_paged}position, head)"
    sums = ("without the logarithm of the sum, which is an output there",) if "lse" in d.outputs else ()
    return MatchedOperation("attention", precision, fields, notes=(layout, *sums))


def _spread(values: Fields, is_prefill: bool, pages: int, page: int, notes: list[str]) -> Fields:
    """The problem with sequences of different lengths that has nearest to so many pages in all.

    The lengths are in a file of tensors that is not read, but the number of pages is known, and with it the bytes.
    """

    def made(keys: int) -> Fields:
        return {**values, "queries": keys if is_prefill else 1, "keys": keys, "lengths": "spread"}

    def counts(keys: int) -> tuple[int, ...]:
        problem: Any = make_problem(find_op("attention"), made(keys))
        return tuple(problem.key_counts)

    batch = int(values["batch"])
    if batch > MOST_SEQUENCES:
        raise NoMatch(f"it has {batch} sequences, and at most {MOST_SEQUENCES} are drawn")
    keys, totals = max(1, pages * page // batch), dict[int, int]()
    while keys not in totals and len(totals) < MOST_STEPS:  # totals are nearly proportional to the longest sequence
        totals[keys] = sum(counts(keys)) if page == 1 else sum(-(-count // page) for count in counts(keys))
        keys = min(LARGEST_SIZE, max(1, round(keys * pages / totals[keys])))
    keys = min(totals, key=lambda k: (abs(totals[k] - pages), k))
    lengths = counts(keys)
    what = "pages" if page > 1 else "keys"
    drawn = f"{len(lengths)} lengths drawn from {min(lengths)} to {max(lengths)}, {totals[keys]} {what} in all"
    notes.append(f"{drawn} ({pages} there; a file has the lengths, which is not read)")
    if is_prefill:
        notes.append("as many queries as keys in each sequence; FLOP depend on the lengths")
    return made(keys)


MATCHERS: dict[str, Callable[[Definition], MatchedOperation]] = {
    **dict.fromkeys(("gemm", "matmul"), _gemm),
    **dict.fromkeys(("grouped_gemm", "batched_gemm", "bmm"), _batched_gemm),
    **dict.fromkeys(("rmsnorm", "rms_norm"), _norm("rms_norm", 1)),
    **dict.fromkeys(("layernorm", "layer_norm"), _norm("layer_norm", 2)),
    **dict.fromkeys(("gqa_paged", "gqa_ragged", "mla_ragged"), _attention),
    **{"softmax": _softmax, "mla_paged": _latent, "moe": _moe},
    **dict.fromkeys(ELEMENTWISE, _elementwise),
}


# ---- reading


def _read(path: Path) -> tuple[list[Definition], dict[Path, list[Workload]]]:
    """The definitions and workloads of a folder, or of a file and of those that belong to it."""
    definitions: list[Definition] = []
    workloads: dict[Path, list[Workload]] = {}
    read = count = 0
    for file in _files(path):
        text = text_of(file, "definitions or workloads in JSON", MOST_FILE_BYTES)
        read += len(text)
        if read > MOST_BYTES:
            raise BadInput(f"{printable(str(path))} has more than {MOST_BYTES} bytes in JSON; choose some of its files")
        if '"axes"' not in text:  # a folder has other files, too
            continue
        if file.suffix.lower() == ".json":
            if (found := _definition(_parsed(text, printable(str(file))), file)) is not None:
                definitions.append(found)
        else:
            workloads[file] = list(islice(_lines(text, file), MOST_WORKLOADS + 1 - count))
            count += len(workloads[file])
        if count > MOST_WORKLOADS or len(definitions) > MOST_WORKLOADS:
            what = f"more than {MOST_WORKLOADS} workloads or definitions"
            raise BadInput(f"{printable(str(path))} has {what}; choose some of its files")
    return definitions, workloads


def _files(path: Path) -> list[Path]:
    """Files with the names of definitions and workloads, in the order of their names."""
    if not path.is_dir():
        return [path, *(file for file in _belonging(path) if file.is_file())]
    found: list[Path] = []
    names = (Path(folder, name) for folder, name in _walk(path))
    for seen, file in enumerate(islice(names, MOST_FILES + 1)):
        if seen == MOST_FILES:
            raise BadInput(f"{printable(str(path))} has more than {MOST_FILES} files; name a folder with workloads")
        if file.suffix.lower() in SUFFIXES:
            found.append(file)
    return sorted(found)


def _walk(path: Path) -> Iterator[tuple[str, str]]:
    """Folder and name of each file below a folder, without links to folders and without hidden folders."""
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from ((folder, name) for name in sorted(files))


def _belonging(path: Path) -> list[Path]:
    """Where the workloads of a definition, or the definition of workloads, would be.

    SOL-ExecBench has both in one folder. FlashInfer-Trace has definitions/OP_TYPE/NAME.json and
    workloads/OP_TYPE/NAME.jsonl.
    """
    is_definition = path.suffix.lower() == ".json"
    beside = ("workload.jsonl", "workloads.jsonl") if is_definition else ("definition.json",)
    here, there = ("definitions", "workloads") if is_definition else ("workloads", "definitions")
    parts = list(path.parts)
    found = [path.parent / name for name in beside]
    if here in parts:
        parts[len(parts) - 1 - parts[::-1].index(here)] = there
        found.append(Path(*parts).with_suffix(".jsonl" if is_definition else ".json"))
    return found


def _parsed(text: str, where: str) -> Any:
    try:
        return from_line(text)
    except ValueError as error:
        raise BadInput(f"{where} is not valid JSON: {shorten(printable(str(error)))}") from None


def _definition(table: Any, path: Path) -> Definition | None:
    """None for JSON of another kind; `BadInput` for a definition that is damaged."""
    if not isinstance(table, dict) or not {"axes", "inputs", "outputs"} <= table.keys():
        return None
    where = printable(str(path))
    op_type = table.get("op_type")
    axes = {
        _name(name, where): _axis(value, f"{where}, axis {shorten(printable(str(name)))}")
        for name, value in _table(table["axes"], "axes", where).items()
    }
    inputs, outputs = (
        {
            _name(name, where): _tensor(value, axes, f"{where}, {key} {shorten(printable(str(name)))}")
            for name, value in _table(table[key], key, where).items()
        }
        for key in ("inputs", "outputs")
    )
    return Definition(
        path,
        _name(table.get("name"), f"{where}, name"),
        None if op_type is None else _name(op_type, f"{where}, op_type"),
        tuple(_name(tag, f"{where}, tags") for tag in _list(table.get("tags"), "tags", where)),
        axes,
        inputs,
        outputs,
        *(str(table.get(name) or "")[:MOST_TEXT] for name in ("description", "reference")),
    )


def _axis(value: Any, where: str) -> int | str | None:
    axis = _table(value, "the axis", where)
    match axis.get("type"):
        case "var":
            return None
        case "const":
            return _size(axis.get("value"), where)
        case "expr":
            return _name(axis.get("expression"), where)
        case other:
            raise BadInput(f"{where}: wanted the type const, var or expr, found {shorten(repr(other))}")


def _tensor(value: Any, axes: Mapping[str, Any], where: str) -> DefinedArray:
    tensor = _table(value, "the tensor", where)
    dtype = _name(tensor.get("dtype"), where)
    if tensor.get("shape") is None:
        return DefinedArray(None, dtype)
    shape = tuple(_name(axis, where) for axis in _list(tensor["shape"], "the shape", where))
    for axis in shape:
        if axis not in axes and not (axis.isascii() and axis.isdecimal() and len(axis) < 11):
            raise BadInput(f"{where}: the shape has {shorten(axis)!r}, which is no axis of the definition")
    return DefinedArray(shape, dtype)


def _lines(text: str, path: Path) -> Iterator[Workload]:
    """The workloads of a file. Lines that also have a solution are results of FlashInfer-Bench, and left out."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{printable(str(path))}, line {number}"
        table = _table(_parsed(line, where), "the line", where)
        if "workload" not in table and not {"axes", "inputs"} <= table.keys():
            raise BadInput(
                f"{where}: wanted a workload with axes and inputs, found {shorten(', '.join(map(printable, table)))}"
            )
        if table.get("solution") is None:
            yield _workload(table, where)


def _workload(table: dict[str, Any], where: str) -> Workload:
    name = _name(table["definition"], where) if table.get("definition") is not None else None
    workload = _table(table.get("workload", table), "workload", where)
    axes = {
        _name(axis, where): _size(value, f"{where}, axis {shorten(printable(str(axis)))}")
        for axis, value in _table(workload.get("axes"), "axes", where).items()
    }
    scalars: dict[str, float] = {}
    kinds: set[str] = set()
    for word, value in _table(workload.get("inputs"), "inputs", where).items():
        described = _table(value, "the input", where)
        kinds.add(_name(described.get("type"), where))
        number = described.get("value")
        if isinstance(number, int | float) and not isinstance(number, bool):
            scalars[word] = float(number)
    return Workload(name, axes, scalars, "custom" in kinds)


def _table(value: Any, what: str, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > MOST_PARTS:
        raise BadInput(f"{where}: {what} must be an object with at most {MOST_PARTS} members")
    return value


def _list(value: Any, what: str, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MOST_PARTS:
        raise BadInput(f"{where}: {what} must be a list of at most {MOST_PARTS} words")
    return value


def _name(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > LONGEST_NAME:
        wanted = f"a word of at most {LONGEST_NAME} printable characters"
        raise BadInput(f"{where}: wanted {wanted}, found {shorten(printable(repr(value)))}")
    return value


def _size(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST_SIZE:
        raise BadInput(f"{where}: wanted a whole number from 0 to {LARGEST_SIZE}, found {shorten(repr(value))}")
    return value


def is_file(name: str) -> bool:
    """Whether this is the name of a folder, or of a file that may have definitions or workloads."""
    return name.lower().endswith(SUFFIXES) or os.path.isdir(name)


WORKLOADS = WorkloadFormat("FlashInfer-Trace", is_file, coverage)
