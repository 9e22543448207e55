"""A file passes a round, or each thing that it lacks is a sentence with what to do. One change of a good file each."""

from datetime import UTC, datetime

import pytest

from deepbench.api.submitting import submit
from deepbench.judge import submission
from deepbench.plan.results_rounds import find_round, known_rounds
from deepbench.results.file import read_results
from deepbench.results.summary import summarize
from tests.help.submissions import REAL, ROUND, SUITE, Parts

AGAIN = f"deepbench run {SUITE} -o new.jsonl"
MENDED = f"measure again: {AGAIN}"
NOW = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.fixture
def parts():
    return Parts()


def judged(parts, path, round_=ROUND):
    """What a file lacks, in sentences."""
    file = read_results(parts.write(path), skip_damaged=True)
    found = submission.judge(file, summarize(file.records, file.order), find_round(round_), NOW)
    return [lack.text for lack in found.lacks]


def lacks(parts, tmp_path):
    return judged(parts, tmp_path / "mine.jsonl")


def test_the_untouched_file_passes(parts, tmp_path):
    assert [] == lacks(parts, tmp_path)


@pytest.mark.costly
def test_the_real_file_passes_in_four_precisions():
    found = submit(REAL, check=True)

    assert (ROUND, "measured", []) == (found.round, found.mark, found.lacks)
    assert {SUITE: {"f32", "bf16", "f16", "i8u8"}} == {name: set(p) for name, p in found.suites.items()}


# ---- one lack each


def change_header(**fields):
    return lambda parts: parts.header.update(fields)


def change_machine(**fields):
    return lambda parts: parts.machine.update(fields)


def change_plan(**fields):
    return lambda parts: parts.plan.update(fields)


def change_records(*path, to):
    """Set a field of every record that has it."""

    def change(parts):
        for record in parts.records:
            for name in path[:-1]:
                record = record[name]
            record[path[-1]] = to

    return change


def precision_below(parts):
    """Sums in 16 bits, from which no suite may be made."""
    for line in (*parts.records, *parts.plan["cases"]):
        line["case"] = line["case"].replace(" f32 ", " f16f16 ")
    for record in parts.records:
        record["precision"] = "f16f16"


def slow_rounds(parts):
    """Processes of a fifth of the cases that take 1, 1.5 and 2 times as long."""
    for number in range(9):
        for i, record in enumerate(parts.of(number)):
            record["measurement"]["samples_s"] = [s * (1 + 0.5 * i) for s in record["measurement"]["samples_s"]]


def disturb(parts):
    for number in range(5):
        for record in parts.of(number):
            count = len(record["measurement"]["samples_s"])
            record["measurement"]["steal_s"] = [0.0] * 2 + [0.01] * (count - 2)


def one_process(parts):
    first = parts.of(0)
    parts.records = [r for r in parts.records if r not in first[1:]]


def one_process_of_a_short_plan(parts):
    one_process(parts)
    parts.plan["rounds"]["least"] = 1
    parts.plan["budget_s"] = None


def no_peak(parts):
    parts.limits = [line for line in parts.limits if line["limit"]["what"] != "compute"]


def no_memory(parts):
    parts.limits = [line for line in parts.limits if line["limit"]["what"] != "memory"]


def other_version(parts):
    record = next(r for r in parts.records if r["backend"] == "onednn")
    record["library"] = {**record["library"], "version": "3.9"}


def no_version(parts):
    for record in parts.records:
        if record["backend"] == "onednn":
            record["library"] = {**record["library"], "version": None}
    parts.header["libraries"]["onednn"]["library"]["version"] = None


def set_variable(value, of=lambda record: True):
    def change(parts):
        for record in filter(of, parts.records):
            record["process"]["environment"] = {**record["process"]["environment"], "OPENBLAS_CORETYPE": value}

    return change


def no_environment(parts):
    del parts.records[0]["process"]["environment"]


def twice(parts):
    first, second, *_ = parts.of(3)
    second["measurement"] = first["measurement"]


def unplanned(parts):
    del parts.plan["cases"][0]


def wrong_without_a_check(parts):
    parts.fail(0, "wrong", "its rate is above the peak")


def contradict(parts):
    parts.records[0]["flop"] += 1


def untimed(parts):
    for number in range(21):
        parts.fail(number, "unsupported", "this build lacks it")


def other_suite(parts):
    """All problems as another suite, which is free."""
    for line in (*parts.records, *parts.plan["cases"]):
        line["sources"] = [{**source, "suite": "deepbench/server", "row": 1} for source in line["sources"]]


def smaller_problem(parts):
    """A case that says it is another row of the suite than it is."""
    for line in (*parts.of(0), parts.plan["cases"][0]):
        line["sources"] = [{**source, "row": 41} for source in line["sources"]]


