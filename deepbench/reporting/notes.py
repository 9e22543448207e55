"""The notes on a case: what a reader should know about its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deepbench.core import units
from deepbench.core.precision import MINIMUM, PRECISIONS
from deepbench.judge.published import sheet_rate
from deepbench.plan.suites import is_fitted, is_training_suite
from deepbench.reporting.table import Note
from deepbench.results.summary import Baseline, FewerThreads, Summary

# A case with a smaller share of undisturbed samples gets a note.
FEW_UNDISTURBED = 0.25

TIE = Note("tie", "tie", "≈, tie: the difference is within the uncertainty, so the order is unknown.")
ONE_PROCESS = Note(
    "one_process",
    "*",
    "*: one process only; its interval ignores variation between processes. Below 10 %, two such times give no order.",
)
GROUP_BANDWIDTH = Note("bus_bandwidth", "", "bus GB/s: bus bandwidth as nccl-tests defines it.")

MORE_RANKS = Note(
    "more_ranks_than_cores",
    "more ranks than cores",
    "more ranks than cores: ranks share cores, so the time includes waiting for a core.",
    flag="R",
)
FIRST_CALL = Note(
    "first_call", "first call", "first call: a call takes so long that the first one is the only sample.", flag="F"
)
PYTHON_LOOP = Note(
    "python_loop", "Python loop", "Python loop: calls are made from Python, which adds 0.5 µs per call.", flag="L"
)
DISTURBED = Note(
    "disturbed",
    "disturbed",
    "disturbed: other programs interfered, so the time is an upper bound (≤) from the fastest samples.",
    flag="D",
)
FEW_SAMPLES = Note(
    "few_undisturbed",
    "few undisturbed",
    "few undisturbed: other programs disturbed over 75 % of the samples; only the others were used.",
    flag="U",
)
VARIES = Note(
    "varies",
    "varies between processes",
    "varies between processes: some took more than twice as long, and no other program had their CPUs meanwhile. The "
    "interval includes them.",
    flag="V",
)
NOT_NEEDED = Note(
    "not_needed", "not needed by training", "not needed by training: the gradient with respect to the network's input."
)
FITTED = Note(
    "fitted",
    "smaller than listed",
    "smaller than listed: --fit replaced a problem that needs more than its limit.",
    flag="Z",
)
BELOW_MINIMUM = Note(
    "below_minimum_precision",
    "below minimum precision",
    f"below minimum precision: DeepBench's rule is that {MINIMUM}.",
    flag="M",
)
SUMS_OF_16_BITS = Note(
    "sums_of_16_bits",
    "sums over steps in 16 bits",
    "sums over steps in 16 bits: the library adds the gradients of the steps in 16 bits, below the minimum precision "
    "(accumulate at least 32 bits).",
    flag="S",
)
# What a backend states in the note `sums` of a kernel that adds in 16 bits although the precision says 32.
SUMS_NOTE = "16 bits over steps"
WARNINGS = {
    "converted": Note(
        "converted",
        "converted",
        "converted: the library converts to another precision, in which it computes.",
        flag="C",
    ),
    "two_openmp_runtimes": Note(
        "two_openmp_runtimes",
        "two OpenMP runtimes",
        "two OpenMP runtimes: the process loaded both, and their threads may compete for cores.",
        flag="O",
    ),
    "loop_not_compiled": Note(
        "loop_not_compiled",
        "loop not compiled",
        "loop not compiled: install a C compiler, then DeepBench again, and calls are no longer made from Python.",
        flag="L",
    ),
    "throttled": Note(
        "throttled",
        "throttled",
        "throttled: the GPU lowered its clock meanwhile, for power or heat. Under a longer load it may be lower still.",
        flag="T",
    ),
    "other_algorithm": Note(
        "other_algorithm",
        "different algorithms",
        "different algorithms: the library refused the algorithm of an earlier round, so rounds ran different ones.",
        flag="A",
    ),
    "shared_card": Note("shared_card", "shared GPU", "shared GPU: other processes used the GPU meanwhile.", flag="G"),
    "plain_clock": Note(
        "plain_clock",
        "launching included",
        "launching included: the time of a short kernel contains what the host needs to launch it.",
        flag="E",
    ),
    "not_cold": Note(
        "not_cold", "not cold", "not cold: what the calls read fits in the caches, so some data was cached.", flag="H"
    ),
}
# Preparation that backends time, by the name in the record's notes.
PREPARATION = {
    "pack_s": "packed in",
    "convert_s": "converted in",
    "optimize_s": "inspected in",
    "compile_s": "compiled in",
}


def notes_of(s: Summary, baseline: Baseline | None = None, fewer: FewerThreads | None = None) -> list[Note]:
    """The notes on a case; it is compared with `baseline` and with `fewer` threads in the same file."""
    return [
        *_fewer_threads_notes(fewer),
        *_precision_notes(s),
        *(_baseline_notes(baseline) if baseline else []),
        *_group_notes(s),
        *_sampling_notes(s),
        *_energy_notes(s),
        *_preparation_notes(s),
        *_source_notes(s),
        *(WARNINGS.get(w["code"], Note(w["code"], w["code"])) for w in s.warnings),
    ]


def disturbed_sentences(summaries: Sequence[Summary]) -> list[str]:
    """How many of the times are disturbed; empty where none is."""
    timed = [s for s in summaries if s.is_ranked]
    disturbed = [s for s in timed if s.is_disturbed]
    if not disturbed:
        return []
    counts = f"{len(disturbed)} of {len(timed)} time{'s' * (len(timed) > 1)}"
    are = "are upper bounds" if len(disturbed) > 1 else "is an upper bound"
    return [f"{counts} {are} (≤, D), because other programs ran; run again on a quiet machine."]


def note_texts(notes: list[Note]) -> str:
    """The texts of notes as one cell."""
    return ", ".join(note.text for note in notes)


def below_minimum(s: Summary) -> str | None:
    """Why a case does not meet the minimum precision; None if it does, or if another program's precision is unknown."""
    r = s.record
    precision = PRECISIONS.get(r["precision"])
    in_suite = any(is_training_suite(str(source["suite"])) for source in r["sources"])
    trains = r["direction"].startswith("backward") or r["settings"].get("mode") == "training" or in_suite
    return precision.below_minimum(trains) if precision else None


