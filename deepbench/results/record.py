"""The types of the lines of a result file, and how a record begins.

    deepbench/1    the first format: a header, then records and limits in the order of measurement

Each line is one JSON object. `schema.json` states the same types as a JSON Schema, and `docs/results.md` explains
every field and its unit. A field of type `object` may hold any JSON value: readers must check it.
"""

# No `from __future__ import annotations`: with it, `__required_keys__` of a TypedDict would ignore `NotRequired`.

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict, get_args

from deepbench.core.backend import find_backend
from deepbench.core.case import Case, parse_case, run_settings_text
from deepbench.core.op import Op, find_op

SCHEMA: Literal["deepbench/1"] = "deepbench/1"

WrittenStatus = Literal[
    "ok", "wrong", "unchecked", "unsupported", "unavailable", "out_of_memory", "crashed", "timeout", "interrupted"
]
# Reading assigns the last one (`consistency.py`). No file contains it.
Status = Literal[WrittenStatus, "inconsistent"]
STATUSES: tuple[Status, ...] = get_args(WrittenStatus)

# A case with one of these statuses has a time.
MEASURED: tuple[Status, ...] = ("ok", "unchecked")

Device = Literal["cpu", "cuda", "hip"]


class Source(TypedDict):
    """A row of a suite that lists a case."""

    suite: str
    row: int
    application: str | None
    label: str | None
    note: str | None
    needed: NotRequired[bool]
    count: NotRequired[int]
    """How often one pass of the model calls it; 1 if absent."""


class PlannedCase(TypedDict):
    """A case of the plan."""

    case: str
    sources: list[Source]


class RoundLimits(TypedDict):
    """How many processes measure each case: `plan.modes.Rounds`."""

    least: int
    most: int
    target: float
    most_s: float


class SamplingRules(TypedDict):
    """How a process samples: `plan.modes.Rules`."""

    target: float
    least_samples: int
    least_s: float
    most_s: float
    warm_up_s: float
    sample_s: float
    first_call_counts_s: float | None
    patience: NotRequired[int]
    least_slices: NotRequired[int]
    energy_s: NotRequired[float | None]


class Interleaved(TypedDict):
    """One side of two that were measured in turn."""

    run: str
    side: Literal["a", "b"]
    choices: dict[str, str]
    environment: dict[str, str]


class TrainingSetup(TypedDict):
    """One run of an application: `training.application.Setup` with the numbers of its rung."""

    application: str
    rung: str
    framework: Literal["torch", "jax"]
    device: str
    precision: Literal["f32", "bf16"]
    ranks: int
    """Processes that share each batch."""
    threads: int
    """Of each rank."""
    seed: int
    batch: int
    samples: int
    every: int
    metric: str
    higher_is_better: bool
    is_share: bool
    target: float
    settings: dict[str, Any]


class Plan(TypedDict):
    """Everything that `--resume` needs."""

    rounds: RoundLimits
    mode: Literal["quick", "default", "rigorous", "steps", "training", "serving", "imported"]
    order_seed: int
    timeout_s: float
    rules: SamplingRules
    cases: list[PlannedCase]
    hosts: NotRequired[list[str]]
    interleaved: NotRequired[Interleaved | None]
    budget_s: NotRequired[float | None]
    training: NotRequired[list[TrainingSetup]]


class Cache(TypedDict):
    """A data cache of a CPU."""

    level: int
    bytes: int
    shared_by: NotRequired[str | None]


class Machine(TypedDict):
    """The fields of `machine.describe` whose types are checked; `get` returns the others as `object`."""

    instructions: NotRequired[list[str]]
    memory_bytes: NotRequired[int | None]
    caches: NotRequired[list[Cache] | None]


class LibraryFacts(TypedDict):
    """A library as it was loaded."""

    name: str
    version: str | None
    path: str | None
    build: NotRequired[str]
    cpu_kernels: NotRequired[str]
    threading: NotRequired[str]
    card: NotRequired[object]


class Unavailability(TypedDict):
    """Why a library could not be opened."""

    reason: str
    remedy: str


class LibraryAnswer(TypedDict, total=False):
    """The facts of a library, or why it is unavailable: exactly one of the two."""

    library: LibraryFacts
    unavailable: Unavailability


