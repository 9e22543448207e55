"""What the Python reference of a definition computes, without running it.

The text is parsed (`ast.parse` executes nothing) and its function becomes one expression of its inputs, in a form that
does not depend on how it was written: casts are left out, `x * x` and `x.pow(2)` are the same, and so are `silu(x)` and
`x * sigmoid(x)`. The expression is then one of those that compute an operation, or it computes something else. What
cannot be written as one expression, such as a loop, is judged by the functions that it calls.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from deepbench.core.errors import shorten
from deepbench.core.json_lines import printable

# The longest reference of FlashInfer-Trace has 12,000 characters.
MOST_CHARACTERS = 40_000

# Parts of an expression, and functions that call each other.
MOST_PARTS = 1000
MOST_CALLS = 10

NO_PYTHON = "it is no Python that can be read"

# Characters of an expression in a sentence.
MOST_OF_EXPRESSION = 100

# A number that is added to a mean so that a root of it is not zero.
LARGEST_EPSILON = 1e-2


@dataclass(frozen=True)
class ReferenceVerdict:
    """Whether a reference computes an operation and nothing else; both None: it does."""

    other: str | None = None
    """What else it computes, as a sentence without its subject."""
    doubt: str | None = None
    """Why that cannot be said. Of attention, only the functions that a reference calls are compared."""


class _Unclear(Exception):
    """The text cannot be written as one expression; the argument says why."""


Kind = Literal["value", "number", "size", "epsilon", "sum", "product", "power", "call", "layout", "unknown", "word"]


@dataclass(frozen=True)
class _Term:
    """An expression. Equal expressions have an equal text."""

    kind: Kind
    text: str
    parts: tuple[_Term, ...] = ()
    number: float = 0.0
    """The value of a number, and the exponent of a power."""
    count: int = 1
    """The term and its parts."""


def _term(kind: Kind, text: str, parts: Sequence[_Term] = (), number: float = 0.0) -> _Term:
    count = 1 + sum(part.count for part in parts)
    if count > MOST_PARTS:
        raise _Unclear("it is too long")
    return _Term(kind, text, tuple(parts), number, count)


def _number(value: float) -> _Term:
    rounded = float(f"{value:.4g}")  # references have constants with different numbers of digits
    return _term("number", f"{rounded:g}", number=rounded)


# A number that depends on shapes alone, and functions that make one of others.
SIZE = _Term("size", "size")
OF_NUMBERS = {"exp", "log", "log2", "tanh", "maximum", "minimum", "max", "min", "sum", "prod", "floor", "ceil"}
EPSILON = _Term("epsilon", "eps")


def _in_brackets(term: _Term) -> str:
    return f"({term.text})" if term.kind in ("sum", "product", "power") else term.text


def _sum(*terms: _Term) -> _Term:
    flat = [part for term in terms for part in (term.parts if term.kind == "sum" else (term,))]
    constant = sum(part.number for part in flat if part.kind == "number")
    rest = [part for part in flat if part.kind not in ("number", "epsilon")]
    rest.sort(key=lambda part: (part.text.startswith("-"), part.text))
    is_tiny = bool(rest) and 0 < constant <= LARGEST_EPSILON
    if is_tiny or EPSILON in flat:
        rest.append(EPSILON)
    if is_tiny:
        constant = 0
    if constant or not rest:
        rest.append(_number(constant))
    if all(part.kind in ("number", "size") for part in rest) and len(rest) > 1:
        return SIZE
    return rest[0] if len(rest) == 1 else _term("sum", " + ".join(part.text for part in rest), rest)


def _product(*terms: _Term) -> _Term:
    flat = [part for term in terms for part in (term.parts if term.kind == "product" else (term,))]
    constant = math.prod(part.number for part in flat if part.kind == "number")
    exponents: dict[str, float] = {}
    bases: dict[str, _Term] = {}
    for part in flat:
        if part.kind != "number":
            base = part.parts[0] if part.kind == "power" else part
            bases[base.text] = base
            exponents[base.text] = exponents.get(base.text, 0.0) + (part.number if part.kind == "power" else 1.0)
    rest = [_power(bases[text], exponents[text]) for text in sorted(bases) if exponents[text]]
    if rest and all(part.kind == "size" for part in rest):
        return SIZE
    if constant != 1 or not rest:
        rest.insert(0, _number(constant))
    return rest[0] if len(rest) == 1 else _term("product", " * ".join(map(_in_sum, rest)), rest)


def _in_sum(term: _Term) -> str:
    return f"({term.text})" if term.kind == "sum" else term.text


def _power(base: _Term, exponent: float) -> _Term:
    if exponent == 1:
        return base
    if base.kind == "number":
        value = base.number**exponent
        if isinstance(value, complex):
            raise _Unclear("it has a root of a negative number")
        return _number(value)
    if base.kind == "power" and base.number != 2:  # the root of a square is no identity
        return _power(base.parts[0], base.number * exponent)
    return _term("power", f"{_in_brackets(base)} ** {exponent:.4g}", [base], exponent)


def _call(name: str, *parts: _Term) -> _Term:
    if parts and name in OF_NUMBERS and all(part.kind in ("number", "size") for part in parts):
        return SIZE
    return _term("call", f"{name}({', '.join(part.text for part in parts)})", parts)


def _minus(term: _Term) -> _Term:
    return _product(_number(-1), term)


def _sigmoid(x: _Term) -> _Term:
    return _power(_sum(_number(1), _call("exp", _minus(x))), -1)


def _mean(x: _Term) -> _Term:
    return _product(_call("sum", x), _power(SIZE, -1))


def _variance(x: _Term) -> _Term:
    return _mean(_power(_sum(x, _minus(_mean(x))), 2))


def _gelu_tanh(x: _Term) -> _Term:
    cubed = _product(_number(0.044715), _power(x, 3))
    inner = _product(_number(math.sqrt(2 / math.pi)), _sum(x, cubed))
    return _product(_number(0.5), x, _sum(_number(1), _call("tanh", inner)))


def _limited(x: _Term, low: _Term | None, high: _Term | None) -> _Term:
    x = x if low is None else _call("maximum", x, low)
    return x if high is None else _call("minimum", x, high)


# ---- functions of PyTorch

# They keep the values, but for their rounding.
SAME = {
    *("to", "float", "half", "bfloat16", "double", "type", "type_as", "contiguous", "clone", "detach", "cpu", "cuda"),
    *("unsqueeze", "squeeze", "expand", "expand_as", "broadcast_to", "asarray", "astype", "as_tensor"),
}
# They keep the values in another order.
ORDER = {
    *("t", "transpose", "permute", "swapaxes", "swapdims", "movedim", "view", "reshape", "flatten", "unflatten"),
    *("T", "mT", "H", "mH"),
}
# Types to which a cast rounds no more than a precision of ours does.
TYPES = re.compile(r"(?:.*\.)?(?:float(?:16|32|64)?|bfloat16|half|double|int32|dtype|device)|cpu|cuda(?::\d+)?|None")

SIMPLE: dict[str, Callable[[_Term], _Term]] = {
    "neg": _minus,
    "negative": _minus,
    "square": lambda x: _power(x, 2),
    "sqrt": lambda x: _power(x, 0.5),
    "rsqrt": lambda x: _power(x, -0.5),
    "reciprocal": lambda x: _power(x, -1),
    "sigmoid": _sigmoid,
    "expit": _sigmoid,
    "silu": lambda x: _product(x, _sigmoid(x)),
    "swish": lambda x: _product(x, _sigmoid(x)),
    "relu": lambda x: _limited(x, _number(0), None),
    "relu6": lambda x: _limited(x, _number(0), _number(6)),
}
PRODUCTS = {"matmul", "mm", "bmm", "dot"}
REDUCTIONS = {"sum", "mean", "amax", "max", "var", "softmax"}
MODULES = ("torch", "math", "np", "numpy", "jnp", "jax", "F", "nn", "functional")


@dataclass
class _Arguments:
    """Those of a call: by position, and by name."""

    values: list[_Term]
    named: dict[str, _Term]

    def get(self, position: int, *names: str) -> _Term | None:
        """An argument; None if it is left out or is None."""
        found = self.values[position] if len(self.values) > position else None
        for name in names:
            found = self.named.get(name, found)
        return None if found is None or found.text == "None" else found

    def need(self, position: int, *names: str) -> _Term:
        found = self.get(position, *names)
        if found is None:
            raise _Unclear("a function has fewer arguments than it needs")
        return found


def _applied(name: str, arguments: _Arguments) -> _Term:
    """A function of PyTorch, or a method of an array, whose values the first argument has."""
    get, need = arguments.get, arguments.need
    if get(99, "out") or (get(99, "inplace") or SIZE).text == "True":
        raise _Unclear("it changes an array in place")
    if name in SAME:
        kinds = [*arguments.values[1:], *arguments.named.values()]
        kind = next((k for k in kinds if k.kind == "word" and not TYPES.fullmatch(k.text)), None)
        if kind is not None and name in ("to", "type", "astype") and kind.text not in ("True", "False"):
            return _call(f"to_{kind.text.rpartition('.')[2]}", need(0))
        return need(0)
    if name in ORDER:
        return _layout(need(0))
    if name in SIMPLE:
        return SIMPLE[name](need(0))
    if name in PRODUCTS or (name in ("linear", "einsum", "addmm", "baddbmm")):
        return _matrix_product(name, arguments)
    if name in REDUCTIONS and not (name == "max" and (get(1) or SIZE).kind not in ("number", "size")):
        return _reduction(name, arguments)
    match name:
        case "add" | "sub" | "subtract":
            scaled = _product(need(1, "other"), get(99, "alpha") or _number(1))
            return _sum(need(0), scaled if name == "add" else _minus(scaled))
        case "mul" | "multiply":
            return _product(need(0), need(1, "other"))
        case "div" | "divide" | "true_divide" if get(99, "rounding_mode") is None:
            return _product(need(0), _power(need(1, "other"), -1))
        case "pow" if need(1, "exponent").kind == "number":
            return _power(need(0), need(1, "exponent").number)
        case "clamp" | "clip":
            return _limited(need(0), get(1, "min"), get(2, "max"))
        case "clamp_min" | "maximum" | "max":
            return _limited(need(0), need(1, "min", "other"), None)
        case "clamp_max" | "minimum":
            return _limited(need(0), None, need(1, "max", "other"))
        case "gelu" if (get(1, "approximate") or SIZE).text == "tanh":
            return _gelu_tanh(need(0))
        case "rms_norm":
            x = need(0)
            root = _power(_sum(_mean(_power(x, 2)), EPSILON), -0.5)
            return _product(x, root, get(2, "weight") or _number(1))
        case "layer_norm":
            x = need(0)
            root = _power(_sum(_variance(x), EPSILON), -0.5)
            scaled = _product(_sum(x, _minus(_mean(x))), root, get(2, "weight") or _number(1))
            return _sum(scaled, get(3, "bias") or _number(0))
        case "size" | "dim" | "numel":
            return SIZE
        case "zeros_like" | "ones_like":
            return _number(float(name == "ones_like"))
    named = [_term("word", f"{key}={value.text}") for key, value in sorted(arguments.named.items())]
    return _call(name, *arguments.values, *named)


def _layout(x: _Term) -> _Term:
    return x if x.kind in ("layout", "number", "size") else _term("layout", f"reordered({x.text})", [x])


def _without_layout(x: _Term) -> _Term:
    return x.parts[0] if x.kind == "layout" else x


def _matrix_product(name: str, arguments: _Arguments) -> _Term:
    get, need = arguments.get, arguments.need
    if name == "einsum":
        if len(arguments.values) != 3 or not _is_product(need(0).text):
            raise _Unclear("it calls einsum in a way that is not known")
        return _call("matmul", _without_layout(need(1)), _without_layout(need(2)))
    at = 1 if name in ("addmm", "baddbmm") else 0
    product = _call("matmul", _without_layout(need(at, "input")), _without_layout(need(at + 1, "weight", "other")))
    if at:
        one = _number(1)
        scaled = _product(get(99, "beta") or one, need(0, "input"))
        return _sum(scaled, _product(get(99, "alpha") or one, product))
    bias = get(2, "bias") if name == "linear" else None
    return product if bias is None else _sum(product, bias)


def _is_product(text: str) -> bool:
    """Whether the indices of an einsum are those of a product of two matrices, or of many."""
    match = re.fullmatch(
        r"(?:\.\.\.)?([a-z]{2,4}),(?:\.\.\.)?([a-z]{2,4})->(?:\.\.\.)?([a-z]{2,4})", text.replace(" ", "")
    )
    if match is None or any(len(set(letters)) < len(letters) for letters in match.groups()):
        return False
    left, right, result = map(set, match.groups())
    return len((left & right) - result) == 1 and result == (left ^ right) | (left & right & result)


def _reduction(name: str, arguments: _Arguments) -> _Term:
    """Over the last axis."""
    x, axis = arguments.need(0), arguments.get(1, "dim", "axis")
    if x.kind == "layout" or "reordered(" in x.text:
        raise _Unclear(f"it calls {name} after it has reordered its array")
    if axis is None or axis.kind != "number":
        raise _Unclear(f"it calls {name} without a plain axis")
    if axis.number != -1:
        return _call(name, x, _term("word", f"axis {axis.text}"))
    if name == "var":
        biased = arguments.get(99, "unbiased", "correction")
        return _variance(x) if biased is not None and biased.text in ("False", "0") else _call("unbiased_variance", x)
    return _mean(x) if name == "mean" else _call(name.removeprefix("a"), x)


# ---- reading


Function = ast.FunctionDef
Scope = dict[str, _Term]


class _Evaluator:
    """Evaluates the statements of functions to expressions."""

    def __init__(self, tree: ast.Module, inputs: Mapping[str, _Term], axes: int) -> None:
        self.inputs = inputs
        self.axes = axes  # of the first array
        self.functions: dict[str, Function] = {}
        self.methods: dict[str, Function] = {}
        self.constants: Scope = {}
        self.depth = 0
        for node in tree.body:
            match node:
                case ast.FunctionDef():
                    self.functions[node.name] = node
                case ast.ClassDef():
                    self.methods |= {f.name: f for f in node.body if isinstance(f, ast.FunctionDef)}
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() | float() as value)):
                    self.constants[name] = _number(value)

    def result(self) -> _Term:
        """The expression of `run`, or of the method `forward` of a module."""
        function = self.functions.get("run") or self.methods.get("forward")
        if function is None:
            raise _Unclear("it has no function run")
        return self._called(function, {name: self._input(name) for name in _parameters(function)})

    def _input(self, name: str) -> _Term:
        return self.inputs.get(name) or _term("word", "self" if name == "self" else f"input {name}")

    def _called(self, function: Function, scope: Scope) -> _Term:
        self.depth += 1
        if self.depth > MOST_CALLS:
            raise _Unclear("its functions call each other many times")
        found = self._run(function.body, scope)
        self.depth -= 1
        if found is None:
            raise _Unclear(f"its function {function.name} returns nothing")
        return found

    def _run(self, body: Sequence[ast.stmt], scope: Scope) -> _Term | None:
        for node in body:
            match node:
                case ast.Return(value=ast.Tuple(elts=[only])) | ast.Return(value=ast.expr() as only):
                    return self.value(only, scope)
                case ast.Assign(targets=[ast.Name(id=name)]):
                    scope[name] = self.value(node.value, scope)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    scope[name] = self.value(value, scope)
                case ast.Assign(targets=[ast.Tuple(elts=targets)]):
                    self._unpack(targets, node.value, scope)
                case ast.AugAssign(target=ast.Name(id=name)):
                    scope[name] = self.value(ast.BinOp(ast.Name(name), node.op, node.value), scope)
                case ast.Expr(value=ast.Constant()) | ast.Assert() | ast.Import() | ast.ImportFrom() | ast.Pass():
                    continue
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(), attr=attribute)) as call) if (
                    attribute.endswith("_")
                ):
                    self.value(call, scope)
                case ast.With():
                    if (found := self._run(node.body, scope)) is not None:
                        return found
                case _:
                    raise _Unclear(f"it has {STATEMENTS.get(type(node).__name__, 'a statement that is not known')}")
        return None

    def _unpack(self, targets: Sequence[ast.expr], value: ast.expr, scope: Scope) -> None:
        values = [self.value(v, scope) for v in value.elts] if isinstance(value, ast.Tuple) else None
        if values is None and self.value(value, scope).kind == "size":
            values = [SIZE] * len(targets)
        if values is None or len(values) != len(targets) or not all(isinstance(t, ast.Name) for t in targets):
            raise _Unclear("it takes parts of arrays")
        scope |= {target.id: v for target, v in zip(targets, values, strict=True) if isinstance(target, ast.Name)}

    def value(self, node: ast.expr, scope: Scope) -> _Term:
        match node:
            case ast.Constant(value=bool() | None | str() as constant):
                return _term("word", str(constant)[:200])
            case ast.Constant(value=int() | float() as constant):
                return _number(float(constant))
            case ast.Name(id=name):
                return self._named(name, scope)
            case ast.Attribute():
                return self._attribute(node, scope)
            case ast.Subscript():
                return self._subscript(node, scope)
            case ast.UnaryOp(op=ast.USub()):
                return _minus(self.value(node.operand, scope))
            case ast.BinOp():
                return self._operator(node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.Tuple() | ast.List():
                parts = [self.value(part, scope) for part in node.elts]
                return SIZE if all(p.kind in ("size", "number") for p in parts) else _term("word", "a list")
        raise _Unclear(f"it has {STATEMENTS.get(type(node).__name__, 'an expression that is not known')}")

    def _named(self, name: str, scope: Scope) -> _Term:
        if name in MODULES:
            return _term("word", name)
        found = scope.get(name) or self.constants.get(name) or self.inputs.get(name)
        return found or _term("unknown", name)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> _Term:
        base, name = self.value(node.value, scope), node.attr
        if base.text == "self":
            return self.inputs.get(name) or _term("unknown", name)
        if base.kind == "word":
            known = {"math.pi": math.pi, "math.e": math.e, "math.inf": math.inf}
            text = f"{base.text}.{name}"
            return _number(known[text]) if text in known else _term("word", text)
        if name in ("shape", "ndim", "size"):
            return SIZE
        if name in ("dtype", "device"):
            return _term("word", name)
        if name in ORDER:
            return _layout(base)
        if name in ("data", "values"):
            return base
        raise _Unclear(f"it uses .{name}")

    def _subscript(self, node: ast.Subscript, scope: Scope) -> _Term:
        base = self.value(node.value, scope)
        if base.kind == "size":
            return SIZE
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if base.text.startswith("max(") and isinstance(node.slice, ast.Constant) and node.slice.value == 0:
            return base  # the values, without their places
        whole = ast.Slice()
        if all(ast.dump(i) == ast.dump(whole) or getattr(i, "value", 0) in (None, ...) for i in indices):
            return base
        raise _Unclear("it takes parts of arrays")

    def _operator(self, node: ast.BinOp, scope: Scope) -> _Term:
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        match node.op:
            case ast.Add():
                return _sum(left, right)
            case ast.Sub():
                return _sum(left, _minus(right))
            case ast.Mult():
                return _product(left, right)
            case ast.Div():
                return _product(left, _power(right, -1))
            case ast.MatMult():
                return _call("matmul", _without_layout(left), _without_layout(right))
            case ast.Pow() if right.kind == "number":
                return _power(left, right.number)
            case ast.FloorDiv() | ast.Mod() if {left.kind, right.kind} <= {"size", "number"}:
                return SIZE
        raise _Unclear(f"it has an operator that is not known ({ast.unparse(node.op) or type(node.op).__name__})")

    def _call(self, node: ast.Call, scope: Scope) -> _Term:
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            raise _Unclear("it passes arguments in a list")
        arguments = _Arguments(
            [self.value(a, scope) for a in node.args], {str(k.arg): self.value(k.value, scope) for k in node.keywords}
        )
        match node.func:
            case ast.Name(id=name) if name in self.functions:
                return self._inlined(self.functions[name], arguments)
            case ast.Name(id="float" | "int" | "abs" | "min" | "max" | "len" as name):
                known = [*arguments.values, *arguments.named.values()]
                if name == "len" or all(a.kind in ("size", "number") for a in known):
                    return known[0] if len(known) == 1 and known[0].kind == "number" and name != "len" else SIZE
                raise _Unclear(f"it calls {name}")
            case ast.Name(id=name):
                return _unknown(name, arguments)
            case ast.Attribute(value=base, attr=name):
                of = self.value(base, scope)
                if of.text == "self":
                    method = self.methods.get(name)
                    return self._inlined(method, arguments) if method else _unknown(name, arguments)
                plain = name.removesuffix("_")
                if of.kind == "word":
                    return self._applied(plain, arguments)
                found = self._applied(plain, _Arguments([of, *arguments.values], arguments.named))
                if name.endswith("_") and isinstance(base, ast.Name):
                    scope[base.id] = found
                return found
        raise _Unclear("it calls something without a name")

    def _applied(self, name: str, arguments: _Arguments) -> _Term:
        """A function of PyTorch, whose axis counts from the last where it is that."""
        axis = arguments.get(1, "dim", "axis")
        if name in (*REDUCTIONS, "log_softmax") and axis is not None and axis.text == str(self.axes - 1):
            values = [*arguments.values[:1], _number(-1), *arguments.values[2:]]
            rest = {name: value for name, value in arguments.named.items() if name not in ("dim", "axis")}
            arguments = _Arguments(values, rest)
        return _applied(name, arguments)

    def _inlined(self, function: Function, arguments: _Arguments) -> _Term:
        names = [name for name in _parameters(function) if name != "self"]
        given = dict(zip(names, arguments.values, strict=False)) | arguments.named
        defaults = function.args.defaults
        for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=False):
            given.setdefault(name, self.value(default, {}))
        if len(arguments.values) > len(names) or set(given) != set(names):
            raise _Unclear(f"it calls {function.name} with other arguments than it has")
        return self._called(function, given)


STATEMENTS = {
    **{"For": "a loop", "While": "a loop", "If": "a condition", "IfExp": "a condition", "Compare": "a comparison"},
    **{"BoolOp": "a condition", "Lambda": "a function without a name", "Try": "a try", "ListComp": "a loop"},
}


def _parameters(function: Function) -> list[str]:
    return [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def _unknown(name: str, arguments: _Arguments) -> _Term:
    parts = [*arguments.values, *arguments.named.values()]
    return _term("unknown", f"{name}({', '.join(part.text for part in parts)})", parts)


def _steps(term: _Term) -> dict[str, str]:
    """The operations in an expression, each with where it is; a constant that is used belongs to its operation."""
    found: dict[str, str] = {}
    todo = [term]
    while todo:
        one = todo.pop()
        constants = sorted(part.text for part in one.parts if part.kind in ("number", "epsilon"))
        match one.kind:
            case "power":
                found[f"power {one.number:.4g}"] = one.text
            case "call":
                found[" ".join([one.text.partition("(")[0], *constants])] = one.text
            case "sum" | "product":
                found[" ".join([f"{one.kind} of", *constants])] = one.text
        todo += one.parts
    return found


# ---- judging

# How the mathematics of each operation is written, of the inputs a, b and c.
FORMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("gemm", "batched_gemm"), ("torch.matmul(a, b)", "torch.matmul(b, a)")),
    "rms_norm": ("F.rms_norm(a, None, b, 1e-5)",),
    "layer_norm": ("F.layer_norm(a, None, b, c, 1e-5)",),
    "softmax": (
        "torch.softmax(a, -1)",
        "torch.exp(a) / torch.exp(a).sum(-1)",
        "torch.exp(a - a.amax(-1)) / torch.exp(a - a.amax(-1)).sum(-1)",
    ),
    **{f"elementwise {kind}": (f"F.{kind}(a)",) for kind in ("relu", "relu6", "silu", "sigmoid", "tanh")},
    "elementwise gelu_tanh": ("F.gelu(a, approximate='tanh')",),
    "elementwise add": ("a + b",),
    "elementwise multiply": ("a * b",),
    "elementwise swiglu": ("F.silu(a) * b", "a * F.silu(b)"),
}

# What references of attention call: a product, a softmax, a causal mask, and what moves values.
ATTENTION = {
    *("arange", "bmm", "cat", "contiguous", "einsum", "empty", "empty_like", "enumerate", "expand", "float", "full"),
    *("full_like", "inference_mode", "int", "item", "len", "log", "logsumexp", "long", "masked_fill", "matmul", "max"),
    *("min", "mm", "no_grad", "permute", "print", "range", "repeat_interleave", "reshape", "size", "softmax", "sqrt"),
    *("squeeze", "stack", "tensor", "to", "tolist", "transpose", "unsqueeze", "view", "zero", "zeros", "zeros_like"),
}

# Functions that change values. A reference that calls one which its operation has not computes something else.
ARITHMETIC = {
    *("abs", "alibi", "argsort", "ceil", "celu", "clamp", "clamp_max", "clamp_min", "clip", "cos", "cumprod", "cumsum"),
    *("dropout", "elu", "erf", "exp", "exp2", "expm1", "floor", "gelu", "glu", "group_norm", "hardsigmoid", "prelu"),
    *("hardswish", "hardtanh", "layer_norm", "leaky_relu", "log1p", "log_softmax", "logsigmoid", "mish", "normalize"),
    *("relu", "relu6", "rms_norm", "roll", "round", "rsqrt", "selu", "sigmoid", "sign", "silu", "sin", "softmax"),
    *("softplus", "softsign", "sort", "sqrt", "square", "std", "swish", "tanh", "topk", "tril", "triu", "var"),
}

# Words in the names of a reference that say which further work it does.
FURTHER_NAMES = {
    *("alibi", "bias", "dropout", "rope", "rotary", "sink", "sinks", "sliding", "softcap", "softcapping", "window"),
}


@cache
def _known(form: str, names: tuple[str, ...]) -> _Term:
    inputs = {letter: _term("value", name) for letter, name in zip("abc", names, strict=False)}
    return _Evaluator(ast.Module([], []), inputs, 2).value(ast.parse(form, mode="eval").body, {})


def judge(
    text: str, operation: str, inputs: Sequence[str], axes: int = 2, epsilons: Sequence[str] = ()
) -> ReferenceVerdict:
    """Whether a reference computes `operation` (`gemm`, `elementwise silu`, `attention`, …) of its inputs.

    `axes`: of the first input. `epsilons`: inputs that are added to a mean.
    """
    if not text.strip(". \t\n"):
        return ReferenceVerdict(doubt="there is none")
    if len(text) > MOST_CHARACTERS:
        return ReferenceVerdict(doubt=f"it has {len(text)} characters, and at most {MOST_CHARACTERS} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as an escape in a string that Python will not have one day
            tree = ast.parse(text)
        if operation == "attention":
            found = _by_calls(tree, ATTENTION)
            return found if found.other or found.doubt else ReferenceVerdict(doubt=_lacks_attention(tree))
        try:
            values = {name: _term("value", name) for name in inputs} | dict.fromkeys(epsilons, EPSILON)
            return _compared(_Evaluator(tree, values, axes).result(), operation, tuple(inputs))
        except _Unclear as error:
            forms = [_steps(_known(form, ("a", "b", "c"))) for form in FORMS[operation]]
            allowed = {step.partition(" ")[0] for steps in forms for step in steps} | WRITTEN.get(operation, set())
            found = _by_calls(tree, allowed | SAME | ORDER)
            return found if found.other else ReferenceVerdict(doubt=str(error))
    except (SyntaxError, ValueError, MemoryError, RecursionError, ArithmeticError):
        return ReferenceVerdict(doubt=NO_PYTHON)


# Functions that references of an operation call besides those of its forms.
WRITTEN: dict[str, set[str]] = {
    "rms_norm": {"rsqrt", "sqrt", "square", "rms_norm", "clamp"},
    "layer_norm": {"rsqrt", "sqrt", "square", "layer_norm", "var", "std"},
    "elementwise silu": {"silu", "sigmoid", "exp"},
    "elementwise sigmoid": {"sigmoid", "exp"},
    "elementwise swiglu": {"silu", "sigmoid", "exp"},
    "elementwise relu": {"relu", "clamp", "clamp_min"},
    "elementwise relu6": {"relu6", "clamp", "relu"},
    "elementwise gelu_tanh": {"gelu", "tanh", "sqrt"},
}


def _compared(found: _Term, operation: str, inputs: tuple[str, ...]) -> ReferenceVerdict:
    known = [_known(form, inputs) for form in FORMS[operation]]
    if "gemm" in operation:
        found = _without_layout(found)
    if found.text in {term.text for term in known}:
        return ReferenceVerdict()
    allowed = {step for term in known for step in _steps(term)}
    other = next((text for step, text in _steps(found).items() if step not in allowed), None)
    if unknown := next(iter(_unknown_names(found)), None):
        return (
            ReferenceVerdict(other=f"computes {_shown(other)}")
            if other
            else ReferenceVerdict(doubt=f"{unknown} is not defined in it")
        )
    if "reordered(" in found.text:
        return ReferenceVerdict(doubt="it reorders its arrays")
    is_long = other is not None and len(found.text) > MOST_OF_EXPRESSION
    return ReferenceVerdict(other=f"computes {_shown(other if other and is_long else found.text)}")


def _unknown_names(term: _Term) -> list[str]:
    todo, names = [term], list[str]()
    while todo:
        one = todo.pop()
        if one.kind == "unknown":
            names.append(_shown(one.text.partition("(")[0]))
        todo += one.parts
    return names


def _shown(text: str) -> str:
    return shorten(printable(text.replace(" + -1 * ", " - ")), MOST_OF_EXPRESSION)


def _lacks_attention(tree: ast.Module) -> str | None:
    """Why a reference that calls nothing else may not be attention: it has no product, or no softmax."""
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    }
    has_product = any(isinstance(node, ast.MatMult) for node in ast.walk(tree))
    if not has_product and not called & {*PRODUCTS, "einsum"}:
        return "it has no product"
    return None if "softmax" in called else "it has no softmax"


def _by_calls(tree: ast.Module, allowed: set[str]) -> ReferenceVerdict:
    """By the functions that are called, the operators, and the names; not by what they are applied to."""
    asserted = {inner for node in ast.walk(tree) if isinstance(node, ast.Assert) for inner in ast.walk(node)}
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    doubt = None
    has_function = False
    for node in ast.walk(tree):
        if node in asserted:
            continue
        match node:
            case ast.FunctionDef():
                has_function = True
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name not in defined:
                plain = name.removesuffix("_")
                if plain in ARITHMETIC - allowed:
                    return ReferenceVerdict(other=f"calls {_shown(plain)}")
                if plain not in allowed:
                    doubt = doubt or f"it calls {_shown(plain)}"
            case ast.BinOp(op=ast.BitAnd() | ast.BitOr() | ast.BitXor()) if allowed is ATTENTION:
                return ReferenceVerdict(other="joins two masks")
            case ast.BinOp(op=ast.Mult() | ast.Div(), right=ast.Constant()) if allowed is ATTENTION:
                doubt = doubt or f"it has {_shown(ast.unparse(node))}"
            case ast.BinOp(op=ast.Mult(), left=ast.Constant()) if allowed is ATTENTION:
                doubt = doubt or f"it has {_shown(ast.unparse(node))}"
            case ast.Name(id=name) | ast.arg(arg=name) if allowed is ATTENTION:
                words = set(re.split("[^a-z]+", name.lower()))
                if further := sorted(words & FURTHER_NAMES):
                    return ReferenceVerdict(other=f"has {further[0]} (its name {_shown(name)})")
    return ReferenceVerdict(doubt=doubt if has_function else "it has no function")
