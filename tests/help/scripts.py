"""Scripts of `benchmarks/`, for tests of what they compute."""

import importlib.util
import sys
from functools import cache

from tests.conftest import ROOT


@cache
def benchmark(name):
    """The module of a script, which does nothing when it is imported."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
