"""A fake vendor library, compiled here. It records arguments and does the arithmetic on the CPU."""

import shutil
import subprocess
from pathlib import Path

import pytest

from deepbench.core.case import parse_case
from deepbench.measuring.heat import measure_case
from deepbench.native.gpu.vendor import CUDA, HIP
from deepbench.plan.modes import Rules

HERE = Path(__file__).parent
VENDORS = {"cuda": CUDA, "hip": HIP}
QUICK = Rules(least_samples=3, least_s=0.0, most_s=0.01, warm_up_s=0.005)


@pytest.fixture(scope="session")
def fakes(tmp_path_factory):
    """The fake library of each vendor: its path."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("the fake GPU needs a C compiler")
    folder = tmp_path_factory.mktemp("fakes")
    paths = {}
    for name in VENDORS:
        paths[name] = folder / f"fake-{name}.so"
        define = ["-DHIP"] if name == "hip" else []
        sources = [str(p) for p in sorted(HERE.glob("fake*.c"))]
        words = [compiler, "-O2", "-shared", "-fPIC", *define, *sources, "-o", str(paths[name]), "-lm"]
        subprocess.run(words, check=True)
    return paths


@pytest.fixture
def gpu(fakes, monkeypatch):
    """Replace all libraries of both vendors by the fake; returns a function that measures a case."""
    for name, vendor in VENDORS.items():
        for library in vendor.libraries.values():
            monkeypatch.setenv(library.variable, str(fakes[name]))

    def measure(text, rules=QUICK, timeout_s=60.0, **environment):
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)
        return measure_case(parse_case(text), 1, rules, timeout_s)

    return measure