class Header(TypedDict):
    """The first line of a result file."""

    schema: Literal["deepbench/1"]
    checksums: NotRequired[Literal["crc32"]]
    """Every line has one. Missing in files of earlier versions."""
    tool: str
    started: str
    command: list[str]
    machine: Machine
    libraries: dict[str, LibraryAnswer]
    plan: Plan


class Check(TypedDict):
    """A comparison of the outputs with the float64 reference."""

    passed: bool
    how: str
    error: float | None
    got: NotRequired[float | None]
    want: NotRequired[float | None]
    covers: int
    of: int


class Checks(TypedDict):
    """The checks before and after timing."""

    before: Check | None
    after: Check | None


class CpuEnergy(TypedDict):
    """Energy of the CPUs in a window of calls."""

    joules_per_call: float | None
    watts: float | None
    calls: int
    window_s: float
    valid: bool | str


class DeviceEnergy(TypedDict):
    """Energy of an accelerator in a window of calls."""

    joules_per_call: float
    calls: int
    window_s: float
    watts: float


class DeviceMeasurement(TypedDict):
    """What the clock and the sensors of an accelerator reported."""

    clock: Literal["graph", "stalled events", "events"]
    fallback: str | None
    host_call_s: list[float]
    before: dict[str, object] | None
    after: dict[str, object] | None
    energy: NotRequired[DeviceEnergy | None]


class Measurement(TypedDict):
    """What the clock measured in one process. Times are seconds per call; lists have one entry per sample."""

    samples_s: Sequence[float]
    slices: NotRequired[Sequence[int]]
    calls_per_sample: int
    cpu_s: Sequence[float | None]
    involuntary_switches: Sequence[int | None]
    steal_s: Sequence[float | None]
    first_call_s: float | None
    warm_up_calls: int | None
    warm_up_s: float | None
    stopped: Literal["sure", "unstable", "time", "first_call"] | None
    loop: Literal["native", "python"] | None
    other_cpus: NotRequired[float | None]
    device: NotRequired[DeviceMeasurement | None]
    energy: NotRequired[CpuEnergy]


class Process(TypedDict):
    """The worker process."""

    duration_s: float
    started: NotRequired[object]
    cpus: NotRequired[object]
    openmp_runtimes: NotRequired[object]
    environment: NotRequired[object]
    peak_memory_bytes: NotRequired[object]
    rules: NotRequired[object]


class Heat(TypedDict):
    """The heat in which a record was measured: in equal slices of one heat, rivals ran directly one after another."""

    id: str
    rivals: list[str]


class RecordWarning(TypedDict):
    """Something a reader should know about a valid result."""

    code: str
    text: str


class Interconnect(TypedDict):
    """What connects the processes of a host."""

    numa_nodes: int | None
    networks_mbit_per_s: dict[str, int | None]
    infiniband: list[str]


class GroupFacts(TypedDict):
    """The ranks of a case that several processes solve together."""

    launcher: str
    hosts: dict[str, int]
    oversubscribed: bool
    deterministic: NotRequired[str]
    hash: NotRequired[str]
    cards: NotRequired[list[str]]
    interconnect: NotRequired[dict[str, Interconnect]]


class BackendFields(TypedDict):
    """What a record states about its backend, for readers who do not have it."""

    device: str
    library_title: str
    framework: bool


class OpFields(TypedDict):
    """What a record states about its operation, for readers who do not have it."""

    problem_title: str
    variants: list[str]
    sweep_field: str | None
    is_group: bool
    least_flop: float | None
    baselines: list[str]


class Record(BackendFields, OpFields):
    """One round of one case. `old_files` adds the fields that files of earlier versions lack."""

    case: str
    round: int
    status: Status
    reason: str | None
    op: str
    problem: dict[str, int | str]
    direction: str
    precision: str
    types: dict[str, str]
    backend: str
    threads: int
    settings: dict[str, str]
    flop: int
    other_flop: dict[str, int]
    traffic_bytes: int
    sources: list[Source]
    check: Checks
    measurement: Measurement | None
    library: LibraryFacts | None
    notes: dict[str, Any]
    process: Process | None
    warnings: list[RecordWarning]
    group: GroupFacts | None
    heat: Heat | None


class _LimitLine(TypedDict):
    case: str
    threads: int
    at: str
    disturbed: NotRequired[bool]


