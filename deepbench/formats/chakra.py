"""Chakra execution traces (MLCommons), for ASTRA-sim: a file per rank, with a node per call of a kernel.

Nodes run one after the other, in the order of the problems, as often as the suite says that one pass calls them. A
kernel has its operations (`num_ops`) and the bytes that it moves at least (`tensor_size`), from which ASTRA-sim's own
roofline has its time; durations there are whole microseconds. A collective has its bytes. All collectives have one
number of ranks: choose it with --ranks.

Fields are those of `et_def.proto`, version 0.0.4. https://github.com/mlcommons/chakra
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.core.precision import BITS
from deepbench.formats._problems import ProblemExport, ProblemFormat, ProblemOptions, WrittenLayer
from deepbench.native.protobuf import delimited, fields, varint, varint_field, varints, wire_field
from deepbench.plan.problems import ExportedProblem

SCHEMA_VERSION = "0.0.4"

# Numbers of the fields of GlobalMetadata, Node and AttributeProto.
METADATA_VERSION = 1
NODE_ID, NODE_NAME, NODE_TYPE, NODE_DATA_DEPENDENCIES, NODE_ATTRIBUTE = 1, 2, 3, 5, 10
ATTRIBUTE_NAME, ATTRIBUTE_INT64, ATTRIBUTE_UINT64, ATTRIBUTE_BOOL = 1, 9, 13, 27

COMPUTE, COLLECTIVE = 4, 7

# CollectiveCommType, and whether the size is that of the smaller buffer.
COLLECTIVES = {
    "all_reduce": (0, False),
    "all_gather": (2, True),
    "broadcast": (5, False),
    "all_to_all": (6, False),
    "reduce_scatter": (7, False),
}

# Nodes of one trace: some passes of the largest models.
MOST_NODES = 1_000_000
# Of the traces of all ranks.
MOST_BYTES = 2**33


class Chakra(ProblemFormat):
    name = "chakra"
    reads = "ASTRA-sim and what else reads Chakra traces"

    def write_problems(self, problems: Sequence[ExportedProblem], options: ProblemOptions) -> ProblemExport:
        """`deepbench.RANK.et` for each rank, or for one if there is no collective."""
        export, number, trace = ProblemExport(), 0, bytearray()
        trace += _message(wire_field(METADATA_VERSION, SCHEMA_VERSION.encode()))
        ranks = max((p.case.problem.ranks for p in problems if p.case.operation.is_group), default=1)
        for problem in problems:
            case, group = problem.case, problem.case.operation.is_group
            if group and (reason := _unwritten(problem, ranks)):
                export.left_out.append(f"{problem.text}: {reason}")
                continue
            counts = (source.get("count", 1) for source in problem.sources if source.get("needed", True))
            calls = sum(counts) if problem.sources else 1
            if not calls or number + calls > MOST_NODES:
                reason = f"a trace has at most {MOST_NODES} nodes" if calls else "training does not need this gradient"
                export.left_out.append(f"{problem.text}: {reason}")
                continue
            node = _collective(problem) if group else _compute(problem)
            for _ in range(calls):
                after = wire_field(NODE_DATA_DEPENDENCIES, varint(number - 1)) if number else b""
                trace += _message(varint_field(NODE_ID, number) + node + after)
                number += 1
            work = None if group else case.operation.flop(case) // 2
            export.layers.append(WrittenLayer(problem.name, problem.name, 1, work))
        if (size := ranks * len(trace)) > MOST_BYTES:
            raise BadInput(
                f"traces of {ranks} ranks have {size} bytes, and at most {MOST_BYTES} are written; "
                "choose fewer problems, or fewer ranks with --ranks"
            )
        content = bytes(trace)
        export.files |= {f"deepbench.{rank}.et": content for rank in range(ranks)}
        return export

    def recount(self, export: ProblemExport) -> dict[str, int]:
        """Half of `num_ops` of the nodes of each name, read from the bytes of the first rank."""
        trace = export.files["deepbench.0.et"]
        assert isinstance(trace, bytes), "a trace is bytes"
        return {node["name"]: node["num_ops"] // 2 for node in nodes(trace) if "num_ops" in node}


def nodes(trace: bytes) -> Iterator[Mapping[str, Any]]:
    """Name, type, dependencies and attributes of each node of a trace."""
    messages = delimited(trace)
    next(messages)
    for message in messages:
        node: dict[str, Any] = {"dependencies": []}
        for number, value in fields(message):
            if number == NODE_ATTRIBUTE:
                assert isinstance(value, bytes), "an attribute is a message"
                attribute = dict(fields(value))
                name = attribute.pop(ATTRIBUTE_NAME)
                assert isinstance(name, bytes), "a name is a text"
                node[name.decode()] = next(iter(attribute.values()), 0)
            elif number == NODE_NAME:
                assert isinstance(value, bytes), "a name is a text"
                node["name"] = value.decode()
            elif number in (NODE_ID, NODE_TYPE):
                node["id" if number == NODE_ID else "type"] = value
            elif number == NODE_DATA_DEPENDENCIES:
                node["dependencies"] += varints(value) if isinstance(value, bytes) else [value]
        yield node


def _unwritten(problem: ExportedProblem, ranks: int) -> str | None:
    """Why a collective is not in the trace; None if it is."""
    op, own = problem.case.op, problem.case.problem.ranks
    if op not in COLLECTIVES:
        return f"a trace here has {', '.join(COLLECTIVES)}"
    return f"it has {own} ranks and others have {ranks}; choose one number with --ranks" if own != ranks else None


def _compute(problem: ExportedProblem) -> bytes:
    case, op = problem.case, problem.case.operation
    # Without operations or bytes, ASTRA-sim's roofline divides by 0.
    facts = {"num_ops": max(1, op.flop(case)), "tensor_size": max(1, op.traffic_bytes(case))}
    return _node(problem, COMPUTE, *(_attribute(name, ATTRIBUTE_INT64, value) for name, value in facts.items()))


def _collective(problem: ExportedProblem) -> bytes:
    case = problem.case
    kind, is_smaller = COLLECTIVES[case.op]
    size = case.problem.n * BITS[case.precision.data] // 8
    size = size // case.problem.ranks if is_smaller else size
    attributes = [
        _attribute("is_cpu_op", ATTRIBUTE_BOOL, 0),
        _attribute("comm_type", ATTRIBUTE_INT64, kind),
        _attribute("comm_size", ATTRIBUTE_INT64, size),
    ]
    return _node(problem, COLLECTIVE, *attributes)


def _node(problem: ExportedProblem, kind: int, *attributes: bytes) -> bytes:
    """All of a node but its number and what it waits for."""
    name = wire_field(NODE_NAME, problem.name.encode())
    return name + varint_field(NODE_TYPE, kind) + b"".join(wire_field(NODE_ATTRIBUTE, a) for a in attributes)


def _attribute(name: str, number: int, value: int) -> bytes:
    return wire_field(ATTRIBUTE_NAME, name.encode()) + varint_field(number, value)


def _message(content: bytes) -> bytes:
    return varint(len(content)) + content


FORMAT = Chakra()
