"""The operators of a function in JAX, read from its jaxpr. Nothing is executed, and inputs may be shapes alone.

    trace_jax(jax.grad(loss), parameters, batch, title="my net, a step", source="net.py", is_training=True)

Gradients are part of the program where the function computes them, as `jax.grad(loss)` does.

- **Before fusion.** A trace has the operators of the program. XLA joins chains of elementwise operators to one loop,
  which then reads and writes less than their sum.
- **Without dead code.** Operators of whose results nothing depends are left out, as XLA does.
- **Views.** `reshape`, `transpose`, `broadcast_in_dim`, `squeeze`, `slice` and `split` move nothing: XLA makes them
  part of the operator that reads the result. Three things are copies, operators without a kernel: a reshape of
  elements that are not in their order, an operand of a product whose rows and columns are both strided or whose
  batches are not one after the other, and an array whose order is reversed, except the filters of a convolution.
- **Updates.** `dynamic_update_slice` and the kinds of `scatter` write into their array, unless it is an input.
- **Loops.** The body of a `scan` counts as often as it runs. It uses the same buffers in every step, except for what
  it reads from and writes to the arrays that the loop runs over: each step has its own part of these.
  How often the body of a `while` runs is not known; `while_steps` says it, else the function is refused.
- **Conditions.** Of the branches of a `cond`, the one with the most FLOP counts, and the source of the trace says so.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deepbench.core.errors import IMPORT_ERRORS, BadInput, not_loaded
from deepbench.networks.traces import kernel_rules as rules
from deepbench.networks.traces.kernel_rules import Window
from deepbench.networks.traces.kernels import flop_of, kernel_text
from deepbench.networks.traces.recorder import Recorder
from deepbench.networks.traces.trace import MOST_CALLS, Trace

PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
PRODUCT_PRECISIONS = {
    **{(kind, kind): name for kind, name in PRECISIONS.items()},
    ("int8", "int8"): "i8",
    ("int8", "uint8"): "i8u8",
    ("float8_e4m3fn", "float8_e4m3fn"): "f8e4m3",
    ("float8_e4m3fn", "float8_e5m2"): "f8e5m2",
}
"""By the types of weights (A) and data (B)."""

# Operators with a program inside that runs once; the program belongs to the one around.
INLINED = (
    *("pjit", "jit", "closed_call", "core_call", "core_closed_call", "named_call", "remat", "remat2", "checkpoint"),
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"),
)
PROGRAMS = ("jaxpr", "call_jaxpr", "fun_jaxpr")

# Names that JAX itself gives to parts of a program.
UNNAMED = ("checkpoint", "rematted_computation")

# Operators that divide the work over devices.
DIVIDED = ("shard_map", "xla_pmap", "pmap")

# Operators whose inside is not seen.
OPAQUE = ("pallas_call", "ffi_call", "pure_callback", "io_callback", "custom_linear_solve", "linear_call")

# Operators that return what they are given.
IDENTITIES = ("optimization_barrier", "sharding_constraint", "name", "device_put", "pvary", "stop_gradient")

# Operators that read only as much of their first operand as they return.
PICKING = ("gather", "dynamic_slice")

ELEMENTWISE = {"tanh": "tanh", "logistic": "sigmoid", "add": "add", "add_any": "add", "mul": "multiply"}
REDUCTIONS = {"reduce_sum": "sum", "reduce_max": "max"}
POOLING = {"reduce_window_max": "max", "reduce_window_sum": "average"}


def import_jax() -> Any:
    """The module `jax`; `Unavailable` without it."""
    try:
        import jax
    except IMPORT_ERRORS as error:
        raise not_loaded("JAX", error, "pip install jax") from None
    return jax


def trace_jax(
    function: Callable[..., Any],
    *inputs: Any,
    title: str,
    source: str,
    is_training: bool = False,
    parameters: int | None = None,
    while_steps: int | None = None,
) -> Trace:
    """The operators of `function(*inputs)`. Inputs are arrays or `jax.ShapeDtypeStruct`, or trees of them.

    `parameters` is the number of parameters of the network, which a function does not tell. `BadInput` for functions
    that cannot be counted; see the top of this file.
    """
    closed = import_jax().make_jaxpr(function)(*inputs)
    from jax.interpreters.partial_eval import dce_jaxpr

    walker = _Walker(while_steps)
    program, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    if (total := walker.count(program)) > MOST_CALLS:
        raise BadInput(
            f"the function runs {total} operators, and a trace has at most {MOST_CALLS}; trace fewer steps of its loops"
        )
    arguments = [walker.array(v.aval) for v in program.invars]
    walker.inputs.update(a.buffer for a in arguments)
    walker.walk(program, closed.consts, arguments, "", _Memory())
    return walker.record.trace(title, source, is_training, parameters)


# ---- arrays


@dataclass(frozen=True)
class _Array:
    """An array in memory, or a view of one."""

    buffer: int | None
    """None: a number that needs no memory, or many equal ones."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements; 0 where elements are repeated."""
    kind: str
    element_bytes: int
    constant: float | None = None
    is_reversed: bool = False
    """Whether it is read in the opposite order along some axes."""

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Of the elements that differ in memory."""
        if self.buffer is None:
            return 0
        return rules.distinct(self.shape, self.strides) * self.element_bytes

    @property
    def is_dense(self) -> bool:
        """Whether it fills its part of the memory without gaps, in any order of its axes."""
        return self.buffer is not None and not self.is_reversed and rules.is_dense(self.shape, self.strides)

    @property
    def is_row_major(self) -> bool:
        return self.is_dense and _reshaped(self.shape, self.strides, (self.size,)) == (1,)


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _reshaped(shape: Sequence[int], strides: Sequence[int], new: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of the same elements in another shape; None if elements would have to be moved."""
    if 0 in shape:
        return _row_major(new)
    blocks: list[tuple[int, int]] = []
    for length, stride in zip(shape, strides, strict=True):
        if length == 1:
            continue
        if blocks and blocks[-1][1] == length * stride:
            blocks[-1] = (blocks[-1][0] * length, stride)
        else:
            blocks.append((length, stride))
    found: list[int] = []
    for block, stride in blocks:
        first, size = len(found), 1
        while size < block and len(found) < len(new):
            size *= new[len(found)]
            found.append(0)
        if size != block:
            return None
        for i in range(first, len(found)):
            found[i] = stride * math.prod(new[i + 1 : len(found)])
    return (*found, *[1] * (len(new) - len(found)))