class MemoryLimit(_LimitLine):
    """The rate at which a working set of some size is read, copied or combined."""

    what: Literal["memory"]
    device: Device
    kind: Literal["read", "gather", "copy", "triad"]
    bytes: int
    """The working set. With several passes per call (`case`), each pass reads all of it."""
    bytes_per_s: float
    seconds: float


class CallLimit(_LimitLine):
    """The fixed cost of a library's calls: the time of the smallest problem of an operation."""

    what: Literal["call"]
    backend: str
    library: str
    seconds: float


class ComputeLimit(_LimitLine):
    """The highest rate that any library reached in a precision."""

    what: Literal["compute"]
    precision: str
    device: Device
    flop_per_s: float
    library: str
    seconds: NotRequired[float]
    """Missing in files of earlier versions."""


class ThreadsLimit(_LimitLine):
    """The time of a case of this file with fewer threads, measured to see whether more threads help."""

    what: Literal["threads"]
    backend: str
    library: str
    seconds: float
    """The median of the samples of one process."""


Limit = MemoryLimit | CallLimit | ComputeLimit | ThreadsLimit


class NetworkSteps(TypedDict):
    """Steps of a network that ran one after the other, between two kernels."""

    network: str
    """What built it, such as `mymodel.py:build`, or `overhead`: a network whose kernels take next to no time."""
    settings: dict[str, str]
    is_training: bool
    optimizer: str
    threads: int
    at: str
    samples_s: Sequence[float]
    """Seconds of each step."""
    cpu_s: Sequence[float | None]
    involuntary_switches: Sequence[int | None]
    steal_s: Sequence[float | None]


class TrainingStart(TypedDict):
    """The process of a run is ready."""

    samples: int
    """Those before this process."""
    parameters: int
    examples: int | None
    """That it trains on; None where it makes them itself."""
    tests: int
    """Examples that its quality is tested with."""
    versions: dict[str, str]
    environment: NotRequired[dict[str, str]]
    """Environment variables that may change the speed; missing in files of earlier versions."""
    device: NotRequired[str]
    """The name of the GPU; missing on CPUs, and in files of earlier versions."""
    optimizer: NotRequired[str]
    """As its framework calls it; missing in files of earlier versions, and so is the next one."""
    learning_rate: NotRequired[float]
    """For this batch, where the schedule has the factor 1."""
    load_s: float
    """Seconds to read the data."""
    initialise_s: float
    """Seconds to load the framework, and to build the model and what it trains on."""


class TrainingPoint(TypedDict):
    """An evaluation. Seconds are those since the evaluation before it."""

    samples: int
    quality: float | None
    """None where it is no finite number."""
    loss: float | None
    train_s: float
    first_step_s: float
    """Of these, the first step: a framework may compile in it."""
    steps: int
    evaluate_s: float
    checkpoint_s: NotRequired[float]
    """To write the checkpoint; missing in files of earlier versions."""
    cpus: NotRequired[int]
    """CPUs that the process may use; missing in files of earlier versions."""
    other_cpus: NotRequired[float | None]
    """How many of them other programs used while it trained, as a mean; None where nobody could look."""


class TrainingEnd(TypedDict):
    """How a run ended."""

    status: Literal[
        "ok", "diverged", "unsupported", "unavailable", "out_of_memory", "crashed", "timeout", "interrupted"
    ]
    reason: str | None


class Training(TypedDict):
    """An event of a run that trains an application: one of `start`, `point` and `end`."""

    run: int
    """Its place in `plan.training`."""
    at: str
    start: NotRequired[TrainingStart]
    point: NotRequired[TrainingPoint]
    end: NotRequired[TrainingEnd]


Scenario = Literal["batches", "single", "multi", "offline", "server"]
SCENARIOS: tuple[Scenario, ...] = get_args(Scenario)


class ServingStart(TypedDict):
    """A process has loaded a model, and answered every test example once."""

    tests: int
    """Test examples."""
    metric: str
    """Of grades."""
    is_share: bool
    grade: float | None
    """Of these plain answers; None where it is no finite number."""
    versions: dict[str, str]
    environment: NotRequired[dict[str, str]]
    """Environment variables that may change the speed; missing in files of earlier versions."""
    device: NotRequired[str]
    """The name of the GPU; missing on CPUs, and in files of earlier versions."""
    load_s: float
    initialise_s: float
    evaluate_s: float


