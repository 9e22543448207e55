"""Traces a network: a Python file with PyTorch or JAX, an ONNX file, the log of a library, or a model of a suite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.networks.traces.trace import SUFFIX, Trace, parse_trace
from deepbench.plan import suites
from deepbench.plan.models import TRAIN, load_table

if TYPE_CHECKING:
    from deepbench.networks.traces.program import Program

WANTED = (
    "wanted a Python file and a function (mymodel.py:build), an ONNX file (model.onnx), the log of a library "
    "(verbose.log), a suite that deepbench trace wrote (my.suite), or a model of deepbench list --suites"
)


def read(
    name: str,
    settings: Mapping[str, str],
    *,
    is_training: bool = False,
    optimizer: str = "sgd",
    device: str = "cpu",
    steps: int = 1,
    while_steps: int | None = None,
    precision: str = "f32",
) -> Trace:
    """The trace of what `name` stands for.

    A Python file is executed; ONNX files and logs are only read. `settings` are arguments of the function, or the
    dynamic dimensions of an ONNX file. A log is one of so many `steps`. `while_steps`: how often the body of a `while`
    loop of JAX runs. `precision` is that of a model of `suites/`, whose parameters `settings` are.
    """
    if ".py:" in name:
        return _program(name, settings, is_training, optimizer, device, while_steps)
    path = Path(name)
    if path.suffix.lower() == SUFFIX:
        if settings or is_training:
            raise BadInput(f"{name} has one step only, of one size; leave out --set and --train")
        return read_suite_trace(path)
    if suites.phases_of(name):
        return _model(name, settings, is_training, precision)
    if path.suffix.lower() == ".py" or not (path.suffix.lower() in (".onnx", ".log", ".txt") or path.is_file()):
        raise BadInput(f"{WANTED}, found {shorten(name)!r}")
    if is_training:
        raise BadInput(f"{name} has one pass only; leave out --train")
    if path.suffix.lower() == ".onnx":
        from deepbench.networks.traces.from_onnx import trace_onnx

        dimensions = {n: _whole(n, value) for n, value in settings.items()}
        return trace_onnx(path, dimensions)
    from deepbench.networks.traces.from_log import trace_log

    return trace_log(path, steps)


def _model(name: str, settings: Mapping[str, str], is_training: bool, precision: str) -> Trace:
    from deepbench.networks.traces.from_suite import trace_suite

    base, own = suites.split_name(name)
    chosen = {**own, **({"phase": TRAIN} if is_training else {}), **settings}
    words = ",".join(f"{n}={value}" for n, value in chosen.items())
    return trace_suite(f"{base}:{words}" if words else base, precision)


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 11):
        raise BadInput(f"{name} must be a whole number, found {shorten(text)!r}")
    return int(text)


def read_module(network: Any, inputs: Any, is_training: bool, loss: Any, optimizer: Any) -> Trace:
    """The trace of a PyTorch module with its inputs, or of a function that runs one step."""
    from deepbench.backends.torch import import_torch
    from deepbench.networks.traces.program import program_of

    import_torch()
    parts = [network, inputs, *([] if loss is None else [loss])]
    built = network if inputs is None else tuple(parts if isinstance(optimizer, str) else [*parts, optimizer])
    title = getattr(network, "__name__", type(network).__name__)
    return _traced(program_of(built, title, is_training, optimizer if isinstance(optimizer, str) else "none"), title)


def _program(
    name: str, settings: Mapping[str, str], is_training: bool, optimizer: str, device: str, while_steps: int | None
) -> Trace:
    from deepbench.backends.torch import import_torch
    from deepbench.networks.traces import program

    path, _ = program.split_name(name)
    built, title = program.build(name, settings, device)
    if program.is_function_of_jax(built):
        from deepbench.networks.traces.from_jax import import_jax, trace_jax

        function, inputs = built
        arguments = inputs if isinstance(inputs, tuple) else (inputs,)
        source = f"{name}, JAX {import_jax().__version__}"
        with program.errors_of(path):
            return trace_jax(
                function, *arguments, title=title, source=source, is_training=is_training, while_steps=while_steps
            )
    import_torch()
    with program.errors_of(path):
        return _traced(program.program_of(built, title, is_training, optimizer), name)


def _traced(program: Program, source: str) -> Trace:
    import torch

    from deepbench.networks.traces.from_torch import trace_torch

    version = f"{source}, PyTorch {torch.__version__}"
    return trace_torch(program.run, program.modules, program.title, version, program.is_training)


def read_suite_trace(path: Path) -> Trace:
    """The trace of a suite that `deepbench trace` wrote; `BadInput` for other files."""
    name, wanted = printable(path.name), "a suite that deepbench trace wrote"
    if path.suffix.lower() != SUFFIX:
        raise BadInput(f"wanted {wanted}, whose name ends in {SUFFIX}, found {shorten(name)!r}")
    return parse_trace(load_table(suites.toml_text(path, wanted), name), name)
