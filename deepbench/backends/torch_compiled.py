"""PyTorch compiled: operations of `torch`, which `torch.compile` translates to C++ for this CPU.

The compiler (TorchInductor) fuses operators that pass over memory into one loop, so it is of interest where the memory
limits. Functions are compiled as a whole and for one shape (`fullgraph=True, dynamic=False`). It is an error where a
function is not one graph, or is compiled again by a timed call. The first call compiles; it is made before timing, and
its seconds are recorded as `compile_s`.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from deepbench.backends.torch import Torch, attention, find_operator, memory_bound, products
from deepbench.backends.torch.memory_bound import Prepared, Tensors
from deepbench.core.backend import DeviceBackend, FoundDevice, kernel
from deepbench.core.case import Case
from deepbench.core.errors import DeepBenchError, Unavailable, Unsupported, shorten
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.core.rows import EPSILON

Function = Callable[[], Any]

COMPILER_REMEDY = "install a C++ compiler (Debian, Ubuntu: apt install g++), or name one in CXX"
HEADERS_REMEDY = "install the headers of Python (Debian, Ubuntu: apt install python3-dev)"

# Headers that are compiled ahead save time from the second function on; a worker has one or two.
PRECOMPILE_HEADERS = False

# Of a message of PyTorch or of the compiler, so many characters are quoted.
MOST_CHARACTERS = 160


class TorchCompiled(DeviceBackend):
    name = "torch_compiled"
    title = "PyTorch compiled"
    default = False
    framework = True
    # They would disable the compiler, hide its errors, or make it use what others have compiled.
    override_variables = (
        *("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE", "TORCHDYNAMO_SUPPRESS_ERRORS"),
        *("TORCHINDUCTOR_CACHE_DIR", "TORCH_COMPILE_FORCE_DISABLE_CACHES"),
    )
    tuning_variables = ("TORCHINDUCTOR_*", "TORCHDYNAMO_*", "CXX")

    def __init__(self) -> None:
        self._eager = Torch()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._graphs = 0

    def select(self, device: str) -> None:
        super().select(device)
        self._eager.select(device)

    def candidates(self) -> list[str]:
        return []  # those of `torch`

    def probe(self, candidate: str) -> list[FoundDevice]:
        return []

    def memory_free(self) -> int | None:
        return self._eager.memory_free()

    def prepare(self, case: Case, arrays: Arrays) -> Kernel:
        return self._eager.on_device(arrays, case, lambda: super(TorchCompiled, self).prepare(case, arrays))

    def open(self) -> dict[str, Any]:
        facts = self._eager.open()
        self.torch = torch = self._eager.torch
        import torch._functorch.config as autograd
        import torch._inductor.config as inductor

        compiler = _compiler_version()
        if self._folder is None:  # where nobody else can put files that would be executed
            self._folder = tempfile.TemporaryDirectory(prefix="deepbench-compiled-")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = self._folder.name
        inductor.compile_threads = 1  # more are processes, which would run on next to the timed calls
        inductor.cpp.vec_isa_ok = True  # else each process compiles a program to try the instructions of this CPU
        inductor.cpp_cache_precompile_headers = PRECOMPILE_HEADERS
        autograd.donated_buffer = False  # timed backward passes use what one forward pass has kept
        torch._dynamo.reset()
        return facts | {"name": self.title, "build": f"{facts['build']}; {compiler}"}

    def threads_in_use(self) -> int | None:
        return self._eager.threads_in_use()

    @kernel("elementwise", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    @kernel("reduction", precisions=("f32", "bf16", "f16"))
    @kernel("pooling", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    @kernel("layer_norm", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    @kernel("rms_norm", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    @kernel("batch_norm", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    @kernel("softmax", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    @kernel("group_norm", precisions=("f32", "bf16", "f16"))
    @kernel("rope", precisions=("f32", "bf16", "f16"))
    @kernel("loss", precisions=("f32", "bf16", "f16"))
    @kernel("optimizer", precisions=("f32", "bf16"))
    def operator(self, case: Case, arrays: Arrays) -> Kernel:
        rounded = case.op == "batch_norm" and case.settings["mode"] == "training" and case.precision.name != "f32"
        if rounded and case.direction == "forward":
            raise Unsupported("PyTorch's compiler stores mean and variance in 16 bits; choose f32 or mode=inference")
        prepare = optimizer if case.op == "optimizer" else find_operator(case.op)

        def compiled(torch: Any, case: Case, tensors: Tensors) -> Prepared:
            function, outputs, name = prepare(torch, case, tensors)
            return self._compile(function), outputs, name

        has_no_operator = (case.op, case.direction) == ("rms_norm", "backward")
        what = self._rms_norm_backward if has_no_operator else compiled
        return self._after_first_call(lambda: self._eager.called(case, arrays, what))

    @kernel("linear", precisions=("f32", "bf16", "f16"))
    def linear(self, case: Case, arrays: Arrays) -> Kernel:
        tensors = {name: self._tensor(array) for name, array in arrays.items()}
        return self._after_first_call(lambda: products.linear(self.torch, tensors, case, self._compile))

    @kernel("attention", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    def attention(self, case: Case, arrays: Arrays) -> Kernel:
        prepare = attention.prepare
        return self._after_first_call(lambda: prepare(self.torch, self._tensor, case, arrays, self._compile))

    def _rms_norm_backward(self, torch: Any, case: Case, t: Tensors) -> Prepared:
        """What autograd makes of the compiled forward pass; PyTorch has no operator for the gradient."""
        inputs = [t[name].detach().requires_grad_() for name in ("x", "scale")]
        function, shape = torch.nn.functional.rms_norm, (case.problem.columns,)
        forward = self._compile(lambda: function(inputs[0], shape, inputs[1], EPSILON))
        with torch.enable_grad():
            y = forward()
        return lambda: torch.autograd.grad(y, inputs, t["dy"], retain_graph=True), [t["dx"], t["dscale"]], "autograd"

    def _tensor(self, array: Any) -> Any:
        return self._eager._tensor(array)

    def _compile(self, function: Function) -> Function:
        """A function that compiles at its first call, and then calls what it has compiled."""
        compiled: Function = self.torch.compile(function, backend=self._compiler, fullgraph=True, dynamic=False)
        return compiled

    def _compiler(self, graph: Any, inputs: Any) -> Any:
        """What `torch.compile` uses by default, with a count of its calls."""
        from torch._inductor.compile_fx import compile_fx

        self._graphs += 1
        return compile_fx(graph, inputs)

    def _after_first_call(self, make: Callable[[], Kernel]) -> Kernel:
        """The kernel that `make` returns, when it has been called once. Then it is an error to compile again."""
        begin = perf_counter()
        self.torch.compiler.set_stance("default")
        try:
            kernel = make()
            call = kernel.run
            assert call is not None, "PyTorch is called from Python"
            kernel.load()
            call()
        except RuntimeError as error:
            raise _reason(error) from None
        seconds = perf_counter() - begin
        self.torch.compiler.set_stance("fail_on_recompile")
        if not self._graphs:
            raise DeepBenchError("PyTorch compiled nothing; unset the variables that disable its compiler")

        def run() -> None:
            try:
                call()
            except RuntimeError as error:
                raise _reason(error) from None

        notes = {"implementation": f"compiled {kernel.notes['implementation']}", "compile_s": seconds}
        return replace(kernel, run=run, notes=kernel.notes | notes)


def optimizer(torch: Any, case: Case, t: Tensors) -> Prepared:
    """The steps of `torch.optim`, operator by operator. The compiler fuses these, but not eager's fused step."""
    p, g, v, of = t["p"], t["g"], t["v"], case.operation.facts(case)
    rate = of["rate"]
    if case.problem.kind == "lamb":
        return memory_bound.optimizer(torch, case, t)  # eager has no fused step of it either
    if case.problem.kind == "adagrad":

        def adagrad() -> None:
            v.addcmul_(g, g)
            p.addcdiv_(g, v.sqrt().add_(of["epsilon"]), value=-rate)

        return adagrad, [], "addcmul_, sqrt, add_ and addcdiv_"
    if case.problem.kind == "sgd":

        def sgd() -> None:
            v.mul_(of["momentum"]).add_(g)
            p.add_(v, alpha=-rate)

        return sgd, [], "mul_, add_ and add_"
    m, beta1, beta2, shrink = t["m"], of["beta1"], of["beta2"], 1 - rate * of["decay"]
    step, root = rate / (1 - beta1 ** of["step"]), (1 - beta2 ** of["step"]) ** 0.5
    decays, epsilon = case.problem.kind == "adamw", of["epsilon"]

    def adam() -> None:
        if decays:
            p.mul_(shrink)
        m.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        p.addcdiv_(m, (v.sqrt() / root).add_(epsilon), value=-step)

    return (
        adam,
        [],
        "mul_, lerp_, addcmul_, sqrt and addcdiv_" if decays else "lerp_, mul_, addcmul_, sqrt and addcdiv_",
    )


