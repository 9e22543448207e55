"""Plug-ins that are defective are named in one sentence."""

import subprocess
import sys

import pytest

from deepbench.core import registry

OP = """
from dataclasses import dataclass
from deepbench.core.op import Op
from deepbench.core.problem import BaseProblem, size
@dataclass(frozen=True)
class Sizes(BaseProblem):
    n: int = size()
class MyOp(Op):
    name = "mine"
    Problem = Sizes
    outputs = ("y",)
    smoke = (Sizes(1),)
    operand_bytes = operands = reference = compare = flop = lambda *_: None
    {change}
OP = MyOp()
"""

BACKEND = """
from deepbench.core.backend import Backend
class MyBackend(Backend):
    name = title = "mine"
    def open(self): ...
    {change}
BACKEND = MyBackend()
"""


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("ops", "raise SystemExit(3)", "does not load: SystemExit: 3"),
        ("backends", "import sys; sys.exit()", "does not load: SystemExit"),
        ("backends", "raise BaseException('no')", "does not load: BaseException: no"),
        ("ops", "class A: name = 'a'\nOP = A()", "OP is no object of a subclass of Op"),
        ("backends", "class A: name = 'a'\nBACKEND = A()", "BACKEND is no object of a subclass of Backend"),
        ("ops", OP.format(change="Problem = None"), "Problem must be a class, found None"),
        ("ops", OP.format(change="Problem = int"), "Problem must be a frozen dataclass"),
        ("ops", OP.format(change="outputs = 'y'"), "outputs must be a tuple of texts, found 'y'"),
        ("ops", OP.format(change="settings = ('beta',)"), "settings must be a dict"),
        ("ops", OP.format(change="smoke = (1,)"), "smoke must be a tuple of Sizes objects"),
        (
            "ops",
            OP.replace("int = size()", "int = 3").replace("(Sizes(1),)", "()").format(change=""),
            "the field n of Problem must be made with size() or choice()",
        ),
        ("backends", BACKEND.format(change="title = None"), "title must be a text, found None"),
        ("backends", BACKEND.format(change="device = 'a b'"), "device must be a name such as cpu or cuda, found 'a b'"),
        ("backends", BACKEND.format(change="thread_variables = 'T'"), "thread_variables must be a tuple of texts"),
        ("backends", BACKEND.format(change="tuning_variables = ('T', 5)"), "tuning_variables must be a tuple of texts"),
        ("backends", BACKEND.format(change="path_variable = 5"), "path_variable must be a text or None, found 5"),
        ("backends", BACKEND.format(change="fixed_variables = {'A': 1}"), "fixed_variables must map texts to texts"),
        ("backends", BACKEND.format(change="is_group = True"), "is_group is for classes that derive from GroupBackend"),
    ],
)
def test_a_defective_plugin_is_named_with_its_defect(deepbench, tmp_path, kind, text, expected):
    (tmp_path / kind).mkdir()
    (tmp_path / kind / "mine.py").write_text(text)
    done = deepbench("list", DEEPBENCH_PLUGINS=str(tmp_path))

    assert 64 == done.returncode, done.stderr
    assert "mine.py" in done.stderr
    assert expected in done.stderr
    assert 1 == len(done.stderr.splitlines()), done.stderr


@pytest.mark.parametrize(("kind", "text"), [("ops", OP), ("backends", BACKEND)])
def test_these_plugins_are_right_without_the_defect(deepbench, tmp_path, kind, text):
    (tmp_path / kind).mkdir()
    (tmp_path / kind / "mine.py").write_text(text.format(change=""))

    assert 0 == deepbench("list", DEEPBENCH_PLUGINS=str(tmp_path)).returncode


@pytest.mark.parametrize("kind", ["ops", "backends"])
def test_operations_and_libraries_have_the_names_of_their_files(kind):
    found = registry.registered(kind)

    assert registry.names(kind) == tuple(found)
    assert all(registry.get(kind, name) is thing for name, thing in found.items())
    assert registry.get(kind, "../" + kind) is None


@pytest.mark.programs
def test_a_name_loads_no_other_library():
    code = (
        "import sys; from deepbench.core.backend import find_backend; find_backend('null');"
        "print([m for m in sys.modules if m.startswith('deepbench.backends.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert "['deepbench.backends.null']\n" == done.stdout, done.stderr
