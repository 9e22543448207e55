"""A fake vendor library, compiled here. It records arguments and does the arithmetic on the CPU."""

import shutil
import subprocess
from pathlib import Path

import pytest

from deepbench.core.case import parse_case
from deepbench.measuring.heat import measure_case
from deepbench.native.gpu.device import Gpu
from deepbench.native.gpu.vendor import CUDA, HIP
from deepbench.plan.modes import Rules
from tests.conftest import made_once

HERE = Path(__file__).parent
VENDORS = {"cuda": CUDA, "hip": HIP}
QUICK = Rules(least_samples=3, least_s=0.0, most_s=0.01, warm_up_s=0.005)


class Planner(Gpu):
    """cuDNN without a GPU."""

    def __init__(self):
        self.vendor, self._libraries, self._functions = CUDA, {}, {}

    def activate(self):
        """There is no device to make current."""


def compile_library(path, sources, *words):
    """Compile C into a shared library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("the fake GPU needs a C compiler")
    options = ["-O2", "-shared", "-fPIC", *words]
    subprocess.run([compiler, *options, *map(str, sources), "-o", str(path), "-lm"], check=True)


@pytest.fixture(scope="session")
def fakes(shared_folder):
    """The fake library of each vendor: its path."""
    paths = {name: shared_folder / f"fake-{name}.so" for name in VENDORS}

    def compiled():
        for name, path in paths.items():
            compile_library(path, sorted(HERE.glob("fake*.c")), *(["-DHIP"] if name == "hip" else []))

    made_once(shared_folder / "fakes.json", compiled)
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