def _reason(error: RuntimeError) -> DeepBenchError:
    """What a record says of an error of PyTorch. That of a compiler which does not work has a remedy."""
    from torch._inductor.exc import CppCompileError

    cause = getattr(error, "inner_exception", error)
    if isinstance(cause, (CppCompileError, OSError)):
        output = getattr(cause, "output", str(cause))
        lines = (
            [line for line in output.splitlines() if "error" in line.lower()] or output.splitlines() or ["no output"]
        )
        return Unavailable(f"the C++ compiler failed ({shorten(lines[0].strip(), MOST_CHARACTERS)})", COMPILER_REMEDY)
    text = " ".join(str(cause).split())
    return DeepBenchError(f"PyTorch cannot compile this: {shorten(text, MOST_CHARACTERS)}")


def _compiler_version() -> str:
    """The first line that the C++ compiler prints about its version. `Unavailable` where kernels cannot be compiled."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        compiler = get_cpp_compiler()
        output = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    except (InvalidCxxCompiler, OSError, subprocess.CalledProcessError):
        raise Unavailable("PyTorch found no C++ compiler, with which it compiles", COMPILER_REMEDY) from None
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        raise Unavailable(f"PyTorch compiles with the headers of Python, and {header} is missing", HEADERS_REMEDY)
    return next(iter(output.splitlines()), compiler).strip()


BACKEND = TorchCompiled()
