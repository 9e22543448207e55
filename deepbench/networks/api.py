"""The door of the networks: trace one, predict it, and ask what other hardware or more devices would change."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from deepbench.api.comparing import Source, opened
from deepbench.api.filters import Filters, What, make_choices, words_of
from deepbench.api.measuring import temporary_path
from deepbench.api.results import Results, load_kernels
from deepbench.core.errors import BadInput, shorten
from deepbench.core.kinds import wing
from deepbench.reporting.output import Report, json_text
from deepbench.reporting.progress import shown

if TYPE_CHECKING:
    from deepbench.api.filters import Choices
    from deepbench.core.progress import Progress
    from deepbench.formats import ImportedFile
    from deepbench.judge.devices import DeviceScaling
    from deepbench.networks.predictions.runner import StepRequest
    from deepbench.networks.reporting.predictions import Predicted as Predicted
    from deepbench.networks.reporting.what_if import Answer
    from deepbench.networks.traces.trace import Trace
    from deepbench.networks.what_if.hardware import Hardware
    from deepbench.reporting.table import Table
    from deepbench.results.file import ResultFile

SUITE = ".suite"
"""How the names of suites end that are traces of networks."""


def trace(
    network: Any,
    inputs: Any = None,
    *,
    train: bool = False,
    loss: Callable[[Any], Any] | None = None,
    optimizer: Any = "sgd",
    settings: Mapping[str, object] | None = None,
    meta: bool = False,
    steps: int = 1,
    while_steps: int | None = None,
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
        steps: of a log: how many steps it has.
        while_steps: of JAX: how often the body of a while loop runs.

    A module runs two steps, so training changes its parameters. `Trace.save` writes a suite for `deepbench run`.
    Raises `BadInput` for a network that cannot be traced.
    """
    from deepbench.networks.traces import read

    if isinstance(network, str | Path):
        if inputs is not None or loss is not None or not isinstance(optimizer, str):
            raise BadInput("a file brings its inputs, its loss and its optimizer; leave out inputs, loss and optimizer")
        return read.read(
            str(network),
            _words(settings),
            is_training=train,
            optimizer=optimizer,
            device="meta" if meta else "cpu",
            steps=steps,
            while_steps=while_steps,
        )
    if settings or meta:
        raise BadInput("settings and meta are for files; change the module itself")
    return read.read_module(network, inputs, train, loss, optimizer)


def trace_summary(found: Trace) -> list[tuple[str, str]]:
    """What a trace is, in labels and sentences."""
    from deepbench.networks.reporting import traces

    return traces.summary(found)


def trace_report(found: Trace, full: bool = False) -> Report:
    """The kernels of a trace; `full`: people see all of them, as programs always do."""
    from deepbench.networks.reporting import traces

    forms = Report.of_table(traces.table(found, None)).forms
    values = {**traces.values(found), "rows": traces.kernel_rows(found)}
    return Report(
        traces.table(found, None if full else traces.MOST_ROWS).print, {**forms, "json": lambda: json_text(values)}
    )


def predict_server(model: str, on: Sequence[str], **words: Any) -> Report:
    """A server of a language model on GPUs with published kernel times: see `deepbench.gpus.api.predict`."""
    found: Report = wing("gpus").predict(model, on, **words)
    return found


class StepOptions(TypedDict, total=False):
    """Which step of a network is predicted, and from which kernels: further keyword arguments of `predict`."""

    train: bool
    """Of a name: a training step instead of a forward pass."""
    settings: Mapping[str, object] | None
    """Of a name: arguments of the function, or parameters of the model."""
    optimizer: str
    """Of a program: `sgd` (the default), `adam`, `adamw`, `adagrad` or `none`."""
    precision: str
    """Of a model of the package: of its kernels; by default f32."""
    library: str
    """Of the kernels; by default torch."""
    threads: int
    """Of the kernels and of the step; by default 1."""


