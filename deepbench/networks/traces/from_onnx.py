"""The operators of a network in an ONNX file: its forward pass, in the order of the file.

Nothing is executed. Only the package `onnx` is needed; files with weights next to them (external data) are read without
these, because sizes are in the file. Dimensions that a file leaves open have to be stated by the names that it gives
them, such as `batch`, or by input and axis, such as `x.0`.

- **Before optimization.** A trace has the operators of the file. Runtimes join some of them, such as a convolution with
  the normalization and activation after it.
- **Constants.** What depends on weights and sizes alone is computed when a network is loaded, so it is no operator
  here. Weights are parameters if they are floats that an operator reads, and no single number.
- **Views.** `Reshape`, `Flatten`, `Squeeze`, `Unsqueeze`, `Identity`, `Dropout` and a `Cast` to the same type move
  nothing. A `Transpose` is a copy.
- **Padding.** Where one end of an image is padded more than the other, see `rules.py`.
- **Quantized networks.** Integer products and convolutions are kernels in i8 or i8u8 where we have the same. Where a
  file stands for a quantized operator with one in floats between `DequantizeLinear` and `QuantizeLinear`, the kernel is
  that of the floats.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deepbench.core.aliases import did_you_mean
from deepbench.core.errors import IMPORT_ERRORS, BadInput, not_loaded, shorten
from deepbench.core.json_lines import printable
from deepbench.core.problem import LARGEST_SIZE
from deepbench.networks.traces import kernel_rules as rules
from deepbench.networks.traces.kernel_rules import Window
from deepbench.networks.traces.kernels import kernel_text
from deepbench.networks.traces.onnx_file import read_onnx
from deepbench.networks.traces.recorder import Recorder
from deepbench.networks.traces.trace import Trace

# Some 6 s. A language model of 100 layers has 10,000. Functions of a file count as often as they are called.
MOST = {
    "operators": 20_000,
    "inputs and outputs of operators": 300_000,
    "bytes of operators": 32 * 2**20,
    "weights and inputs": 50_000,
}
MOST_FUNCTION_DEPTH = 50

# Sizes that are computed from sizes, in 1 ms each.
MOST_COMPUTED = 4000

# Axes of an array, characters of a text such as the equation of `Einsum`, sets of operators, and their versions.
MOST_AXES = 16
LONGEST_TEXT = 1000
MOST_OPSETS = 100
LATEST_OPSET = 10_000

# Constants with more elements than this are no sizes, and their values are not needed.
MOST_SIZES = 1024
MOST_SIZES_BYTES = 2**14

MOST_ELEMENTS = 2**48

# Numbers of types in ONNX: their names, and bytes of an element.
TYPES = {
    1: ("f32", 4.0),
    2: ("u8", 1.0),
    3: ("s8", 1.0),
    4: ("u16", 2.0),
    5: ("s16", 2.0),
    6: ("s32", 4.0),
    7: ("s64", 8.0),
    8: ("text", 8.0),
    9: ("bool", 1.0),
    10: ("f16", 2.0),
    11: ("f64", 8.0),
    12: ("u32", 4.0),
    13: ("u64", 8.0),
    14: ("c64", 8.0),
    15: ("c128", 16.0),
    16: ("bf16", 2.0),
    17: ("f8e4m3", 1.0),
    18: ("f8e4m3fnuz", 1.0),
    19: ("f8e5m2", 1.0),
    20: ("f8e5m2fnuz", 1.0),
    21: ("u4", 0.5),
    22: ("s4", 0.5),
    23: ("f4e2m1", 0.5),
}
FLOATS = ("f32", "f16", "bf16", "f64")
INTEGERS = {("s8", "s8"): "i8", ("s8", "u8"): "i8u8"}
"""By the types of weights and data."""

OWN_DOMAINS = ("", "ai.onnx")
CONTROL_FLOW = ("If", "Loop", "Scan", "SequenceMap")
VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")

# Operators whose results have the shape of their first input, which the package `onnx` does not say.
UNINFERRED = ("GroupNormalization", "MeanVarianceNormalization")

# Operators that compute sizes from sizes.
SIZES = (
    *("Constant", "Gather", "Slice", "Concat", "Unsqueeze", "Squeeze", "Cast", "Reshape", "Identity", "Transpose"),
    *("Add", "Sub", "Mul", "Div", "Mod", "Neg", "Abs", "Min", "Max", "Floor", "Ceil", "Round", "Sqrt", "ReduceProd"),
    *("Equal", "Less", "Greater", "Not", "And", "Or", "Where", "Range", "ConstantOfShape", "Expand", "Tile", "Split"),
)


def import_onnx() -> Any:
    """The module `onnx`; `Unavailable` without it."""
    try:
        import onnx
        import onnx.inliner
    except IMPORT_ERRORS as error:
        raise not_loaded("ONNX", error, "pip install onnx") from None
    return onnx


def trace_onnx(path: Path, dimensions: Mapping[str, int], title: str | None = None) -> Trace:
    """The operators of the forward pass of an ONNX file. `dimensions` are values of those that the file leaves open.

    `BadInput` for files that are damaged or have control flow, and for dimensions that are missing.
    """
    onnx, name = import_onnx(), printable(str(path))
    try:
        graph = _OnnxGraph(onnx, _model(onnx, path), name, dimensions)
        graph.run()
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
        raise BadInput(f"{name} is damaged ({type(error).__name__})") from None
    stated = ", ".join(f"{n} {v}" for n, v in dimensions.items())
    return graph.record.trace(
        title or ", ".join(filter(None, [printable(path.stem), stated])),
        f"{printable(path.name)}, ONNX",
        False,
        graph.parameters(),
    )


def _model(onnx: Any, path: Path) -> Any:
    """The content of the file. Functions of the file are replaced by what they do."""
    name = printable(str(path))
    model = read_onnx(onnx, path)
    if not model.graph.node:
        raise BadInput(f"{name} has no operator; wanted an ONNX file with a network")
    _require_few(model, name)
    if model.functions:
        try:
            model = onnx.inliner.inline_local_functions(model)
        except Exception as error:
            reason = shorten(printable(str(error)), 200)
            raise BadInput(f"{name} has functions that cannot be replaced by their operators ({reason})") from None
    for node in model.graph.node:
        if node.op_type in CONTROL_FLOW and node.domain in OWN_DOMAINS:
            raise BadInput(
                f"{name} has the operator {node.op_type} ({shorten(printable(node.name)) or 'without a name'}), which "
                "runs a network of its own, and such operators are not read; export the network without control flow"
            )
    return model


def _require_few(model: Any, name: str) -> None:
    """`BadInput` if the operators are too many once functions are replaced by what they do."""
    if len(model.opset_import) > MOST_OPSETS:
        raise BadInput(f"{name} names {len(model.opset_import)} sets of operators; at most {MOST_OPSETS} are read")
    if wrong := [o.version for o in model.opset_import if not 1 <= o.version <= LATEST_OPSET]:
        raise BadInput(f"{name} has operators of opset {wrong[0]}; wanted a version from 1 to {LATEST_OPSET}")
    bodies = {(f.domain, f.name, getattr(f, "overload", "")): f.node for f in model.functions}
    known: dict[tuple[str, str, str], Counter[str]] = {}

    def size_of(nodes: Any, depth: int) -> Counter[str]:
        if depth > MOST_FUNCTION_DEPTH:
            raise BadInput(
                f"{name} has functions that call each other more than {MOST_FUNCTION_DEPTH} deep, or forever"
            )
        total = Counter[str]()
        for node in nodes:
            key = (node.domain, node.op_type, getattr(node, "overload", ""))
            if key in bodies:
                if key not in known:
                    known[key] = size_of(bodies[key], depth + 1)
                total.update(known[key])
            else:
                total.update(dict(zip(MOST, (1, len(node.input) + len(node.output), node.ByteSize()), strict=False)))
            for attribute in node.attribute:
                for graph in (attribute.g, *attribute.graphs):
                    total.update(size_of(graph.node, depth + 1))
        return total

    found = size_of(model.graph.node, 0)
    found["weights and inputs"] = len(model.graph.initializer) + len(model.graph.input)
    for what, most in MOST.items():
        if found[what] > most:
            raise BadInput(
                f"{name} has {found[what]} {what}, with its functions; at most {most} are read; trace a smaller network"
            )


@dataclass(frozen=True)
class _Tensor:
    """An array of the graph."""

    name: str
    shape: tuple[int, ...]
    kind: str
    element_bytes: float
    buffer: int
    is_constant: bool = False

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return math.ceil(self.size * self.element_bytes)


class _Node:
    """An operator with its arrays; None where an optional one is left out."""

    def __init__(self, node: Any, inputs: list[_Tensor | None], outputs: list[_Tensor | None], opset: int) -> None:
        self.kind, self.inputs, self.outputs, self.opset = node.op_type, inputs, outputs, opset
        self.attributes = {a.name: a for a in node.attribute}

    def input(self, index: int) -> _Tensor:
        """`BadInput` if there is none."""
        found = self.optional(index)
        if found is None:
            raise BadInput(f"{self.kind} lacks its input {index}")
        return found

    def optional(self, index: int) -> _Tensor | None:
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def output(self) -> _Tensor:
        found = self.outputs[0] if self.outputs else None
        if found is None:
            raise BadInput(f"{self.kind} lacks its output")
        return found

    def number(self, name: str, default: int) -> int:
        return int(self.attributes[name].i) if name in self.attributes else default

    def real(self, name: str, default: float) -> float:
        return float(self.attributes[name].f) if name in self.attributes else default

    def word(self, name: str, default: str) -> str:
        return self.attributes[name].s.decode(errors="replace") if name in self.attributes else default

    def numbers(self, name: str, default: Sequence[int]) -> list[int]:
        return [int(n) for n in self.attributes[name].ints] if name in self.attributes else list(default)


class _OnnxGraph:
    """The operators of a model with their arrays, which get their shapes one after the other."""

    def __init__(self, onnx: Any, model: Any, name: str, stated: Mapping[str, int]) -> None:
        self.onnx, self.name, self.graph, self.stated = onnx, name, model.graph, dict(stated)
        self.version, self.imports = model.ir_version, list(model.opset_import)
        self.opsets = {o.domain if o.domain != "ai.onnx" else "": o.version for o in self.imports}
        self.record = Recorder()
        self.known: dict[str, _Tensor | None] = {}
        """None: what is no array, such as a list of arrays."""
        self.types: dict[str, Any] = {}
        self.own_types = {v.name: v.type for v in (*self.graph.value_info, *self.graph.output)}
        self.weights = {tensor.name: tensor for tensor in self.graph.initializer}
        self.values: dict[str, Any] = {}
        """Constants whose values are known, such as sizes."""
        self.open: list[str] = []
        """Names of the dimensions that the file leaves open."""
        self.used: set[str] = set()
        self.computed = 0
        self.only_stated: set[str] = set()
        """Names of arrays whose shapes the file states, and the package `onnx` does not confirm."""
        for tensor in self.graph.sparse_initializer:
            raise BadInput(f"{name} has sparse weights ({shorten(printable(tensor.values.name))}), which are not read")
        for dimension, value in stated.items():
            if not 1 <= value <= LARGEST_SIZE:
                raise BadInput(f"{dimension} must be a whole number from 1 to {LARGEST_SIZE}, found {value}")
        for tensor in self.weights.values():
            self._constant(tensor.name, tensor)
        self._inputs()

    def parameters(self) -> int:
        """Elements of the weights in floats that operators read, without statistics of normalizations and factors."""
        same: dict[str, str] = {}
        read: set[str] = set()
        for node in self.graph.node:
            if node.op_type == "Identity":
                same[node.output[0]] = same.get(node.input[0], node.input[0])
            else:
                named = node.input[:3] if node.op_type == "BatchNormalization" else node.input
                read.update(same.get(n, n) for n in named)
        weights = (t for n, t in self.weights.items() if n in read and TYPES.get(t.data_type, ("", 0))[0] in FLOATS)
        return sum(math.prod(tensor.dims) for tensor in weights if tensor.dims)

    # ---- arrays

    def _inputs(self) -> None:
        """The inputs of the network with the stated dimensions; `BadInput` lists those that are missing."""
        missing: dict[str, None] = {}
        for value in self.graph.input:
            if value.name in self.weights:
                continue
            if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
                raise BadInput(f"{self.name}: the input {shorten(printable(value.name))!r} is no array with a shape")
            self.open += [d.dim_param for d in value.type.tensor_type.shape.dim if d.dim_param]
            missing.update(dict.fromkeys(self._fill(value.name, value.type)))
            if not missing:
                self._add(value.name, value.type, False)
        if missing:
            example = " ".join(f"--set {n}=8" for n in list(missing)[:2])
            shown = ", ".join(shorten(printable(n)) for n in missing)
            raise BadInput(f"{self.name} leaves open {shown}; state them, such as {shorten(printable(example), 100)}")

    def _fill(self, name: str, kind: Any) -> list[str]:
        """Write stated dimensions into the type of an array. The names of those that are still missing."""
        missing = []
        for axis, dimension in enumerate(kind.tensor_type.shape.dim):
            names = [n for n in (f"{name}.{axis}", dimension.dim_param) if n in self.stated]
            self.used.update(names)
            if names:
                dimension.dim_value = self.stated[names[0]]
            elif not dimension.HasField("dim_value"):
                missing.append(dimension.dim_param or f"{name}.{axis}")
        return missing

    def _constant(self, name: str, value: Any) -> None:
        """An array of the file. Values of large ones are not needed."""
        self._add(name, self.onnx.helper.make_tensor_type_proto(value.data_type, list(value.dims)), True)
        is_small = math.prod(value.dims) <= MOST_SIZES and value.ByteSize() <= MOST_SIZES_BYTES
        if is_small and value.data_location != value.EXTERNAL:
            self.values[name] = value

    def _add(self, name: str, kind: Any, is_constant: bool) -> _Tensor | None:
        self.types[name] = kind
        if not kind.HasField("tensor_type"):
            self.known[name] = None
            return None
        word, element = TYPES.get(kind.tensor_type.elem_type, ("unknown", 1.0))
        shape = tuple(int(d.dim_value) for d in kind.tensor_type.shape.dim)
        if len(shape) > MOST_AXES:
            raise BadInput(
                f"{self.name}: {shorten(printable(name))!r} has {len(shape)} axes; at most {MOST_AXES} are read"
            )
        if any(n < 0 for n in shape) or math.prod(shape) > MOST_ELEMENTS:
            raise BadInput(f"{self.name}: {shorten(printable(name))!r} has an impossible shape, {shape}")
        buffer = self.record.buffer(math.ceil(math.prod(shape) * element))
        self.known[name] = tensor = _Tensor(name, shape, word, element, buffer, is_constant)
        return tensor

    def _results(self, node: Any, is_constant: bool) -> list[_Tensor | None]:
        """The results of an operator; `BadInput` if their shapes depend on data."""
        domain = "" if node.domain in OWN_DOMAINS else node.domain
        # Versions of the package before 1.17 look up inputs that are left out, too.
        inputs = {n: self.types[n] if n else self.onnx.TypeProto() for n in node.input}
        values = {n: self.values[n] for n in node.input if n in self.values}
        if node.op_type in UNINFERRED and not domain:
            return [self._result(n, self.types[node.input[0]], is_constant) for n in node.output]
        if not domain and (long := [a.name for a in node.attribute if len(a.s) > LONGEST_TEXT]):
            what = f"{printable(node.op_type)} has a text of more than {LONGEST_TEXT} characters"
            raise BadInput(f"{self.name}: {what} ({shorten(printable(long[0]))})")
        inferred: Mapping[str, Any] = {}
        try:
            schema = self.onnx.defs.get_schema(node.op_type, self.opsets.get(domain, 1), domain)
            inferred = self.onnx.shape_inference.infer_node_outputs(
                schema, node, inputs, values, opset_imports=self.imports, ir_version=self.version
            )
        except self.onnx.defs.SchemaError:  # an operator of others, whose results the file may describe
            if not domain:
                version = f"onnx {self.onnx.__version__} does not know it in opset {self.opsets.get('')}"
                raise BadInput(f"{self.name}: {version}: {printable(node.op_type)}; pip install -U onnx") from None
        except Exception as error:
            what = f"{node.op_type} {shorten(printable(node.name))}".strip()
            reason = shorten(printable(str(error)), 200)
            raise BadInput(f"{self.name}: {what} or its arrays are not valid ({reason})") from None
        if domain and not inferred:
            self._require_shapes(node)
        what = shorten(printable(f"{node.op_type} of {domain}"))
        of = f", the result of {what}, which is none of ONNX," if domain else ""
        return [self._result(n, inferred.get(n), is_constant, of) if n else None for n in node.output]

    def _require_shapes(self, node: Any) -> None:
        """`BadInput` if an operator of others has results whose shapes the file leaves open; it names all of those."""

        def missing_of(operator: Any) -> list[str]:
            found = [self._fill(n, self.own_types[n]) for n in operator.output if n in self.own_types]
            return [name for names in found for name in names]

        if missing_of(node):
            following = itertools.dropwhile(lambda other: other is not node, self.graph.node)
            foreign = [other for other in following if other.domain not in OWN_DOMAINS]
            missing = dict.fromkeys(name for other in foreign for name in missing_of(other))
            what = f"{node.op_type} of {node.domain} ({node.name or 'without a name'})"
            example = " ".join(f"--set {n}=8" for n in missing)
            raise BadInput(
                f"{self.name} has the operator {shorten(printable(what))}, which is none of ONNX, so the shape of its "
                f"result has to be stated: {shorten(printable(example), 300)}"
            )

    def _result(self, name: str, inferred: Any, is_constant: bool, of: str = "") -> _Tensor | None:
        """A result of an operator, which errors name in the words `of` if it is one of others."""
        missing: list[str] = []
        for kind in (inferred, self.own_types.get(name)):
            if kind is None or not kind.WhichOneof("value"):
                continue
            if kind.HasField("tensor_type"):
                if not kind.tensor_type.HasField("shape"):
                    continue
                missing = self._fill(name, kind)
            if not missing:
                if kind is not inferred:
                    self.only_stated.add(name)
                return self._add(name, kind, is_constant)
        shown = shorten(printable(name))
        if not missing:
            raise BadInput(
                f"{self.name}: the shape of {shown!r}{of} cannot be told without running the network; export it with "
                "the sizes of all results"
            )
        example = " ".join(f"--set {shorten(printable(n))}=8" for n in missing)
        raise BadInput(f"{self.name}: the shape of {shown!r} depends on data; state what is open, such as {example}")

    def _evaluate(self, node: Any, results: Sequence[_Tensor | None]) -> None:
        """The values of a small constant, so that shapes that follow from it are known."""
        known = [n in self.values for n in node.input if n]
        if node.op_type not in SIZES or not all(known) or any(t is None or t.size > MOST_SIZES for t in results):
            return
        # Another file is not read, and a result may be larger than the file says.
        if any(map(_is_elsewhere, node.attribute)) or not self.only_stated.isdisjoint(node.output):
            return
        self.computed += 1
        if self.computed > MOST_COMPUTED:
            raise BadInput(
                f"{self.name} computes more than {MOST_COMPUTED} sizes; export it with sizes, or simplify it"
            )
        from onnx.reference import ReferenceEvaluator

        to_array, from_array = self.onnx.numpy_helper.to_array, self.onnx.numpy_helper.from_array
        try:
            inputs = {n: to_array(self.values[n]) for n in node.input if n}
            found = ReferenceEvaluator(node, opsets=self.opsets).run(None, inputs)
            self.values.update((n, from_array(v, n)) for n, v in zip(node.output, found, strict=True))
        except Exception:  # then shapes that need it are asked for
            return

    def _shape_of(self, node: Any) -> None:
        """The value of `Shape` and `Size`, which need no data."""
        tensor = self.known.get(node.input[0])
        if tensor is None:
            return
        own = _Node(node, [], [], 0)
        sizes = tensor.shape[own.number("start", 0) : own.number("end", len(tensor.shape))]
        name, kind = node.output[0], self.onnx.TensorProto.INT64
        is_list = node.op_type == "Shape"
        dims, values = ([len(sizes)], list(sizes)) if is_list else ([], [tensor.size])
        self.values[name] = self.onnx.helper.make_tensor(name, kind, dims, values)

    def integers(self, tensor: _Tensor | None) -> list[int] | None:
        """The values of a constant that states sizes; None if they are not in the file."""
        found = self.reals(tensor)
        return None if found is None else [int(n) for n in found]

    def reals(self, tensor: _Tensor | None) -> list[float] | None:
        """The values of a constant; None if they are not in the file."""
        if tensor is None or tensor.name not in self.values:
            return None
        try:
            return [float(n) for n in self.onnx.numpy_helper.to_array(self.values[tensor.name]).reshape(-1).tolist()]
        except Exception as error:
            raise BadInput(f"{self.name}: {shorten(printable(tensor.name))!r} is damaged ({error})") from None

    # ---- operators

    def run(self) -> None:
        """Record all operators."""
        for node in self.graph.node:
            if unknown := [n for n in node.input if n and n not in self.known]:
                raise BadInput(f"{self.name}: {shorten(printable(unknown[0]))!r} is read before it is computed")
            if node.op_type == "Constant" and node.domain in OWN_DOMAINS and node.attribute[0].name == "value":
                self._constant(node.output[0], node.attribute[0].t)
                continue
            inputs = [self.known[n] if n else None for n in node.input]
            present = [t for t in inputs if t is not None]
            is_size = node.op_type in ("Shape", "Size") and node.domain in OWN_DOMAINS
            is_constant = is_size or node.op_type == "Constant"
            is_constant = is_constant or (bool(present) and all(t.is_constant for t in present))
            outputs = self._results(node, is_constant)
            if is_size:
                self._shape_of(node)
            elif is_constant:
                self._evaluate(node, outputs)
            else:
                self._operator(node, inputs, outputs)
        if unused := [n for n in self.stated if n not in self.used]:
            known = list(dict.fromkeys(self.open))
            there_are = f"it has {printable(', '.join(known)) or 'none'}{did_you_mean(unused[0], known)}"
            raise BadInput(f"{self.name} leaves open no dimension {shorten(unused[0])!r}; {there_are}")

    def _operator(self, node: Any, inputs: list[_Tensor | None], outputs: list[_Tensor | None]) -> None:
        own = _Node(node, inputs, outputs, self.opsets.get("", 1))
        kind = node.op_type
        results = [t for t in outputs if t is not None]
        if self._is_view(own, node.domain):
            self.record.views += 1
            if results and inputs and inputs[0] is not None:
                self.known[results[0].name] = replace(results[0], buffer=inputs[0].buffer)
            return
        kernel = None
        find = KERNELS.get(kind) if node.domain in OWN_DOMAINS else None
        if find is not None:
            try:
                kernel = find(self, own)
            except (BadInput, ZeroDivisionError, IndexError):
                kernel = None
        read = [t for t in inputs if t is not None]
        moved = sum(t.bytes for t in {t.name: t for t in (*read, *results)}.values())
        if kind in ("Gather", "GatherElements", "GatherND") and read and results:
            moved = 2 * results[0].bytes + sum(t.bytes for t in read[1:])  # of the table only what is chosen
            read = read[1:] if kernel else read
        domain = "" if node.domain in OWN_DOMAINS else f"{printable(node.domain)}."
        reads, writes = ([t.buffer for t in group if t.size] for group in (read, results))
        self.record.call(f"{domain}{printable(kind)}", kernel, _place(node), reads, writes, moved)

    def _is_view(self, node: _Node, domain: str) -> bool:
        if domain not in OWN_DOMAINS:
            return False
        if node.kind == "Dropout":
            return self.reals(node.optional(2)) in (None, [0.0]) and len(node.outputs) == 1
        if node.kind == "Cast":
            return node.input(0).kind == node.output.kind
        return node.kind in VIEWS


def _is_elsewhere(attribute: Any) -> bool:
    """Whether the values of an array in an attribute are in another file."""
    sparse = [array for s in (attribute.sparse_tensor, *attribute.sparse_tensors) for array in (s.values, s.indices)]
    return any(array.data_location == array.EXTERNAL for array in (attribute.t, *attribute.tensors, *sparse))


def _place(node: Any) -> str:
    """`layer1.0.conv1` for `/layer1/layer1.0/conv1/Conv`, as PyTorch names operators."""
    scopes = next((p.value for p in node.metadata_props if p.key == "pkg.torch.onnx.name_scopes"), None)
    if scopes is not None:
        found = [piece for piece in re.findall(r"'([^']*)'", scopes)[:-1] if piece]
        return printable(found[-1]) if found else ""
    places: list[str] = []
    for piece in node.name.strip("/").split("/")[:-1]:
        if places and piece.startswith(f"{places[-1]}."):
            places.pop()
        places.append(piece)
    return printable(".".join(places))


# ---- kernels: the text, or None if it is none of ours


def _narrow(tensor: _Tensor) -> str:
    return "narrow" if tensor.element_bytes == 2 else "wide"


def _window(node: _Node, image: Sequence[int], sides: Sequence[int], outputs: Sequence[int]) -> Window:
    axes = len(sides)
    stride, dilation = node.numbers("strides", [1] * axes), node.numbers("dilations", [1] * axes)
    low = node.numbers("pads", [0] * 2 * axes)[:axes]
    if (padding := node.word("auto_pad", "NOTSET")) in ("SAME_UPPER", "SAME_LOWER"):
        values = zip(image[2:], sides, outputs[2:], stride, dilation, strict=True)
        more = int(padding == "SAME_LOWER")  # of an odd number, this end gets one more
        low = [(max(0, (o - 1) * s + d * (f - 1) + 1 - i) + more) // 2 for i, f, o, s, d in values]
    return Window(sides, stride, low, dilation)


def _conv(graph: _OnnxGraph, node: _Node) -> str:
    x, w, y = node.input(0), node.input(1), node.output
    return _convolution(graph, node, (x, w, y), x.kind, bias=_yes(node.optional(2)))


def _convolution(
    graph: _OnnxGraph, node: _Node, arrays: tuple[_Tensor, _Tensor, _Tensor], precision: str | None, **settings: str
) -> str:
    """`arrays` are the image, the filters and the result."""
    x, w, y = arrays
    window, groups = _window(node, x.shape, w.shape[2:], y.shape), node.number("group", 1)
    return rules.convolution(window, x.shape, y.shape, precision, "forward", groups, graph.record.notes, **settings)


def _yes(tensor: _Tensor | None) -> str:
    return "no" if tensor is None else "yes"


def _conv_transpose(graph: _OnnxGraph, node: _Node) -> str:
    """The data gradient of the convolution from its result to its input."""
    x, w, y = node.input(0), node.input(1), node.output
    window = _window(node, y.shape, w.shape[2:], x.shape)
    groups = node.number("group", 1)
    notes = graph.record.notes
    kernel = rules.convolution(window, y.shape, x.shape, x.kind, "backward_data", groups, notes)
    if node.optional(2) is not None:
        notes[rules.BIASED] += 1
    return kernel


def _gemm(graph: _OnnxGraph, node: _Node) -> str:
    """op(A) (n × k) · op(B) (k × m) by rows; ours are by columns, so our A is their B."""
    a, b, c = node.input(0), node.input(1), node.optional(2) if node.real("beta", 1.0) else None
    b_t, a_t = node.number("transA", 0), node.number("transB", 0)
    (n, k), m = (a.shape[::-1] if b_t else a.shape), b.shape[0 if a_t else 1]
    is_plain = node.real("alpha", 1.0) == 1.0 and (c is None or node.real("beta", 1.0) == 1.0)
    if a_t and not b_t and is_plain and (c is None or c.size == m):
        return kernel_text("linear", {"m": m, "n": n, "k": k}, a.kind, bias=_yes(c))
    sizes = {"m": m, "n": n, "k": k, "a_t": a_t, "b_t": b_t}
    beta = "1" if c is not None and c.shape == (n, m) else "0"
    kernel = kernel_text("gemm", sizes, a.kind, beta=beta, result=_narrow(node.output))
    if c is not None and beta == "0":
        graph.record.notes[rules.BIASED] += 1
    return kernel


def _matmul(graph: _OnnxGraph, node: _Node) -> str:
    return _product(graph, node, node.input(0).kind)


def _product(graph: _OnnxGraph, node: _Node, precision: str | None) -> str:
    """As NumPy multiplies: the last two axes are matrices, and the others are a batch."""
    left, right, result = node.input(0), node.input(1), node.output
    k = left.shape[-1]
    m = 1 if len(right.shape) == 1 else right.shape[-1]
    rows = 1 if len(left.shape) == 1 else left.shape[-2]
    batch = result.size // (rows * m)
    if math.prod(right.shape[:-2]) == 1:  # the rows of all matrices are one matrix
        batch, rows = 1, batch * rows
    kernel = rules.product(batch, m, rows, k, precision, result=_narrow(result))
    if batch > 1 and any(math.prod(t.shape[:-2]) < batch for t in (left, right)):
        graph.record.notes[rules.SHARED] += 1
    return kernel


def _matmul_integer(graph: _OnnxGraph, node: _Node) -> str:
    left, right = node.input(0), node.input(1)
    return _product(graph, node, INTEGERS.get((right.kind, left.kind)))


def _conv_integer(graph: _OnnxGraph, node: _Node) -> str:
    x, w = node.input(0), node.input(1)
    return _convolution(graph, node, (x, w, node.output), INTEGERS.get((w.kind, x.kind)), result="wide")


def _qlinear_conv(graph: _OnnxGraph, node: _Node) -> str | None:
    """The inputs are x, its scale and zero, w, its scale and zero, those of y, and a bias."""
    x, w, y = node.input(0), node.input(3), node.output
    if y.kind != x.kind:
        return None
    return _convolution(graph, node, (x, w, y), INTEGERS.get((w.kind, x.kind)), bias=_yes(node.optional(8)))


def _recurrent(cell: str) -> Callable[[_OnnxGraph, _Node], str]:
    def find(graph: _OnnxGraph, node: _Node) -> str:
        x, r = node.input(0), node.input(2)
        if (cell == "lstm" and node.optional(7) is not None) or node.number("input_forget", 0):
            raise BadInput("peepholes and joined gates are no kernel of ours")
        steps, batch = (x.shape[1], x.shape[0]) if node.number("layout", 0) else x.shape[:2]
        sizes: dict[str, int | str] = {
            "cell": cell,
            "hidden": r.shape[2],
            "batch": batch,
            "timesteps": steps,
            "input_size": x.shape[2],
            "bidirectional": int(node.word("direction", "forward") == "bidirectional"),
        }
        reset = "after" if node.number("linear_before_reset", 0) else "before"
        return kernel_text("recurrent", sizes, x.kind, gru_reset=reset)

    return find


def _batch_norm(graph: _OnnxGraph, node: _Node) -> str:
    x = node.input(0)
    mode = "training" if node.number("training_mode", 0) else "inference"
    return rules.batch_norm(x.shape, x.kind, mode=mode)


def _group_norm(graph: _OnnxGraph, node: _Node) -> str:
    x = node.input(0)
    groups = x.shape[1] if node.kind == "InstanceNormalization" else node.number("num_groups", 1)
    return rules.group_norm(x.shape, groups, x.kind)


def _by_rows(op: str, default_axis: int) -> Callable[[_OnnxGraph, _Node], str | None]:
    """An operation on rows: the axes from `axis` on are one."""

    def find(graph: _OnnxGraph, node: _Node) -> str | None:
        x = node.input(0)
        default = 1 if op == "softmax" and node.opset < 13 else default_axis
        axis = node.number("axis", default) % len(x.shape)
        columns = math.prod(x.shape[axis:])
        if op == "softmax" and node.opset >= 13 and columns != x.shape[axis]:
            return None
        kernel = rules.by_rows(op, x.shape, columns, x.kind)
        if node.kind == "LogSoftmax":
            graph.record.notes[rules.LOGARITHM] += 1
        return kernel

    return find


def _elementwise(kind: str, count: int = 1) -> Callable[[_OnnxGraph, _Node], str | None]:
    def find(graph: _OnnxGraph, node: _Node) -> str | None:
        inputs = [node.input(i) for i in range(count)]
        if len(node.inputs) != count or any(t.shape != inputs[0].shape for t in inputs):
            return None
        return rules.elementwise(kind, inputs[0].size, inputs[0].kind)

    return find


def _gelu(graph: _OnnxGraph, node: _Node) -> str | None:
    kind = "gelu_tanh" if node.word("approximate", "none") == "tanh" else "gelu"
    return _elementwise(kind)(graph, node)


def _clip(graph: _OnnxGraph, node: _Node) -> str | None:
    """Clipping at 0 alone is ReLU; at other numbers the work is that of hardtanh."""
    x = node.input(0)
    limits = [node.attributes.get(name) for name in ("min", "max")]
    low, high = (None if a is None else [float(a.f)] for a in limits)
    low, high = low or graph.reals(node.optional(1)), high or graph.reals(node.optional(2))
    kinds: dict[tuple[float | None, float | None], str] = {(0.0, None): "relu", (0.0, 6.0): "relu6"}
    bounds = low[0] if low else None, high[0] if high else None
    kind = kinds.get(bounds) or ("hardtanh" if None not in bounds else None)
    return rules.elementwise(kind, x.size, x.kind) if kind else None


def _pooled(kind: str) -> Callable[[_OnnxGraph, _Node], str]:
    def find(graph: _OnnxGraph, node: _Node) -> str:
        x, y = node.input(0), node.output
        window = _window(node, x.shape, node.numbers("kernel_shape", []), y.shape)
        return rules.pooling(kind, window, x.shape, y.shape, x.kind, "forward", graph.record.notes)

    return find


def _global(kind: str) -> Callable[[_OnnxGraph, _Node], str]:
    def find(graph: _OnnxGraph, node: _Node) -> str:
        x = node.input(0)
        return rules.reduction(kind, x.shape, range(2, len(x.shape)), x.kind)

    return find


def _reduced(kind: str) -> Callable[[_OnnxGraph, _Node], str | None]:
    """The axes are an attribute, or in newer versions an input; none are all."""

    def find(graph: _OnnxGraph, node: _Node) -> str | None:
        x = node.input(0)
        axes = node.numbers("axes", []) or graph.integers(node.optional(1)) or []
        if not axes and (node.number("noop_with_empty_axes", 0) or node.optional(1) is not None):
            return None
        return rules.reduction(kind, x.shape, axes or range(len(x.shape)), x.kind)

    return find


def _gather(graph: _OnnxGraph, node: _Node) -> str | None:
    """Rows of a table that is a weight."""
    table, indices = node.input(0), node.input(1)
    if not table.is_constant or len(table.shape) != 2 or node.number("axis", 0) % 2:
        return None
    return rules.embedding(*table.shape, indices.size, table.kind)


def _top_k(graph: _OnnxGraph, node: _Node) -> str | None:
    x, last = node.input(0), len(node.input(0).shape) - 1
    if node.number("axis", -1) % len(x.shape) != last or not node.number("largest", 1):
        return None
    k, is_sorted = node.output.shape[-1], "yes" if node.number("sorted", 1) else "no"
    return rules.top_k(x.shape, k, x.kind, sorted=is_sorted)


def _resize(graph: _OnnxGraph, node: _Node) -> str | None:
    """The nearest neighbour, by a whole factor in both directions."""
    x, y = node.input(0), node.output
    if node.word("mode", "nearest") != "nearest":
        return None
    return rules.upsample(x.shape, y.shape, x.kind)


def _attention(graph: _OnnxGraph, node: _Node) -> str | None:
    """Heads are an axis, or side by side in the last. Which pairs a mask in an array hides is not known: all count."""
    q, k, v = (node.input(i) for i in range(3))
    if any(node.optional(i) is not None for i in (4, 5)) or node.real("softcap", 0.0):
        return None
    query, key, value = q.shape, k.shape, v.shape
    if len(query) == 3:
        counts = [node.number(name, 1) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
        query, key, value = (
            (batch, heads, length, width // heads)
            for (batch, length, width), heads in zip((query, key, value), counts, strict=True)
        )
    return rules.attention(query, key, value, bool(node.number("is_causal", 0)), q.kind)


KERNELS: dict[str, Callable[[_OnnxGraph, _Node], str | None]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "ConvInteger": _conv_integer,
    "QLinearConv": _qlinear_conv,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "MatMulInteger": _matmul_integer,
    "LSTM": _recurrent("lstm"),
    "GRU": _recurrent("gru"),
    "RNN": _recurrent("vanilla"),
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _group_norm,
    "GroupNormalization": _group_norm,
    "LayerNormalization": _by_rows("layer_norm", -1),
    "RMSNormalization": _by_rows("rms_norm", -1),
    "Softmax": _by_rows("softmax", -1),
    "LogSoftmax": _by_rows("softmax", -1),
    "Relu": _elementwise("relu"),
    "Sigmoid": _elementwise("sigmoid"),
    "Tanh": _elementwise("tanh"),
    "Elu": _elementwise("elu"),
    "Swish": _elementwise("silu"),
    "Gelu": _gelu,
    "Clip": _clip,
    "Add": _elementwise("add", 2),
    "Sum": _elementwise("add", 2),
    "Mul": _elementwise("multiply", 2),
    "MaxPool": _pooled("max"),
    "AveragePool": _pooled("average"),
    "GlobalAveragePool": _global("mean"),
    "GlobalMaxPool": _global("max"),
    "ReduceSum": _reduced("sum"),
    "ReduceMean": _reduced("mean"),
    "ReduceMax": _reduced("max"),
    "Gather": _gather,
    "TopK": _top_k,
    "Resize": _resize,
    "Upsample": _resize,
    "Attention": _attention,
}