def fitted(parts):
    for line in (*parts.records, *parts.plan["cases"]):
        line["sources"] = [{**source, "suite": f"{SUITE}:fit=1GiB"} for source in line["sources"]]


def simulate(parts):
    parts.plan["mode"] = "imported"
    for record in parts.records:
        record["notes"] = {**record["notes"], "imported_from": "SCALE-Sim"}


def early_process(parts):
    parts.records[4]["process"]["started"] = "2026-11-20T10:00:00+00:00"


QUIET = f"stop what deepbench info --doctor names, then measure again: {AGAIN}"

LACKS = {
    "no record of a case": (
        lambda parts: parts.drop(0),
        ["wanted a result for each planned case, found 1 of 44 that are not measured: conv n=1 c=1 h=40 w=151"],
        ["continue: deepbench run --resume -o "],
    ),
    "an interrupted case": (
        lambda parts: parts.fail(0, "interrupted", "Ctrl-C"),
        ["wanted a result for each planned case, found 1 of 44 that are not measured: conv n=1 c=1 h=40 w=151"],
        ["continue: deepbench run --resume -o "],
    ),
    "a problem that is not planned": (
        lambda parts: parts.drop(0, planned=True),
        [
            f"wanted each problem of {SUITE} in one precision, found 1 of 41 without a result in f32: row 1, conv n=1 "
            "c=1 h=40 w=151 k=32 r=5 s=20 pad_h=8 pad_w=8 stride_h=2 stride_w=8 forward; measure all of it: "
            f"deepbench run {SUITE} --precision f32 -o new.jsonl"
        ],
    ),
    "a record that is not planned": (
        unplanned,
        ["wanted records of planned cases alone, found 1 that are not planned: conv n=1 c=1 h=40 w=151"],
        [MENDED],
    ),
    "another problem than the row": (
        smaller_problem,
        [f"wanted each problem of {SUITE} in one precision, found 1 of 41 without a result in f32: row 1, conv n=1"],
    ),
    "no suite that is required": (
        other_suite,
        [
            f"wanted the suite {SUITE}, which the round 2026 requires, found nothing of it; measure it too: deepbench "
            f"run deepbench/server {SUITE} -o new.jsonl",
            "wanted each problem of deepbench/server in one precision, found 273 of 275 without a result in f32: row 1",
        ],
    ),
    "smaller problems": (
        fitted,
        [
            f"wanted the suite {SUITE}, which the round 2026 requires, found {SUITE}:fit=1GiB, whose problems --fit "
            f"made smaller; measure it too: {AGAIN}"
        ],
    ),
    "few times": (
        untimed,
        [f"wanted a time for at least 50 % of the problems of {SUITE}, found 19 of 41 in f32; install what is missing"],
    ),
    "a contradiction": (
        contradict,
        [
            "wanted records without contradictions, found 1 record with a contradiction (recurrent cell=vanilla",
            "flop is",
        ],
        [MENDED],
    ),
    "no checksums": (
        lambda parts: parts.header.pop("checksums"),
        [f"wanted a checksum on each line, found a file without checksums; measure again with this version: {AGAIN}"],
    ),
    "a timeout": (
        lambda parts: parts.fail(0, "timeout", "no sign of life for 165 s"),
        ["wanted cases that end in time, found 1 with the status timeout (conv n=1", ": no sign of life for 165 s)"],
        [f"measure again with a longer --timeout: {AGAIN}"],
    ),
    "a lack of memory": (
        lambda parts: parts.fail(0, "out_of_memory", "needs 3 GiB, 1 GiB are free"),
        ["wanted cases that fit into memory, or that need more than the machine has, found 1 with the status"],
        [f"free memory, then measure again: {AGAIN}"],
    ),
    "a wrong time": (
        wrong_without_a_check,
        ["wanted wrong answers that a failed check shows, found 1 with the status wrong (conv n=1", "above the peak"],
        [f"so that the clock and the peak are right: {AGAIN}"],
    ),
    "a crash without a reason": (
        lambda parts: parts.fail(0, "crashed", " "),
        ["wanted a reason for each case that is crashed, found 1 with the status crashed (conv n=1"],
        [MENDED],
    ),
    "few processes": (
        one_process,
        ["wanted at least 3 processes for each time, found 1 with fewer: conv n=1 c=1"],
        ["continue: deepbench run --resume -o "],
    ),
    "a plan of few processes": (
        one_process_of_a_short_plan,
        ["wanted at least 3 processes for each time, found 1 with fewer: conv n=1 c=1"],
        [f"measure again with more --rounds: {AGAIN}"],
    ),
    "disturbed": (
        disturb,
        ["wanted at most 10 % of the times disturbed by other programs, found 5 of 44: conv n=1 c=1", "and 2 more"],
        [QUIET],
    ),
    "wide intervals": (
        slow_rounds,
        ["wanted 95 % intervals within ±15 % for 90 % of the undisturbed times, found 34 of 44; measure more"],
        [f"on a quiet machine: {AGAIN} --rigorous"],
    ),
    "--no-limits": (
        change_plan(no_limits=True),
        [
            "wanted the limits of the machine, measured in the same run, found a run with --no-limits; measure again "
            f"without it: {AGAIN}"
        ],
    ),
    "no peak": (
        no_peak,
        [f"wanted the limits of the machine, measured in the same run, found no highest rate in f32 on cpu; {MENDED}"],
    ),
    "no rate of memory": (
        no_memory,
        [f"wanted the limits of the machine, measured in the same run, found no rate of memory; {MENDED}"],
    ),
    "no version": (
        no_version,
        [
            "wanted the version of each library, found none of onednn; install a release that says it, then measure "
            f"again: {AGAIN}"
        ],
    ),
    "two versions": (
        other_version,
        [f"wanted one version of onednn, found oneDNN 3.2.0 and oneDNN 3.9; measure again with one version: {AGAIN}"],
    ),
    "a hidden variable": (
        set_variable("(hidden)"),
        [
            "wanted the environment variables that change libraries, with their values, found no value of "
            f"OPENBLAS_CORETYPE; unset OPENBLAS_CORETYPE, then measure again: {AGAIN}"
        ],
    ),
    "a variable at times": (
        set_variable("Haswell", lambda record: record["round"] == 1),
        [
            "wanted one value of each environment variable, found several of OPENBLAS_CORETYPE; measure again with one:"
            f" {AGAIN}"
        ],
    ),
    "no variables": (
        no_environment,
        ["wanted the environment variables that change libraries, with their values, found 1 of", "without them"],
        [AGAIN],
    ),
    "an imitated processor": (
        change_machine(emulated="qemu-aarch64"),
        [
            "wanted times of a processor, found times of a processor that a program imitates (qemu-aarch64); measure "
            f"on the hardware itself: {AGAIN}"
        ],
    ),
    "a simulator": (
        simulate,
        [
            "wanted results of deepbench run, or of the original DeepBench, found imported results of SCALE-Sim; "
            f"measure them: {AGAIN}"
        ],
    ),
    "--quick": (
        change_plan(mode="quick"),
        [f"wanted a run of the usual length, found one with --quick; {MENDED}, without --quick"],
    ),
    "one side": (
        change_plan(interleaved={"run": "1", "side": "a", "choices": {}, "environment": {}}),
        [f"wanted a run of its own, found one side of run --ab or --against; {MENDED}, without --ab"],
    ),
    "an old program": (
        change_header(tool="deepbench 0.0.9"),
        [f"wanted a file of deepbench 0.1.0 or newer, found one of 'deepbench 0.0.9'; {MENDED}"],
    ),
    "another program": (
        change_header(tool="benchdeep 7.0"),
        [f"wanted a file of deepbench 0.1.0 or newer, found one of 'benchdeep 7.0'; {MENDED}"],
    ),
    "the future": (
        change_header(started="2027-11-22T23:38:41+00:00"),
        [
            "wanted a run before now, 2026-12-01 00:00 UTC, found one of 2027-11-22T23:38:41+00:00; set the clock, "
            f"then measure again: {AGAIN}",
            "wanted processes that began after the run, 2027-11-22T23:38:41+00:00, and before now, found one of",
        ],
    ),
    "before the round": (
        change_header(started="2025-12-31T23:00:00+00:00"),
        [
            "wanted a run from 2026-01-01 to 2026-12-31, as the round 2026 has it, found one of 2025-12-31; choose "
            f"another round (deepbench submit --rounds), or measure again: {AGAIN}"
        ],
    ),
    "no date": (
        change_header(started="yesterday"),
        [f"wanted the date of the run, found 'yesterday'; set the clock, then measure again: {AGAIN}"],
    ),
    "an early process": (
        early_process,
        [
            "wanted processes that began after the run, 2026-11-22T23:38:41+00:00, and before now, found one of "
            f"2026-11-20 10:00 UTC; set the clock, then measure again: {AGAIN}"
        ],
    ),
    "no facts": (
        change_machine(cpu=None, kernel=None),
        [
            "wanted the facts of the machine, found none of cpu and kernel; measure where the system tells them "
            f"(deepbench info): {AGAIN}"
        ],
    ),
    "a busy machine": (
        change_machine(load_1min=1.9),
        [
            "wanted at most 0.5 waiting programs per core when the run began, found 0.95; stop other programs, then "
            f"measure again: {AGAIN}"
        ],
    ),
    "one process twice": (
        twice,
        ["wanted each process once, found round 2 of conv n=1", f"twice; {MENDED}"],
    ),
}


