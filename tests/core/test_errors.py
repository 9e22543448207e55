"""Why something does not load: it is missing, it is damaged, or it gets no memory."""

import builtins
import ctypes
import resource
import sys

import pytest

from deepbench.core.backend import find_backend
from deepbench.core.errors import MORE_MEMORY, Unavailable, not_loaded
from deepbench.native import library
from deepbench.networks.traces.from_jax import import_jax
from deepbench.networks.traces.from_onnx import import_onnx

MAP = "/x/libtorch.so: failed to map segment from shared object"


@pytest.mark.parametrize(
    ("error", "reason", "remedy"),
    [
        (ModuleNotFoundError("No module named 'x'"), "X not found (No module named 'x')", "pip install x"),
        (
            ImportError("/x/a.so: undefined symbol: f"),
            "X does not load (/x/a.so: undefined symbol: f)",
            "pip install x",
        ),
        (ImportError(MAP), f"X does not load for lack of memory ({MAP})", MORE_MEMORY),
        (OSError(12, "Cannot allocate memory"), "X does not load for lack of memory ([Errno 12] Cannot", MORE_MEMORY),
        (MemoryError(), "X does not load for lack of memory (MemoryError)", MORE_MEMORY),
        (ImportError(f"{MAP}: Operation not permitted"), f"X does not load ({MAP}: Operation not", "pip install x"),
        (ImportError("cannot allocate memory in static TLS block"), "X does not load (cannot", "pip install x"),
    ],
)
def test_the_reason_is_the_true_one(error, reason, remedy):
    found = not_loaded("X", error, "pip install x")

    assert found.reason.startswith(reason)
    assert remedy == found.remedy


def test_with_a_limited_address_space_any_error_may_be_lack_of_memory(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (3 * 2**29, resource.RLIM_INFINITY))
    found = not_loaded("X", SystemError("error return without exception set"), "pip install x")

    assert "its address space is limited to 1.5 GiB" in found.reason
    assert found.remedy.startswith("raise that limit (ulimit -v unlimited)")


@pytest.mark.parametrize(
    ("module", "load"),
    [
        ("torch", find_backend("torch").open),
        ("paddle", find_backend("paddle").open),
        ("scipy", find_backend("scipy").open),
        ("jax", import_jax),
        ("onnx", import_onnx),
    ],
)
@pytest.mark.parametrize("error", [ImportError(MAP), MemoryError()])
def test_a_package_without_memory_is_not_called_missing(monkeypatch, module, load, error):
    real = builtins.__import__

    def no_memory(name, *arguments, **options):
        if name.partition(".")[0] == module:
            raise error
        return real(name, *arguments, **options)

    for name in [n for n in sys.modules if n.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", no_memory)
    with pytest.raises(Unavailable, match="does not load for lack of memory") as found:
        load()

    assert MORE_MEMORY == found.value.remedy


def test_a_shared_library_without_memory_is_not_called_missing(monkeypatch):
    def no_memory(path, **options):
        raise OSError(f"{path}: failed to map segment from shared object")

    monkeypatch.setattr(ctypes, "CDLL", no_memory)
    with pytest.raises(Unavailable, match="MKL does not load for lack of memory"):
        library.load("MKL", "NO_SUCH_VARIABLE", ["libx.so"], [], "pip install mkl")
