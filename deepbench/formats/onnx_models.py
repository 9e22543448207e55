"""ONNX: a model per operation, for compilers of chips and for simulators that read ONNX.

The graphs are those that the backend `onnxruntime` runs; all arrays are inputs, and weights too unless the case packs
them (`--set weights=packed`), which makes them constants of the model. Operators that only ONNX Runtime has are left
out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from deepbench.core.errors import DeepBenchError
from deepbench.formats._problems import ProblemExport, ProblemFormat, ProblemOptions, WrittenLayer
from deepbench.plan.problems import ExportedProblem

# Arrays are made to know their shapes, and constants are part of the model. The second limit is that of all models.
MOST_BYTES, MOST_TOGETHER = 2**30, 2**31

# Operations whose operators count as products.
PRODUCTS = ("gemm", "batched_gemm", "linear", "conv")


class OnnxModels(ProblemFormat):
    name = "onnx"
    reads = "compilers and simulators that read ONNX, opset 23"

    def write_problems(self, problems: Sequence[ExportedProblem], options: ProblemOptions) -> ProblemExport:
        """`NAME.onnx` per problem."""
        from deepbench.backends.onnxruntime import BACKEND, operations
        from deepbench.backends.onnxruntime.model import MICROSOFT

        export, together = ProblemExport(), 0
        for problem in problems:
            case = problem.case
            try:
                if not BACKEND.supports(case.op, case.precision.name, case.direction):
                    raise DeepBenchError("no graph of standard operators is written for it")
                if (size := case.operation.operand_bytes(case)) > MOST_BYTES:
                    raise DeepBenchError(f"its arrays have {size} bytes, and at most {MOST_BYTES} are made")
                graph = getattr(operations, case.op)(case, case.operation.operands(case))
                if any(MICROSOFT.encode() in node for node in graph.nodes):
                    raise DeepBenchError("it needs an operator that only ONNX Runtime has")
            except DeepBenchError as reason:
                export.left_out.append(f"{problem.text}: {reason}")
                continue
            model = graph.model
            if together + len(model) > MOST_TOGETHER:
                export.left_out.append(f"{problem.text}: all models together have more than {MOST_TOGETHER} bytes")
                continue
            together += len(model)
            export.files[f"{problem.name}.onnx"] = model
            work = problem.flop // 2 if case.op in PRODUCTS and case.direction == "forward" else None
            export.layers.append(WrittenLayer(problem.name, problem.name, 1, work))
        return export

    def recount(self, export: ProblemExport) -> dict[str, int]:
        """From the shapes of the inputs and outputs of each model, and the operator that multiplies them."""
        from deepbench.backends.onnxruntime.model import shapes

        counts = {}
        for path, content in export.files.items():
            if not isinstance(content, bytes):
                continue
            found = shapes(content)
            if "y" in found and "w" in found:  # every output is a sum over the channels and taps of its filter
                counts[path.removesuffix(".onnx")] = math.prod(found["y"]) * math.prod(found["w"][1:])
            elif "a" in found and "c" in found:  # C has n · m elements, and A has k · m of each product
                columns = found["c"][-1]
                counts[path.removesuffix(".onnx")] = math.prod(found["c"]) * (math.prod(found["a"][-2:]) // columns)
        return counts


FORMAT = OnnxModels()