def _merged(array: _Array, axes: Sequence[int]) -> tuple[int, int] | None:
    """Length and stride of axes seen as one; None if they have no common stride."""
    shape, strides = [array.shape[i] for i in axes], [array.strides[i] for i in axes]
    length = math.prod(shape)
    one = _reshaped(shape, strides, (length,))
    return None if one is None else (length, one[0])


def _stored(array: _Array, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]) -> int | None:
    """Whether a matrix is stored as its columns by its rows (1, transposed) or its rows by its columns (0).

    None if it is neither, or if the matrices of a batch are not one after the other.
    """
    found = [_merged(array, axes) for axes in (batch, rows, columns)]
    if array.is_reversed or array.buffer is None or None in found:
        return None
    (count, skip), (n, row), (k, column) = (part for part in found if part is not None)
    if any(length > 1 and not stride for length, stride in ((count, skip), (n, row), (k, column))):
        return None
    if count > 1 and skip < (n - 1) * row + (k - 1) * column + 1:
        return None
    if (column == 1 or k == 1) and (n == 1 or row >= k):
        return 0
    return 1 if (row == 1 or n == 1) and (k == 1 or column >= n) else None


# ---- programs


@dataclass
class _Memory:
    """The buffers of a program. A loop has the same in every step."""

    own: dict[Any, int] = field(default_factory=dict)
    inner: dict[Any, _Memory] = field(default_factory=dict)

    def within(self, key: Any) -> _Memory:
        return self.inner.setdefault(key, _Memory())

    def numbers(self) -> set[int]:
        return set(self.own.values()).union(*(memory.numbers() for memory in self.inner.values()))


def _program_of(equation: Any) -> tuple[Any, Sequence[Any]]:
    """The program inside an operator, and its constants."""
    program = next(equation.params[name] for name in PROGRAMS if name in equation.params)
    return (program.jaxpr, program.consts) if hasattr(program, "consts") else (program, ())


