"""The commands compare and gate, and the options --ab and --budget of run."""

import json
import time
import xml.etree.ElementTree as xml
from collections import Counter

import pytest

from tests.conftest import records_of
from tests.help import samples

TEXT = "gemm m={} n=3 k=4 a_t=0 b_t=0 forward f32 mkl threads=2"
STEADY = [1.00, 1.01, 0.99, 1.005, 0.995]


@pytest.fixture
def file_of(tmp_path):
    """Write a result file: one list of seconds per case, with one number per round."""

    def write(name, *times, version="1.0"):
        texts = [TEXT.format(i) for i in range(2, 2 + len(times))]
        records = [
            samples.measured(seconds=s, round_number=i, text=text)
            for text, values in zip(texts, times, strict=True)
            for i, s in enumerate(values, 1)
        ]
        for record in records:
            record["library"]["version"] = version
        samples.write(tmp_path / name, records, samples.header(texts))

    return write


def test_compare_prints_differences_means_and_each_case(deepbench, file_of):
    file_of("a.jsonl", STEADY, STEADY, STEADY)
    file_of("b.jsonl", STEADY, [t * 1.2 for t in STEADY], [t * 0.9 for t in STEADY])
    done = deepbench("compare", "a.jsonl", "b.jsonl")

    assert 0 == done.returncode, done.stderr
    assert "time of b.jsonl compared with time of a.jsonl" in done.stdout
    assert [
        "Slower: 1 of 3 cases, most 1.20× (gemm 3 × 3 × 4 NN f32, MKL).",
        "Faster: 1 case, most 1.11×.",
    ] == done.stdout.splitlines()[-4:-2]
    cases = json.loads(deepbench("compare", "a.jsonl", "b.jsonl", "--json").stdout)["cases"]
    assert ["slower", "faster", "same"] == [case["verdict"] for case in cases]
    assert 1.2 == pytest.approx(cases[0]["second_over_first"], rel=1e-6)
    assert "20.0 % slower" in done.stdout
    assert deepbench("compare", "a.jsonl", "b.jsonl", "--csv").stdout.startswith("case,precision,library")
    assert "| case |" in deepbench("compare", "a.jsonl", "b.jsonl", "--markdown").stdout


@pytest.mark.parametrize(
    ("second", "code", "words"),
    [
        (STEADY, 0, "no regression: 1 passed"),
        ([t * 1.3 for t in STEADY], 1, "REGRESSION: 1 slower"),
        ([0.8, 1.4, 0.9, 1.3, 1.0], 2, "UNDECIDED: 1 undecided"),
    ],
)
def test_the_gate_has_three_verdicts(deepbench, file_of, tmp_path, second, code, words):
    file_of("a.jsonl", STEADY)
    file_of("b.jsonl", second)
    done = deepbench("gate", "a.jsonl", "b.jsonl", "--junit", "gate.xml", "--markdown", "gate.md")

    assert (code, words) == (done.returncode, done.stdout.splitlines()[0]), done.stdout
    suite = xml.fromstring((tmp_path / "gate.xml").read_text())
    assert (str(int(code == 1)), str(int(code == 2))) == (suite.attrib["failures"], suite.attrib["skipped"])
    assert words in (tmp_path / "gate.md").read_text()


def test_the_gate_names_what_differs_and_ends_with_the_lines_of_compare(deepbench, file_of, tmp_path):
    file_of("a.jsonl", STEADY, STEADY, STEADY, version="3.5")
    file_of("b.jsonl", [t * 1.3 for t in STEADY], [t * 0.8 for t in STEADY], [t * 1.03 for t in STEADY], version="3.6")
    done = deepbench("gate", "a.jsonl", "b.jsonl", "--junit", "gate.xml", "--markdown", "gate.md")
    slower = "Slower: 1 of 3 cases, most 1.30× (gemm 2 × 3 × 4 NN f32, MKL; MKL 3.5 → 3.6)."

    assert 1 == done.returncode
    assert [slower, "Faster: 1 case, most 1.25×.", "Not slower: 1. Undecided: 0."] == done.stdout.splitlines()[-3:]
    assert "; MKL 3.5 → 3.6" in (tmp_path / "gate.xml").read_text()
    assert "MKL 3.5 → 3.6" in (tmp_path / "gate.md").read_text()
    compared = deepbench("compare", "a.jsonl", "b.jsonl").stdout.splitlines()
    assert "Slower: 2 of 3 cases" in compared[-3]  # the margin of a comparison is smaller
    assert slower[-40:] == compared[-3][-40:]


