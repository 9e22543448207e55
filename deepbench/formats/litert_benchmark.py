"""benchmark_model, which runs models of TensorFlow Lite on phones: what it prints, of one run or of many.

The names of models are those of `deepbench export --to tflite`, whose counts.json says which problem each is. A run
prints no samples: its time is `avg`, the arithmetic mean of the times of all runs after the warm-up. Each is the time
of one call, with the microseconds of the system's clock; the input lies in the CPU's memory before it. Newer programs
print more, and all of it is kept as notes. So a run is one process with one number. Several runs of a model are several
processes.

The text is that of benchmark_model.cc and benchmark_tflite_model.cc of TensorFlow and LiteRT, and of
benchmark_litert_model.py, which is part of the wheel `ai-edge-litert` and rounds to 0.01 ms.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from deepbench.core.case import MOST_THREADS
from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.formats import (
    LONGEST_S,
    SHORTEST_S,
    Format,
    ImportedCase,
    ImportedFile,
    ImportOptions,
    text_lines,
)
from deepbench.formats._counts import CountedProblem, counted_problems, format_of

BACKEND, LIBRARY, SUFFIX = "litert", "LiteRT", ".tflite"

MICROSECOND, HUNDREDTH_MS = 1e-6, 1e-5

# A time that its rounding changes by more than this share says nothing.
COARSEST = 0.05
# Two figures of one run say the same if they differ by less: six digits are printed.
AGREEING = 1e-4

# Lines of the programs are shorter, but for lists of operators, which are not read.
LONGEST_LINE = 1000
MOST_RUNS = 20_000

START, FIRST_PARAMETER = "STARTING!", "Log parameter values verbosely"
LOADED = re.compile(r"(?:^|[\s:])(?:Loaded model |Loading model from: |Model: {2,20})(\S{1,500})\s*$")
STATISTICS = re.compile(r"(?:^|[\s:])count=(\S{1,30})((?: \w{2,10}=\S{1,40}){0,12})(?: ?\(all same\))?")
FIGURE = re.compile(r"(\w{2,10})=(\S{1,40})")
TIMINGS = re.compile(
    r"Inference timings in us: Init: (\S{1,40}), First inference: (\S{1,40}), Warmup \(avg\): (\S{1,40}), "
    r"Inference \(avg\): (\S{1,40})"
)
MEMORY = re.compile(r"(?:emory footprint).{0,60}\(MB\)(?: via periodic monitoring)?: (.{1,120})")
ROUNDED = re.compile(
    r"(?:^|[\s:])(Model initialization|(?:Warmup|Inference) \(\w{1,8}\)): {1,20}(\S{1,30})"
    r"(?: ms)?(?: \((\d{1,9}) runs\))?\s*$"
)
THREADS = re.compile(r"(?:^|[\s:])Num threads: {2,20}(\d{1,5})\s*$")
ACCELERATORS = re.compile(r"(?:^|[\s:])Accelerators: {2,20}([A-Z |]{1,30}?)\s*$")
# What the loop of docs/phones.md prints around each run.
OURS = re.compile(r"\s*deepbench: (machine|model|cores|exit)=(.{1,300})")
FAILED = "Benchmarking failed."
COMPLAINT = re.compile(
    r"(?i)\b(?:error|failed|failure|cannot|could not|unsupported|aborted|killed|segmentation|not found)"
)
HARMLESS = ("INFO", "WARNING", "VERBOSE")

NUMBER = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[+-]?[0-9]{1,3})?")

# Delegates by the parameter that asks for them: what they call themselves, and their device.
DELEGATES = {
    "Use gpu": ("GPU", "gpu"),
    "Use NNAPI": ("NNAPI", "nnapi"),
    "Use nnapi": ("NNAPI", "nnapi"),
    "Use Hexagon": ("Hexagon", "hexagon"),
}
OTHER_DELEGATES = ("Use CoreML", "Use coreml", "External delegate path", "Stable delegate settings file path")
XNNPACK = "XNNPACK"

# How much of a model a delegate executes.
COMPLETELY, PARTIALLY, NOTHING = PARTS = ("be completely", "be partially", "not be")

# Parameters that let f32 be computed in 16 bits.
NARROWS = ("Allow fp16", "xnnpack_force_fp16", "Allow fp16 in NNAPI")
GPU_NARROWS = "Allow lower precision in gpu"

# Figures of the line with `count=`, as notes. `std` is the deviation of single runs, not of the mean.
FIGURES = {"min": "least_s", "max": "largest_s", "std": "deviation_s", "median": "median_s", "p5": "p5_s"}
FIGURES |= {"p95": "p95_s"}
ROUNDED_FIGURES = {
    **{"Model initialization": "init_s", "Warmup (first)": "first_inference_s", "Warmup (avg)": "warm_up_mean_s"},
    **{f"Inference ({name})": note for name, note in FIGURES.items()},
}


@dataclass
class PrintedRun:
    """What a run printed."""

    announced: str | None = None
    """The model that our loop named before it."""
    cores: str | None = None
    """The mask of `taskset`, from our loop."""
    graph: str | None = None
    """The model that the program named."""
    parameters: dict[str, str] = field(default_factory=dict)
    applied: dict[str, str] = field(default_factory=dict)
    """How much of the model each delegate executes, by its name."""
    statistics: list[dict[str, str]] = field(default_factory=list)
    """The figures of the warm-up, and of the runs."""
    timings: tuple[str, ...] | None = None
    rounded: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """Milliseconds with two digits by their name, each with the number of runs."""
    accelerators: str | None = None
    memory: dict[str, str] = field(default_factory=dict)
    exit_code: str | None = None
    complaint: str | None = None
    """The last line that sounds like an error."""
    has_failed: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of it, so that it has not begun."""
        return self == PrintedRun()

    @property
    def has_ended(self) -> bool:
        """Whether the last line of a run was read."""
        return self.timings is not None or bool(self.rounded) or self.has_failed or self.exit_code is not None

    @property
    def title(self) -> str:
        """The file of its model, printable."""
        path = self.graph or self.announced
        return "a run that names no model" if path is None else printable(_file_of(path))

    def begins_with(self, line: str) -> bool:
        """Whether a line is the first of another run."""
        if found := OURS.fullmatch(line):
            return found[1] == "model"
        if line.rstrip().endswith(START):
            return self != PrintedRun(announced=self.announced, cores=self.cores)
        if FIRST_PARAMETER in line:
            return self.graph is not None
        graph = _graph(line)
        return (
            self.graph is not None and graph is not None and (self.has_ended or _file_of(graph) != _file_of(self.graph))
        )


