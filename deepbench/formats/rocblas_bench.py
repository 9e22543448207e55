"""rocblas-bench: AMD's own benchmark of its BLAS. Bias and activation of a layer are not in its products."""

from __future__ import annotations

from collections.abc import Sequence

from deepbench.core.errors import Unsupported
from deepbench.formats import _rocm_bench
from deepbench.formats._problems import ProblemExport, ProblemFormat, ProblemOptions
from deepbench.formats._rocm_bench import BlasProduct
from deepbench.plan.problems import ExportedProblem

PATH = "rocblas.sh"

# Types of A and B, of C for each type of result, and of sums.
TYPES = {"f32": "f32_r", "f16": "f16_r", "bf16": "bf16_r", "s8": "i8_r", "s32": "i32_r"}
PRECISIONS = {"f32": "f32_r", "f16": "f32_r", "bf16": "f32_r", "i8": "i32_r", "f16f16": "f16_r"}


class RocblasBench(ProblemFormat):
    name = "rocblas-bench"
    reads = "rocblas-bench"

    def write_problems(self, problems: Sequence[ExportedProblem], options: ProblemOptions) -> ProblemExport:
        """`rocblas.sh`."""
        return _rocm_bench.write(problems, PATH, _line, self.name, has_bias=False)

    def recount(self, export: ProblemExport) -> dict[str, int]:
        """From each line."""
        return _rocm_bench.recount(export, PATH)


def _line(p: BlasProduct) -> str:
    sums = PRECISIONS.get(p.case.precision.name)
    if sums is None:
        raise Unsupported(f"has no types for {p.case.precision.name}")
    operands, result = TYPES[p.case.precision.data], TYPES[p.result]
    types = f"--a_type {operands} --b_type {operands} --c_type {result} --d_type {result} --compute_type {sums}"
    function = "gemm_strided_batched_ex" if p.batch > 1 else "gemm_ex"
    words = " ".join(p.sizes()).replace("--transA", "--transposeA").replace("--transB", "--transposeB")
    return f"rocblas-bench -f {function} {words} {types} --alpha 1 --beta {p.beta}"


FORMAT = RocblasBench()