def predict(
    network: Trace | str | Path,
    *results: Source | ResultFile,
    sweep: Mapping[str, Sequence[int]] | None = None,
    devices: Sequence[int] = (),
    strong: bool = False,
    memory: str | None = None,
    measure: bool = False,
    validate: bool = False,
    budget_s: float | None = None,
    output: str | Path | None = None,
    progress: bool | Progress = False,
    **step: Unpack[StepOptions],
) -> Predicted:
    """The time of one step of a network from the measured times of its kernels.

    Args:
        network: a `Trace`; or what the command takes, such as `my.suite`, `mymodel.py:build` or `vision/resnet18`.
        results: results with its kernels.
        sweep: one argument and its values, such as `{"batch": [1, 2, 4]}`: one prediction for each.
        devices: numbers of devices: a training step on each, with the all-reduces of the results.
        strong: the devices divide the batch of `settings`; otherwise each has the whole batch.
        memory: of a device, such as `16GiB`: the summary says how many devices hold the step.
        measure: measure the kernels that the results lack.
        validate: run the real step of a program in turn with all of its kernels; the results do not count then.
        budget_s: measure for at most so many seconds.
        output: the result file of what is measured; None: a file in the folder for temporary files.
        progress: True shows a progress bar; a function is called with an `Activity` before each measurement.
        step: which step, and from which kernels; see `StepOptions`.

    Returns a `Predicted`; with `sweep` a `PredictedSweep`, and with `devices` a `PredictedDevices`. A kernel without a
    time withholds the prediction: `time` is None then. Raises `BadInput` for words that cannot be used.
    """
    from deepbench.measuring.session import Options
    from deepbench.networks.predicted import PredictedDevices, PredictedSweep
    from deepbench.networks.predictions.forecast import forecast
    from deepbench.networks.reporting.predictions import Predicted

    _require_one_question(network, sweep, devices, strong, validate)
    capacity = None if memory is None else (memory, _bytes(memory))
    settings = _words(step.get("settings"))
    name, values, variants = _variants(settings, sweep, devices if strong else ())
    traces = _traces(network, variants, step)
    if devices and not traces[0].is_training:
        raise BadInput("--devices add their gradients after a training step; add --train, or trace one with --train")
    loaded = [_kernels(source) for source in results]
    library, threads = step.get("library", "torch"), step.get("threads", 1)
    path = (Path(output) if output is not None else temporary_path()) if measure or validate else None
    with shown(progress) as show:
        found = forecast(
            traces,
            [one.file for one in loaded],
            library=library,
            threads=threads,
            output=path,
            network=_request(network, settings, step) if validate else None,
            options=Options("steps", budget_s=budget_s),
            progress=show,
        )
    if devices:
        summaries = [s for one in loaded for s in one.summaries]
        return PredictedDevices(found, capacity, tuple(devices), strong, summaries)
    return PredictedSweep(found, capacity, name, tuple(values)) if sweep else Predicted(found, capacity)


def _require_one_question(
    network: Trace | str | Path,
    sweep: Mapping[str, Sequence[int]] | None,
    devices: Sequence[int],
    strong: bool,
    validate: bool,
) -> None:
    if validate and not (isinstance(network, str | Path) and ".py:" in str(network)):
        raise BadInput(f"--validate runs the real step, such as that of mymodel.py:build; {network} is no program")
    if sweep and (devices or validate):
        raise BadInput(f"--sweep and {'--devices' if devices else '--validate'} are two questions; ask one")
    if strong and not devices:
        raise BadInput("--strong says how --devices divide the work; add --devices 1,2,4")
    if sweep is not None and (len(sweep) != 1 or not all(sweep.values())):
        raise BadInput("--sweep changes one argument, such as batch=1,2,4")
    if not all(n >= 1 for n in devices):
        raise BadInput("--devices wants numbers from 1 up, such as 1,2,4")


def _variants(
    settings: dict[str, str], sweep: Mapping[str, Sequence[int]] | None, divided_by: Sequence[int]
) -> tuple[str, Sequence[int], list[dict[str, str]]]:
    """The argument that changes, its values, and the arguments of the network for each step that is traced."""
    if sweep:
        ((name, values),) = sweep.items()
        return name, values, [{**settings, name: str(value)} for value in values]
    return "", (), _divided(settings, divided_by) if divided_by else [settings]