@dataclass(frozen=True)
class PrintedTime:
    """The time of a run."""

    mean_s: float
    notes: Mapping[str, Any]


class LiteRtBenchmark(Format):
    name = "benchmark_model"
    about = "its text, of models that deepbench export wrote"
    uses: ClassVar[tuple[str, ...]] = ("problems",)
    is_plain: ClassVar[bool] = False
    """A parameter such as `xnnpack_force_fp16: [1]` looks like the name of a host."""

    def matches(self, text: str) -> bool:
        return any(
            TIMINGS.search(line) or (_graph(line) or "").endswith(SUFFIX) or OURS.fullmatch(line)
            for line in text.splitlines()
            if len(line) <= LONGEST_LINE
        )

    def read(self, text: str, options: ImportOptions) -> ImportedFile:
        if options.problems is None:
            raise BadInput(
                f"{self.name} knows models and not problems; name the counts.json that deepbench export wrote with "
                "them: --problems counts.json"
            )
        if (written := format_of(options.problems)) != "tflite":
            raise BadInput(f"--problems: the export was for {shorten(written)}, and {self.name} runs those for tflite")
        problems = {problem.name: problem for problem in counted_problems(options.problems)}
        runs, machines = _runs(text, self.name)
        if len(machines) > 1:
            raise BadInput(
                f"the file has runs of {' and of '.join(machines[:3])}; import each machine from its own file"
            )
        imported = ImportedFile(self.name, LIBRARY, cpu=machines[0] if machines else None)
        cases: dict[str, ImportedCase] = {}
        for run in runs:
            problem = problems.get(run.title.removesuffix(SUFFIX)) if run.title.endswith(SUFFIX) else None
            if problem is None:
                named = run.graph or run.announced
                why = "counts.json has no such model" if named else "the output may be damaged"
                imported.left_out.append(f"{shorten(run.title)}: {why}")
                continue
            if run.graph and run.announced and _file_of(run.graph) != _file_of(run.announced):
                imported.left_out.append(f"{run.title}: the loop named {shorten(_file_of(run.announced))} before it")
                continue
            self._add(cases, run, problem, options, imported)
        imported.cases += cases.values()
        if any("their_result" in case.notes for case in imported.cases):
            imported.remarks.append("products of 8 bits have results of 8 bits in TensorFlow Lite, and of 32 elsewhere")
        return imported

    def _add(
        self,
        cases: dict[str, ImportedCase],
        run: PrintedRun,
        problem: CountedProblem,
        options: ImportOptions,
        imported: ImportedFile,
    ) -> None:
        """A run as a process of its case, or why it has no time."""
        try:
            device = _device(run, problem.computed.split())
        except ValueError as reason:
            imported.left_out.append(f"{run.title}: {reason}")
            return
        threads, states = _threads(run, options) if device is None else (1, True)
        words = [problem.computed, options.backend or BACKEND, f"threads={threads}"]
        text = " ".join([*words, *([f"device={device}"] if device else [])])
        kernels, cores = _kernels(run), run.cores
        key = f"{text} {kernels} {cores}"
        known = cases.get(key)
        words = [run.title, *([f"with {kernels}"] if kernels else []), *([f"on cores {cores}"] if cores else [])]
        facts = {"implementation": kernels, "cores": cores, "their_result": "i8" if _is_narrow(problem) else None}
        case = known or ImportedCase(
            text,
            [],
            {name: value for name, value in facts.items() if value},
            name=shorten(" ".join(words), 80),
            sources=problem.sources,
            states_threads=states,
        )
        try:
            timed = _timed(run)
        except ValueError as reason:
            if known is None:
                cases[key] = replace(case, reason=str(reason))
            else:
                imported.left_out.append(f"a run of {run.title}: {reason}")
            return
        if case.reason is not None:
            imported.left_out.append(f"a run of {run.title}: {case.reason}")
        processes, notes = [*case.processes_s, [timed.mean_s]], [*case.process_notes, timed.notes]
        cases[key] = replace(case, processes_s=processes, process_notes=notes, reason=None)


