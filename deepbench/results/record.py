"""The types of the lines of a result file, and how a record begins.

    deepbench/1    the first format: a header, then records and limits in the order of measurement

Each line is one JSON object. This is the only statement of the format: the JSON Schema (`schema.py`), the checks of
the reader and the tables of `docs/results.md` (`docs/make_results.py`) are made of these types. The text below a field
is its meaning in these tables, after its unit in brackets. A field of type `object` may hold any JSON value: readers
must check it.
"""

# No `from __future__ import annotations`: with it, `__required_keys__` of a TypedDict would ignore `NotRequired`.

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict, get_args

from deepbench.core import devices
from deepbench.core.backend import find_backend
from deepbench.core.case import Case, parse_case, run_settings_text
from deepbench.core.op import Op
from deepbench.results.fields import Closed, ExactlyOne, Items, Text, Within, Written

SCHEMA: Literal["deepbench/1"] = "deepbench/1"

WrittenStatus = Literal[
    "ok", "wrong", "unchecked", "unsupported", "unavailable", "out_of_memory", "crashed", "timeout", "interrupted"
]
# Reading assigns the last one (`consistency.py`). No file contains it.
Status = Literal[WrittenStatus, "inconsistent"]
STATUSES: tuple[Status, ...] = get_args(WrittenStatus)

# A case with one of these statuses has a time.
MEASURED: tuple[Status, ...] = ("ok", "unchecked")

Device = Annotated[str, Text(devices.PATTERN, longest=devices.MOST_CHARACTERS)]

