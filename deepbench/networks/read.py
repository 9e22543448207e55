"""Traces a network: a Python file with PyTorch or JAX, an ONNX file, or the log of a library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deepbench.core.errors import BadInput, Unavailable, shorten
from deepbench.core.files import read_regular
from deepbench.networks.trace import Trace, parse_trace
from deepbench.plan.suites import MOST_SUITE_BYTES

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


def _program(name: str, settings: Mapping[str, str], is_training: bool, optimizer: str, device: str) -> Trace:
    from deepbench.networks import program

    try:
        import torch
    except ImportError as error:
        remedy = "pip install torch (a smaller build for CPUs is on pytorch.org)"
        raise Unavailable(f"PyTorch not found ({error})", remedy) from None
    from deepbench.networks.from_torch import trace_torch

    torch.manual_seed(1)
    loaded = program.load(name, settings, is_training, optimizer, device)
    version = f"PyTorch {torch.__version__}"
    return trace_torch(loaded.run, loaded.modules, loaded.title, f"{name}, {version}", is_training)


def read_suite_trace(path: Path) -> Trace:
    """The trace of a suite that `deepbench trace` wrote; `BadInput` for other files."""
    import tomllib

    wanted = "a suite that deepbench trace wrote"
    try:
        table = tomllib.loads(read_regular(path, MOST_SUITE_BYTES, wanted).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{path} is not valid TOML: {error}; wanted {wanted}") from None
    return parse_trace(table, path.name)