def _place(stack: str) -> str:
    """`Net.Dense_0` for `transpose(jvp(Net))/Dense_0`."""
    stack = re.sub(r"\bp?jit\([^()]*\)", "", stack)
    pieces = re.sub(r"\w+\(|\)", "", stack).split("/")
    return ".".join(piece for piece in pieces if re.fullmatch(r"[\w.-]+", piece) and piece not in UNNAMED)


class _Walker:
    """Follows a program from its first operator to its last."""

    def __init__(self, while_steps: int | None) -> None:
        self.while_steps = while_steps
        self.record = Recorder()
        self.inputs: set[int | None] = set()
        self._constants: dict[int, tuple[Any, _Array]] = {}
        self._branches: dict[int, tuple[Any, int]] = {}

    # ---- arrays

    def array(self, aval: Any, memory: _Memory | None = None, key: Any = None) -> _Array:
        """An array with a buffer of its own."""
        found = _equal_numbers(aval, None)
        buffer = self._buffer(found.size * found.element_bytes, memory, key)
        return replace(found, buffer=buffer, strides=_row_major(found.shape))

    def _buffer(self, size: int, memory: _Memory | None, key: Any) -> int:
        if memory is None:
            return self.record.buffer(size)
        if key not in memory.own:
            memory.own[key] = self.record.buffer(size)
        return memory.own[key]

    def constant(self, value: Any) -> _Array:
        """A constant of a program; a single number needs no memory."""
        if id(value) not in self._constants:
            found = self.array(value)
            if not found.shape:
                found = replace(found, buffer=None, constant=_number(value))
            self.inputs.add(found.buffer)
            self._constants[id(value)] = value, found
        return self._constants[id(value)][1]

    def _copied(self, array: _Array, order: Sequence[int], where: str, memory: _Memory, key: Any) -> _Array:
        """A copy whose axes lie in memory in this order."""
        shape = [array.shape[i] for i in order]
        buffer = self._buffer(array.size * array.element_bytes, memory, key)
        of_axis = dict(zip(order, _row_major(shape), strict=True))
        strides = tuple(of_axis[i] for i in range(len(shape)))
        copy = _Array(buffer, array.shape, strides, array.kind, array.element_bytes)
        self._record("copy", None, where, [array], [copy])
        return copy

    def _record(
        self,
        operator: str,
        kernel: str | None,
        where: str,
        reads: Sequence[_Array],
        writes: Sequence[_Array],
        moved: int | None = None,
    ) -> None:
        if moved is None:  # an array that is read twice is one object
            moved = sum(a.bytes for a in {id(a): a for a in (*reads, *writes)}.values())
        numbers = [[a.buffer for a in arrays if a.buffer is not None and a.bytes] for arrays in (reads, writes)]
        self.record.call(operator, kernel, where, dict.fromkeys(numbers[0]), dict.fromkeys(numbers[1]), moved)

    # ---- operators

    def count(self, program: Any) -> int:
        """How many operators run, views included."""
        total = 0
        for equation in program.eqns:
            name, p = equation.primitive.name, equation.params
            if name in INLINED:
                total += self.count(_program_of(equation)[0])
            elif name == "scan":
                total += p["length"] * self.count(p["jaxpr"].jaxpr)
            elif name == "cond":
                total += max(self.count(branch.jaxpr) for branch in p["branches"])
            elif name == "while":
                total += (self.while_steps or 1) * self.count(p["body_jaxpr"].jaxpr)
            else:
                total += 1
        return total

    def walk(
        self, program: Any, constants: Sequence[Any], arguments: Sequence[_Array], where: str, memory: _Memory
    ) -> list[_Array]:
        """Record the operators of a program. Its results."""
        known: dict[Any, _Array] = dict(zip(program.constvars, map(self.constant, constants), strict=True))
        known.update(zip(program.invars, arguments, strict=True))

        def value(atom: Any) -> _Array:
            return _equal_numbers(atom.aval, _number(atom.val)) if hasattr(atom, "val") else known[atom]

        for index, equation in enumerate(program.eqns):
            own = _place(str(equation.source_info.name_stack))
            place = ".".join(filter(None, (where, own)))
            operands = [value(atom) for atom in equation.invars]
            results = self._equation(equation, operands, place, memory.within(index))
            known.update(zip(equation.outvars, results, strict=True))
        return [value(v) for v in program.outvars]

    def _equation(self, equation: Any, operands: list[_Array], where: str, memory: _Memory) -> Sequence[_Array]:
        name = equation.primitive.name
        if name in INLINED:
            return self.walk(*_program_of(equation), operands, where, memory)
        if name in DIVIDED:
            raise BadInput(f"{name} divides the work over devices; trace the function that one device runs")
        if name in CONTROL:
            return CONTROL[name](self, equation, operands, where, memory)
        if name in IDENTITIES:
            self.record.views += 1
            return operands
        if name == "convert_element_type" and str(equation.outvars[0].aval.dtype) == operands[0].kind:
            self.record.views += 1
            return operands[:1]
        is_single = name in REDUCTIONS and all(operands[0].shape[i] == 1 for i in equation.params["axes"])
        if is_single:  # of one number each
            self.record.views += 1
            kept = [i for i in range(len(operands[0].shape)) if i not in equation.params["axes"]]
            return [_with_axes(operands[0], kept)]
        if name in VIEWS:
            views = VIEWS[name](equation, operands[0])
            if views is not None:
                self.record.views += 1
                return views
            if name == "reshape":  # elements are not in their order
                order = range(len(operands[0].shape))
                copy = self._copied(operands[0], order, where, memory, "copy")
                return [replace(copy, shape=(shape := equation.outvars[0].aval.shape), strides=_row_major(shape))]
        return self._operator(equation, operands, where, memory)

    def _operator(self, equation: Any, operands: list[_Array], where: str, memory: _Memory) -> list[_Array]:
        """An operator that computes something: a kernel of ours or another."""
        name = equation.primitive.name
        if (
            operands
            and all(a.constant is not None for a in operands)
            and not any(v.aval.shape for v in equation.outvars)
        ):
            value = operands[0].constant if name == "convert_element_type" else math.nan
            return [_equal_numbers(v.aval, value) for v in equation.outvars]
        if name in OPAQUE:
            self.record.remarks[f"what runs inside of {name} is not seen"] = None
        keeps_order = name in KEEP_REVERSED
        operands = [
            self._copied(a, range(len(a.shape)), where, memory, ("copy", i))
            if a.is_reversed and not (keeps_order and i == 1)
            else a
            for i, a in enumerate(operands)
        ]
        results = [self.array(v.aval, memory, i) for i, v in enumerate(equation.outvars)]
        if name in ("dynamic_update_slice", *SCATTERS):
            return [self._updated(equation, operands, results[0], where)]

        def copied(number: int, order: Sequence[int]) -> _Array:
            return self._copied(operands[number], order, where, memory, ("copy", number))

        find = KERNELS.get(name)
        kernel = None
        if find is not None:
            try:
                prepared = find(_Operator(name, equation.params, operands, results, copied, self.record.notes))
            except BadInput:
                prepared = None
            if prepared is not None:
                kernel, operands = prepared[0], list(prepared[1])
        moved = None
        if name in PICKING:
            moved = sum(a.bytes for a in operands[1:]) + 2 * sum(a.bytes for a in results)
            operands = operands[1:] if kernel else operands
        self._record(name, kernel, where, operands, results, moved)
        return results

    def _updated(self, equation: Any, operands: list[_Array], result: _Array, where: str) -> _Array:
        """An array of which some elements are replaced: in place, unless it is an input or a constant."""
        name, whole = equation.primitive.name, operands[0]
        index = 2 if name in SCATTERS else 1
        update, others = operands[index], [a for i, a in enumerate(operands) if i not in (0, index)]
        moved = 2 * update.size * result.element_bytes + sum(a.bytes for a in others)
        if name == "scatter-add" and whole.buffer is None and not whole.constant:
            kernel = _embedding_gradient(equation, whole, update, others[0])
            if kernel is not None:
                self._record(name, kernel, where, [update, *others], [result])
                return result
        if whole.is_dense and whole.buffer not in self.inputs:
            self._record(name, None, where, [update, *others], [whole], moved)
            return whole
        self._record(name, None, where, [whole, update, *others], [result], moved + whole.bytes + result.bytes)
        return result

    # ---- loops and conditions

    def _scan(self, equation: Any, operands: list[_Array], where: str, memory: _Memory) -> list[_Array]:
        p = equation.params
        body, length, fixed, carried = (p[name] for name in ("jaxpr", "length", "num_consts", "num_carry"))
        carry = operands[fixed : fixed + carried]
        stacks = [self.array(v.aval, memory, ("stack", i)) for i, v in enumerate(equation.outvars[carried:])]
        inner = memory.within("body")
        for step in reversed(range(length)) if p["reverse"] else range(length):
            slices = [self._part(a, step, length) for a in operands[fixed + carried :]]
            first = len(self.record.calls)
            results = self.walk(body.jaxpr, body.consts, [*operands[:fixed], *carry, *slices], where, inner)
            local, given = inner.numbers(), {a.buffer for a in carry}
            renamed: dict[int | None, int | None] = {}
            for result, stack in zip(results[carried:], stacks, strict=True):
                part, own = self._part(stack, step, length), result.buffer
                is_new = own in local and own not in renamed and own not in given
                if is_new and result.is_row_major and result.bytes == self.record.sizes[own or 0]:
                    renamed[own] = part.buffer  # it is computed where it belongs
                else:
                    self._record("dynamic_update_slice", None, where, [result], [part])
            self._rename(first, renamed)
            carry = [replace(a, buffer=renamed.get(a.buffer, a.buffer)) for a in results[:carried]]
        return [*carry, *stacks]

    def _rename(self, first: int, renamed: Mapping[int | None, int | None]) -> None:
        """Other buffers in the calls from the first on."""
        if renamed:
            calls = self.record.calls
            for i in range(first, len(calls)):
                groups = calls[i].reads, calls[i].writes
                reads, writes = (tuple(renamed.get(n, n) or 0 for n in group) for group in groups)
                calls[i] = replace(calls[i], reads=reads, writes=writes)

    def _part(self, array: _Array, step: int, length: int) -> _Array:
        """The part of an array that a step of a loop reads or writes."""
        part = replace(array, shape=array.shape[1:], strides=array.strides[1:])
        buffer, record = array.buffer, self.record
        if buffer is None or not array.is_row_major or array.bytes != record.sizes[buffer]:
            return part
        if buffer not in record.parts:
            record.parts[buffer] = [record.buffer(array.bytes // length) for _ in range(length)]
        parts = record.parts[buffer]
        return replace(part, buffer=parts[step]) if len(parts) == length else part

    def _while(self, equation: Any, operands: list[_Array], where: str, memory: _Memory) -> list[_Array]:
        p, steps = equation.params, self.while_steps
        if steps is None:
            raise BadInput(
                "the function has a while loop, whose number of steps depends on data; state it "
                "(--while-steps, in Python while_steps), or write the loop as jax.lax.scan, or as jax.lax.fori_loop "
                "from and to a Python number"
            )
        self.record.remarks[f"{steps} steps of each while loop"] = None
        condition, body = p["cond_jaxpr"], p["body_jaxpr"]
        before, fixed = p["cond_nconsts"], p["body_nconsts"]
        of_condition, of_body = operands[:before], operands[before : before + fixed]
        carry = operands[before + fixed :]
        for _ in range(steps):
            arguments = [*of_condition, *carry]
            self.walk(condition.jaxpr, condition.consts, arguments, where, memory.within("condition"))
            carry = self.walk(body.jaxpr, body.consts, [*of_body, *carry], where, memory.within("body"))
        return carry

    def _cond(self, equation: Any, operands: list[_Array], where: str, memory: _Memory) -> list[_Array]:
        branches = equation.params["branches"]

        def run(number: int) -> list[_Array]:
            program = branches[number]
            return self.walk(program.jaxpr, program.consts, operands[1:], where, memory.within(number))

        if id(equation) not in self._branches:
            costs = []
            for number in range(len(branches)):
                record, calls = self.record, len(self.record.calls)
                kept = record.views, {n: list(p) for n, p in record.parts.items()}
                run(number)
                own = record.calls[calls:]
                flop = sum(flop_of(call.kernel) for call in own if call.kernel)
                costs.append((flop, sum(call.bytes for call in own), -number))
                del record.calls[calls:]
                record.views, record.parts = kept
            self._branches[id(equation)] = equation, -max(costs)[2]
            self.record.remarks["of the branches of each condition, that with the most FLOP"] = None
        return run(self._branches[id(equation)][1])


CONTROL = {"scan": _Walker._scan, "while": _Walker._while, "cond": _Walker._cond}

SCATTERS = ("scatter", "scatter-add", "scatter_add", "scatter-mul", "scatter-min", "scatter-max")

# The filters of a convolution may be read in the opposite order.
KEEP_REVERSED = ("conv_general_dilated",)


def _equal_numbers(aval: Any, value: float | None) -> _Array:
    """An array of equal numbers, which needs no memory; the value is NaN where it does not matter."""
    shape, kind = tuple(int(n) for n in getattr(aval, "shape", ())), getattr(aval, "dtype", None)
    return _Array(None, shape, (0,) * len(shape), str(kind), int(getattr(kind, "itemsize", 0) or 0), value)


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


# ---- views: their results, or None if elements have to be moved


def _with_axes(array: _Array, axes: Sequence[int]) -> _Array:
    return replace(array, shape=tuple(array.shape[i] for i in axes), strides=tuple(array.strides[i] for i in axes))


def _reshape(equation: Any, array: _Array) -> list[_Array] | None:
    shape = equation.outvars[0].aval.shape
    if equation.params.get("dimensions") is not None:
        return None
    strides = _reshaped(array.shape, array.strides, shape)
    return None if strides is None or array.is_reversed else [replace(array, shape=tuple(shape), strides=strides)]


def _broadcast(equation: Any, array: _Array) -> list[_Array]:
    shape, own = equation.params["shape"], equation.params["broadcast_dimensions"]
    strides = [0] * len(shape)
    for i, axis in enumerate(own):
        strides[axis] = array.strides[i] if array.shape[i] == shape[axis] else 0
    return [replace(array, shape=tuple(shape), strides=tuple(strides))]


def _sliced(equation: Any, array: _Array) -> list[_Array]:
    steps = equation.params["strides"] or (1,) * len(array.shape)
    shape = tuple(equation.outvars[0].aval.shape)
    return [replace(array, shape=shape, strides=tuple(s * n for s, n in zip(array.strides, steps, strict=True)))]


VIEWS: dict[str, Callable[[Any, _Array], Sequence[_Array] | None]] = {
    "transpose": lambda e, array: [_with_axes(array, e.params["permutation"])],
    "reshape": _reshape,
    "squeeze": lambda e, array: [
        _with_axes(array, [i for i in range(len(array.shape)) if i not in e.params["dimensions"]])
    ],
    "broadcast_in_dim": _broadcast,
    "slice": _sliced,
    "split": lambda e, array: [replace(array, shape=tuple(v.aval.shape)) for v in e.outvars],
    "rev": lambda _, array: [replace(array, is_reversed=not array.is_reversed)],
}


# ---- kernels: the text with the operands as the kernel reads them, or None


Prepared = tuple[str, Sequence[_Array]] | None


@dataclass(frozen=True)
class _Operator:
    """An operator with its arrays."""

    name: str
    params: Mapping[str, Any]
    operands: Sequence[_Array]
    results: Sequence[_Array]
    copied: Callable[[int, Sequence[int]], _Array]
    """Makes a copy of an operand, by its number, whose axes lie in memory in this order."""
    notes: Counter[str]
    """Counts how operators differ from their kernels."""


def _product(o: _Operator) -> Prepared:
    """left (n × k) · right (k × m) by rows; ours are by columns, so A is the right one."""
    left, right = o.operands
    (left_sums, right_sums), (left_batch, right_batch) = o.params["dimension_numbers"]
    order = sorted(range(len(left_sums)), key=lambda i: -left.strides[left_sums[i]])
    left_sums, right_sums = ([sums[i] for i in order] for sums in (left_sums, right_sums))
    left_free, right_free = (
        [i for i in range(len(array.shape)) if i not in (*sums, *batch)]
        for array, sums, batch in ((left, left_sums, left_batch), (right, right_sums, right_batch))
    )
    batch, n, k, m = (
        math.prod(array.shape[i] for i in axes)
        for array, axes in ((left, left_batch), (left, left_free), (left, left_sums), (right, right_free))
    )
    precision = PRODUCT_PRECISIONS.get((right.kind, left.kind))
    if precision in ("i8", "i8u8") and o.results[0].kind != "int32":
        return None
    kernel_text("gemm", {"m": m, "n": n, "k": k}, precision)  # checked before anything is copied for it
    operands, stored = [left, right], [0, 0]
    of_left, of_right = (left_batch, left_free, left_sums), (right_batch, right_sums, right_free)
    for number, (array, axes) in enumerate(((left, of_left), (right, of_right))):
        if (transposed := _stored(array, *axes)) is not None:
            stored[number] = transposed
        else:
            operands[number] = o.copied(number, [*axes[0], *axes[1], *axes[2]])
    wide = "narrow" if o.results[0].element_bytes == 2 else "wide"
    return rules.product(batch, m, n, k, precision, a_t=stored[1], b_t=stored[0], result=wide), operands


def _convolution(o: _Operator) -> Prepared:
    """A convolution, or the gradient of one that autograd wrote as a convolution.

    The gradient for the data has gaps between the elements of its input (`lhs_dilation`, the stride), as a transposed
    convolution has, or filters in the opposite order. The gradient for the filters sums over the first axis of both
    operands, the images, and its filters are the gradient of the result.
    """
    p, (x, w), y = o.params, o.operands, o.results[0]
    numbers = p["dimension_numbers"]
    of_x, of_w, of_y = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    if not x.is_dense:
        x = o.copied(0, range(len(x.shape)))
    image, filters, outputs = ([a.shape[i] for i in spec] for a, spec in ((x, of_x), (w, of_w), (y, of_y)))
    sides, stride, gaps, dilation = filters[2:], p["window_strides"], p["lhs_dilation"], p["rhs_dilation"]
    low = [before for before, _ in p["padding"]]
    groups, batch_groups = p["feature_group_count"], p["batch_group_count"]
    precision = PRODUCT_PRECISIONS.get((w.kind, x.kind))
    settings = {"layout": _layout(x, of_x[1])}
    if y.element_bytes == 4 and precision != "f32":
        settings["result"] = "wide"
    elif precision in ("i8", "i8u8"):
        return None
    if any(n != 1 for n in gaps) or (w.is_reversed and batch_groups == 1):
        if any(n != 1 for n in stride) or batch_groups != 1:
            return None
        # The convolution from the result to the input has this stride.
        pads = [d * (n - 1) - before for d, n, before in zip(dilation, sides, low, strict=True)]
        window = Window(sides, gaps, pads, dilation)
        return rules.convolution(window, outputs, image, precision, "backward_data", groups, o.notes, **settings), [
            x,
            w,
        ]
    if groups == 1 and (batch_groups > 1 or (of_x[1] == 0 and of_w[1] == 0)):
        # The images are where the channels would be, and the filters are as large as the result of the convolution.
        settings["layout"] = _layout(x, of_x[0])
        window = Window(outputs[2:], dilation, low, stride)
        image, of_image = [image[1], image[0], *image[2:]], [filters[1], filters[0], *sides]
        kernel = rules.convolution(
            window, image, of_image, precision, "backward_weights", batch_groups, o.notes, **settings
        )
        return kernel, [x, w]
    if batch_groups != 1:
        return None
    window = Window(sides, stride, low, dilation)
    return rules.convolution(window, image, outputs, precision, "forward", groups, o.notes, **settings), [x, w]


def _layout(image: _Array, channels: int) -> str:
    """By the axis of the channels."""
    return "nhwc" if image.strides[channels] == 1 and image.shape[channels] > 1 else "nchw"


def _pooled(o: _Operator) -> Prepared:
    return _pooling(POOLING[o.name], o, o.operands[0], o.results[0], "forward"), o.operands


def _unpooled(o: _Operator) -> Prepared:
    dy, x = o.operands[:2]
    return _pooling("max", o, x, dy, "backward"), o.operands


def _pooling(kind: str, o: _Operator, x: _Array, y: _Array, direction: str) -> str:
    """Windows over the axes in the middle are those of images with channels last."""
    p = o.params
    rank, windows = len(x.shape), p["window_dimensions"]
    used = [i for i in range(rank) if windows[i] != 1 or p["window_strides"][i] != 1]
    if any(n != 1 for n in p.get("base_dilation") or ()) or rank < 3 or not used:
        raise BadInput("not the windows of images")
    last = all(0 < i < rank - 1 for i in used)
    axes, channel = (list(range(1, rank - 1)), rank - 1) if last else (list(range(2, rank)), 1)
    if not set(used) <= set(axes) or not x.is_row_major:
        raise BadInput("not the windows of images")
    dilation = p.get("window_dilation") or (1,) * rank
    low = [before for before, _ in p["padding"]]
    window = Window(*([values[i] for i in axes] for values in (windows, p["window_strides"], low, dilation)))
    image, outputs = ([shape[i] for i in (0, channel, *axes)] for shape in (x.shape, y.shape))
    layout = "nhwc" if last else "nchw"
    return rules.pooling(kind, window, image, outputs, PRECISIONS.get(x.kind), direction, o.notes, layout=layout)


def _elementwise(o: _Operator) -> Prepared:
    return _same(ELEMENTWISE[o.name], o.operands), o.operands


def _maximum(o: _Operator) -> Prepared:
    """The larger of a number and 0."""
    arrays = [a for a in o.operands if a.constant is None]
    zeros = [a for a in o.operands if a.constant == 0]
    return (_same("relu", arrays), arrays) if len(arrays) == len(zeros) == 1 else None


def _clamped(o: _Operator) -> Prepared:
    low, x, high = o.operands
    if low.constant is None or high.constant is None:
        return None
    return _same("relu6" if (low.constant, high.constant) == (0, 6) else "hardtanh", [x]), [x]


def _same(kind: str, arrays: Sequence[_Array]) -> str:
    """An elementwise function of arrays of one shape, type and order."""
    first = arrays[0]
    if not all((a.shape, a.strides, a.kind) == (first.shape, first.strides, first.kind) for a in arrays):
        raise BadInput("the operands differ in shape or order")
    if not first.is_dense:
        raise BadInput("the operands have gaps")
    return rules.elementwise(kind, first.size, PRECISIONS.get(first.kind))


def _reduced(o: _Operator) -> Prepared:
    x = o.operands[0]
    if not x.is_row_major:
        return None
    return rules.reduction(REDUCTIONS[o.name], x.shape, o.params["axes"], PRECISIONS.get(x.kind)), o.operands


def _gathered(o: _Operator) -> Prepared:
    """Whole rows of a table, chosen by their numbers."""
    table, numbers = o.operands[0], o.params["dimension_numbers"]
    is_row = (tuple(numbers.collapsed_slice_dims), tuple(numbers.start_index_map)) == ((0,), (0,))
    if len(table.shape) != 2 or not is_row or tuple(o.params["slice_sizes"]) != (1, table.shape[1]):
        return None
    bags = o.results[0].size // table.shape[1]
    return rules.embedding(*table.shape, bags, PRECISIONS.get(table.kind)), o.operands


def _embedding_gradient(equation: Any, table: _Array, update: _Array, indices: _Array) -> str | None:
    """Rows that are added to a table of zeros."""
    numbers = equation.params["dimension_numbers"]
    is_row = (tuple(numbers.inserted_window_dims), tuple(numbers.scatter_dims_to_operand_dims)) == ((0,), (0,))
    if len(table.shape) != 2 or not is_row:
        return None
    try:
        bags = update.size // table.shape[1]
        return rules.embedding(*table.shape, bags, PRECISIONS.get(update.kind), "backward")
    except BadInput:
        return None


def _top_k(o: _Operator) -> Prepared:
    x = o.operands[0]
    axis = o.params.get("axis", o.params.get("dimension", -1))
    if axis not in (-1, len(x.shape) - 1) or not x.is_row_major:
        return None
    return rules.top_k(x.shape, o.params["k"], PRECISIONS.get(x.kind)), o.operands


KERNELS: dict[str, Callable[[_Operator], Prepared]] = {
    "dot_general": _product,
    "conv_general_dilated": _convolution,
    "select_and_scatter_add": _unpooled,
    "max": _maximum,
    "clamp": _clamped,
    "gather": _gathered,
    "top_k": _top_k,
    **dict.fromkeys(POOLING, _pooled),
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(REDUCTIONS, _reduced),
}