@pytest.mark.parametrize("name", LACKS)
def test_a_file_that_lacks_one_thing_is_refused_with_its_sentence(parts, tmp_path, name):
    change, wanted, *remedies = LACKS[name]
    change(parts)
    found = lacks(parts, tmp_path)
    whole = [text for text in wanted if text.startswith("wanted ")]

    assert len(whole) == len(found), found
    for beginning, text in zip(whole, found, strict=True):
        assert text.startswith(beginning)
    for piece in (*wanted, *(remedies[0] if remedies else ())):
        assert any(piece in text for text in found), found


@pytest.mark.parametrize(
    ("cut", "wanted"),
    [
        (
            lambda content: content.replace(b'"round":1,', b'"round":2,', 1),
            "wanted a file whose lines have their checksums, found 1 damaged line (",
        ),
        (lambda content: content[:-20], "wanted a file that ends with a whole line, found an incomplete last line"),
    ],
)
def test_a_damaged_file_is_refused(parts, tmp_path, cut, wanted):
    path = parts.write(tmp_path / "mine.jsonl")
    path.write_bytes(cut(path.read_bytes()))
    found = submit(path, check=True, round=ROUND).lacks

    assert found[0].startswith(wanted)


def test_sums_in_16_bits_count_for_no_suite(parts, tmp_path):
    precision_below(parts)
    found = lacks(parts, tmp_path)

    assert (
        f"wanted {SUITE} in one of f32, bf16, f16, tf32, f8e4m3, f8e5m2, i8, i8u8, which meet the minimum precision, "
        f"found f16f16; measure it: deepbench run {SUITE} --precision f32 -o new.jsonl"
    ) in found


