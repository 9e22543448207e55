"""JSON: every problem with its sizes, work, bytes and products, for programs that have no format of their own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from deepbench.core.json_lines import sanitized
from deepbench.formats._problems import ProblemExport, ProblemFormat, ProblemOptions, WrittenLayer, text_of
from deepbench.plan.problems import ExportedProblem

PATH = "problems.json"


class JsonProblems(ProblemFormat):
    name = "json"
    reads = "any program"

    def write_problems(self, problems: Sequence[ExportedProblem], options: ProblemOptions) -> ProblemExport:
        """`problems.json`."""
        export, content = ProblemExport(), []
        for problem in problems:
            case, op = problem.case, problem.case.operation
            content.append(
                {
                    "name": problem.name,
                    "operation": case.op,
                    "sizes": dict(vars(case.problem)),
                    "direction": case.direction,
                    "precision": case.precision.name,
                    "types": case.precision.types(),
                    "settings": case.settings,
                    "flop": op.flop(case),
                    "traffic_bytes": op.traffic_bytes(case),
                    "products": [asdict(product) for product in problem.products],
                    "sources": problem.sources,
                }
            )
            export.layers.append(WrittenLayer(problem.name, problem.name, 1, op.flop(case) // 2))
        export.files[PATH] = json.dumps(sanitized(content), indent=1) + "\n"
        return export

    def recount(self, export: ProblemExport) -> dict[str, int]:
        """Half of the operations."""
        return {problem["name"]: problem["flop"] // 2 for problem in json.loads(text_of(export, PATH))}


FORMAT = JsonProblems()
