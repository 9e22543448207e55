"""The texts in StableHLO: each is written, and on installed PJRT plug-ins compiled, run and checked against float64.

Plug-ins are those of `DEEPBENCH_TEST_PJRT` (several, separated by `:`), or of two packages, an old and a new one.
"""

import ast
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deepbench.core.case import DIRECTIONS, Case, check_settings
from deepbench.core.errors import Unsupported
from deepbench.core.op import find_op
from deepbench.core.precision import find_precision
from deepbench.native import stablehlo
from tests.conftest import ROOT
from tests.devices.plugins import PACKAGES, plugins

TURNS = 3

FOLDER = Path(stablehlo.__file__).parent
# A new operation for all compilers is so short.
MOST_LINES = 25


def plug_ins():
    """The files of the plug-ins by a short name; None for a package that is not installed."""
    found = {Path(path).name: path for path in plugins()}
    return found or dict.fromkeys(PACKAGES)


def cases(name, few=False):
    """Every smoke problem of an operation in all that it serves, with at most one setting changed, or a `few` of them.

    The few are the last problem, forward, in a precision of 16 bits if there is one.
    """
    op, found = find_op(name), []
    # Weights of other numbers of bits have no integers in StableHLO.
    smoke = [problem for problem in op.smoke if getattr(problem, "bits", 8) in (4, 8)]
    for mark in stablehlo.texts()[name].marks[: 1 if few else None]:
        known = {s: values for s, values in op.settings.items() if s not in op.rare_settings or s in mark.rare_settings}
        settings = [{}] if few else [{}, *({s: value} for s, values in known.items() for value in values[1:])]
        precisions = ["bf16" if "bf16" in mark.precisions else mark.precisions[0]] if few else mark.precisions
        for precision, way, chosen, problem in itertools.product(
            precisions, mark.directions, settings, smoke[-1:] if few else smoke
        ):
            kind = find_precision(precision)
            if not {*chosen} & {*op.unused_settings(problem, way, kind)}:
                found.append(Case(name, problem, way, kind, "pjrt", 1, check_settings(name, chosen)))
    return found


@pytest.mark.parametrize("name", stablehlo.texts())
def test_everything_that_is_served_has_a_text(name):
    served = {(case.precision.name, case.direction): False for case in cases(name)}
    for case in cases(name):
        assert case.operation.allows(case.direction, case.precision), case.text
        try:
            arrays = case.operation.operands(case)
            program = stablehlo.program(case, arrays)
        except Unsupported as error:
            assert str(error), case.text
            continue
        served[case.precision.name, case.direction] = True
        assert {*program.outputs} == {*case.operation.outputs} & {*arrays}, case.text
        # Outputs are written in the place of arguments, and an argument is the place of one output.
        assert len(program.outputs) == program.whole().count("tf.aliasing_output"), case.text
        assert f"dense<{TURNS}> : tensor<i32>" in program.loop(TURNS), case.text
    assert all(served.values()), served


def test_a_loop_feeds_back_to_a_float_and_never_to_places():
    (case,) = cases("embedding_bag", few=True)
    program = stablehlo.program(case, case.operation.operands(case))

    (update,) = (line for line in program.loop(TURNS).splitlines() if "dynamic_update_slice" in line)

    assert program.types["table"] == update.rpartition(" -> ")[2]


def test_a_loop_of_integers_has_a_barrier_only():
    case = next(c for c in cases("gemm") if c.precision.name == "i8")
    text = stablehlo.program(case, case.operation.operands(case)).loop(TURNS)

    assert "dynamic_update_slice" not in text
    assert 1 == text.count("optimization_barrier")


# ---- how short they are


def code_lines(node, source):
    """The numbers of the lines of a piece of a file, without empty lines, comments and docstrings."""
    lines = {i: source[i - 1].strip() for i in range(node.lineno, node.end_lineno + 1)}
    found = {i for i, line in lines.items() if line and not line.startswith("#")}
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef) and ast.get_docstring(inner):
            found -= {*range(inner.body[0].lineno, inner.body[0].end_lineno + 1)}
    return found


