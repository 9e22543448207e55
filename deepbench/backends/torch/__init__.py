"""PyTorch: a framework, not a library. Its times show what it adds to the libraries that it calls.

Operators are called as a Python program would call them, so the time includes dispatching, allocating and choosing.
Tensors share the memory of the arrays. Results of an operator are copied back after timing.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from deepbench.core.backend import DeviceBackend, FoundDevice, kernel
from deepbench.core.case import Case
from deepbench.core.errors import IMPORT_ERRORS, Unsupported, not_loaded
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays

if TYPE_CHECKING:
    from deepbench.backends.torch.device import Placed


def import_torch() -> Any:
    """The module `torch`; `Unavailable` without it."""
    try:
        import torch
    except IMPORT_ERRORS as error:
        remedy = "pip install torch (a smaller build for CPUs is on pytorch.org)"
        raise not_loaded("PyTorch", error, remedy) from None
    return torch


def tensor(torch: Any, array: Any) -> Any:
    """A tensor on the memory of an array. NumPy's bf16 is not PyTorch's, so the bits are reinterpreted."""
    import numpy as np

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


class Torch(DeviceBackend):
    name = "torch"
    title = "PyTorch"
    default = False
    framework = True
    place: Any = None
    """The device as PyTorch has it; None before it is opened."""
    placed: Placed | None = None
    """The copies on the device; None on the CPU, whose tensors share the memory of arrays."""

    def candidates(self) -> list[str]:
        return ["torch"] if importlib.util.find_spec("torch") is not None else []

    def probe(self, candidate: str) -> list[FoundDevice]:
        from deepbench.backends.torch import device

        torch, through = import_torch(), "PyTorch"
        found = [FoundDevice("cpu", "CPU", f"{through} {torch.__version__}", torch.__file__)]
        accelerator = getattr(torch, "accelerator", None)
        if accelerator is not None and accelerator.is_available():
            kind = accelerator.current_accelerator().type
            for i in range(accelerator.device_count()):
                title = device.title_of(torch, torch.device(kind, i))
                name = device.name_of(torch, kind) + (f":{i}" if i else "")
                found.append(FoundDevice(name, title, f"{through} {torch.__version__}", torch.__file__))
        return found

    def open(self) -> dict[str, Any]:
        from deepbench.backends.torch import device

        self.torch = torch = import_torch()
        warnings.filterwarnings("ignore", category=UserWarning, module="torch")
        self.place = place = device.find(torch, self.chosen or self.device)
        facts: dict[str, Any] = {
            "name": self.title,
            "version": torch.__version__,
            "path": torch.__file__,
            "build": _first_line(torch.__config__.show(), "Intel"),
            "cpu_kernels": torch.backends.cpu.get_cpu_capability(),
            "threading": "OpenMP" if torch.backends.openmp.is_available() else "own threads",
        }
        if place.type != "cpu":
            torch.set_default_device(place)  # for tensors that operators create
            # f32 means f32: by default, convolutions on NVIDIA's GPUs multiply in TF32.
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
            facts |= {"device": device.title_of(torch, place), "build": _first_line(torch.__config__.show(), "CUDA")}
        return facts

    def memory_free(self) -> int | None:
        from deepbench.backends.torch import device

        return None if self.place.type == "cpu" else device.memory_free(self.torch, self.place)

    def prepare(self, case: Case, arrays: Arrays) -> Kernel:
        return self.on_device(arrays, case, lambda: super(Torch, self).prepare(case, arrays))

    def on_device(self, arrays: Arrays, case: Case, make: Callable[[], Kernel]) -> Kernel:
        """The kernel that `make` returns, on tensors of the device."""
        from deepbench.backends.torch.device import Placed

        if self.place is None or self.place.type == "cpu":
            return make()
        self.placed = Placed(self.torch, self.place, lambda array: tensor(self.torch, array))
        try:
            return self.placed.kernel(make(), arrays, case.operation.outputs)
        finally:
            self.placed = None

    def threads_in_use(self) -> int | None:
        return int(self.torch.get_num_threads())

    @kernel("gemm", precisions=("f32", "bf16", "f16", "i8"))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """`addmm_`, or `mm` if beta = 0; `_int_mm` for integers. Computes Cᵀ = Bᵀ·Aᵀ in row-major order."""
        p, torch = case.problem, self.torch
        self._refuse(case.settings["weights"] == "packed", "PyTorch has no interface to pack weights ahead")
        wide = case.precision.name in ("bf16", "f16") and case.settings["result"] == "wide"
        self._refuse(wide, "PyTorch stores 16-bit products in 16 bits; choose result=narrow")
        a, b, c = (self._tensor(arrays[n]) for n in "abc")
        left, right = b.T if p.b_t else b, a.T if p.a_t else a
        add = case.settings["beta"] == "1"
        if case.precision.name == "i8":
            product = torch._int_mm
            run = (lambda: c.add_(product(left, right))) if add else (lambda: product(left, right, out=c))
            return Kernel(run=run, notes={"implementation": "_int_mm"})
        if add:
            return Kernel(run=lambda: c.addmm_(left, right), notes={"implementation": "addmm_"})
        return Kernel(run=lambda: torch.mm(left, right, out=c), notes={"implementation": "mm"})

    @kernel("conv", precisions=("f32", "bf16", "f16"), directions=("forward", "backward_data", "backward_weights"))
    def conv(self, case: Case, arrays: Arrays) -> Kernel:
        """`convolution` and `convolution_backward`, the operators that autograd calls."""
        torch, aten = self.torch, self.torch.ops.aten
        self._refuse(case.settings["layout"] == "any", "PyTorch has no layout of its own; choose layout=nchw or nhwc")
        wide = case.precision.name in ("bf16", "f16") and case.settings["result"] == "wide"
        self._refuse(wide, "PyTorch stores 16-bit results in 16 bits; choose result=narrow")
        views = {n: self._channels_second(case, a) for n, a in arrays.items()}
        p = case.problem
        deep = slice(0 if p.dimensions == 3 else 1, None)
        shape = (list(p.stride[deep]), list(p.pad[deep]), list(p.dilation[deep]), False, [0] * p.dimensions, p.groups)
        result: list[Any] = []
        if case.direction == "forward":
            x, w, b = views["x"], views["w"], views.get("b")
            mixed = b is not None and b.dtype != x.dtype
            self._refuse(mixed, "PyTorch takes a bias in the type of the data only; choose bias=no")

            def run() -> None:
                result[:] = [aten.convolution(x, w, b, *shape)]

            return self._returning(run, result, {"y": views["y"]}, {"implementation": "convolution"})
        data = case.direction == "backward_data"
        # The operator uses only the shape of the operand that it does not need.
        x = torch.empty_like(views["dx"]) if data else views["x"]
        w = views["w"] if data else torch.empty_like(views["dw"])
        dy, bias = views["dy"], "db" in views
        mask = [data, not data, bias]

        def run_backward() -> None:
            result[:] = aten.convolution_backward(dy, x, w, [p.k], *shape, mask)

        outputs = {n: views.get(n) for n in ("dx", "dw", "db")}
        return self._returning(run_backward, result, outputs, {"implementation": "convolution_backward"})

    @kernel("conv", precisions=("i8u8",))
    def conv_quantized(self, case: Case, arrays: Arrays) -> Kernel:
        """`quantized.conv2d`: u8 data with channels last, s8 weights packed ahead, u8 results."""
        torch, p = self.torch, case.problem
        self._refuse(
            case.settings["result"] == "wide", "PyTorch's quantized convolution stores u8; choose result=narrow"
        )
        formats = "PyTorch's quantized convolution has channels last and packed filters; choose layout=any"
        self._refuse(case.settings["layout"] != "any", formats)
        bias = "PyTorch's quantized convolution takes a bias in f32 only; choose bias=no"
        self._refuse(case.settings["bias"] == "yes", bias)
        operators, name = torch.ops.quantized, f"conv{p.dimensions}d"
        deep = slice(0 if p.dimensions == 3 else 1, None)
        channels_last = torch.channels_last if p.dimensions == 2 else torch.channels_last_3d
        start = perf_counter()
        data = self._tensor(arrays["x"]).contiguous(memory_format=channels_last)
        w = torch._make_per_tensor_quantized_tensor(self._tensor(arrays["w"]), 1.0, 0)
        shape = (list(p.stride[deep]), list(p.pad[deep]), list(p.dilation[deep]), p.groups)
        packed = getattr(operators, f"{name}_prepack")(w, None, *shape)
        seconds = perf_counter() - start
        x = torch._make_per_tensor_quantized_tensor(data, 1.0, 0)
        function, scale = getattr(operators, name), 1 / case.operation.facts(case)["scale"]
        y, result = self._tensor(arrays["y"]), list[Any]()

        def run() -> None:
            result[:] = [function(x, packed, scale, 0)]

        def store() -> None:
            if result:
                y.copy_(result[0].int_repr())

        notes = {"implementation": f"quantized.{name} ({torch.backends.quantized.engine})", "convert_s": seconds}
        return Kernel(run=run, load=result.clear, store=store, private_buffers=("x", "w"), notes=notes)

    @kernel("recurrent", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    def recurrent(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.torch import recurrent

        return recurrent.prepare(self.torch, case, self._tensors(arrays))

    @kernel("sparse_gemm", precisions=("f32",))
    def sparse_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """`addmm` of a CSR tensor."""
        torch, p = self.torch, case.problem
        starts, columns, values, b, c = (self._tensor(arrays[n]) for n in ("row_starts", "columns", "values", "b", "c"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            a = torch.sparse_csr_tensor(starts, columns, values, size=(p.m, p.k))
        beta = float(case.settings["beta"])
        out, dense = (c, b) if case.settings["order"] == "row" else (c.T, b.T)
        notes = {"implementation": "addmm of CSR"}
        return Kernel(run=lambda: torch.addmm(out, a, dense, beta=beta, out=out), notes=notes)

    @kernel("elementwise", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    @kernel("dropout", precisions=("f32", "bf16", "f16"))
    @kernel("reduction", precisions=("f32", "bf16", "f16"))
    @kernel("pooling", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    @kernel("embedding_bag", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    @kernel("optimizer", precisions=("f32", "bf16"))
    @kernel("permute_tokens", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    @kernel("upsample", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    @kernel("ctc", precisions=("f32",), directions=("forward", "backward"))
    @kernel("layer_norm", precisions=("f32", "bf16", "f16"))
    @kernel("layer_norm", precisions=("f32",), directions=("backward",))
    @kernel("rms_norm", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    @kernel("batch_norm", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    @kernel("group_norm", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    @kernel("softmax", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    @kernel("rope", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    @kernel("top_k", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    @kernel("loss", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    def operator(self, case: Case, arrays: Arrays) -> Kernel:
        """No gradient of layer normalization in 16 bits: PyTorch then adds those of scale and shift in 16 bits, too."""
        return self.called(case, arrays, find_operator(case.op))

    def called(self, case: Case, arrays: Arrays, prepare: Callable[..., Any]) -> Kernel:
        """The kernel of what `prepare` returns for PyTorch, a case and its tensors (`memory_bound.Prepared`)."""
        channels_last = case.settings.get("layout") == "nhwc"
        tensors = {n: self._channels_second(case, a) if channels_last else self._tensor(a) for n, a in arrays.items()}
        function, outputs, name = prepare(self.torch, case, tensors)
        result: list[Any] = []

        def run() -> None:
            found = function()
            result[:] = [found] if len(outputs) == 1 else found or ()

        notes = {"implementation": name}
        if case.op == "embedding_bag" and case.direction == "backward" and case.precision.name != "f32":
            notes["sums"] = "16 bits over steps"
        return self._returning(run, result, dict(enumerate(outputs)), notes)

    @kernel("batched_gemm", precisions=("f32", "bf16", "f16"))
    def batched_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.torch import products

        return products.batched(self.torch, self._tensors(arrays), case)

    @kernel("grouped_gemm", precisions=("f32", "bf16", "f16"), directions=("forward", "backward_weights"))
    def grouped_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.torch import products

        return products.grouped(self.torch, self._tensors(arrays), case)

    @kernel("linear", precisions=("f32", "bf16", "f16"))
    def linear(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.torch import products

        return products.linear(self.torch, self._tensors(arrays), case)

    @kernel("weight_only_gemm", precisions=("f32", "bf16", "f16"))
    def weight_only_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.torch import products

        return products.weight_only(self.torch, self._tensors(arrays), arrays, case)

    def _tensors(self, arrays: Arrays) -> dict[str, Any]:
        return {name: self._tensor(array) for name, array in arrays.items()}

    @kernel("attention", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    def attention(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.torch import attention

        return attention.prepare(self.torch, self._tensor, case, arrays)

    def _tensor(self, array: Any) -> Any:
        return tensor(self.torch, array) if self.placed is None else self.placed.tensor(array)

    def _channels_second(self, case: Case, array: Any) -> Any:
        """A tensor whose second axis is the channels in any layout; PyTorch's channels_last is such a view."""
        view = self._tensor(array)
        if case.settings["layout"] == "nhwc" and view.ndim > 1:
            return view.movedim(-1, 1)
        return view

    def _returning(self, run: Any, result: list[Any], outputs: Mapping[Any, Any], notes: dict[str, Any]) -> Kernel:
        """A kernel whose function leaves its results in `result`, in the order of `outputs`."""

        def store() -> None:
            for target, value in zip(outputs.values(), result, strict=False):
                if target is not None and value is not None:
                    target.copy_(value)

        return Kernel(run=run, load=result.clear, store=store, notes=notes)

    def _refuse(self, condition: bool, reason: str) -> None:
        if condition:
            raise Unsupported(reason)


def find_operator(op: str) -> Callable[..., Any]:
    """The function that prepares an operation; see `Torch.called`."""
    from deepbench.backends.torch import memory_bound, normalization

    return cast("Callable[..., Any]", getattr(memory_bound, op, None) or getattr(normalization, op))


def _first_line(text: str, word: str) -> str:
    """The first line that contains a word, such as the version of MKL in a build."""
    return next((line.strip(" -") for line in text.splitlines() if word in line), "")


BACKEND = Torch()