def test_compare_lists_all_cases_with_full_and_for_programs(deepbench, file_of):
    file_of("a.jsonl", *[STEADY] * 12, version="3.5")
    file_of("b.jsonl", [t * 1.3 for t in STEADY], *[STEADY] * 11, version="3.6")

    def rows(*words):
        lines = deepbench("compare", "a.jsonl", "b.jsonl", *words).stdout.splitlines()
        return sum(" × 3 × 4 NN" in line and not line.startswith("Slower") for line in lines)

    assert [1, 12] == [rows(), rows("--full")]
    assert [12, 12] == [rows("--csv"), rows("--markdown") - 1]  # the answer names one of them again
    cases = json.loads(deepbench("compare", "a.jsonl", "b.jsonl", "--json").stdout)["cases"]
    assert ["MKL 3.5 → 3.6", *[None] * 11] == [case["reason"] for case in cases]


@pytest.mark.long
def test_a_run_ends_within_its_budget(deepbench, tmp_path):
    cases = [f"gemm m={m} n=4 k=4 null" for m in range(1, 17)]
    begin = time.monotonic()
    done = deepbench("run", *cases, "--budget", "5s", "-o", "out.jsonl")
    took = time.monotonic() - begin

    assert 0 == done.returncode, done.stderr
    assert 3 < took < 7, took
    rounds = Counter(r["case"] for r in records_of(tmp_path / "out.jsonl"))
    # Each case is measured once before any is measured twice. Only at the very end may a case that took less than
    # estimated fit into the time left, where no unmeasured one does.
    assert len(cases) == len(rounds) or rounds.total() - len(rounds) <= 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["compare", "a.jsonl", "none.jsonl"], "none.jsonl does not exist"),
        (["compare", "a.jsonl", "a.jsonl", "--margin", "lots"], "--margin must be a share such as 2%"),
        (["compare", "a.jsonl", "other.jsonl"], "have no measured case in common"),
        (["compare", "a.jsonl", "V100", "--full"], "--full are for two files"),
        (["gate", "a.jsonl", "a.jsonl", "--junit", "/no/such/folder/x"], "cannot write /no/such/folder/x"),
        (["run", "quick", "--ab", "threads"], "--ab wants NAME=ONE,OTHER"),
        (["run", "quick", "--ab", "weights=plain,nothing"], "weights must be one of"),
        (["run", "--against", "a.jsonl", "quick"], "--against takes its cases from the file"),
        (["run", "quick", "--budget", "soon"], "--budget wants a time"),
        (["run", "quick", "--budget", "1min", "--rounds", "3"], "leave out the number of rounds"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(deepbench, file_of, words, expected):
    file_of("a.jsonl", STEADY)
    file_of("other.jsonl")
    done = deepbench(*words)

    assert 64 == done.returncode, done.stdout
    assert expected in done.stderr
    assert 1 == len(done.stderr.strip().splitlines()), done.stderr


@pytest.mark.long
def test_the_gate_does_not_pass_a_library_that_lost_a_thread(deepbench, tmp_path):
    words = ["gemm m=512 n=512 k=512 f32 openblas", "--ab", "threads=2,1", "--rounds", "5", "--quick", "-o", "two"]
    done = deepbench("run", *words)
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "Measured in turn, in heats" in done.stdout
    files = [tmp_path / f"two.{side}.jsonl" for side in "ab"]
    assert [5, 5] == [len(records_of(f)) for f in files]

    assert 0 == deepbench("gate", "two.a.jsonl", "two.a.jsonl").returncode
    gate = deepbench("gate", "two.a.jsonl", "two.b.jsonl")
    assert gate.returncode in (1, 2), gate.stdout  # other programs may hide the regression, but it never passes
    assert "threads: 2 → 1" in gate.stdout


def test_the_doctor_has_a_remedy_for_every_problem_it_finds(deepbench):
    findings = json.loads(deepbench("info", "--doctor", "--json").stdout)
    assert all(f["text"] for f in findings)
    assert all(f["remedy"] for f in findings if not f["good"] and f["what"] != "running now")