def lengths(path):
    """The length of every text in a file: of each direction, or of each kind if it chooses one in a table.

    Counted are the lines of its function and of everything else in the file that this uses, of tables one entry.
    """
    source, pieces = path.read_text().splitlines(), {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            pieces[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            pieces[(node.targets[0] if isinstance(node, ast.Assign) else node.target).id] = node.value

    def used(node, seen):
        for name in {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in pieces} - {*seen}:
            seen[name] = pieces[name]
            if not isinstance(pieces[name], ast.Dict):
                used(pieces[name], seen)
        return seen

    def count(*nodes):
        lines = [code_lines(node, source) for node in nodes if not isinstance(node, ast.Dict)]
        return len(set().union(*lines))

    found = {}
    for way in {*DIRECTIONS} & {*pieces}:
        own = [pieces[way], *used(pieces[way], {}).values()]
        tables = [node for node in own if isinstance(node, ast.Dict)]
        for table in tables:
            for key, entry in zip(table.keys, table.values, strict=True):
                found[f"{path.stem} {way} {key.value}"] = count(*own, entry, *used(entry, {}).values())
        if not tables:
            found[f"{path.stem} {way}"] = count(*own)
    return found


def test_lengths_count_what_a_text_uses(tmp_path):
    (path := tmp_path / "new.py").write_text(
        'LIMIT = 1\n\n\ndef forward(a):\n    """One."""\n    # two\n\n    return double(a) + LIMIT\n\n\n'
        "def double(a):\n    return (\n        2 * a  # three\n    )\n\n\n"
        'def backward(kind, a):\n    return KINDS[kind](a)\n\n\nKINDS = {"x": lambda a: a, "y": double}\n'
    )

    assert {"new forward": 7, "new backward x": 3, "new backward y": 7} == lengths(path)


@pytest.mark.parametrize("name", stablehlo.texts())
def test_an_operation_is_a_short_text_for_each_direction(name):
    path = FOLDER / f"{name}.py"
    found = lengths(path)

    assert {*stablehlo.texts()[name].directions} == {text.split()[1] for text in found}
    assert {} == {text: length for text, length in found.items() if length > MOST_LINES}


def test_what_texts_share_is_in_short_functions():
    found = {}
    for path in FOLDER.glob("_*.py"):
        source = path.read_text().splitlines()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                found[f"{path.stem} {node.name}"] = len(code_lines(node, source))

    assert {} == {name: length for name, length in found.items() if length > MOST_LINES}


# The newest one; the long part has all of them.
@pytest.mark.programs
@pytest.mark.parametrize("plug_in", [*plug_ins()][-1:])
def test_one_problem_of_each_operation_is_right(plug_in):
    assert [] == wrong_of(plug_in, *stablehlo.texts(), few=True)


@pytest.mark.long
@pytest.mark.parametrize("name", stablehlo.texts())
@pytest.mark.parametrize("plug_in", plug_ins())
def test_every_problem_is_right(plug_in, name):
    assert [] == wrong_of(plug_in, name)


def wrong_of(plug_in, *names, few=False):
    """What is wrong, computed in one process per plug-in: two of them may not agree in one."""
    path = plug_ins()[plug_in]
    if path is None:
        pytest.skip(f"the package {plug_in} is not installed, and DEEPBENCH_TEST_PJRT names no plug-in")
    code = f"from tests.devices.test_stablehlo import run; run({path!r}, {names!r}, {few!r})"
    environment = os.environ | {"NPROC": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    if few:  # the texts matter, not the code that is made of them
        environment["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3000
    )
    assert 0 == done.returncode, done.stderr[-2000:]
    results = [json.loads(line[2:]) for line in done.stdout.splitlines() if line.startswith("> ")]
    assert {*names} == {text.split()[0] for text, answer in results if answer == "right"}
    return [result for result in results if result[1] not in ("right", "unsupported")]


def run(path, names, few):
    """Print the text of each case and what came of it: once, and in a loop of some turns."""
    from deepbench.backends.pjrt.plugin import Client, Plugin

    client = Client(Plugin(path), {"cpu_device_count": 1})
    for case in itertools.chain.from_iterable(cases(name, few) for name in names):
        try:
            answer = answer_of(client, case)
        except Unsupported:
            answer = "unsupported"
        print("\n>", json.dumps([case.text, answer]), flush=True)


def answer_of(client, case):
    """`right`, or what is wrong."""
    from deepbench.backends.pjrt.queue import Arguments, ProgramQueue
    from deepbench.measuring.check import check

    op, arrays = case.operation, case.operation.operands(case)
    program = stablehlo.program(case, arrays)
    arguments = Arguments(client, arrays, list(program.types), program.outputs)
    queue = ProgramQueue(client, program, arguments, True)
    for calls, start in ((1, lambda: queue.enqueue(1)), (TURNS, lambda: queue.loop(TURNS)())):
        op.reset(case, arrays)
        arguments.load()
        start()
        queue.wait()
        queue.rest()
        arguments.store()
        if calls == 1 or op.is_idempotent(case):
            verdict = check(op, case, arrays)
            if not verdict.passed:
                return f"{calls} calls: {verdict.sentence}"
        elif (made := op.calls_in(case, arrays)) is not None and abs(made - calls) > 0.01:
            return f"{calls} calls in a loop left what {made} calls leave"
    client.destroy([buffer for buffer in arguments.row if buffer])
    return "right"
