"""The door of the applications: train them, explain a step, let their models answer, find their data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from deepbench.api.measuring import temporary_path
from deepbench.applications import datasets
from deepbench.applications.results import ServingResults, TrainingResults
from deepbench.applications.training.application import Setup, applications, find_application
from deepbench.applications.training.inference import InferenceSession
from deepbench.applications.training.scenarios import ServingOptions
from deepbench.applications.training.session import Stopped, TrainingSession, resolved
from deepbench.core import units
from deepbench.core.errors import BadInput, Unavailable
from deepbench.machine import describe
from deepbench.reporting.progress import shown
from deepbench.results.record import SCENARIOS, Scenario, TrainingSetup

if TYPE_CHECKING:
    from deepbench.core.progress import Progress
    from deepbench.networks.reporting.predictions import Predicted
    from deepbench.reporting.table import Table

__all__ = [
    "ALL",
    "SWEPT",
    "DataSets",
    "Explained",
    "Setting",
    "Stopped",
    "TrainingSession",
    "TrainingSetup",
    "data",
    "explain_step",
    "known_applications",
    "plan_training",
    "resume_training",
    "run_serving",
    "run_training",
    "serve",
    "serving_session",
    "train",
]

ALL = "all"

SWEPT = ("precision", "ranks", "threads", "batch")
"""What a sweep of training can change."""


# Generators of random numbers take seeds of 32 bits, and some of them signed ones.
MOST_SEED = 2**31 - 1


class Setting(TypedDict, total=False):
    """How applications are trained: the keyword arguments of `train` and of `plan_training`."""

    rung: str
    """The size: `mini` (the default), `small` or `full`."""
    seeds: int | Sequence[int]
    """How many runs of each, with seeds from 0 up, by default 5; or the seeds, with one run for each."""
    framework: str
    """`torch` (the default) or `jax`."""
    device: str
    """`cpu` (the default) or `cuda`."""
    precision: str
    """`f32` (the default) or `bf16`."""
    ranks: int
    """Processes that share each batch; by default 1."""
    threads: int | None
    """Of each rank; None: all cores, shared by the ranks."""
    batch: int | None
    """Samples of a step; None: those of the rung."""
    sweep: Mapping[str, Sequence[Any]] | None
    """One of `SWEPT` and its values, such as `{"batch": [128, 256]}`: each application trains with each."""


def train(
    applications: str | Iterable[str],
    *,
    hosts: Sequence[str] = (),
    output: str | Path | None = None,
    progress: bool | Progress = False,
    **setting: Unpack[Setting],
) -> TrainingResults:
    """Train applications with several seeds each, every run in a process of its own, and keep all events in a file.

    Args:
        applications: one name, or several, such as `image`, or `all`; `docs/applications.md` lists them.
        hosts: where the ranks run, this machine first; this machine alone if empty.
        output: the result file, which must not exist; by default a file in the folder for temporary files.
        progress: True shows a progress bar; a function is called with an `Activity` several times per second.
        setting: how; see `Setting`.

    Raises `BadInput` for words that cannot be used. Missing data, a crash or a loss that diverges raise nothing: the
    run says so. `trained` of the results has the runs, and `table()` what they say together.
    """
    setups = plan_training(applications, **setting)
    path = Path(output) if output is not None else temporary_path()
    with TrainingSession.create(path, setups, hosts=list(hosts)) as session:
        return run_training(session, progress)


def resume_training(
    path: str | Path, *, hosts: Sequence[str] = (), trusted: bool = False, progress: bool | Progress = False
) -> TrainingResults:
    """Continue the runs of an interrupted file at their last checkpoints; `BadInput` where the machine has changed.

    A file that names hosts, or has more ranks than this machine has cores, needs the same `hosts`, or `trusted`.
    """
    with TrainingSession.resume(Path(path), list(hosts), trusted=trusted) as session:
        return run_training(session, progress)


def plan_training(names: str | Iterable[str], **setting: Unpack[Setting]) -> list[TrainingSetup]:
    """The runs of applications, by seed; `BadInput` for words that cannot be used."""
    framework, rung = setting.get("framework", "torch"), setting.get("rung", "mini")
    chosen = [names] if isinstance(names, str) else list(dict.fromkeys(names))
    if ALL in chosen:
        chosen = [name for name, one in applications().items() if framework in one.frameworks and rung in one.rungs]
        if not chosen:
            raise BadInput(f"no application has a version in {framework!r:.40} with the rung {rung!r:.40}")
    return [
        resolved(setup)
        for seed in _seeds(setting.get("seeds", 5))
        for name in chosen
        for setup in _variants(name, seed, setting)
    ]


def _seeds(seeds: int | Sequence[int]) -> Sequence[int]:
    """The seeds of a number of runs, or those that are named."""
    if isinstance(seeds, int):
        return range(seeds)
    found = list(seeds)
    if not found or not all(0 <= seed <= MOST_SEED for seed in found) or len(set(found)) < len(found):
        text = ", ".join(map(str, found))
        raise BadInput(f"seeds are different whole numbers from 0 to {MOST_SEED}, found {text or 'none'!r:.60}")
    return found


def _variants(name: str, seed: int, setting: Setting) -> Iterator[Setup]:
    """The runs of one seed of an application: one, or one for each value of a sweep."""
    sweep = setting.get("sweep") or {}
    if len(sweep) > 1 or not set(sweep) <= set(SWEPT) or not all(sweep.values()):
        raise BadInput(f"a sweep has one of {', '.join(SWEPT)} and its values, found {', '.join(sweep)!r:.60}")
    chosen = {key: value for key, value in setting.items() if key not in ("seeds", "sweep")}
    for swept in [{key: value} for key, values in sweep.items() for value in values] or [{}]:
        given: dict[str, Any] = {"rung": "mini", **chosen, **swept}
        threads = given.pop("threads", None) or max(1, describe.default_threads() // given.get("ranks", 1))
        yield Setup(name, threads=threads, seed=seed, **given)


def known_applications() -> list[str]:
    """The names of all applications."""
    return list(applications())


def run_training(session: TrainingSession, progress: bool | Progress) -> TrainingResults:
    """Train everything a session plans."""
    with shown(progress) as show:
        session.run(show)
    return TrainingResults(session.file)


# ---- one step, explained by its kernels


@dataclass(frozen=True)
class Explained:
    """One training step of an application, predicted from its kernels and measured in turn with them."""

    setup: TrainingSetup
    predicted: Predicted
    path: Path
    """The file with the kernels and the step."""

    @property
    def title(self) -> str:
        """Which step it is."""
        setup = self.setup
        return f"{setup['application']}, rung {setup['rung']}: one training step of {setup['batch']:,} samples"

    def summary(self) -> list[tuple[str, str]]:
        """Labels and sentences: the time, how much of it kernels explain, and what is left out."""
        from deepbench.networks.reporting.predictions import WITHHELD

        lines, prediction, measured = self.predicted.summary(), self.predicted.prediction, self.predicted.measured
        if measured is not None and prediction.time is not None:
            share = prediction.measured_share * prediction.time.seconds / measured.seconds
            text = f"measured kernels are {units.percent(share)} of the measured step"
            lines.append(("explained", text if prediction.error(measured) is not None else WITHHELD))
        if left_out := find_application(self.setup["application"]).outside_steps:
            lines.append(("left out", left_out))
        return lines

    def faster_kernels(self) -> list[str]:
        """What the step gains where its longest kernels get faster."""
        from deepbench.networks.reporting.predictions import faster_kernels

        return faster_kernels(self.predicted.prediction)


def explain_step(setup: TrainingSetup, output: str | Path, progress: bool | Progress = False) -> Explained:
    """The kernels of one training step with PyTorch on CPUs, measured into the new file `output`."""
    from deepbench.applications.training import step
    from deepbench.core.kinds import wing

    settings = {n: str(cast(Any, setup)[n]) for n in ("application", "rung", "batch", "precision")}
    predicted = wing("networks").predict(
        f"{step.__file__}:build",
        train=True,
        settings=settings,
        optimizer="none",
        threads=setup["threads"],
        validate=True,
        output=output,
        progress=progress,
    )
    return Explained(setup, predicted, Path(output))


# ---- models that answer queries


class ServingSetting(TypedDict, total=False):
    """How models are asked: the keyword arguments of `serve`. None is the same as leaving one out."""

    scenario: str
    """`single`, `multi`, `server`, `offline` or `all` (the default)."""
    batch: int | None
    """The largest batch in samples; by default 128."""
    seconds: float | None
    """Of each scenario; by default 5."""
    latency_s: float | None
    """Bound of the 99th percentile of `server`, in seconds; by default from the latency of one sample."""
    driver: str
    """`deepbench` (the default), or `loadgen`: also run MLPerf's LoadGen."""
    threads: int | None
    """Of the model; by default as in training."""
    device: str | None
    """`cpu` or `cuda`; by default as in training."""
    timeout_s: float | None
    """Stop a model that reports nothing for so many seconds; by default 300."""


