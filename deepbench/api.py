"""The functions behind `import deepbench`; the command uses them too. `docs/python.md` describes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from deepbench.core.aliases import did_you_mean
from deepbench.core.case import Case, Pattern, parse_case, parse_patterns
from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.core.op import find_op
from deepbench.core.precision import PRECISIONS
from deepbench.machine import describe
from deepbench.plan.cases import Choices, Planned, expand, read_chosen, why_none
from deepbench.plan.fit import for_mode

# Imports inside functions keep the start of the command short: `list` needs neither sessions nor results.
if TYPE_CHECKING:
    from pandas import DataFrame

    from deepbench.judge.compare import Comparison
    from deepbench.judge.devices import DeviceScaling
    from deepbench.judge.limits import Limits
    from deepbench.judge.trained import Trained
    from deepbench.measure.session import Progress, Session
    from deepbench.networks.trace import Trace
    from deepbench.report.predictions import Predicted
    from deepbench.report.sections import Sections
    from deepbench.report.table import Table
    from deepbench.report.what_if import Answer
    from deepbench.results.file import ResultFile
    from deepbench.results.record import Header, Record
    from deepbench.results.summary import Summary
    from deepbench.training.application import Framework
    from deepbench.training.session import TrainingSession

What = str | Path | Case
"""The name of a suite or of a folder of suites, a file of problems, a file or folder of workloads of others, a case as
the command takes it (words may be missing), or a Case."""

T = TypeVar("T", str, int)

Choice = str | Iterable[str] | None
"""One word, several, or None for the default."""


# ---- cases


def cases(
    what: What | Iterable[What] = "quick",
    *,
    ops: Choice = None,
    backends: Choice = None,
    precisions: Choice = None,
    directions: Choice = None,
    applications: Choice = None,
    threads: int | Iterable[int] | None = None,
    ranks: int | Iterable[int] | None = None,
    device: str = "cpu",
    settings: Mapping[str, Choice] | None = None,
    fit: str | None = None,
    with_parts: bool = False,
) -> list[Case]:
    """The cases that a suite, a file or a typed case stands for, without measuring them.

    Args:
        what: what to expand, or several such things.
        ops: only these operations, such as `conv`.
        backends: only these libraries; by default all of the device except frameworks and the reference.
        precisions: these precisions, or `all`; by default f32, or what the suite says.
        directions: these directions; by default what the suite says, else forward.
        applications: only problems of these applications, such as `Speech Recognition`.
        threads: numbers of threads; by default all cores that this process may use.
        ranks: only groups of these sizes.
        device: `cpu`, `cuda` or `hip`.
        settings: settings of cases, such as `{"weights": ["plain", "packed"]}`, and parameters of models, such as
            `{"phase": "decode", "batch": "8"}`.
        fit: replace problems of suites that need more than this, such as `4GiB` or `4GiB+20GFLOP`, by smaller ones of
            their kind.
        with_parts: also the parts of every case whose work can be done piece by piece, such as the products and the
            recurrence of a recurrent layer with a wide input.

    Raises `BadInput` for a word that is unknown, and where no case is left.
    """
    choices = make_choices(
        ops=ops, backends=backends, precisions=precisions, directions=directions, applications=applications,
        threads=threads, ranks=ranks, device=device, settings=settings, fit=fit, with_parts=with_parts,
    )  # fmt: skip
    return [p.case for p in plan_cases(what, choices)]


def plan_cases(what: What | Iterable[What], choices: Choices) -> list[Planned]:
    """Cases with the lines of suites that ask for them; `BadInput` where none is left."""
    entries, choices = read_chosen(_words(what), choices)
    threads = describe.default_threads()
    planned = expand(entries, choices, threads)
    if not planned:
        raise BadInput(why_none(entries, choices, threads))
    return planned


def make_choices(
    *,
    ops: Choice = None,
    backends: Choice = None,
    precisions: Choice = None,
    directions: Choice = None,
    applications: Choice = None,
    threads: int | Iterable[int] | None = None,
    ranks: int | Iterable[int] | None = None,
    device: str | None = "cpu",
    settings: Mapping[str, Choice] | None = None,
    fit: str | None = None,
    with_parts: bool = False,
    most_ranks: int | None = None,
    mode: str | None = None,
) -> Choices:
    """The filters of `cases` as one value. In the mode `quick`, `fit` has a tighter limit."""
    from deepbench.core.backend import DEVICES

    device = device or "cpu"
    if device not in DEVICES:
        hint = did_you_mean(device, DEVICES)
        raise BadInput(f"device is one of {', '.join(DEVICES)}, found {shorten(device)!r}{hint}")
    wanted = _several(precisions)
    return Choices(
        ops=_several(ops),
        backends=_several(backends),
        precisions=tuple(PRECISIONS) if "all" in wanted else wanted,
        directions=_several(directions),
        applications=_several(applications),
        threads=_several(threads),
        ranks=_several(ranks),
        most_ranks=most_ranks,
        device=device,
        settings={name: _several(values) for name, values in (settings or {}).items()},
        fit=None if fit is None else for_mode(fit, mode),
        with_parts=with_parts,
    )


def _several(values: T | Iterable[T] | None) -> tuple[T, ...]:
    return () if values is None else (values,) if isinstance(values, str | int) else tuple(dict.fromkeys(values))


def _words(what: What | Iterable[What]) -> list[str]:
    if isinstance(what, Case):
        return [what.text]
    if isinstance(what, str | Path):
        return [str(what)]
    return [word for one in what for word in _words(one)]


# ---- measure


def measure(
    what: What | Iterable[What] = "quick",
    *,
    ops: Choice = None,
    backends: Choice = None,
    precisions: Choice = None,
    directions: Choice = None,
    applications: Choice = None,
    threads: int | Iterable[int] | None = None,
    ranks: int | Iterable[int] | None = None,
    device: str = "cpu",
    settings: Mapping[str, Choice] | None = None,
    fit: str | None = None,
    with_parts: bool = False,
    mode: str = "default",
    rounds: int | None = None,
    energy: bool = False,
    budget_s: float | None = None,
    timeout_s: float | None = None,
    hosts: Sequence[str] = (),
    output: str | Path | None = None,
    progress: bool | Progress = False,
) -> Results:
    """Measure cases in fresh processes, check every answer, and keep every record in a file.

    The first arguments choose the cases as in `cases`. Further ones:

    Args:
        mode: `quick` (one process per case), `default` (three to five) or `rigorous` (ten to twenty). With `quick`,
            `fit` limits calls to 512 MiB and 5 GFLOP, unless it has a work.
        rounds: exactly this many processes per case, instead of what the mode says.
        energy: joules per call too, where the CPU or the device counts energy.
        budget_s: stop after this many seconds, with the most that can be known by then.
        timeout_s: seconds without a sign of life after which a case is given up.
        hosts: where the ranks of collective operations run; this machine if empty.
        output: the result file, which must not exist; by default a file in the folder for temporary files.
        progress: True shows a progress bar; a function is called with a `Step` before each measurement.

    Raises `BadInput` for words that cannot be used, where none of the libraries is here, and where nothing fits into
    the budget. A library that crashes, hangs or is wrong raises nothing: its record says so. On KeyboardInterrupt the
    file keeps what was measured.
    """
    choices = make_choices(
        ops=ops, backends=backends, precisions=precisions, directions=directions, applications=applications,
        threads=threads, ranks=ranks, device=device, settings=settings, fit=fit, with_parts=with_parts,
        mode=mode,
    )  # fmt: skip
    from deepbench.measure.session import Options, Session

    options = Options(mode, rounds, energy, timeout_s, budget_s, hosts=tuple(hosts))
    path = Path(output) if output is not None else _temporary()
    with Session.create(path, plan_cases(what, choices), options) as session:
        return run_session(session, progress, options.begin)


def resume(path: str | Path, *, progress: bool | Progress = False) -> Results:
    """Measure what an interrupted file still lacks; `BadInput` where the machine or the libraries have changed."""
    from deepbench.measure.session import Session

    with Session.resume(Path(path)) as session:
        return run_session(session, progress)


def run_session(session: Session, progress: bool | Progress, begin: float | None = None) -> Results:
    """Measure everything a session plans."""
    with _shown(progress) as show:
        session.run(show, begin)
    return Results(session.file)


def train(
    applications: str | Iterable[str],
    *,
    rung: str = "mini",
    seeds: int = 5,
    framework: Framework = "torch",
    device: str = "cpu",
    precision: str = "f32",
    ranks: int = 1,
    threads: int | None = None,
    batch: int | None = None,
    output: str | Path | None = None,
    progress: bool | Progress = False,
) -> Results:
    """Train applications with several seeds each, every run in a process of its own, and keep all events in a file.

    Args:
        applications: one name, or several, such as `image`; `docs/applications.md` lists them.
        rung: the size, such as `mini` or `small`.
        seeds: how many runs of each.
        framework: `torch` or `jax`.
        device: `cpu` or `cuda`.
        precision: `f32` or `bf16`.
        ranks: processes that share each batch.
        threads: of each rank; by default all cores, shared by the ranks.
        batch: samples of a step, in place of those of the rung.
        output: the result file, which must not exist; by default a file in the folder for temporary files.
        progress: True shows a progress bar; a function is called with a `Step` several times per second.

    Raises `BadInput` for words that cannot be used. Missing data, a crash or a loss that diverges raise nothing: the
    run says so. `Results.trained` has the runs, `Results.table()` what they say together.
    """
    from deepbench.training.application import Setup
    from deepbench.training.session import TrainingSession, resolved

    count = threads or max(1, describe.default_threads() // ranks)
    names = [applications] if isinstance(applications, str) else list(dict.fromkeys(applications))
    setups = [
        resolved(Setup(name, rung, framework, device, precision, ranks, count, seed, batch))
        for seed in range(seeds)
        for name in names
    ]
    path = Path(output) if output is not None else _temporary()
    with TrainingSession.create(path, setups) as session:
        return run_training(session, progress)


def run_training(session: TrainingSession, progress: bool | Progress) -> Results:
    """Train everything a session plans."""
    from deepbench.core import units
    from deepbench.measure.session import Step
    from deepbench.report.training import quality_text

    with _shown(progress) as show:

        def tell(at: Any) -> None:
            share = units.percent(at.samples / at.setup["samples"])
            words = [f"{at.setup['application']}, seed {at.setup['seed']}", share]
            if at.quality is not None:  # the value first: 80 columns cut off the name of the metric
                words.append(f"{quality_text(at.setup, at.quality)} {at.setup['metric']}")
            show(Step(", ".join(words), at.run, at.runs, at.left_s))

        session.run(tell)
    return Results(session.file)


def _shown(progress: bool | Progress) -> AbstractContextManager[Progress]:
    if callable(progress):
        return nullcontext(progress)
    from deepbench.measure.session import no_progress
    from deepbench.report.progress import Bar

    if not progress:
        return nullcontext(no_progress)
    return Bar()


def _temporary() -> Path:
    import tempfile

    from deepbench.results.file import default_path

    return default_path(Path(tempfile.gettempdir()), f"{datetime.now().strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")


# ---- results


def load(path: str | Path, *, skip_damaged: bool = False) -> Results:
    """Read a result file; `BadInput` in one sentence for anything else. Nothing in a file is executed.

    With `skip_damaged`, damaged lines are left out; `results.file.damaged` has their numbers.
    """
    from deepbench.results.file import read_results

    return Results(read_results(Path(path), skip_damaged))


class Results:
    """The results of one file: one summary per case, the records they come from, and tables of both."""

    def __init__(self, file: ResultFile) -> None:
        self.file = file

    @property
    def path(self) -> Path:
        """The file."""
        return self.file.path

    @property
    def header(self) -> Header:
        """The first line: machine, libraries and plan."""
        return self.file.header

    @cached_property
    def summaries(self) -> list[Summary]:
        """One summary per case, in the order of the plan."""
        from deepbench.results.summary import summarize

        return summarize(self.file.records, self.file.order)

    @cached_property
    def limits(self) -> Limits:
        """The limits of the machine, as far as the file knows them."""
        from deepbench.judge import limits

        return limits.of_file(self.file, self.summaries)

    @cached_property
    def training_steps(self) -> list[DeviceScaling]:
        """Training steps of models on the numbers of devices that the suites name (`devices=1,2,4`)."""
        from deepbench.report import on_devices

        return on_devices.of_summaries(self.summaries)

    @property
    def records(self) -> list[Record]:
        """Every line of the file that measured something, as plain values that `json.dumps` takes."""
        from deepbench.results.file import plain_record

        return [plain_record(record) for record in self.file.records]

    @property
    def cases(self) -> list[Case]:
        """The cases that were planned."""
        return [parse_case(text) for text in self.file.order]

    def __len__(self) -> int:
        return len(self.summaries)

    def __iter__(self) -> Iterator[Summary]:
        return iter(self.summaries)

    def select(self, case: Case | str) -> list[Summary]:
        """The summaries of a case; words of its text may be missing, and then there may be several."""
        patterns = parse_patterns(case.text if isinstance(case, Case) else case)
        return [s for s in self.summaries if any(_fits(pattern, s.record) for pattern in patterns)]

    def samples(self, case: Case | str) -> list[list[float]]:
        """Seconds per call of each sample, one list per process. The words must name one case of the file."""
        chosen = self.select(case)
        if len(chosen) != 1:
            text = shorten(case.text if isinstance(case, Case) else case)
            known = "; ".join(s.record["case"] for s in chosen[:3])
            raise BadInput(
                f"{text!r} is {f'several cases: {known}' if chosen else f'not in {self.path}'}; name one case"
            )
        return [list(r["measurement"]["samples_s"]) for r in chosen[0].rounds if r["measurement"]]

    @cached_property
    def trained(self) -> list[Trained]:
        """The applications that the file has trained, each with all of its seeds."""
        from deepbench.judge.trained import runs_of, trained

        return trained(runs_of(self.file))

    def table(self, full: bool = False) -> Sections | Table:
        """What the command prints: a section per operation with one row per problem; `full`: one row per library.

        Of trained applications: one row per setup.
        """
        if self.file.is_training:
            from deepbench.report import training

            return training.table(self.trained)
        from deepbench.report.cases import library_table
        from deepbench.report.sections import sections

        return (library_table if full else sections)(self.summaries, self.limits)

    def fastest(self, op: str | None = None) -> Table:
        """Libraries ranked by problem, fastest first, with 95 % confidence intervals; of one operation or of all."""
        from deepbench.report import cases as tables

        if op is not None:
            find_op(op)
        return tables.ranking_table([s for s in self.summaries if op in (None, s.record["op"])])

    def to_frame(self) -> DataFrame:
        """A pandas DataFrame with one row per case and the columns of the CSV export. Times are in seconds."""
        from deepbench.report import export

        try:
            import pandas
        except ImportError:
            raise BadInput("data frames need pandas; install it: pip install pandas") from None
        return pandas.DataFrame(export.rows(self.summaries, self.limits))

    def __repr__(self) -> str:
        return f"{self._heading}\n{self.table()}" if self.summaries or self.trained else self._heading

    def _repr_html_(self) -> str:
        import html

        return (
            f"<p>{html.escape(self._heading)}</p>{self.table()._repr_html_() if self.summaries or self.trained else ''}"
        )

    @property
    def _heading(self) -> str:
        from deepbench.results.file import damage_text

        count, timed = len(self.summaries), sum(s.is_ranked for s in self.summaries)
        damage = f"; {damage_text(self.file.damaged)} left out" if self.file.damaged else ""
        if self.trained:
            runs = [run for one in self.trained for run in one.runs]
            ended = sum(run.status == "ok" for run in runs)
            return f"{printable(str(self.path))}: {len(runs)} training runs, {ended} to their end{damage}"
        count_text = f"{count} case{'s' if count != 1 else ''}"
        return f"{printable(str(self.path))}: {count_text}, {timed} with a time{damage}"


def _fits(pattern: Pattern, record: Record) -> bool:
    """Whether a record is of a case that has all words of the pattern."""
    words = {
        "direction": pattern.direction,
        "precision": pattern.precision,
        "backend": pattern.backend,
        "threads": pattern.threads,
    }
    return (
        record["op"] == pattern.op
        and {**pattern.problem.values, **record["problem"]} == pattern.problem.values
        and all(value is None or record[name] == value for name, value in words.items())  # type: ignore[literal-required]
        and all(record["settings"].get(name) == value for name, value in pattern.settings)
    )


# ---- networks


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
    from deepbench.networks import read

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
    *results: Results | ResultFile | str | Path,
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
    from deepbench.measure.session import no_progress
    from deepbench.networks import read
    from deepbench.networks.forecast import forecast
    from deepbench.report.predictions import Predicted
    from deepbench.report.progress import Bar

    if isinstance(network, str | Path):
        words = {name: str(value) for name, value in (settings or {}).items()}
        network = read.read(str(network), words, is_training=train, precision=precision)
    elif settings or train:
        raise BadInput("train and settings are for names; trace another step instead")
    files = [_file_of(r) for r in results]
    path = (Path(output) if output is not None else _temporary()) if measure else None
    with Bar() if progress else nullcontext() as bar:
        found = forecast([network], files, library=library, threads=threads, output=path, progress=bar or no_progress)
    return Predicted(found)


def what_if(
    results: Results | str | Path,
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
    from deepbench.networks.hardware import Hardware
    from deepbench.report import what_if as tables

    loaded = results if isinstance(results, Results) else load(results)
    own = None if hardware is None else Hardware.load(str(hardware))
    given = loaded.summaries, loaded.limits, Path(loaded.path).name, list(changes)
    return tables.answer(*given, name=application, precision=precision, threads=threads, hardware=own)


# ---- compare and report


def compare(
    a: Results | ResultFile | str | Path,
    b: Results | ResultFile | str | Path,
    *,
    margin: float | None = None,
    unchecked: bool = False,
) -> Comparison:
    """Compare the cases that two results have in common; ratios are b's time over a's.

    Args:
        a: the baseline.
        b: what is compared with it.
        margin: differences below this share of the time do not matter; None: 2 %.
        unchecked: also compare times whose results were not checked.

    """
    from deepbench.judge import selftest
    from deepbench.judge.compare import MARGIN, compare_files

    files = _file_of(a), _file_of(b)
    return compare_files(*files, MARGIN if margin is None else margin, unchecked, selftest.between_files(*files))


def report(
    results: Results | str | Path | Iterable[Results | str | Path],
    output: str | Path = "report.html",
    *,
    against: Sequence[str] = (),
    networks: Iterable[str | Path] = (),
    title: str | None = None,
    skip_damaged: bool = False,
) -> list[ResultFile]:
    """Write one HTML page about results; the first is compared with each of the others.

    Args:
        results: one or more results or result files.
        output: the page; a page that exists is replaced.
        against: published machines to compare with, such as `V100`.
        networks: suites that `deepbench trace` wrote; the page draws the step that the kernels of each file predict.
        title: the heading of the page.
        skip_damaged: leave out damaged lines of files; the page says so.

    Returns the result files that were read.
    """
    import gc

    from deepbench.networks.read import read_suite_trace
    from deepbench.report.page import render
    from deepbench.report.page import report as page
    from deepbench.results import published

    sources = [results] if isinstance(results, Results | str | Path) else list(results)
    if not str(output).lower().endswith((".html", ".htm")):
        raise BadInput(f"the page needs a name that ends in .html, found {str(output)[-60:]!r}")
    machines = [published.find(name) for name in against]
    traces = [read_suite_trace(Path(name)) for name in networks]
    render.plotly()  # a missing package is reported before the work, not after it
    paused = gc.isenabled()
    gc.disable()  # everything that is read stays until the end; collecting it again and again takes a third of the time
    try:
        files = [_file_of(source, skip_damaged) for source in sources]
        page.write_report(files, machines, Path(output), title, traces)
    finally:
        if paused:
            gc.enable()
    return files


def _file_of(source: Results | ResultFile | str | Path, skip_damaged: bool = False) -> ResultFile:
    if isinstance(source, Results):
        return source.file
    return load(source, skip_damaged=skip_damaged).file if isinstance(source, str | Path) else source