def _is_narrow(problem: CountedProblem) -> bool:
    """Whether its model has results of 8 bits, and its case has none of these."""
    words = problem.computed.split()
    return words[:1] == ["gemm"] and "i8" in words


# ---- reading


def _runs(text: str, program: str) -> tuple[list[PrintedRun], list[str]]:
    """The runs in a text, and the machines that it names."""
    runs, machines = [PrintedRun()], list[str]()
    for line in text_lines(text, program):
        if len(line) > LONGEST_LINE:
            continue
        if runs[-1].begins_with(line) and not runs[-1].is_empty:
            if len(runs) == MOST_RUNS:
                raise BadInput(f"{program}: the file has more than {MOST_RUNS} runs; at most so many are read at once")
            runs.append(PrintedRun())
        if found := OURS.fullmatch(line):
            name, value = found[1], printable(found[2].strip())
            if name == "model":
                runs[-1].announced = value
            elif name == "cores":
                runs[-1].cores = value
            elif name == "exit":
                runs[-1].exit_code = value
            elif value and value not in machines:
                machines.append(value)
        elif not line.rstrip().endswith(START):
            _read_line(line, runs[-1])
    return [run for run in runs if not run.is_empty], machines


def _file_of(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _parameter(line: str) -> tuple[str, str] | None:
    """`Num threads: [4]` as its name and value, whatever a phone's log puts before it."""
    head, bracket, value = line.rstrip().partition("[")
    if not bracket or not value.endswith("]") or not head.rstrip().endswith(":"):
        return None
    name = head.rstrip(" :").rpartition(": ")[2].rpartition("  ")[2].strip()
    return (name, value[:-1]) if name else None


def _graph(line: str) -> str | None:
    """The model that a line names."""
    found, parameter = LOADED.search(line), _parameter(line)
    if parameter is not None and parameter[0] == "Graph":
        return parameter[1]
    return found[1] if found else None


def _applied(line: str) -> tuple[str, str] | None:
    """What a line says about how much of a model a delegate executes."""
    before, delegate, after = line.partition(" delegate")
    _, will, how = after.partition("graph will ")
    if not delegate or not will:
        return None
    name = re.split(r"applied |Applied |Though ", before)[-1]
    part = next((part for part in PARTS if how.startswith(part)), None)
    return (name, part) if part else None


def _read_line(line: str, run: PrintedRun) -> None:
    """What a line says about its run."""
    if graph := _graph(line):
        run.graph = run.graph or graph
    elif found := TIMINGS.search(line):
        run.timings = found.groups()
    elif parameter := _parameter(line):
        run.parameters[parameter[0]] = parameter[1]
    elif applied := _applied(line):
        run.applied[applied[0]] = applied[1]
    elif (found := STATISTICS.search(line)) and run.timings is None and "(bytes)" not in line:
        figures = {"count": found[1], **dict(FIGURE.findall(found[2]))}
        run.statistics.append({name: text.partition("(all")[0] for name, text in figures.items()})
    elif found := MEMORY.search(line):
        run.memory |= dict(FIGURE.findall(found[1])) or {"peak": found[1].strip()}
    elif found := ROUNDED.search(line):
        run.rounded[found[1]] = found[2], found[3]
    elif found := ACCELERATORS.search(line):
        run.accelerators = found[1]
    elif found := THREADS.search(line):
        run.parameters["Num threads"] = found[1]
    elif FAILED in line:
        run.has_failed = True
    elif COMPLAINT.search(line) and line.strip()[:1].isalpha() and not line.startswith(HARMLESS):
        run.complaint = printable(shorten(line.strip(), 120))


# ---- what runs say


def _number(text: str, what: str) -> float:
    """A number that a run printed; `ValueError` for anything that is none."""
    value = float(text) if NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        raise ValueError(f"its {what} is {printable(shorten(text, 20))!r}")
    return value


def _is_on(run: PrintedRun, name: str) -> bool:
    return run.parameters.get(name, "0") not in ("0", "")


def _device(run: PrintedRun, words: list[str]) -> str | None:
    """The device that executed a model; None for the CPU. `ValueError` where that, or its precision, is not certain."""
    is_float = "f32" in words
    if run.rounded:
        return _device_of_accelerators(run, is_float)
    if is_float and (narrow := next((name for name in NARROWS if _is_on(run, name)), None)):
        raise ValueError(f"{narrow}: it may compute f32 in 16 bits")
    if other := next((name for name in OTHER_DELEGATES if _is_on(run, name)), None):
        raise ValueError(f"{other}: deepbench does not know what this delegate computes")
    asked = {found for name, found in DELEGATES.items() if _is_on(run, name)}
    asked |= {found for found in DELEGATES.values() if found[0] in run.applied}
    if unknown := sorted(run.applied.keys() - {XNNPACK, *(name for name, _ in asked)}):
        raise ValueError(f"deepbench does not know the delegate {printable(unknown[0])}")
    if not asked:
        return None
    if len(asked) > 1:
        raise ValueError("several delegates were asked for; run the model with each alone")
    ((name, device),) = asked
    if (how := run.applied.get(name)) != COMPLETELY:
        part = {PARTIALLY: "only a part of it ran there", NOTHING: "nothing of it ran there"}
        raise ValueError(f"{name} delegate: {part.get(how or '', 'the output does not say that it was applied')}")
    if name == "GPU" and not is_float:
        raise ValueError("GPU delegate: it computes models of 8 bits in floating point")
    if name == "GPU" and run.parameters.get(GPU_NARROWS) != "0":
        raise ValueError("GPU delegate: it may compute f32 in 16 bits; add --gpu_precision_loss_allowed=false")
    if name == "Hexagon" and is_float:
        raise ValueError("Hexagon delegate: it has no f32")
    return f"{BACKEND}:{device}"


def _device_of_accelerators(run: PrintedRun, is_float: bool) -> str | None:
    """The same for benchmark_litert_model, which names accelerators."""
    if run.accelerators is None:
        raise ValueError("the output does not name the accelerator that ran it; use benchmark_model")
    if run.accelerators == "CPU":
        return None
    if run.accelerators == "NPU" and not is_float:
        return f"{BACKEND}:npu"
    if "|" in run.accelerators:
        raise ValueError(f"{run.accelerators}: the output does not say which of them ran it")
    raise ValueError(f"{run.accelerators}: the output does not say in which precision it ran")


def _threads(run: PrintedRun, options: ImportOptions) -> tuple[int, bool]:
    """The number of threads, and whether the output states it."""
    for name in ("Num threads", "#threads used for CPU inference"):
        text = run.parameters.get(name, "")
        if re.fullmatch("[0-9]{1,5}", text) and 1 <= int(text) <= MOST_THREADS:
            return int(text), True
    return options.threads or 1, False


def _kernels(run: PrintedRun) -> str | None:
    """Which kernels of the CPU were chosen, where the output says so."""
    if "Use xnnpack" not in run.parameters:
        return None
    return XNNPACK if _is_on(run, "Use xnnpack") else "built-in kernels"


def _timed(run: PrintedRun) -> PrintedTime:
    """The mean of a run; `ValueError` says why it has none, or why it is not believed."""
    if run.exit_code is not None and run.exit_code != "0":
        code = printable(shorten(run.exit_code, 20))
        raise ValueError(f"the program ended with exit code {code}{_because(run)}")
    if run.has_failed:
        raise ValueError(f"the program says that it failed{_because(run)}")
    if _is_on(run, "Enable op profiling"):
        raise ValueError("its time includes the profiling of operators")
    if _is_on(run, "Run w/o invoking kernels"):
        raise ValueError("it called no kernels (--dry_run)")
    timed = _of_rounded(run) if run.rounded else _of_microseconds(run)
    if not SHORTEST_S <= timed.mean_s <= LONGEST_S:
        raise ValueError(f"its mean of {timed.mean_s:g} s is not that of a kernel")
    return timed


def _because(run: PrintedRun) -> str:
    return f": {run.complaint}" if run.complaint else ""


def _of_microseconds(run: PrintedRun) -> PrintedTime:
    """From `Inference timings in us`, and from the line of statistics before it."""
    if run.timings is None:
        raise ValueError(f"the output ends without timings{_because(run)}")
    init, first, warm_up, mean = (
        _number(text, what) * MICROSECOND
        for text, what in zip(run.timings, ("Init", "First inference", "Warmup (avg)", "Inference (avg)"), strict=True)
    )
    notes: dict[str, Any] = {"init_s": init, "first_inference_s": first, "warm_up_mean_s": warm_up}
    if mean == 0:
        raise ValueError("its mean is 0: the clock has microseconds, and a call takes less")
    if run.statistics:
        statistics = run.statistics[-1]
        notes["runs"] = int(_number(statistics["count"], "count"))
        notes |= {
            note: _number(statistics[name], name) * MICROSECOND for name, note in FIGURES.items() if name in statistics
        }
        stated = statistics.get("avg", statistics.get("curr"))
        if stated is not None and not math.isclose(_number(stated, "avg") * MICROSECOND, mean, rel_tol=AGREEING):
            raise ValueError(f"its means contradict each other: {printable(stated)} and {printable(run.timings[3])}")
        _require_order(notes, mean)
        if "avg" not in statistics:
            _require_fine(MICROSECOND, mean)
    return PrintedTime(mean, _rounded(notes) | _memory(run))


def _of_rounded(run: PrintedRun) -> PrintedTime:
    """From the table of benchmark_litert_model: milliseconds with two digits."""
    text, runs = run.rounded.get("Inference (avg)", (None, None))
    if text is None:
        raise ValueError(f"the output has no mean{_because(run)}")
    mean = _number(text, "Inference (avg)") * 1e-3
    notes: dict[str, Any] = {} if runs is None else {"runs": int(runs)}
    for name, note in ROUNDED_FIGURES.items():
        if name in run.rounded:
            notes[note] = _number(run.rounded[name][0], name) * 1e-3
    _require_fine(HUNDREDTH_MS / 2, mean)
    _require_order(notes, mean, HUNDREDTH_MS)
    return PrintedTime(mean, _rounded(notes) | _memory(run))


def _rounded(notes: Mapping[str, Any]) -> dict[str, Any]:
    """With as many digits as samples have."""
    return {name: float(f"{value:.7g}") if isinstance(value, float) else value for name, value in notes.items()}


def _require_order(notes: Mapping[str, Any], mean: float, rounding: float = 0.0) -> None:
    least, largest = notes.get("least_s", mean), notes.get("largest_s", mean)
    slack = AGREEING * mean + rounding
    if not least - slack <= mean <= largest + slack:
        raise ValueError(
            f"its mean of {mean:g} s is not between its smallest {least:g} s and its largest {largest:g} s"
        )


def _require_fine(rounding: float, mean: float) -> None:
    """`ValueError` for a time that is little more than its rounding."""
    if rounding > COARSEST * mean:
        raise ValueError(f"its time of {mean:g} s is rounded to {rounding:g} s, which is too coarse")


def _memory(run: PrintedRun) -> dict[str, float]:
    """Megabytes as the program states them: an approximation, says the program. What is no number is left out."""
    names = {"init": "memory_init_mb", "overall": "memory_mb", "peak": "memory_peak_mb"}
    return dict(_valid_memory({names[n]: text for n, text in run.memory.items() if n in names}))


def _valid_memory(found: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    for note, text in found.items():
        if NUMBER.fullmatch(text) and float(text) < 1e9:
            yield note, float(text)


FORMAT = LiteRtBenchmark()