def serve(
    source: TrainingResults | str | Path,
    *,
    output: str | Path | None = None,
    progress: bool | Progress = False,
    **setting: Unpack[ServingSetting],
) -> ServingResults:
    """Let the models of a file answer queries: latency, throughput and quality of the answers.

    Args:
        source: the results of `train`, or their file.
        output: write to this result file; None: append to the file of `source`.
        progress: True shows a progress bar; a function is called with an `Activity` before each scenario.
        setting: how; see `ServingSetting`.

    Returns what this call measured. Raises `BadInput` for words that cannot be used and where there is no model.
    """
    path = source.path if isinstance(source, TrainingResults) else Path(source)
    with serving_session(path, output, **setting) as session:
        run_serving(session, progress)
        return ServingResults(session.added)


def serving_session(
    path: str | Path, output: str | Path | None = None, **setting: Unpack[ServingSetting]
) -> InferenceSession:
    """A session of `serve` to be run step by step; the arguments are those of `serve`."""
    given: dict[str, Any] = {name: value for name, value in setting.items() if value not in (None, 0)}
    if (driver := given.get("driver", "deepbench")) not in ("deepbench", "loadgen"):
        raise BadInput(f"--driver is deepbench or loadgen, found {driver!r:.40}")
    options = ServingOptions(_scenarios(given.pop("scenario", ALL)), **given)
    try:
        return InferenceSession.open(Path(path), options, Path(output) if output else None)
    except Unavailable as error:
        raise BadInput(str(error)) from None


