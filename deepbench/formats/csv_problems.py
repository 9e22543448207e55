"""CSV: a row per product of matrices, for spreadsheets and scripts of architects."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from deepbench.formats._problems import ProblemExport, ProblemFormat, ProblemOptions, layers_of_products, text_of
from deepbench.plan.problems import ExportedProblem

PATH = "products.csv"

COLUMNS = (
    "name",
    "problem",
    "operation",
    "role",
    "m",
    "n",
    "k",
    "batch",
    "steps",
    "non_zeros",
    "precision",
    "direction",
)


class CsvProblems(ProblemFormat):
    name = "csv"
    reads = "spreadsheets"

    def write_problems(self, problems: Sequence[ExportedProblem], options: ProblemOptions) -> ProblemExport:
        """`products.csv`."""
        export, target = ProblemExport(), io.StringIO(newline="")
        table = csv.writer(target, lineterminator="\n")
        table.writerow(COLUMNS)
        for problem, p, layer in layers_of_products(problems, export, batch=True, sparse=True):
            case = problem.case
            sizes = [p.m, p.n, p.k, p.batch, p.steps, "" if p.non_zeros is None else p.non_zeros]
            table.writerow([layer.name, problem.name, case.op, p.role, *sizes, case.precision.name, case.direction])
        export.files[PATH] = target.getvalue()
        return export

    def recount(self, export: ProblemExport) -> dict[str, int]:
        """batch · m · n · k, or the non-zeros, of each row; steps are runs of a row."""
        counts = {}
        for row in csv.DictReader(io.StringIO(text_of(export, PATH))):
            of_a = int(row["non_zeros"] or int(row["m"]) * int(row["k"]))
            counts[row["name"]] = int(row["batch"]) * int(row["n"]) * of_a
        return counts


FORMAT = CsvProblems()
