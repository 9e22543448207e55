"""A network in a Python file: what builds it, and its step.

`mymodel.py:build` names a function. It returns a PyTorch network and its inputs, and for training also the loss of the
output, and an optimizer if it has its own; or a function of JAX with its inputs:

    def build(batch=8):
        return module, inputs                       # inputs: a tensor, a tuple of tensors, or a dict of them
        return module, inputs, loss                 # loss(output) gives one number
        return module, inputs, loss, optimizer      # an object of torch.optim
        return step                                 # runs one step in PyTorch; step.networks: modules in it, if any
        return function, inputs                     # JAX: arrays or shapes; for training it computes the gradients

The file is a program of its author: it is executed with the rights of the user.
"""

from __future__ import annotations

import contextlib
import inspect
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepbench.core.aliases import refuse_unknown
from deepbench.core.errors import BadInput, DeepBenchError, shorten

OPTIMIZERS = ("sgd", "adam", "adamw", "adagrad", "none")
"""What updates the parameters in training unless the program says; PyTorch's defaults, SGD with a momentum of 0.9."""

MOST_WORDS = 300
"""Of an error of the program."""

WANTED = "wanted a network and its inputs, for training also the loss, such as: return module, inputs, loss"


@dataclass(frozen=True)
class Program:
    """A network, ready to run steps."""

    title: str
    run: Callable[[], Any]
    """One step."""
    modules: Sequence[Any]
    is_training: bool


def split_name(name: str) -> tuple[Path, str]:
    """`mymodel.py:build` as a file and a function; `BadInput` if it is none."""
    path, colon, function = name.rpartition(":")
    if not colon or not path.endswith(".py") or not function.isidentifier():
        raise BadInput(f"wanted FILE.py:FUNCTION, such as mymodel.py:build, found {shorten(name)!r}")
    if not Path(path).is_file():
        raise BadInput(f"{path} does not exist; wanted a Python file with the function {function}")
    return Path(path), function


@contextlib.contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Errors of the program in a file become `BadInput` with the line of the file."""
    try:
        yield
    except DeepBenchError:
        raise
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f"{path}, line {lines[-1]}" if lines else str(path)
        words = " ".join(str(error).split())
        raise BadInput(f"{where}: {type(error).__name__}: {shorten(words, MOST_WORDS)}") from error


def build(name: str, settings: Mapping[str, str], device: str = "cpu") -> tuple[Any, str]:
    """What the function of a file returns, and a title: the file is executed.

    `settings` are arguments of the function; whole numbers are passed as such. With the device `meta` a PyTorch network
    has shapes but no memory. `BadInput` for a file or function that is not as wanted, or that fails.
    """
    path, function = split_name(name)
    with contextlib.suppress(ImportError):
        import torch

        torch.manual_seed(1)  # the same parameters each time
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        with errors_of(path):
            made = runpy.run_path(str(path)).get(function)
            if not callable(made):
                raise BadInput(f"{path} has no function {function}")
            arguments = _arguments(made, settings, name)
            with _default_device(device):
                built = made(**arguments)
    finally:
        sys.path.remove(folder)
    stated = ", ".join(f"{n} {v}" for n, v in settings.items())
    return built, ", ".join(filter(None, [function, stated]))


def _default_device(device: str) -> contextlib.AbstractContextManager[Any]:
    """Of what the program makes in PyTorch, if it uses PyTorch at all."""
    torch = sys.modules.get("torch")
    return contextlib.nullcontext() if torch is None else torch.device(device)


def is_function_of_jax(built: Any) -> bool:
    """Whether a program returned a function with its inputs, rather than a PyTorch network."""
    torch = sys.modules.get("torch")
    is_pair = isinstance(built, tuple) and len(built) == 2 and callable(built[0])
    return is_pair and (torch is None or not isinstance(built[0], torch.nn.Module))


def load(
    name: str, settings: Mapping[str, str], is_training: bool, optimizer: str = "sgd", device: str = "cpu"
) -> Program:
    """The step of a PyTorch network in a file; see `build`."""
    built, title = build(name, settings, device)
    if is_function_of_jax(built):
        raise BadInput(f"{name} is a function of JAX; wanted a PyTorch network, whose steps can be run")
    return program_of(built, title, is_training, optimizer)


def _arguments(build: Callable[..., Any], settings: Mapping[str, str], name: str) -> dict[str, int | str]:
    known = inspect.signature(build).parameters
    refuse_unknown(settings, known, f"{name} has no argument")
    return {n: int(v) if v.isascii() and v.isdecimal() and len(v) < 11 else v for n, v in settings.items()}


def program_of(built: Any, title: str, is_training: bool, optimizer: str = "sgd") -> Program:
    """The step of what a function returned; see the top of this file."""
    import torch

    if callable(built) and not isinstance(built, torch.nn.Module):
        return Program(title, built, getattr(built, "networks", ()), is_training)
    parts = tuple(built) if isinstance(built, tuple) else ()
    if not 2 <= len(parts) <= 4 or not isinstance(parts[0], torch.nn.Module):
        raise BadInput(f"the function returned {type(built).__name__}; {WANTED}")
    module, inputs, *more = parts
    call = _call(module, inputs)
    if not is_training:
        module.eval()

        def infer() -> None:
            with torch.no_grad():
                call()

        return Program(title, infer, (module,), False)
    if not more:
        raise BadInput(f"training needs a loss; {WANTED}")
    loss = more[0]
    module.train()
    update = more[1] if len(more) > 1 else _optimizer(torch, module, optimizer)

    def train() -> None:
        if update is not None:
            update.zero_grad()
        else:
            module.zero_grad()
        loss(call()).backward()
        if update is not None:
            update.step()

    return Program(title, train, (module,), True)


def _call(module: Any, inputs: Any) -> Callable[[], Any]:
    if isinstance(inputs, Mapping):
        return lambda: module(**inputs)
    arguments = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    return lambda: module(*arguments)


def _optimizer(torch: Any, module: Any, name: str) -> Any:
    if name not in OPTIMIZERS:
        raise BadInput(f"the optimizer is one of {', '.join(OPTIMIZERS)}, found {shorten(name)!r}")
    parameters = [p for p in module.parameters() if p.requires_grad]
    if name == "none" or not parameters:
        return None
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "adagrad": torch.optim.Adagrad}
    return kinds[name](parameters, lr=1e-4)
