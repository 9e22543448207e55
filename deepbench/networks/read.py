"""Traces a network: a Python file with PyTorch or JAX, an ONNX file, or the log of a library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput, Unavailable, shorten
from deepbench.core.files import read_regular
from deepbench.networks.trace import Trace, parse_trace
from deepbench.plan.suites import MOST_SUITE_BYTES

if TYPE_CHECKING:
    from deepbench.networks.program import Program

WANTED = (
    "wanted a Python file and a function (mymodel.py:build), an ONNX file (model.onnx), "
    "or the log of a library (verbose.log)"
)


def read(
    name: str,
    settings: Mapping[str, str],
    *,
    is_training: bool = False,
    optimizer: str = "sgd",
    device: str = "cpu",
    steps: int = 1,
) -> Trace:
    """The trace of what `name` stands for.

    A Python file is executed; ONNX files and logs are only read. `settings` are arguments of the function, or the
    dynamic dimensions of an ONNX file. A log is one of so many `steps`.
    """
    if ".py:" in name:
        return _program(name, settings, is_training, optimizer, device)
    path = Path(name)
    if path.suffix.lower() not in (".onnx", ".log", ".txt"):
        raise BadInput(f"{WANTED}, found {shorten(name)!r}")
    if is_training:
        raise BadInput(f"{name} has one pass only; leave out --train")
    if path.suffix.lower() == ".onnx":
        from deepbench.networks.from_onnx import trace_onnx

        dimensions = {n: _whole(n, value) for n, value in settings.items()}
        return trace_onnx(path, dimensions)
    from deepbench.networks.from_log import trace_log

    return trace_log(path, steps)


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 11):
        raise BadInput(f"{name} must be a whole number, found {shorten(text)!r}")
    return int(text)


def read_module(network: Any, inputs: Any, is_training: bool, loss: Any, optimizer: Any) -> Trace:
    """The trace of a PyTorch module with its inputs, or of a function that runs one step."""
    _import_torch()
    from deepbench.networks.program import program_of

    parts = [network, inputs, *([] if loss is None else [loss])]
    built = network if inputs is None else tuple(parts if isinstance(optimizer, str) else [*parts, optimizer])
    title = getattr(network, "__name__", type(network).__name__)
    return _traced(program_of(built, title, is_training, optimizer if isinstance(optimizer, str) else "none"), title)


def _program(name: str, settings: Mapping[str, str], is_training: bool, optimizer: str, device: str) -> Trace:
    torch = _import_torch()
    from deepbench.networks import program

    torch.manual_seed(1)
    return _traced(program.load(name, settings, is_training, optimizer, device), name)


def _traced(program: Program, source: str) -> Trace:
    import torch

    from deepbench.networks.from_torch import trace_torch

    version = f"{source}, PyTorch {torch.__version__}"
    return trace_torch(program.run, program.modules, program.title, version, program.is_training)


def _import_torch() -> Any:
    try:
        import torch
    except ImportError as error:
        remedy = "pip install torch (a smaller build for CPUs is on pytorch.org)"
        raise Unavailable(f"PyTorch not found ({error})", remedy) from None
    return torch


def read_suite_trace(path: Path) -> Trace:
    """The trace of a suite that `deepbench trace` wrote; `BadInput` for other files."""
    import tomllib

    wanted = "a suite that deepbench trace wrote"
    try:
        table = tomllib.loads(read_regular(path, MOST_SUITE_BYTES, wanted).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{path} is not valid TOML: {error}; wanted {wanted}") from None
    return parse_trace(table, path.name)
