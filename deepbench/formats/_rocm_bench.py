"""Problems as the benchmarks of AMD's libraries take them: a line per product, column-major as ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.formats._problems import ProblemExport, WrittenLayer, text_of
from deepbench.plan.problems import ExportedProblem

OPERATIONS = ("gemm", "batched_gemm", "linear")


@dataclass(frozen=True)
class BlasProduct:
    """What the command lines of all these programs say."""

    case: Case
    m: int
    n: int
    k: int
    batch: int
    a_t: bool
    b_t: bool

    @property
    def beta(self) -> str:
        """What C is multiplied by before the product is added."""
        return self.case.settings.get("beta", "0")

    @property
    def result(self) -> str:
        """The type of C."""
        return self.case.operation.result_type(self.case)

    def sizes(self) -> list[str]:
        """Words for sizes, leading dimensions, transposition and strides."""
        lda, ldb = self.k if self.a_t else self.m, self.n if self.b_t else self.k
        words = [f"--transA {'NT'[self.a_t]} --transB {'NT'[self.b_t]}", f"-m {self.m} -n {self.n} -k {self.k}"]
        words.append(f"--lda {lda} --ldb {ldb} --ldc {self.m} --ldd {self.m}")
        if self.batch > 1:
            a, b, c = self.m * self.k, self.k * self.n, self.m * self.n
            words.append(f"--batch_count {self.batch}")
            words.append(f"--stride_a {a} --stride_b {b} --stride_c {c} --stride_d {c}")
        return words


def write(
    problems: Sequence[ExportedProblem],
    path: str,
    line_of: Callable[[BlasProduct], str],
    program: str,
    has_bias: bool,
) -> ProblemExport:
    """The file, with a comment with the name of the problem before each line. `line_of` may be `Unsupported`."""
    export, lines = ProblemExport(), ["#!/bin/sh", "set -e"]
    for problem in problems:
        case, p = problem.case, problem.case.problem
        if case.op not in OPERATIONS or case.settings.get("scales", "none") != "none":
            export.left_out.append(f"{problem.text}: {program} has only products, with one scale per matrix")
            continue
        product = BlasProduct(
            case, p.m, p.n, p.k, getattr(p, "batch", 1),
            bool(p.a_t) if case.op != "linear" else True,
            bool(p.b_t) if case.op != "linear" else False,
        )  # fmt: skip
        try:
            line = line_of(product)
        except Unsupported as reason:
            export.left_out.append(f"{problem.text}: {program} {reason}")
            continue
        settings = case.settings
        if not has_bias and (settings.get("bias") == "yes" or settings.get("activation", "none") != "none"):
            export.remarks.append(f"{problem.name}: {program} computes neither its bias nor its activation")
        lines += [f"# {problem.name}", line]
        export.layers.append(WrittenLayer(problem.name, problem.name, 1, problem.flop // 2))
    export.files[path] = "\n".join(lines) + "\n"
    return export


def recount(export: ProblemExport, path: str) -> dict[str, int]:
    """m · n · k and the batch of each line."""
    counts = {}
    for name, line in re.findall(r"# (\w+)\n(.*)", text_of(export, path)):
        words = dict(re.findall(r"(-[mnk]|--batch_count) (\d+)", line))
        counts[name] = int(words["-m"]) * int(words["-n"]) * int(words["-k"]) * int(words.get("--batch_count", 1))
    return counts
