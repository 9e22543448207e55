"""Operations as programs in StableHLO, the language in which compilers such as IREE and XLA take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepbench.core.precision import type_name

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays


@dataclass(frozen=True)
class StableProgram:
    """A function `main` of some arrays, which returns what another array is to contain."""

    inputs: tuple[str, ...]
    """The arrays that it takes, in this order."""
    output: str
    """The array that it returns."""
    types: dict[str, str]
    """The type of each array, such as `tensor<2x3xf32>`."""
    body: tuple[str, ...]
    """Statements; arrays are named `%a`, and the result `%result`."""

    def text(self, destination: str = "") -> str:
        """The module. With `destination`, an attribute, the array of the result is an argument, too."""
        arguments = [f"%{name}: {self.types[name]}" for name in self.inputs if name != self.output]
        if destination:
            arguments.append(f"%{self.output}: {self.types[self.output]} {{{destination}}}")
        elif self.output in self.inputs:
            arguments.append(f"%{self.output}: {self.types[self.output]}")
        result = self.types[self.output]
        lines = [*self.body, f"return %result : {result}"]
        return f"func.func @main({', '.join(arguments)}) -> {result} {{\n  " + "\n  ".join(lines) + "\n}\n"


def gemm(case: Case, arrays: Arrays) -> StableProgram:
    """Cᵀ = Bᵀ·Aᵀ in row-major order, added to C if beta = 1."""
    p, types = case.problem, {name: tensor(array) for name, array in arrays.items()}
    wide = tensor_type(arrays["c"].shape, case.precision.accumulate)
    adds = case.settings["beta"] == "1"
    body = [_product(p, types, wide, "product" if adds or wide != types["c"] else "result")]
    if adds:
        target = "sum" if wide != types["c"] else "result"
        before = "%c"
        if wide != types["c"]:
            body.append(f"%wide = stablehlo.convert %c : ({types['c']}) -> {wide}")
            before = "%wide"
        body.append(f"%{target} = stablehlo.add %product, {before} : {wide}")
    if wide != types["c"]:
        body.append(f"%result = stablehlo.convert %{'sum' if adds else 'product'} : ({wide}) -> {types['c']}")
    return StableProgram(("a", "b", "c") if adds else ("a", "b"), "c", types, tuple(body))


def batched_gemm(case: Case, arrays: Arrays) -> StableProgram:
    """The same for each product of a batch, without beta."""
    p, types = case.problem, {name: tensor(array) for name, array in arrays.items()}
    wide = tensor_type(arrays["c"].shape, case.precision.accumulate)
    body = [_product(p, types, wide, "result" if wide == types["c"] else "product", batch=True)]
    if wide != types["c"]:
        body.append(f"%result = stablehlo.convert %product : ({wide}) -> {types['c']}")
    return StableProgram(("a", "b"), "c", types, tuple(body))


def tensor(array: Array) -> str:
    """The type of an array."""
    return tensor_type(array.shape, type_name(array.dtype))


def tensor_type(shape: Sequence[int], kind: str) -> str:
    """Such as `tensor<2x3xf32>`."""
    return f"tensor<{'x'.join([*map(str, shape), kind])}>"


def _product(p: object, types: dict[str, str], wide: str, name: str, batch: bool = False) -> str:
    """The statement that multiplies `b` by `a`, in full precision."""
    first = int(batch)
    left = first if getattr(p, "b_t", 0) else first + 1
    right = first + 1 if getattr(p, "a_t", 0) else first
    batching = "batching_dims = [0] x [0], " if batch else ""
    dims = f"{batching}contracting_dims = [{left}] x [{right}], precision = [HIGHEST, HIGHEST]"
    return f"%{name} = stablehlo.dot_general %b, %a, {dims} : ({types['b']}, {types['a']}) -> {wide}"