def _precision_notes(s: Summary) -> list[Note]:
    return [
        *[BELOW_MINIMUM] * (below_minimum(s) is not None),
        *[SUMS_OF_16_BITS] * (s.record["notes"].get("sums") == SUMS_NOTE),
    ]


def _fewer_threads_notes(fewer: FewerThreads | None) -> list[Note]:
    if fewer is None:
        return []
    count = f"{fewer.threads} thread{'s' if fewer.threads > 1 else ''}"
    return [
        Note(
            "slower_than_with_fewer_threads",
            f"slower than with {count} ({units.significant(fewer.slowdown)}×)",
            "slower than with fewer threads: the same library is faster with fewer threads, by more than both "
            "intervals.",
            flag="T",
        )
    ]


def _baseline_notes(baseline: Baseline) -> list[Note]:
    compared = "compared with dense: the fastest dense product of the same shape."
    if baseline.time_over_baseline is None:
        return [Note("no_ratio", f"no ratio to dense: {baseline.withheld}", compared)]
    words = units.speed_sentence("", baseline.time_over_baseline, "dense").removeprefix(" is ")
    speed_up = Note("speed_up", words, compared)
    density = baseline.break_even_density
    if density is None or density > 1:  # above 1 sparse is faster at any density
        return [speed_up]
    break_even = Note(
        "break_even",
        f"break-even density {units.significant(100 * density)} %",
        "break-even density: the share of non-zeros at which sparse and dense would take the same time.",
    )
    return [speed_up, break_even]


def _group_notes(s: Summary) -> list[Note]:
    hidden = [Note("hidden", f"{units.percent(s.hidden)} of the all-reduce hidden")] if s.hidden is not None else []
    return hidden + [MORE_RANKS] * bool(s.group and s.group["oversubscribed"])


def _sampling_notes(s: Summary) -> list[Note]:
    if s.estimate is None:
        return []
    measurements = [r["measurement"] for r in s.rounds if r["measurement"]]
    notes = [FIRST_CALL] * any(m["stopped"] == "first_call" for m in measurements)
    notes += [PYTHON_LOOP] * any(m["loop"] == "python" for m in measurements)
    if s.estimate.slowest_s is not None:
        times = units.significant(s.estimate.slowest_s / s.estimate.time_s)
        text = f"{VARIES.text}: {s.estimate.slow_processes} of {s.estimate.processes} took up to {times}× as long"
        notes.append(replace(VARIES, text=text))
    if s.estimate.disturbed:
        return [*notes, DISTURBED]
    return notes + [FEW_SAMPLES] * (s.estimate.undisturbed_fraction < FEW_UNDISTURBED)


def _energy_notes(s: Summary) -> list[Note]:
    if s.joules_per_call is not None:
        return [Note("energy", f"{units.joules(s.joules_per_call)} per call")]
    energies = [m["energy"] for r in s.rounds if (m := r["measurement"]) and "energy" in m]
    reasons = [e["valid"] for e in energies if isinstance(e["valid"], str)]
    return [Note("no_energy", f"no energy: {reasons[0]}")] if reasons else []


def _preparation_notes(s: Summary) -> list[Note]:
    return [
        Note(name, f"{words} {units.seconds(float(s.record['notes'][name]))}")
        for name, words in PREPARATION.items()
        if name in s.record["notes"]
    ]


def _source_notes(s: Summary) -> list[Note]:
    sources = s.record["sources"]
    notes = [NOT_NEEDED] * bool(sources and not any(source.get("needed", True) for source in sources))
    notes += [FITTED] * any(is_fitted(source) for source in sources)
    if s.imported:
        unchecked = ", unchecked" if s.status == "unchecked" else ""
        mark = Note("simulated", f"simulated ({s.imported})") if s.is_simulated else None
        notes.append(mark or Note("imported", f"from {s.imported}{unchecked}"))
        notes += _published_notes(s)
    return notes


def _published_notes(s: Summary) -> list[Note]:
    """What is special or doubtful about a result that the original published."""
    stated, remark = sheet_rate(s), s.record["notes"].get("remark")
    notes = [Note("padded", "padded")] * (s.record["notes"].get("padded") is True)
    notes += [Note("sheet_rate", f"{units.flop_per_s(stated)} TFLOP/s in the sheet")] if stated else []
    return notes + ([Note("remark", remark)] if isinstance(remark, str) else [])
