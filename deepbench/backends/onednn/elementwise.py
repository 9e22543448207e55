"""Elementwise operations in oneDNN: eltwise and binary primitives; what follows a binary one is a post-operation."""

from __future__ import annotations

import ctypes
from typing import Any

from deepbench.core.case import Case
from deepbench.core.kernel import Call, Kernel
from deepbench.core.op import Arrays
from deepbench.native import onednn as c

# A function and a product with it.
GATED = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh"}
# Functions that have other names, and the two parameters of a function.
NAMES = {"relu6": "clip", "hardtanh": "clip", "add_relu": "relu", **GATED}
PARAMETERS = {"elu": (1.0, 0.0), "silu": (1.0, 0.0), "swiglu": (1.0, 0.0), "relu6": (0.0, 6.0), "hardtanh": (-1.0, 1.0)}


def prepare(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """One primitive; for several gradients, one each.

    A function and a product with it are two: with the product as a post-operation, oneDNN 3.2 has only its reference
    implementation of the function.
    """
    kind = case.problem.kind
    build = _Builder(dnn, arrays)
    if case.direction == "forward":
        if kind in ("add", "multiply"):
            build.binary(c.BINARY_ADD if kind == "add" else c.BINARY_MULTIPLY, "a", "b", "y")
        elif kind == "add_relu":
            relu = dnn.attribute("eltwise", c.ELTWISE["relu"], ctypes.c_float(0.0), ctypes.c_float(0.0))
            build.binary(c.BINARY_ADD, "a", "b", "y", relu)
        elif kind == "multiply_add":
            build.binary(c.BINARY_MULTIPLY, "a", "b", "y", build.then(c.BINARY_ADD, "c"), "c")
        elif kind in GATED:
            build.eltwise(kind, "a", "y")
            build.binary(c.BINARY_MULTIPLY, "y", "b", "y")  # in place
        else:
            build.eltwise(kind, "a", "y")
    elif kind in ("multiply", "multiply_add"):
        build.binary(c.BINARY_MULTIPLY, "dy", "b", "da")
        build.binary(c.BINARY_MULTIPLY, "dy", "a", "db")
    elif kind in GATED:
        build.eltwise(kind, "a", "db")
        build.binary(c.BINARY_MULTIPLY, "db", "dy", "db")
        build.binary(c.BINARY_MULTIPLY, "dy", "b", "da")
        build.gradient(kind, "a", "da")  # in place
    else:
        build.gradient(kind, "result" if "result" in arrays else "a", "dy")
    return build.kernel()


class _Builder:
    """Primitives that are executed one after the other; vectors have no formats to choose from."""

    def __init__(self, dnn: c.OneDNN, arrays: Arrays) -> None:
        self.dnn = dnn
        self.arrays = arrays
        self.desc = dnn.desc_of(next(iter(arrays.values())))
        self.calls: list[Call] = []
        self.facts: list[dict[str, Any]] = []

    def then(self, algorithm: int, name: str) -> c.Handle:
        """An attribute that adds or multiplies an array in the same pass."""
        return self.dnn.attribute("binary", algorithm, self.desc)

    def binary(
        self, algorithm: int, left: str, right: str, output: str, attribute: Any = None, extra: str | None = None
    ) -> None:
        create = "dnnl_binary_primitive_desc_create"
        desc = self.dnn.create(create, self.dnn.engine, algorithm, self.desc, self.desc, self.desc, attribute)
        self._add(desc, {c.ARG_SRC: left, c.ARG_SRC_1: right, c.ARG_DST: output}, extra)

    def eltwise(self, kind: str, source: str, output: str) -> None:
        desc = self._forward(c.FORWARD_INFERENCE, c.ELTWISE[NAMES.get(kind, kind)], _parameters(kind))
        self._add(desc, {c.ARG_SRC: source, c.ARG_DST: output}, None)

    def gradient(self, kind: str, kept: str, gradient: str) -> None:
        name = NAMES.get(kind, kind)
        algorithm = (c.ELTWISE_OF_RESULT if kept == "result" else c.ELTWISE)[name]
        parameters = _parameters(kind)
        hint = self._forward(c.FORWARD_TRAINING, algorithm, parameters)
        create, descs = "dnnl_eltwise_backward_primitive_desc_create", 3 * [self.desc]
        desc = self.dnn.create(create, self.dnn.engine, algorithm, *descs, *parameters, hint, None)
        data = c.ARG_DST if kept == "result" else c.ARG_SRC
        self._add(desc, {data: kept, c.ARG_DIFF_DST: gradient, c.ARG_DIFF_SRC: "da"}, None)

    def _forward(self, purpose: int, algorithm: int, parameters: Any) -> c.Handle:
        create = "dnnl_eltwise_forward_primitive_desc_create"
        return self.dnn.create(create, self.dnn.engine, purpose, algorithm, self.desc, self.desc, *parameters, None)

    def _add(self, primitive_desc: c.Handle, arguments: dict[int, str], extra: str | None) -> None:
        if extra is not None:
            arguments |= {base + c.ARG_SRC_1: extra for base in c.ARG_POST_OPS}
        memories = {number: self.dnn.memory(self.desc, self.arrays[name]) for number, name in arguments.items()}
        primitive = self.dnn.create("dnnl_primitive_create", primitive_desc)
        self.calls += self.dnn.execution(primitive, memories)
        self.facts.append(self.dnn.facts(primitive_desc))

    def kernel(self) -> Kernel:
        names = " and ".join(dict.fromkeys(f["implementation"] for f in self.facts))
        notes = {"implementation": names, "workspace_bytes": sum(f["workspace_bytes"] for f in self.facts)}
        return Kernel(tuple(self.calls), keep=(self.arrays,), notes=notes)


def _parameters(kind: str) -> tuple[ctypes.c_float, ctypes.c_float]:
    alpha, beta = PARAMETERS.get(kind, (0.0, 0.0))
    return ctypes.c_float(alpha), ctypes.c_float(beta)