# ---- what is a result


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("unsupported", "this build lacks it"),
        ("unavailable", "oneDNN not found; pip install onednn-cpu-gomp"),
        ("crashed", "the library ended the process with SIGSEGV"),
        ("unchecked", "its reference takes too long"),
    ],
)
def test_what_a_library_does_is_a_result_and_a_finding(parts, tmp_path, status, reason):
    if status == "unchecked":
        for record in parts.of(0):
            record |= {"status": status, "reason": reason, "check": {"before": None, "after": None}}
    else:
        parts.fail(0, status, reason)
    found = submit(parts.write(tmp_path / "mine.jsonl"), check=True)

    assert ([], [f"1 case: {status}"]) == (found.lacks, found.findings)


def test_a_wrong_answer_that_a_check_shows_is_a_result(parts, tmp_path):
    failed = parts.fail(0, "wrong", "element 3 differs")
    check = Parts().of(0)[0]["check"]["before"]
    failed["check"] = {"before": {**check, "passed": False, "error": 7.0}, "after": None}
    found = submit(parts.write(tmp_path / "mine.jsonl"), check=True)

    assert ([], ["1 case: wrong"]) == (found.lacks, found.findings)


def test_a_case_that_needs_more_than_all_memory_is_a_result(parts, tmp_path):
    parts.fail(0, "out_of_memory", "needs 25 kB")
    parts.machine["memory_bytes"] = 20_000

    assert [] == lacks(parts, tmp_path)


def test_libraries_that_are_missing_answer_for_what_only_they_compute(parts, tmp_path):
    """As `run` writes it where neither of the two libraries for sparse products is installed."""
    sparse = [p["case"] for p in parts.plan["cases"] if p["case"].startswith("sparse_gemm")]
    while any(p["case"] in sparse for p in parts.plan["cases"]):
        parts.drop(next(n for n, p in enumerate(parts.plan["cases"]) if p["case"] in sparse), planned=True)
    assert f"found {len(sparse)} of 41 without a result in f32" in lacks(parts, tmp_path)[0]

    gone = {"unavailable": {"reason": "not found", "remedy": "pip install it"}}
    for name in ("mkl", "scipy", "aocl", "loops", "onednn", "openblas"):
        if name not in {r["backend"] for r in parts.records} or name in ("mkl", "onednn"):
            parts.header["libraries"][name] = gone
    assert [] == judged(parts, tmp_path / "other.jsonl")


def test_variables_that_the_file_names_are_allowed(parts, tmp_path):
    set_variable("Haswell")(parts)

    assert [] == lacks(parts, tmp_path)


# ---- rounds


def test_the_newest_round_that_fits_is_chosen():
    file = read_results(REAL.parent.parent / "deepbench" / "results" / "published" / "iphone-7.jsonl.gz")

    assert "published" == submission.choose_round(file, known_rounds()).name