def _divided(settings: Mapping[str, str], devices: Sequence[int]) -> list[dict[str, str]]:
    """The arguments of a network for its part of the batch."""
    batch = settings.get("batch", "")
    if not (batch.isascii() and batch.isdecimal() and len(batch) < 11):
        raise BadInput("--strong divides a batch; say which, such as --set batch=64")
    if uneven := [n for n in devices if int(batch) % n]:
        raise BadInput(f"{uneven[0]} devices do not divide the batch of {batch} evenly")
    return [{**settings, "batch": str(int(batch) // n)} for n in devices]


def _traces(network: Trace | str | Path, variants: Sequence[Mapping[str, str]], step: StepOptions) -> list[Trace]:
    from deepbench.networks.traces import read

    train = step.get("train", False)
    if not isinstance(network, str | Path):
        if train or any(variants):
            raise BadInput("train and settings are for names; trace another step instead")
        return [network]
    optimizer, precision = step.get("optimizer", "sgd"), step.get("precision", "f32")
    return [
        read.read(str(network), words, is_training=train, optimizer=optimizer, precision=precision)
        for words in variants
    ]


def _request(network: Trace | str | Path, settings: Mapping[str, str], step: StepOptions) -> StepRequest:
    from deepbench.networks.predictions.runner import StepRequest

    optimizer, threads = step.get("optimizer", "sgd"), step.get("threads", 1)
    return StepRequest(str(network), settings, step.get("train", False), optimizer, threads)


def _kernels(source: Any, skip_damaged: bool = False) -> Results:
    found = opened(source, skip_damaged)
    return found if isinstance(found, Results) else found.refuse("wanted here are kernels, of deepbench run")


def _words(settings: Mapping[str, object] | None) -> dict[str, str]:
    return {name: str(value) for name, value in (settings or {}).items()}


def _bytes(text: str) -> int:
    from deepbench.plan.fit import Limit

    with contextlib.suppress(BadInput):
        if size := Limit.parse(text).bytes:
            return size
    raise BadInput(f"--memory wants a size such as 16GiB, found {shorten(text)!r}")


@dataclass(frozen=True, repr=False)
class Scaled:
    """All-reduce of larger groups, or training steps on more devices."""

    table: Table
    steps: Sequence[DeviceScaling] = ()
    """Of a model: its steps by number of devices."""

    def report(self) -> Report:
        """What `deepbench scale` prints."""
        found = Report.of_table(self.table)
        if not self.steps:
            return found
        values = [value for scaling in self.steps for value in scaling.values()]
        return replace(found, forms={**found.forms, "json": lambda: json_text(values)})

    def __repr__(self) -> str:
        return str(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def scale(results: Source, *, ranks: Sequence[int] = (), model: str | None = None) -> Scaled:
    """Predict the time of all-reduce for larger groups, or how a training step gets faster on more devices.

    Args:
        results: of all-reduce, several sizes at two or more group sizes; of a model, its steps on devices.
        ranks: group sizes to predict, from 2 to 1,000,000; by default 16 to 8192.
        model: the training step of the model whose name contains this, by number of devices.

    Raises `BadInput` where the results give no model.
    """
    from deepbench.judge import suite_devices
    from deepbench.reporting import groups, steps

    if model is not None:
        if ranks:
            raise BadInput("--model takes the numbers of devices from the file; leave out --ranks")
        found = suite_devices.chosen(_kernels(results).training_steps, model)
        return Scaled(steps.table(found), found)
    wanted = ranks or groups.DEFAULT_RANKS
    if not all(2 <= n <= 10**6 for n in wanted):
        raise BadInput("--ranks must be from 2 to 1000000")
    loaded = _kernels(results)
    table = groups.scaled(loaded.summaries, wanted)
    if not table.rows:
        raise BadInput(f"{loaded.path} gives no model: {table.notes[0]}")
    return Scaled(table)


def estimate(
    what: What | Iterable[What],
    hardware: str | Path,
    output: str | Path | None = None,
    **filters: Unpack[Filters],
) -> Results:
    """Estimate the times of problems on hardware that is only described, and load the result file.

    Args:
        what: a suite, a file of problems, a traced network, a case, or several.
        hardware: a file of hardware (`docs/what-if.md`), or a GPU with a data sheet, such as `h100_sxm`.
        output: the result file, which must not exist; None: the name of `hardware` with `.jsonl`, in this folder.
        filters: those of `cases`; libraries, threads and devices do not matter.

    The times are those of the model without fitted constants, and stay marked as simulated.
    """
    return load_kernels(estimated(words_of(what), hardware, output, make_choices(**filters))[0])


def estimated(
    words: Sequence[str], hardware: str | Path, output: str | Path | None, choices: Choices
) -> tuple[Path, ImportedFile, int]:
    """As `estimate`; returns the result file, what was left out and why, and the number of results."""
    from deepbench import formats
    from deepbench.networks.what_if import estimates
    from deepbench.plan.problems import exported_problems

    machine = _hardware(hardware)
    target = Path(output) if output else Path(f"{Path(hardware).stem}.jsonl")
    found = estimates.estimated(exported_problems(words, choices), machine)
    return target, found, formats.store(found, target, formats.ImportOptions(), ["estimate", *words])


def what_if(
    results: Source,
    *changes: str,
    network: Trace | str | Path | None = None,
    library: str = "torch",
    application: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    hardware: str | Path | None = None,
) -> Answer:
    """What changes of the hardware or of a library do to the applications of results; `docs/what-if.md` lists them.

    Args:
        results: what was measured.
        changes: such as `memory.bytes_per_s*2` or `peak.bf16*2`; each alone, and all together.
        network: ask about the step of this network (a `Trace`, or the suite that one was written to), whose kernels
            the results have, instead of about applications.
        library: of the kernels of `network`.
        application: only applications whose name contains this.
        precision: only kernels in this precision.
        threads: only times with so many threads; None: those that most times have.
        hardware: a file that replaces the limits in the results, or a GPU with a data sheet, such as `h100_sxm`.

    Without changes, `sensitivities` of the answer says how much each knob matters. Raises `BadInput` for an unknown
    knob, and where the results lack what the answer needs.
    """
    from deepbench.networks.reporting import what_if as tables

    if network is not None and (application or precision):
        raise BadInput(f"{network} is one network; leave out application and precision")
    loaded = _kernels(results)
    own = None if hardware is None else _hardware(hardware)
    given = loaded.summaries, loaded.limits, Path(loaded.path).name, list(changes)
    if network is None:
        return tables.answer(*given, name=application, precision=precision, threads=threads, hardware=own)
    return tables.answer_of_step(_step(network), loaded.file, *given, library=library, threads=threads, hardware=own)


def _hardware(source: str | Path) -> Hardware:
    """Of a file, or the data sheet of a GPU with published kernel times."""
    from deepbench.networks.what_if.hardware import Hardware

    gpus = wing("gpus")
    if gpus.is_machine(source):
        found: Hardware = gpus.hardware(source)
        return found
    try:
        return Hardware.load(str(source))
    except BadInput as error:
        if gpus.machines() or Path(source).exists():
            raise
        raise BadInput(f"{error}; data sheets of GPUs are in a package: {gpus.REMEDY}") from None


def _step(network: Trace | str | Path) -> Trace:
    """A trace, or what is in the suite that one was written to."""
    from deepbench.networks.traces.read import read_suite_trace

    return read_suite_trace(Path(network)) if isinstance(network, str | Path) else network


def what_if_report(answer: Answer, full: bool = False) -> Report:
    """What `deepbench whatif` prints; `full`: all kernels."""
    from deepbench.networks.reporting import what_if as tables

    found = Report.of_parts(tables.parts(answer, full), answer.values)
    if len(answer.applications) > 1 or not answer.changes:
        return found
    return replace(found, forms={**found.forms, "csv": tables.every_change(answer.outcomes[0]).csv})


def on_other_hardware(answer: Answer, hardware: str | Path) -> Report:
    """The times of the applications of an answer on other hardware: of a file, or of a GPU with a data sheet."""
    from deepbench.networks.reporting import what_if as tables
    from deepbench.reporting.table import Table

    parts = tables.elsewhere_parts(answer, _hardware(hardware))
    table = [part for part in parts if isinstance(part, Table)][-1]
    found = Report.of_parts(parts, list)
    return replace(found, forms={**found.forms, "json": table.json})


def steps_of(networks: Sequence[Trace | str | Path]) -> Callable[[ResultFile], list[dict[str, Any]]]:
    """What a page draws of these traces, or suites of traces: the steps that the kernels of a file predict."""
    from deepbench.networks.reporting import page

    traces = list(map(_step, networks))
    return lambda file: page.of_file(file, traces)
