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
    from deepbench.api.bisecting import bisect_versions
    from deepbench.api.ci import check_change
    from deepbench.api.comparing import compare, gate, rank
    from deepbench.api.conformance import conform, conformance
    from deepbench.api.exporting import export, export_problems
    from deepbench.api.filters import cases, operations
    from deepbench.api.foreign import import_results
    from deepbench.api.history import history
    from deepbench.api.machine import describe_machine, diagnose, libraries
    from deepbench.api.measuring import alternate, measure, measure_limits, resume, selftest
    from deepbench.api.pages import report, site
    from deepbench.api.results import Results, load
    from deepbench.api.submitting import submit
    from deepbench.applications.api import data, serve, train
    from deepbench.core.case import Case
    from deepbench.core.errors import BadInput, DeepBenchError
    from deepbench.fleets.api import fleet
    from deepbench.networks.api import estimate, predict, scale, trace, what_if

_PLACES = {
    "api.bisecting": ("bisect_versions",),
    "api.ci": ("check_change",),
    "api.comparing": ("compare", "gate", "rank"),
    "api.conformance": ("conform", "conformance"),
    "api.exporting": ("export", "export_problems"),
    "api.filters": ("cases", "operations"),
    "api.foreign": ("import_results",),
    "api.history": ("history",),
    "api.machine": ("describe_machine", "diagnose", "libraries"),
    "api.measuring": ("alternate", "measure", "measure_limits", "resume", "selftest"),
    "api.pages": ("report", "site"),
    "api.results": ("Results", "load"),
    "api.submitting": ("submit",),
    "applications.api": ("data", "serve", "train"),
    "core.case": ("Case",),
    "core.errors": ("BadInput", "DeepBenchError"),
    "fleets.api": ("fleet",),
    "networks.api": ("estimate", "predict", "scale", "trace", "what_if"),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "BadInput",
    "Case",
    "DeepBenchError",
    "Results",
    "alternate",
    "bisect_versions",
    "cases",
    "check_change",
    "compare",
    "conform",
    "conformance",
    "data",
    "describe_machine",
    "diagnose",
    "estimate",
    "export",
    "export_problems",
    "fleet",
    "gate",
    "history",
    "import_results",
    "libraries",
    "load",
    "measure",
    "measure_limits",
    "operations",
    "predict",
    "rank",
    "report",
    "resume",
    "scale",
    "selftest",
    "serve",
    "site",
    "submit",
    "trace",
    "train",
    "what_if",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'deepbench' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"deepbench.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
