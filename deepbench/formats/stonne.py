"""STONNE: a line per product, for the shell.

Convolutions are written as the products that they are, because its own have one image only. Zeros at random positions
are a percentage of A. Batches and steps are several runs of a line, as counts.json says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from deepbench.formats._problems import ProblemExport, ProblemFormat, ProblemOptions, layers_of_products, text_of
from deepbench.plan.problems import ExportedProblem

# An array of 64 multipliers that delivers and reduces 64 numbers per cycle, as in STONNE's own examples.
ARRAY = "-num_ms=64 -dn_bw=64 -rn_bw=64"
DENSE = "-generate_tile=performance -accumulation_buffer=1"

LINE = re.compile(r"-layer_name=(\w+) -M=(\d+) -N=(\d+) -K=(\d+)")


class Stonne(ProblemFormat):
    name = "stonne"
    reads = "STONNE"

    def write_problems(self, problems: Sequence[ExportedProblem], options: ProblemOptions) -> ProblemExport:
        """`run.sh`."""
        export, lines = ProblemExport(), ["#!/bin/sh", "set -e"]
        for problem, p, layer in layers_of_products(problems, export, sparse=True):
            sizes = f"-layer_name={layer.name} -M={p.m} -N={p.n} -K={p.k} {ARRAY}"
            if p.non_zeros is None:
                lines.append(f"stonne -DenseGEMM {sizes} {DENSE}")
            else:
                sparsity = problem.case.problem.sparsity
                zeros = f"-MK_sparsity={sparsity} -KN_sparsity=0 -dataflow=MK_STA_KN_STR"
                lines.append(f"stonne -SparseGEMM {sizes} {zeros}")
        export.files["run.sh"] = "\n".join(lines) + "\n"
        return export

    def recount(self, export: ProblemExport) -> dict[str, int]:
        """M · N · K, and of a sparse product as many of each row as are no zeros."""
        counts = {}
        for line in text_of(export, "run.sh").splitlines():
            if found := LINE.search(line):
                m, n, k = map(int, found.groups()[1:])
                sparsity = re.search(r"-MK_sparsity=(\d+)", line)
                of_row = max(1, k - k * int(sparsity[1]) // 100) if sparsity else k
                counts[found[1]] = m * n * of_row
        return counts


FORMAT = Stonne()
