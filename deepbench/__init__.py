"""DeepBench: how fast do hardware and libraries run the basic operations of deep learning?

    import deepbench

    results = deepbench.measure("gemm m=1760 n=128 k=1760 f32", backends=["onednn", "openblas"])
    results.fastest("gemm")

`docs/python.md` describes these functions. They are imported when they are first used.
"""

from typing import TYPE_CHECKING

from deepbench.core.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from deepbench.api import Results, cases, compare, load, measure, predict, report, resume, trace, train, what_if
    from deepbench.core.case import Case
    from deepbench.core.errors import BadInput, DeepBenchError

__all__ = [
    "BadInput",
    "Case",
    "DeepBenchError",
    "Results",
    "cases",
    "compare",
    "load",
    "measure",
    "predict",
    "report",
    "resume",
    "trace",
    "train",
    "what_if",
]

_MODULES = {"Case": "core.case", "BadInput": "core.errors", "DeepBenchError": "core.errors"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'deepbench' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"deepbench.{_MODULES.get(name, 'api')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
