"""The door of the networks: trace one, predict it, and ask what other hardware would change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepbench.api.comparing import Source, opened
from deepbench.api.measuring import temporary_path
from deepbench.core.errors import BadInput

if TYPE_CHECKING:
    from deepbench.networks.reporting.predictions import Predicted
    from deepbench.networks.reporting.what_if import Answer
    from deepbench.networks.traces.trace import Trace
    from deepbench.results.file import ResultFile


def trace(
    network: Any,
    inputs: Any = None,
    *,
    train: bool = False,
    loss: Callable[[Any], Any] | None = None,
    optimizer: Any = "sgd",
    settings: Mapping[str, object] | None = None,
    meta: bool = False,
) -> Trace:
    """The kernels of one step of a network, with their order, counts and places.

    Args:
        network: a PyTorch module; a function without arguments that runs one step; or what the command takes, such as
            `mymodel.py:build`, `model.onnx` or the log of a library. A Python file is executed.
        inputs: of a module: a tensor, a tuple or a dict of them.
        train: a training step instead of a forward pass.
        loss: of a module in training: a function of its output.
        optimizer: `sgd`, `adam`, `adamw`, `adagrad` or `none`; of a module also an object of torch.optim.
        settings: of a file: arguments of the function, or dynamic dimensions.
        meta: of a Python file: only shapes, for networks that are larger than this machine.

    A module runs two steps, so training changes its parameters. `Trace.save` writes a suite for `deepbench run`.
    """
    from deepbench.networks.traces import read

    if isinstance(network, str | Path):
        if inputs is not None or loss is not None or not isinstance(optimizer, str):
            raise BadInput("a file brings its inputs, its loss and its optimizer; leave out inputs, loss and optimizer")
        words = {name: str(value) for name, value in (settings or {}).items()}
        device = "meta" if meta else "cpu"
        return read.read(str(network), words, is_training=train, optimizer=optimizer, device=device)
    if settings or meta:
        raise BadInput("settings and meta are for files; change the module itself")
    return read.read_module(network, inputs, train, loss, optimizer)


def predict(
    network: Trace | str | Path,
    *results: Source | ResultFile,
    train: bool = False,
    settings: Mapping[str, object] | None = None,
    library: str = "torch",
    threads: int = 1,
    precision: str = "f32",
    measure: bool = False,
    output: str | Path | None = None,
    progress: bool = False,
) -> Predicted:
    """The time of one step of a network from the measured times of its kernels.

    Args:
        network: a `Trace`; or what the command takes, such as `my.suite`, `mymodel.py:build` or `vision/resnet18`.
        results: results with its kernels.
        train: of a name: a training step.
        settings: of a name: arguments of the function, or parameters of the model.
        library: of the kernels.
        threads: of the kernels.
        precision: of a model of the package.
        measure: measure the kernels that the results lack.
        output: the result file of these; None: a file in the folder for temporary files.
        progress: show a progress bar.

    A kernel without a time withholds the prediction: `time` is None then.
    """
    from deepbench.measuring.session import no_progress
    from deepbench.networks.predictions.forecast import forecast
    from deepbench.networks.reporting.predictions import Predicted
    from deepbench.networks.traces import read
    from deepbench.reporting.progress import Bar

    if isinstance(network, str | Path):
        words = {name: str(value) for name, value in (settings or {}).items()}
        network = read.read(str(network), words, is_training=train, precision=precision)
    elif settings or train:
        raise BadInput("train and settings are for names; trace another step instead")
    files = [opened(r).file for r in results]
    path = (Path(output) if output is not None else temporary_path()) if measure else None
    with Bar() if progress else nullcontext() as bar:
        found = forecast([network], files, library=library, threads=threads, output=path, progress=bar or no_progress)
    return Predicted(found)


def what_if(
    results: Source,
    *changes: str,
    application: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    hardware: str | Path | None = None,
) -> Answer:
    """What changes of the hardware or of a library do to the applications of results; `docs/what-if.md` lists them.

    Args:
        results: what was measured.
        changes: such as `memory.bytes_per_s*2` or `peak.bf16*2`; each alone, and all together.
        application: only applications whose name contains this.
        precision: only kernels in this precision.
        threads: only times with so many threads; None: those that most times have.
        hardware: a file that replaces the limits in the results.

    Without changes, `sensitivities` of the answer says how much each knob matters.
    """
    from deepbench.networks.reporting import what_if as tables
    from deepbench.networks.what_if.hardware import Hardware

    loaded = opened(results)
    own = None if hardware is None else Hardware.load(str(hardware))
    given = loaded.summaries, loaded.limits, Path(loaded.path).name, list(changes)
    return tables.answer(*given, name=application, precision=precision, threads=threads, hardware=own)


def steps_of(networks: Sequence[str | Path]) -> Callable[[ResultFile], list[dict[str, Any]]]:
    """What a page draws of these suites: the steps that the kernels of a file predict."""
    from deepbench.networks.reporting import page
    from deepbench.networks.traces.read import read_suite_trace

    traces = [read_suite_trace(Path(name)) for name in networks]
    return lambda file: page.of_file(file, traces)
