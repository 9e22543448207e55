"""The shape: imports point one way, start-up is light, every file is found by being there."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "deepbench"

# The main house, from the ground up. Each folder may import itself and folders of lower layers, at the top of a file,
# inside a function, or for types alone.
LAYERS = (
    {"core"},
    {"ops", "native", "machine", "results"},
    {"backends", "plan"},
    {"judge"},
    {"measuring"},
    {"formats", "workloads", "reporting"},
    {"api"},
    {"cli"},
)

# The wings: each may import the main house, itself, and the wings that are named.
WINGS = {"networks": set(), "applications": {"networks"}, "fleets": set(), "gpus": {"networks"}}

# Numbers do not know how they were measured.
NEVER = {"judge": {"measuring"}, "reporting": {"measuring"}}

# A verb calls the API and prints. It needs nothing else of the main house.
OF_VERBS = {"api", "cli"}


def files():
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path):
    """The dotted name of a module, without `deepbench.` in front."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in files()}


@cache
def imports(path):
    """Names of our modules that a file imports, wherever in it; importing a part of a module is importing it."""
    return tuple(_imports(path))


def _imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "deepbench":
            base = node.module.partition(".")[2]
            for alias in node.names:
                inner = f"{base}.{alias.name}".strip(".")
                yield inner if inner in MODULES else base
        elif isinstance(node, ast.Import):
            yield from (a.name.partition(".")[2] for a in node.names if a.name.partition(".")[0] == "deepbench")


def folder_of(name):
    return name.partition(".")[0]


def layer_of(folder):
    return next((i for i, layer in enumerate(LAYERS) if folder in layer), None)


def is_verb(name):
    """Whether a module belongs to the command, or to the verbs of a wing."""
    return "cli" in name.split(".")[:2]


def allowed(name):
    """The folders that a module may import, besides its own."""
    own = folder_of(name)
    if own in WINGS:
        return OF_VERBS if is_verb(name) else {folder for layer in LAYERS for folder in layer} | WINGS[own]
    if own == "cli":
        return OF_VERBS
    lower = {folder for layer in LAYERS[: layer_of(own)] for folder in layer}
    return lower - NEVER.get(own, set())


def inner():
    """All modules but those at the root, which stand above every folder."""
    return {
        name: path
        for name, path in MODULES.items()
        if "." in name or folder_of(name) in {*WINGS, *set().union(*LAYERS)}
    }


def test_imports_point_down_and_the_main_house_imports_no_wing():
    wrong = [
        f"{name} must not import {found}"
        for name, path in inner().items()
        for found in imports(path)
        if folder_of(found) not in ("", folder_of(name), *allowed(name))
    ]

    assert [] == wrong


def test_a_verb_of_a_wing_uses_the_api_of_its_wing():
    wrong = [
        f"{name} must not import {found}"
        for name, path in MODULES.items()
        for found in imports(path)
        if is_verb(name)
        and folder_of(found) in WINGS
        and found.split(".")[1:2] not in ([], ["api"], ["results"], ["cli"])
    ]

    assert [] == wrong


def test_judge_and_reporting_exist_and_the_rule_for_them_names_them():
    folders = {folder_of(name) for name in MODULES}

    assert NEVER.keys() | {folder for never in NEVER.values() for folder in never} <= folders


# Modules with which one starts processes, reads clocks, or calls compiled code.
MEASURES = {"subprocess", "multiprocessing", "time", "timeit", "ctypes", "signal", "os", "threading"}


def test_judging_starts_no_process_and_reads_no_clock():
    found = {
        f"{path.name}: {name}"
        for path in (PACKAGE / "judge").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
        if name.partition(".")[0] in MEASURES
    }

    assert set() == found


def test_every_folder_has_a_layer():
    folders = {path.parent.name for path in PACKAGE.glob("*/*.py")}

    assert set().union(*LAYERS) | set(WINGS) == folders


# A case knows its operation and its library, whose functions take cases: two classes may name each other's types.
TYPES_OF = {"core.case": {"core.op", "core.backend"}}


def test_no_module_imports_itself_by_way_of_others():
    graph = {
        name: {found for found in imports(path) if found in MODULES and found != name} - TYPES_OF.get(name, set())
        for name, path in MODULES.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_no_two_classes_have_the_same_name():
    found = {}
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(name)

    assert {} == {name: modules for name, modules in found.items() if len(modules) > 1}


@pytest.mark.programs
@pytest.mark.parametrize("words", [["--help"], ["list"], ["run", "--help"]])
def test_start_up_imports_nothing_heavy(words):
    code = (
        "import sys; from deepbench import cli\n"
        f"try: cli.cli.main({words!r}, standalone_mode=False)\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'rich', 'ml_dtypes', 'torch', 'fastjsonschema'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.splitlines()[-1]


def test_every_public_thing_says_what_it_is():
    missing = []
    for path in files():
        tree = ast.parse(path.read_text())
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.bases and {"ops", "backends", "formats"} & set(path.parts):
                continue  # a backend, an op, a format: the top of its file describes it
            if path.parent.name == "stablehlo" and getattr(node, "name", "") in ("forward", "backward"):
                continue  # so does the top of each text
            public = isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
            if public and not ast.get_docstring(node):
                missing.append(f"{path.name}:{node.name}")

    assert [] == missing