# Values that several fields may have.
Threads = Annotated[int, Within(1, 4096)]
Positive = Annotated[int, Within(1, 10**15)]
Count = Annotated[int, Within(0, 10**15)]
Million = Annotated[int, Within(0, 10**6)]
Bytes = Annotated[int, Within(0, 10**18)]
PositiveThousand = Annotated[int, Within(1, 1000)]
PositiveMillion = Annotated[int, Within(1, 10**6)]
Seconds = Annotated[float, Within(0, 1e9)]
SampleSeconds = Annotated[float, Within(1e-12, 1e9)]
LongSeconds = Annotated[float, Within(0, 1e12)]
RuleSeconds = Annotated[float, Within(0, 1e6)]
PositiveSeconds = Annotated[float, Within(most=1e9, above=0)]
Number = Annotated[float, Within(-1e30, 1e30)]
NotNegative = Annotated[float, Within(0)]
QuantizationError = Annotated[float, Within(0, 1e6)]
Moment = Annotated[str, Text(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[+]00:00$")]
PreciseMoment = Annotated[str, Text(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{3})?[+]00:00$")]


class Source(TypedDict):
    """A row of a suite that lists a case."""

    suite: str
    """name of the suite, or the file; of a [model](models.md) with its parameters"""
    row: int
    """row in it, from 1"""
    application: str | None
    """for example Speech Recognition"""
    label: str | None
    """label in DeepBench's workbooks"""
    note: str | None
    """where sources disagree, what `--fit` made smaller"""
    needed: NotRequired[bool]
    """false for a gradient that training does not need: that of a network's input"""
    count: NotRequired[Annotated[int, Within(1, 10**9)]]
    """how often one pass of the model calls the kernel; 1 if absent"""


class PlannedCase(TypedDict):
    """A case of the plan."""

    case: str
    """text of the case"""
    sources: list[Source]
    """like `sources` of a record"""


class RoundLimits(TypedDict):
    """How many processes measure each case: `plan.modes.Rounds`."""

    least: PositiveThousand
    """minimum number of rounds"""
    most: PositiveThousand
    """maximum number of rounds"""
    target: Annotated[float, Within(0, 10)]
    """[share] a case is finished when its 95 % interval is within ± this share of its time"""
    most_s: Seconds
    """[s] a case whose rounds took longer in total gets no more than `least` rounds"""


class SamplingRules(TypedDict):
    """How a process samples: `plan.modes.Rules`."""

    target: Annotated[float, Within(0, 10)]
    """[share] stop when the interval of the median is narrower than this share of it"""
    least_samples: PositiveMillion
    """minimum number of samples"""
    least_s: RuleSeconds
    """[s] minimum time to sample"""
    most_s: RuleSeconds
    """[s] maximum time to sample"""
    warm_up_s: RuleSeconds
    """[s] maximum warm-up after the first call"""
    sample_s: Annotated[float, Within(1e-06, 1000)]
    """[s] a sample makes as many calls as take about this long"""
    first_call_counts_s: NotNegative | None
    """[s] a longer first call is the only sample; null: never"""
    patience: NotRequired[PositiveThousand]
    """if other programs disturb too many samples, sampling takes up to so many times `most_s`"""
    least_slices: NotRequired[Million]
    """in a heat with rivals: slices of each rival, unless `most_s` is over before"""
    energy_s: NotRequired[RuleSeconds | None]
    """[s] window for energy per call; null or missing: not measured"""
    sustained_s: NotRequired[RuleSeconds | None]
    """[s] how long a device was loaded after sampling; null or missing: not at all"""


class Interleaved(TypedDict):
    """One side of two that were measured in turn."""

    run: str
    """identifies the run; the same in both files"""
    side: Literal["a", "b"]
    """`a` or `b`"""
    choices: dict[str, str]
    """settings, threads or backend of this side"""
    environment: dict[str, str]
    """environment variables of this side's workers"""


class TrainingSetup(TypedDict):
    """One run of an application: `training.application.Setup` with the numbers of its rung."""

    application: Annotated[str, Text(r"^[a-z][a-z0-9_-]{0,63}$")]
    """such as `image`"""
    rung: Annotated[str, Text(r"^[a-z][a-z0-9_-]{0,63}$")]
    """the size of the application, such as `mini`"""
    framework: Literal["torch", "jax"]
    """`torch` or `jax`"""
    device: Annotated[str, Text(r"^[a-z]{1,16}(:[0-9]{1,4})?$")]
    """`cpu`, or a device of the framework such as `cuda`"""
    precision: Literal["f32", "bf16"]
    """`f32`, or `bf16`: products in 16 bits"""
    ranks: Annotated[int, Within(1, 10**5)]
    """processes that share each batch"""
    threads: Threads
    """of each rank"""
    seed: Count
    """of initial values, the order of examples and random numbers"""
    batch: Positive
    """samples of a step, of all ranks together"""
    samples: Positive
    """on which the run trains; a sample counts as often as it is used"""
    every: Positive
    """samples between two evaluations"""
    metric: Annotated[str, Text(longest=100)]
    """what quality is, such as `accuracy`"""
    higher_is_better: bool
    """of the metric"""
    is_share: bool
    """whether people read the metric in percent"""
    target: Number
    """what the metric has to reach"""
    settings: dict[str, Any]
    """sizes of the model and constants of the optimizer; each application has its own"""


class Plan(TypedDict):
    """Everything that `--resume` needs."""

    rounds: Annotated[RoundLimits, Closed()]
    """how many processes measure each case"""
    mode: Literal["quick", "default", "rigorous", "steps", "training", "serving", "imported"]
    """`quick`, `default`, `rigorous`, [`steps`](prediction.md), `training`, `serving`, `imported`"""
    order_seed: int
    """seed of the random order of each round"""
    timeout_s: Annotated[float, Within(most=1e6, above=0)]
    """[s] a worker that reports no progress for this long is ended"""
    rules: Annotated[SamplingRules, Closed()]
    """how a process samples"""
    cases: list[PlannedCase]
    """the cases, in the order of the suite"""
    hosts: NotRequired[Annotated[list[Annotated[str, Text(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]], Items(65536)]]
    """hosts for groups; missing or empty: this machine"""
    interleaved: NotRequired[Interleaved | None]
    """in the two files of `run --ab` and `--against`; null or missing elsewhere"""
    budget_s: NotRequired[Annotated[float, Within(most=1e10, above=0)] | None]
    """[s] of `--budget`; null or missing without it"""
    no_limits: NotRequired[bool]
    """true with `--no-limits`: no limit of the machine was measured"""
    search_again: NotRequired[bool]
    """true with `--search-again`: algorithms that earlier runs chose are not used"""
    training: NotRequired[Annotated[list[TrainingSetup], Items(10**5)]]
    """training runs, in their order ([applications.md](applications.md)); missing in files of kernels"""


class Cache(TypedDict):
    """A data cache of a CPU."""

    level: int
    """1 is the nearest"""
    bytes: Annotated[int, Within(0)]
    """[bytes] size of one such cache"""
    shared_by: NotRequired[str | None]
    """CPUs that share it"""


class MachineFields(TypedDict):
    """The fields of `machine.describe` whose types are checked; `get` returns the others as `object`."""

    instructions: NotRequired[list[str]]
    """instruction sets that decide which kernels a library chooses"""
    memory_bytes: NotRequired[Bytes | None]
    """[bytes] main memory"""
    caches: NotRequired[list[Cache] | None]
    """data caches of the first CPU, as the system reports them"""


class LibraryFacts(TypedDict):
    """A library as it was loaded."""

    name: str
    """name by its makers"""
    version: str | None
    """by its own version function; null if it has none"""
    path: str | None
    """the file it was loaded from"""
    build: NotRequired[str]
    """its own description of the build"""
    cpu_kernels: NotRequired[str]
    """the CPU whose kernels it chose"""
    threading: NotRequired[str]
    """for example `OpenMP` or `own threads`"""
    card: NotRequired[object]
    """of a GPU library; see [Card](#card)"""
    device: NotRequired[Annotated[str, Text(longest=1000)]]
    """what the device calls itself, such as `TPU v4`"""


class Unavailability(TypedDict):
    """Why a library could not be opened."""

    reason: str
    """why it could not be opened"""
    remedy: str
    """what to do about it"""


class LibraryAnswer(TypedDict, total=False):
    """The facts of a library, or why it is unavailable: exactly one of the two."""

    library: LibraryFacts
    """facts about the library as it was loaded; as `library` of a record"""
    unavailable: Unavailability
    """why it is not here"""


class Header(TypedDict):
    """The first line of a result file."""

    schema: Literal["deepbench/1"]
    """`deepbench/1`; a higher number needs a newer DeepBench"""
    checksums: NotRequired[Literal["crc32"]]
    """`crc32`: every line has a checksum"""
    tool: str
    """name and version of the program"""
    started: str
    """[ISO 8601, UTC] start of the run"""
    command: list[str]
    """the words after `deepbench`"""
    machine: MachineFields
    """host, CPU, microarchitecture, caches, governor, kernel and more, as in `deepbench info --json`"""
    libraries: dict[str, Annotated[LibraryAnswer, ExactlyOne()]]
    """by backend: `{"library": facts}` or `{"unavailable": {"reason", "remedy"}}`"""
    plan: Plan
    """everything that `--resume` needs"""


class Check(TypedDict):
    """A comparison of the outputs with the float64 reference."""

    passed: bool
    """whether all comparisons were within tolerance"""
    how: str
    """what was compared"""
    error: float | None
    """[tolerances] largest error as a multiple of its tolerance; null if not finite"""
    got: NotRequired[float | None]
    """the worst value"""
    want: NotRequired[float | None]
    """the expected value there"""
    covers: Bytes
    """[elements] output elements that contributed"""
    of: Bytes
    """[elements] output elements in total"""
    quantization_error: NotRequired[QuantizationError | None]
    """[share] [error of the answer](formulas.md); missing or null where none is known"""


class Checks(TypedDict):
    """The checks before and after timing."""

    before: Check | None
    """after the first call; null if nothing was compared"""
    after: Check | None
    """after timing, on the timed buffers; its fields are the same"""


class CpuEnergy(TypedDict):
    """Energy of the CPUs in a window of calls."""

    joules_per_call: NotNegative | None
    """[J] null if there is no counter"""
    watts: NotNegative | None
    """[W] mean power in the window"""
    calls: Annotated[int, Within(0)]
    """calls in the window"""
    window_s: NotNegative
    """[s] length of the window"""
    valid: bool | str
    """true, or the reason why not"""


class DeviceEnergy(TypedDict):
    """Energy of an accelerator in a window of calls."""

    joules_per_call: LongSeconds
    """[J] energy of the board divided by the calls"""
    calls: Annotated[int, Within(1)]
    """calls in the window"""
    window_s: NotNegative
    """[s] length of the window"""
    watts: Seconds
    """[W] mean power in the window"""
    during: NotRequired[dict[str, object] | None]
    """sensors in the window, see below; missing in older files"""


class QueueMeasurement(TypedDict):
    """What the clock for devices without events found. All times are seconds per call."""

    slope_s: SampleSeconds | None
    """[s] by the slope of k, 2k and 3k calls; null if it was not taken"""
    loop_s: SampleSeconds | None
    """[s] by a loop inside the program; null if there is none, or it was refused"""
    enqueue_s: Seconds
    """[s] until the host goes on: what a call costs it"""
    empty_s: SampleSeconds | None
    """[s] by the slope of a call of next to nothing; null if it was not taken"""
    off_line: Number | None
    """how far 3k calls lie off the line, relative to k; null if noise hides it"""
    fetch_growth: Number | None
    """what of a call was still under way after the wait, relative to it"""
    refused: str | None
    """why the loop was refused; null if it was not"""


class LoadSlice(TypedDict):
    """A part of a long load: the calls of about 50 ms."""

    at_s: NotNegative
    """[s] its end, since the beginning of the load"""
    call_s: SampleSeconds
    """[s] time per call in it"""
    clock_mhz: NotRequired[NotNegative | None]
    """[MHz] clock of the multiprocessors; null if it cannot be read"""
    watts: NotRequired[NotNegative | None]
    """[W] power of the board; null if it cannot be read"""


class SustainedLoad(TypedDict):
    """Calls without a pause for some seconds."""

    call_s: SampleSeconds
    """[s] time per call: median over the second half of the slices"""
    clock_mhz: NotNegative | None
    """[MHz] median clock over the second half; null if it cannot be read"""
    calls: Annotated[int, Within(1)]
    """calls in the window"""
    window_s: NotNegative
    """[s] length of the window"""
    slices: Annotated[list[LoadSlice], Items(10**5, 1)]
    """clock and power over time"""
    during: NotRequired[dict[str, object] | None]
    """sensors in the window, see below"""


class DeviceMeasurement(TypedDict):
    """What the clock and the sensors of an accelerator reported."""

    clock: Literal["graph", "stalled events", "events", "slope", "loop", "awaited"]
    """how samples were timed ([gpu.md](gpu.md), [method.md](method.md))"""
    fallback: str | None
    """why this is not the usual clock for this length; null if it is"""
    host_call_s: Annotated[list[SampleSeconds], Items(10**6)]
    """[s] single calls as the host sees them: made and waited for"""
    before: dict[str, object] | None
    """sensors before sampling, see below"""
    after: dict[str, object] | None
    """sensors after sampling"""
    during: NotRequired[dict[str, object] | None]
    """sensors while calls ran, see below; missing in older files"""
    energy: NotRequired[DeviceEnergy | None]
    """with `--energy`; null if the card has no counter"""
    queue: NotRequired[QueueMeasurement | None]
    """of a device without events: what its clock found"""
    sustained: NotRequired[SustainedLoad | None]
    """with `--sustained`; null or missing without it"""


class Measurement(TypedDict):
    """What the clock measured in one process. Times are seconds per call; lists have one entry per sample."""

    samples_s: Annotated[Sequence[SampleSeconds], Items(10**6, 1)]
    """[s] each sample, in seconds **per call**"""
    slices: NotRequired[Annotated[Sequence[Million], Items(10**6)]]
    """the slice of the heat in which each sample was taken; missing in older files"""
    calls_per_sample: Annotated[int, Within(1, 10**12)]
    """calls in one sample"""
    cpu_s: Sequence[LongSeconds | None]
    """[s] CPU time of all threads during each sample"""
    involuntary_switches: Sequence[Bytes | None]
    """involuntary context switches during each sample"""
    steal_s: Sequence[LongSeconds | None]
    """[s] time stolen by the hypervisor during each sample, over all CPUs, in ticks"""
    queued_s: NotRequired[Annotated[Sequence[LongSeconds | None], Items(10**6)]]
    """[s] time in which threads could have run, but others had the CPU; missing in older files"""
    first_call_s: SampleSeconds | None
    """[s] the first call in the process"""
    warm_up_calls: Bytes | None
    """calls before the first sample"""
    warm_up_s: Seconds | None
    """[s] time these calls took"""
    stopped: Literal["sure", "unstable", "time", "first_call"] | None
    """why sampling stopped: `sure`, `unstable`, `time` or `first_call`"""
    loop: Literal["native", "python"] | None
    """`native` (compiled) or `python`"""
    other_cpus: NotRequired[RuleSeconds | None]
    """[CPUs] how many CPUs other programs kept busy meanwhile"""
    device: NotRequired[DeviceMeasurement | None]
    """on an accelerator: its clock and its sensors; null or missing on a CPU"""
    energy: NotRequired[CpuEnergy]
    """with `--energy`, of the CPUs: counters of whole sockets (RAPL)"""


class Process(TypedDict):
    """The worker process."""

    duration_s: Seconds
    """[s] total time, including libraries, inputs and checks"""
    started: NotRequired[object]
    """[ISO 8601, UTC] start of the worker"""
    cpus: NotRequired[object]
    """its affinity mask at the end"""
    cpus_allowed: NotRequired[object]
    """the same when it began, before a library could change it; missing in older files"""
    openmp_runtimes: NotRequired[object]
    """OpenMP runtimes that were loaded"""
    environment: NotRequired[object]
    """variables that tune libraries; see [Environment](#environment)"""
    peak_memory_bytes: NotRequired[object]
    """[bytes] most memory in use"""
    rules: NotRequired[object]
    """like `plan.rules`"""


class Heat(TypedDict):
    """The heat in which a record was measured: in equal slices of one heat, rivals ran directly one after another."""

    id: Annotated[str, Text(shortest=1, longest=64)]
    """the same in all records of a heat"""
    rivals: Annotated[list[str], Items(100)]
    """the cases of the others"""


class RecordWarning(TypedDict):
    """Something a reader should know about a valid result."""

    code: str
    """see [Warnings](#warnings)"""
    text: str
    """a sentence"""


class Interconnect(TypedDict):
    """What connects the processes of a host."""

    numa_nodes: Annotated[int, Within(1)] | None
    """memory nodes of the host"""
    networks_mbit_per_s: dict[str, Annotated[int, Within(1)] | None]
    """[Mbit/s] speed of each network interface that is up"""
    infiniband: list[str]
    """InfiniBand devices"""


class GroupFacts(TypedDict):
    """The ranks of a case that several processes solve together."""

    launcher: str
    """what started the ranks, see below"""
    hosts: dict[str, Annotated[int, Within(1, 65536)]]
    """processes on each host: one per rank, or a single one with `processes=one`"""
    oversubscribed: bool
    """whether a host has more ranks than cores, so that ranks take turns"""
    deterministic: NotRequired[str]
    """`yes`, or `no` with the first difference between ranks or calls"""
    hash: NotRequired[Annotated[str, Text(longest=128)]]
    """of the bits of the result; equal hashes mean the same order of additions"""
    cards: NotRequired[list[str]]
    """the GPU of each rank"""
    interconnect: NotRequired[dict[str, Interconnect]]
    """of each host: `numa_nodes`, `networks_mbit_per_s` and `infiniband`"""


class BackendFields(TypedDict):
    """What a record states about its backend, for readers who do not have it."""

    device: str
    """what it ran on, such as `cpu`, `cuda` or `pjrt:tpu` ([adding-a-device.md](adding-a-device.md))"""
    library_title: str
    """the library as its makers spell it"""
    framework: bool
    """true for a framework, whose times include its own dispatch"""


class OpFields(TypedDict):
    """What a record states about its operation, for readers who do not have it."""

    problem_title: str
    """the problem as tables show it"""
    variants: list[str]
    """settings that only choose how the same work is done, such as the algorithm"""
    sweep_field: str | None
    """the size in which problems of one family differ, such as the batch; null if there is none"""
    is_group: bool
    """whether one process per rank takes part"""
    least_flop: Annotated[float, Within(0, 1e30)] | None
    """[FLOP] operations that no algorithm in use avoids; null if unknown"""
    baselines: list[str]
    """cases to compare with, such as the dense product of a sparse one; without a backend"""


class Notes(TypedDict, total=False):
    """The notes of backends whose values are checked. Others may hold any value."""

    implementation: str | None
    """the routine, or the name that the library gives its implementation"""
    pack_s: Seconds
    """[s] time to pack the weights, before timing"""
    convert_s: Seconds
    """[s] time to convert tensors into the library's own formats, before timing"""
    optimize_s: Seconds
    """[s] time to inspect a sparse matrix, before timing"""
    compile_s: Seconds
    """[s] time to compile the function and call it once, before timing"""


class Record(BackendFields, OpFields):
    """One round of one case."""

    case: str
    """the case as one line of text: the key, and the words that measure it again"""
    round: PositiveMillion
    """number of the round, from 1"""
    status: Annotated[Status, Written(WrittenStatus)]
    """see [Status](#status)"""
    reason: str | None
    """a sentence; for every status but `ok`"""
    op: str
    """name of the operation"""
    problem: dict[str, Annotated[int, Within(0, 9223372036854775808)] | str]
    """sizes by field"""
    direction: str
    """`forward`, `backward_data`, `backward_weights`, or `backward`: all gradients in one call"""
    precision: str
    """name of the precision"""
    types: dict[str, str]
    """of `weights` (A), `data` (B), `accumulate` (sums) and `result` (stored outputs)"""
    backend: str
    """name of the backend"""
    threads: Threads
    """threads the library was given"""
    settings: dict[str, str]
    """every setting of the case, defaults included"""
    flop: Annotated[int, Within(0, 10**30)]
    """[FLOP] operations of one call on the unpadded problem ([formulas.md](formulas.md))"""
    other_flop: dict[str, Annotated[int, Within(0, 10**30)]]
    """[FLOP] the same work by other conventions, by name"""
    traffic_bytes: Annotated[int, Within(0, 10**30)]
    """[bytes] least bytes that must move in one call"""
    sources: list[Source]
    """every row of a suite that lists this case"""
    check: Checks
    """comparisons of the outputs with the float64 reference"""
    measurement: Measurement | None
    """see [Measurement](#measurement); null if the case was not measured"""
    library: LibraryFacts | None
    """facts about the library as it was loaded in this process"""
    notes: Annotated[dict[str, Any], Written(Notes)]
    """facts from the operation and the backend; see [Notes](#notes)"""
    process: Process | None
    """how the worker ran; null if it did not live to report"""
    warnings: list[RecordWarning]
    """what a reader should know about a valid result"""
    group: GroupFacts | None
    """see [Group](#group); null or missing for a case of one process"""
    heat: Heat | None
    """its heat with rivals ([method.md](method.md)); null for a case measured alone, missing in older files"""


class LimitFields(TypedDict):
    """What all kinds of limits have."""

    case: str
    """the case that was measured"""
    threads: Threads
    """number of threads"""
    at: Moment
    """[ISO 8601, UTC] time of the measurement"""
    disturbed: NotRequired[bool]
    """whether other programs interfered; such a limit is measured again after an hour"""


class MemoryLimit(LimitFields):
    """The rate at which a working set of some size is read, copied or combined."""

    what: Literal["memory"]
    """`compute`, `memory`, `call`: the fixed cost of a library's calls, or `threads`: see below"""
    device: Device
    """of compute and memory"""
    kind: Literal["read", "gather", "copy", "triad"]
    """of memory: `read`, `gather`, `copy` or `triad`"""
    bytes: Bytes
    """[bytes] of memory: all arrays together, each once, also if a call passes over them many times"""
    bytes_per_s: Annotated[float, Within(1, 1e18)]
    """[bytes/s] of memory"""
    seconds: Annotated[float, Within(most=1e6, above=0)]
    """[s] the fastest call; of threads the median of the undisturbed samples"""


class CallLimit(LimitFields):
    """The fixed cost of a library's calls: the time of the smallest problem of an operation."""

    what: Literal["call"]
    """`compute`, `memory`, `call`: the fixed cost of a library's calls, or `threads`: see below"""
    backend: str
    """of a call and of threads"""
    library: str
    """of compute, of a call and of threads: name and version"""
    seconds: Annotated[float, Within(most=1e6, above=0)]
    """[s] the fastest call; of threads the median of the undisturbed samples"""


class ComputeLimit(LimitFields):
    """The highest rate that any library reached in a precision."""

    what: Literal["compute"]
    """`compute`, `memory`, `call`: the fixed cost of a library's calls, or `threads`: see below"""
    precision: str
    """of compute"""
    device: Device
    """of compute and memory"""
    flop_per_s: Annotated[float, Within(1, 1e24)]
    """[FLOP/s] of compute"""
    library: str
    """of compute, of a call and of threads: name and version"""
    seconds: Annotated[float, Within(most=1e6, above=0)]
    """[s] the fastest call; of threads the median of the undisturbed samples"""


class ThreadsLimit(LimitFields):
    """The time of a case of this file with fewer threads, measured to see whether more threads help."""

    what: Literal["threads"]
    """`compute`, `memory`, `call`: the fixed cost of a library's calls, or `threads`: see below"""
    backend: str
    """of a call and of threads"""
    library: str
    """of compute, of a call and of threads: name and version"""
    seconds: Annotated[float, Within(most=1e6, above=0)]
    """[s] the fastest call; of threads the median of the undisturbed samples"""


Limit = MemoryLimit | CallLimit | ComputeLimit | ThreadsLimit


class NetworkSteps(TypedDict):
    """Steps of a network that ran one after the other, between two kernels."""

    network: str
    """its title, or `overhead`: a network whose kernels take next to no time"""
    settings: dict[str, str]
    """arguments of the function that built it"""
    is_training: bool
    """a training step, or a forward pass"""
    optimizer: str
    """the one that the command chose"""
    threads: Threads
    """number of threads"""
    at: Moment
    """[ISO 8601, UTC] time of the measurement"""
    samples_s: Annotated[Sequence[SampleSeconds], Items(10**6, 1)]
    """[s] of each step"""
    cpu_s: Sequence[LongSeconds | None]
    """[s] CPU time of all threads, per step"""
    involuntary_switches: Sequence[Bytes | None]
    """per step"""
    steal_s: Sequence[LongSeconds | None]
    """[s] time that the hypervisor took away, per step"""


class TrainingStart(TypedDict):
    """The process of a run is ready."""

    samples: Count
    """those before this process"""
    parameters: Count
    """numbers that the optimizer changes"""
    examples: Count | None
    """examples that the run is trained on"""
    tests: Count
    """examples that its quality is tested with"""
    versions: dict[str, Annotated[str, Text(longest=1000)]]
    """versions of the framework, by name"""
    environment: NotRequired[dict[str, str]]
    """variables that may change the speed"""
    device: NotRequired[Annotated[str, Text(longest=1000)]]
    """the name of the GPU; missing on CPUs"""
    optimizer: NotRequired[Annotated[str, Text(longest=100)]]
    """as its framework calls it, like the next field"""
    learning_rate: NotRequired[Annotated[float, Within(0, 1e30)]]
    """for this batch, where the schedule has the factor 1"""
    load_s: Seconds
    """[s] reading the data"""
    initialise_s: Seconds
    """[s] loading the framework and building the model"""


class TrainingPoint(TypedDict):
    """An evaluation. Seconds are those since the evaluation before it."""

    samples: Positive
    """on which the run has trained so far"""
    quality: Number | None
    """the metric on the test examples; null where it is no finite number"""
    loss: Number | None
    """of the last batch"""
    train_s: Seconds
    """[s] training since the evaluation before"""
    first_step_s: Seconds
    """[s] of these, the first step; a framework may compile in it"""
    steps: Positive
    """since the evaluation before"""
    evaluate_s: Seconds
    """[s] this evaluation"""
    checkpoint_s: NotRequired[Seconds]
    """[s] writing the checkpoint"""
    cpus: NotRequired[PositiveMillion]
    """CPUs that the process may use"""
    other_cpus: NotRequired[RuleSeconds | None]
    """how many of them other programs used while it trained, as a mean; null: unknown"""


class TrainingEnd(TypedDict):
    """How a run ended."""

    status: Literal[
        "ok", "diverged", "unsupported", "unavailable", "out_of_memory", "crashed", "timeout", "interrupted"
    ]
    """`ok`, or why it failed: see [applications.md](applications.md#what-a-run-is)"""
    reason: Annotated[str, Text(longest=10000)] | None
    """a sentence; null if the status is `ok`"""


class Training(TypedDict):
    """An event of a run that trains an application: one of `start`, `point` and `end`."""

    run: Million
    """the place of the run in `plan.training`, from 0"""
    at: PreciseMoment
    """when the event was kept, in UTC"""
    start: NotRequired[TrainingStart]
    """a process of the run is ready; a run that was interrupted has several"""
    point: NotRequired[TrainingPoint]
    """an evaluation"""
    end: NotRequired[TrainingEnd]
    """the run has ended"""


Scenario = Literal["batches", "single", "multi", "offline", "server"]
SCENARIOS: tuple[Scenario, ...] = get_args(Scenario)


class ServingStart(TypedDict):
    """A process has loaded a model, and answered every test example once."""

    tests: Positive
    """test examples"""
    metric: Annotated[str, Text(longest=1000)]
    """of grades"""
    is_share: bool
    """whether it is shown in percent"""
    grade: Number | None
    """of the plain answers to all test examples"""
    versions: dict[str, Annotated[str, Text(longest=1000)]]
    """of the framework"""
    environment: NotRequired[dict[str, str]]
    """variables that may change the speed"""
    device: NotRequired[Annotated[str, Text(longest=1000)]]
    """the name of the GPU; missing on CPUs"""
    load_s: Seconds
    """[s] to read the data"""
    initialise_s: Seconds
    """[s] to load the framework and the model"""
    evaluate_s: Seconds
    """[s] to answer all test examples"""


class ServedQueries(TypedDict):
    """Timed queries, in the order of their arrival."""

    samples: Positive
    """of each query"""
    latency_s: Annotated[Sequence[Seconds], Items(10**6)]
    """[s] from the scheduled arrival, or else from the question, to the answer"""
    faster: NotRequired[Million]
    """so many more queries were faster than all of these"""
    seconds: Seconds
    """[s] from the first arrival to the last answer"""


class ServedProbe(TypedDict):
    """A rate that was tried."""

    rate: Annotated[float, Within(most=1e15, above=0)]
    """[1/s] scheduled queries"""
    queries: Count
    """answered ones: a hopeless probe ends early"""
    late: Count
    """those above the bound"""
    is_kept: bool
    """whether the percentile is within the bound with 99 % confidence"""


class ServedSearch(TypedDict):
    """The search for the highest rate that keeps a bound."""

    bound_s: PositiveSeconds
    """[s] of the 99th percentile of latency"""
    is_chosen: bool
    """whether a person chose it"""
    probes: Annotated[list[ServedProbe], Items(1000)]
    """rates that were tried"""


class ServedBatch(TypedDict):
    """Batches of one size, one after the other."""

    batch: Positive
    """samples"""
    latency_s: Annotated[Sequence[PositiveSeconds], Items(10**6, 1)]
    """[s] of each batch"""


class ServedAnswers(TypedDict):
    """All answers of the timed run, and those of a plain evaluation to the same samples."""

    answers: Positive
    """how many there are"""
    equal: Count
    """how many are equal to the plain ones"""
    grade: Number | None
    """of the timed answers"""
    plain_grade: Number | None
    """of the plain ones"""


class ServedRepeats(TypedDict):
    """Seconds of single samples: different ones, and one that repeats, in turn."""

    different_s: Annotated[Sequence[PositiveSeconds], Items(10**6, 1)]
    """[s] of each new one"""
    repeated_s: Annotated[Sequence[PositiveSeconds], Items(10**6, 1)]
    """[s] of each repetition"""


class Serving(TypedDict):
    """A scenario in which a trained model answers."""

    run: Million
    """the place of the run in `plan.training`"""
    at: PreciseMoment
    """[ISO 8601, UTC] when it ended"""
    device: Annotated[str, Text(r"^[a-z]{1,16}(:[0-9]{1,4})?$")]
    """on which the model answered"""
    precision: Literal["f32", "bf16"]
    """in which it computed"""
    threads: Threads
    """number of threads"""
    scenario: Scenario
    """`batches`, `single`, `multi`, `offline` or `server`"""
    status: Literal["ok", "wrong", "unsupported", "unavailable", "out_of_memory", "crashed", "timeout", "interrupted"]
    """`ok`, or why its numbers do not count"""
    reason: Annotated[str, Text(longest=10000)] | None
    """of `ok`: why there is no number"""
    start: NotRequired[ServingStart]
    """the model is loaded, and has answered every test example once"""
    batch: NotRequired[Positive]
    """the most samples that the model got at once"""
    queries: NotRequired[ServedQueries]
    """timed queries; of `server` those at the highest rate that keeps the bound"""
    search: NotRequired[ServedSearch]
    """how the highest rate was found"""
    batches: NotRequired[Annotated[list[ServedBatch], Items(1000, 1)]]
    """batches of each size, one after the other"""
    passes_s: NotRequired[Annotated[list[PositiveSeconds], Items(10**6, 1)]]
    """[s] of `offline`: of each pass over all test examples"""
    answers: NotRequired[ServedAnswers]
    """the answers of the timed run, next to plain answers to the same samples"""
    repeats: NotRequired[ServedRepeats]
    """single samples that are new, and one that repeats, in turn"""
    cpus: NotRequired[PositiveMillion]
    """CPUs that the process may use"""
    other_cpus: NotRequired[RuleSeconds | None]
    """how many of them other programs used meanwhile, on average"""
    loadgen: NotRequired[dict[str, Annotated[str, Text(longest=1000)]]]
    """what the summary of LoadGen says about the same scenario, by its names"""


class LimitLine(TypedDict):
    """The line of a limit."""

    limit: Limit
    """the fields of a limit"""


class StepLine(TypedDict):
    """The line of steps of a network."""

    step: NetworkSteps
    """steps of a network that ran between two records ([prediction.md](prediction.md))"""


class TrainingLine(TypedDict):
    """The line of an event of a training run."""

    training: Training
    """the event: one of `start`, `point` and `end`"""


class ServingLine(TypedDict):
    """The line of a scenario."""

    serving: Serving
    """a scenario in which a trained model answered ([inference.md](inference.md))"""


LINES: dict[str, Any] = {
    "schema": Header,
    "limit": LimitLine,
    "step": StepLine,
    "training": TrainingLine,
    "serving": ServingLine,
    "case": Record,
}
"""The type of each kind of line, by the field that identifies it."""


def make_record(case: Case, round_number: int, status: Status, reason: str | None = None) -> Record:
    """The record of a case before it is measured: what it is, and how much work it does."""
    op = case.operation
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
        "device": case.device,
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
