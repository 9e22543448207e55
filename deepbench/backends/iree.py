"""IREE, a compiler of MLIR: each operation as a program of its own, compiled for this CPU.

The programs are in StableHLO (`native/stablehlo/`). Arrays are used where they are, and the result is written into
its array, so that no memory is allocated in a call. Calls are made from Python, because the wheel hides the C functions
of the runtime; that costs 2 to 3 µs.

By default, IREE compiles for a generic processor, and products as plain loops; then they take four times as long. So
the target is always this CPU, and operands are rearranged in tiles (`--iree-opt-data-tiling`), within the timed call.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from deepbench.core.backend import Backend, Mark
from deepbench.core.case import Case
from deepbench.core.errors import IMPORT_ERRORS, LibraryError, Unsupported, not_loaded
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays

if TYPE_CHECKING:
    from deepbench.native.stablehlo import HloProgram

FLAGS = (
    "--iree-input-type=stablehlo",
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-data-tiling=true",
)

# The argument into which a result is written.
DESTINATION = "iree.abi.output = {} : index"

FLOATS = {"f32": "FLOAT_32", "bf16": "BFLOAT_16", "f16": "FLOAT_16"}
ELEMENTS = {**FLOATS, "s32": "SINT_32", "s64": "SINT_64"}

# Those that were tried with it.
OPERATIONS = ("gemm", "batched_gemm", "linear", "softmax", "attention")

# Instructions that multiply and add several floats. The most frequent one tells the types that are multiplied.
MULTIPLY_ADD = re.compile(
    r"^\s*(vfn?m(?:add|sub)\d*p[sh]|vdpbf16ps|tdp\w+|fml[as]l?\w*|bf(?:mmla|dot)\w*)\s", re.MULTILINE
)
# Compiled to see for which processor.
SMALLEST = "func.func @main(%a: tensor<1xf32>) -> tensor<1xf32> { return %a : tensor<1xf32> }"


class IREE(Backend):
    name = "iree"
    title = "IREE"
    default = False

    def open(self) -> dict[str, Any]:
        remedy = "pip install iree-base-compiler iree-base-runtime"
        try:
            from iree.runtime import _binding, version

            # Found, not imported: it would load 300 MB that only the program needs.
            found = importlib.util.find_spec("iree.compiler")
        except IMPORT_ERRORS as error:
            raise not_loaded(self.title, error, remedy) from None
        if found is None or not found.submodule_search_locations:
            raise not_loaded(self.title, ModuleNotFoundError("No module named 'iree.compiler'"), remedy)
        self.binding = _binding
        self.compiler = Path(found.submodule_search_locations[0]) / "_mlir_libs" / "iree-compile"
        self.devices: dict[int, Any] = {}
        self.target = target(self._compile(SMALLEST, "--compile-to=preprocessing").decode(errors="replace"))
        return {
            "name": self.title,
            "version": version.VERSION,
            "path": str(self.compiler),
            "build": " ".join(flag.removeprefix("--iree-") for flag in FLAGS),
            "cpu_kernels": self.target,
            "threading": "own threads",
        }

    def marks(self) -> list[Mark]:
        from deepbench.native import stablehlo

        texts = stablehlo.texts()
        return [
            Mark(mark.op, tuple(p for p in mark.precisions if p in FLOATS), mark.directions)
            for op in OPERATIONS
            if op in texts
            for mark in texts[op].marks
            if mark.directions == ("forward",)
        ]

    def prepare(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.native import stablehlo

        self.refuse_unmarked(case)
        return self._kernel(case, arrays, stablehlo.program(case, arrays))

    def _kernel(self, case: Case, arrays: Arrays, program: HloProgram) -> Kernel:
        """A Python function that calls the compiled program on these arrays."""
        begin = perf_counter()
        code, implementation = self._compiled(program.whole(DESTINATION))
        seconds = perf_counter() - begin
        binding, device = self.binding, self._device(case.threads)
        instance = binding.VmInstance()
        module = binding.VmModule.copy_buffer(instance, code)
        context = binding.VmContext(instance, [binding.create_hal_module(instance, device), module])
        function = module.lookup_function("main")
        arguments = binding.VmVariantList(len(arrays))
        for name in program.types:
            arguments.push_ref(self._view(device, arrays[name]))
        invoke, results = context.invoke, binding.VmVariantList

        def run() -> None:
            invoke(function, arguments, results(1))

        notes = {"implementation": implementation, "compile_s": seconds}
        return Kernel(run=run, keep=(arrays, context, module, instance), notes=notes)

    def _compiled(self, text: str) -> tuple[bytes, str]:
        """The program as IREE's runtime takes it, and what it multiplies with, for which processor."""
        with tempfile.TemporaryDirectory() as folder:
            code = self._compile(text, f"--iree-hal-dump-executable-intermediates-to={folder}")
            assembly = "".join(path.read_text(errors="replace") for path in Path(folder).glob("*.s"))
        return code, f"{instruction(assembly)} for {self.target}"

    def _compile(self, text: str, *flags: str) -> bytes:
        """What the compiler writes."""
        command = [str(self.compiler), "-", "-o", "-", *FLAGS, *flags]
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
        if done.returncode:
            words = " ".join(done.stderr.decode(errors="replace").split())
            raise LibraryError("IREE", "iree-compile", done.returncode, words[:500])
        return done.stdout

    def _device(self, threads: int) -> Any:
        """This process's thread alone, or so many threads of IREE."""
        if threads not in self.devices:
            if threads > 1:
                self.binding.parse_flags(f"--task_topology_group_count={threads}")
            driver = self.binding.get_cached_hal_driver("local-task" if threads > 1 else "local-sync")
            self.devices[threads] = driver.create_default_device()
        return self.devices[threads]

    def _view(self, device: Any, array: Any) -> Any:
        """An array as an argument, on the memory that it has."""
        import numpy as np

        from deepbench.native.stablehlo import element_of

        binding = self.binding
        memory = binding.MemoryType.DEVICE_LOCAL | binding.MemoryType.HOST_VISIBLE
        content = array.reshape(-1).view(np.uint8)
        buffer = device.allocator.import_host_allocation(content, memory, binding.BufferUsage.DEFAULT)
        element = getattr(binding.HalElementType, ELEMENTS[element_of(array)])
        return binding.HalBufferView(buffer, array.shape, element)


def target(module: str) -> str:
    """The processor that a module in text is compiled for; `Unsupported` if it is none in particular."""
    found = re.search(r'cpu = "([^"]*)"', module)
    if found is None or found[1] in ("", "generic"):
        raise Unsupported("IREE compiles for no particular processor here, and such code would take four times as long")
    return found[1]


def instruction(assembly: str) -> str:
    """The most frequent instruction that multiplies and adds several numbers."""
    found = Counter(MULTIPLY_ADD.findall(assembly)).most_common(1)
    return found[0][0] if found else "no vector instruction"


BACKEND = IREE()