def run_serving(session: InferenceSession, progress: bool | Progress) -> None:
    """Let every model answer in every scenario."""
    with shown(progress) as show:
        session.run(show)


def _scenarios(name: str) -> tuple[Scenario, ...]:
    if name == ALL:
        return SCENARIOS
    for scenario in SCENARIOS:
        if scenario == name and scenario != "batches":
            # How large a batch has to be is what offline answers, too.
            return ("batches", scenario) if scenario == "offline" else (scenario,)
    raise BadInput(f"--scenario is single, multi, server, offline or all, found {name!r:.40}")


# ---- data


@dataclass(frozen=True)
class DataSets:
    """Data sets that were looked for, and installed where that was asked."""

    rows: list[dict[str, Any]]
    notes: list[str]
    failures: list[str]
    """Why data sets that were asked for could not be installed."""

    @property
    def table(self) -> Table:
        """One row per data set."""
        from deepbench.reporting.table import Column, Table

        columns = [
            Column("name", whole=True),
            Column("state", whole=True),
            Column("size", units.data_bytes, "right", narrow=1),
            Column("download", units.data_bytes, "right", narrow=2),
            Column("has", least=24),
            Column("licence"),
        ]
        return Table(columns, self.rows, self.notes)


def data(
    *names: str,
    progress: Callable[[str], object] = lambda text: None,
    on_failure: Callable[[str], object] = lambda text: None,
) -> DataSets:
    """Find the data that applications train on; data sets that are named (or `all`) are installed where missing.

    Args:
        names: of data sets; without names, all are looked for and none is installed.
        progress: is called with a sentence for each download.
        on_failure: is called with a sentence where a data set cannot be installed.

    A data set that cannot be installed raises nothing: `failures` says why. `BadInput` for an unknown name.
    """
    chosen = [datasets.find_dataset(name) for name in names if name != ALL]
    if ALL in names or not names:
        chosen = list(datasets.datasets().values())
    found = DataSets([], [], [])
    notes: list[str] = []
    folders: list[Path] = []
    for dataset in chosen:
        # With `all`, a folder that only the user can provide is no failure.
        is_wanted = dataset.name in names or (ALL in names and not isinstance(dataset, datasets.UserFolder))
        here = None
        try:
            here = datasets.installed(dataset, progress) if is_wanted else datasets.find(dataset)
            folders.append(here.folder)
        except datasets.MissingData as error:
            if is_wanted:
                on_failure(str(error))
                found.failures.append(str(error))
            else:
                notes.append(f"{error}.")
        found.rows.append(_row(dataset, here))
        notes += [f"{dataset.name}: {dataset.terms}"] if dataset.terms else []
    places = dict.fromkeys(folder.parent if folder.parent == datasets.own_folder() else folder for folder in folders)
    found.notes.extend([f"The data is in {place}." for place in places] + notes)
    return found


def _row(dataset: datasets.Dataset, found: datasets.FoundData | None) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "state": "found" if found else "missing",
        "size": found.bytes if found else None,
        "download": sum(package.bytes for package in dataset.packages) or None,
        "has": dataset.about,
        "licence": dataset.licence,
    }