class ServedQueries(TypedDict):
    """Timed queries, in the order of their arrival."""

    samples: int
    """Of each query."""
    latency_s: Sequence[float]
    """From the arrival that was scheduled, or else from the question, to the answer."""
    faster: NotRequired[int]
    """So many more were faster than all of these."""
    seconds: float
    """From the first arrival to the last answer."""


class ServedProbe(TypedDict):
    """A rate that was tried."""

    rate: float
    """Scheduled queries per second."""
    queries: int
    """Answered ones: a hopeless probe ends early."""
    late: int
    """Those above the bound."""
    is_kept: bool
    """Whether the percentile is within the bound with 99 % confidence."""


class ServedSearch(TypedDict):
    """The search for the highest rate that keeps a bound."""

    bound_s: float
    is_chosen: bool
    """By a person; else it is a multiple of the latency of one sample."""
    probes: list[ServedProbe]


class ServedBatch(TypedDict):
    """Batches of one size, one after the other."""

    batch: int
    latency_s: Sequence[float]


class ServedAnswers(TypedDict):
    """All answers of the timed run, and those of a plain evaluation to the same samples."""

    answers: int
    equal: int
    grade: float | None
    plain_grade: float | None


class ServedRepeats(TypedDict):
    """Seconds of single samples: different ones, and one that repeats, in turn."""

    different_s: Sequence[float]
    repeated_s: Sequence[float]


class Serving(TypedDict):
    """A scenario in which a trained model answers."""

    run: int
    """Its place in `plan.training`."""
    at: str
    device: str
    precision: Literal["f32", "bf16"]
    threads: int
    scenario: Scenario
    status: Literal["ok", "wrong", "unsupported", "unavailable", "out_of_memory", "crashed", "timeout", "interrupted"]
    reason: str | None
    start: NotRequired[ServingStart]
    batch: NotRequired[int]
    """The most samples that the model gets at once."""
    queries: NotRequired[ServedQueries]
    """Of `server`: at the highest rate that keeps the bound."""
    search: NotRequired[ServedSearch]
    batches: NotRequired[list[ServedBatch]]
    passes_s: NotRequired[list[float]]
    """Of `offline`: seconds of each pass over all test examples."""
    answers: NotRequired[ServedAnswers]
    repeats: NotRequired[ServedRepeats]
    cpus: NotRequired[int]
    """CPUs that the process may use."""
    other_cpus: NotRequired[float | None]
    """How many of them other programs used meanwhile, on average."""
    loadgen: NotRequired[dict[str, str]]
    """What the summary of MLPerf's LoadGen says about the same scenario."""


def make_record(case: Case, round_number: int, status: Status, reason: str | None = None) -> Record:
    """The record of a case before it is measured: what it is, and how much work it does."""
    op = find_op(case.op)
    return {
        "case": case.text,
        "round": round_number,
        "status": status,
        "reason": reason,
        "op": case.op,
        "problem": case.problem.values,
        "direction": case.direction,
        "precision": case.precision.name,
        "types": {**case.precision.types(), "result": op.result_type(case)},
        "backend": case.backend,
        "threads": case.threads,
        "settings": case.settings,
        "flop": op.flop(case),
        "other_flop": op.other_flop(case),
        "traffic_bytes": op.traffic_bytes(case),
        "sources": [],
        "check": {"before": None, "after": None},
        "measurement": None,
        "library": None,
        "notes": {},
        "process": None,
        "warnings": [],
        "group": None,
        "heat": None,
        **backend_fields(case.backend),
        **op_fields(op, case),
    }


def backend_fields(name: str) -> BackendFields:
    """What a record states about this backend; `BadInput` for an unknown one."""
    backend = find_backend(name)
    return {"device": backend.device, "library_title": backend.title, "framework": backend.framework}


def op_fields(op: Op, case: Case) -> OpFields:
    """What a record states about the operation of this case."""
    # A baseline may be of any backend, so the text of one is taken and its backend removed.
    words = f"{case.precision.name} reference threads={case.threads} {run_settings_text(case)}"
    baselines = [parse_case(f"{pattern} {words}").text for pattern in op.baselines(case)]
    return {
        "problem_title": op.title(case.problem),
        "variants": list(op.variants),
        "sweep_field": op.sweep_field,
        "is_group": op.is_group,
        "least_flop": op.least_flop(case),
        "baselines": [text.replace(" reference ", " ", 1) for text in baselines],
    }
