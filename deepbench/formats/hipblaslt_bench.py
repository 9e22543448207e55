"""hipblaslt-bench: AMD's own benchmark of hipBLASLt, with bias and activation of a layer."""

from __future__ import annotations

from collections.abc import Sequence

from deepbench.core.errors import Unsupported
from deepbench.formats import _rocm_bench
from deepbench.formats._problems import ProblemExport, ProblemFormat, ProblemOptions
from deepbench.formats._rocm_bench import BlasProduct
from deepbench.plan.problems import ExportedProblem

PATH = "hipblaslt.sh"

TYPES = {
    **{"f32": "f32_r", "f16": "f16_r", "bf16": "bf16_r", "s8": "i8_r", "s32": "i32_r"},
    **{"f8e4m3": "f8_r", "f8e5m2": "bf8_r"},
}
PRECISIONS = {
    **{"f32": "f32_r", "tf32": "xf32_r", "f16": "f32_r", "bf16": "f32_r", "i8": "i32_r"},
    **{"f8e4m3": "f32_r", "f8e5m2": "f32_r"},
}
ACTIVATIONS = {"none": "none", "relu": "relu", "silu": "swish"}


class HipblasltBench(ProblemFormat):
    name = "hipblaslt-bench"
    reads = "hipblaslt-bench"

    def write_problems(self, problems: Sequence[ExportedProblem], options: ProblemOptions) -> ProblemExport:
        """`hipblaslt.sh`."""
        return _rocm_bench.write(problems, PATH, _line, self.name, has_bias=True)

    def recount(self, export: ProblemExport) -> dict[str, int]:
        """From each line."""
        return _rocm_bench.recount(export, PATH)


def _line(p: BlasProduct) -> str:
    settings, precision = p.case.settings, p.case.precision
    activation = ACTIVATIONS.get(settings.get("activation", "none"))
    if precision.name not in PRECISIONS:
        raise Unsupported(f"has no types for {precision.name}")
    if activation is None:
        raise Unsupported(f"has no exact {settings['activation']}")
    result = TYPES[p.result]
    types = f"--a_type {TYPES[precision.weights]} --b_type {TYPES[precision.data]} --c_type {result} --d_type {result}"
    words = [*p.sizes(), types, f"--compute_type {PRECISIONS[precision.name]} --alpha 1 --beta {p.beta}"]
    words += [f"--activation_type {activation}"] if activation != "none" else []
    words += [f"--bias_vector --bias_type {result}"] if settings.get("bias") == "yes" else []
    return f"hipblaslt-bench {' '.join(words)}"


FORMAT = HipblasltBench()
