"""The shape: imports point one way, start-up is light, every file is found by being there."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "deepbench"

# What each layer may import of ours, at the top of a file or inside a function. Order is from the inside out.
FOUNDATION = {"errors", "discover", "units", "stats", "precision"}
TYPES = FOUNDATION | {"op", "backend", "case", "record", "arrays", "sums", "collective", "group"}
CORE = TYPES | {
    "measure",
    "check",
    "launch",
    "system",
    "summary",
    "native",
    "plan",
    "store",
    "roof",
    "run",
    "hub",
    "scaling",
    "allocation",
    "outliers",
    "fleet",
    "comparison",
    "sides",
    "gate",
    "state",
    "limits",
    "doctor",
    "energy",
    "selftest",
    "reference",
    "importing",
}
ALLOWED = {
    "ops": TYPES,
    "backends": TYPES | {"native", "backends"},
    "native": {"errors", "backend", "arrays", "precision"},
    "report": CORE | {"report"},
    "importers": CORE | {"importers"},
    **dict.fromkeys(FOUNDATION, FOUNDATION),
    **dict.fromkeys(TYPES - FOUNDATION, TYPES),
    **dict.fromkeys(CORE - TYPES, CORE),
    "worker": CORE,
    "rank": CORE | {"worker"},
    "cli": CORE | {"report", "cli"},
}


def imports(path):
    """Names of our modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("deepbench"):
            _, _, rest = node.module.partition(".")
            yield from [rest.split(".")[0]] if rest else [alias.name for alias in node.names]


def files():
    return [p for p in sorted(PACKAGE.rglob("*.py")) if p.stem not in ("__main__", "__init__")]


@pytest.mark.parametrize("path", files(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_imports_point_one_way(path):
    layer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    wrong = {name for name in imports(path) if name not in ALLOWED[layer] and name != "__version__"}

    assert not wrong, f"{layer} must not know {', '.join(sorted(wrong))}"


def test_nobody_imports_the_command():
    assert not [p for p in files() if "cli" in set(imports(p)) and p.parent.name != "cli"]


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
            if isinstance(node, ast.ClassDef) and node.bases and {"ops", "backends", "importers"} & set(path.parts):
                continue  # a backend, an op, a format: the top of its file describes it
            public = isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
            if public and not ast.get_docstring(node):
                missing.append(f"{path.name}:{node.name}")

    assert [] == missing
