"""The commands compare and gate, and the options --ab and --budget of run."""

import json
import time
import xml.etree.ElementTree as xml
from collections import Counter

import pytest

from tests import samples
from tests.conftest import records_of

TEXT = "gemm m={} n=3 k=4 a_t=0 b_t=0 forward f32 mkl threads=2"
STEADY = [1.00, 1.01, 0.99, 1.005, 0.995]


@pytest.fixture
def file_of(tmp_path):
    """Write a result file: one list of seconds per case, with one number per round."""

    def write(name, *times):
        texts = [TEXT.format(i) for i in range(2, 2 + len(times))]
        records = [
            samples.measured(seconds=s, round_number=i, text=text)
            for text, values in zip(texts, times, strict=True)
            for i, s in enumerate(values, 1)
        ]
        samples.write(tmp_path / name, records, samples.header(texts))

    return write


def test_compare_prints_differences_means_and_each_case(deepbench, file_of):
    file_of("a.jsonl", STEADY, STEADY, STEADY)
    file_of("b.jsonl", STEADY, [t * 1.2 for t in STEADY], [t * 0.9 for t in STEADY])
    done = deepbench("compare", "a.jsonl", "b.jsonl")

    assert 0 == done.returncode, done.stderr
    assert "time of b.jsonl compared with time of a.jsonl" in done.stdout
    assert "3 cases compared: 1 slower, 1 faster, 1 same" in done.stdout
    cases = json.loads(deepbench("compare", "a.jsonl", "b.jsonl", "--json").stdout)["cases"]
    assert ["slower", "faster", "same"] == [case["verdict"] for case in cases]
    assert 1.2 == pytest.approx(cases[0]["second_over_first"], rel=1e-6)
    assert "1.20× slower" in done.stdout
    assert deepbench("compare", "a.jsonl", "b.jsonl", "--csv").stdout.startswith("case,precision,library")
    assert "| case |" in deepbench("compare", "a.jsonl", "b.jsonl", "--markdown").stdout


@pytest.mark.parametrize(
    ("second", "code", "words"),
    [
        (STEADY, 0, "no regression: 1 passed"),
        ([t * 1.3 for t in STEADY], 1, "REGRESSION: 1 slower"),
        ([0.8, 1.4, 0.9, 1.3, 1.0], 2, "cannot tell: 1 undecided"),
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
    assert "threads: 2 and 1" in gate.stdout


def test_the_doctor_has_a_remedy_for_every_problem_it_finds(deepbench):
    findings = json.loads(deepbench("info", "--doctor", "--json").stdout)
    assert all(f["text"] for f in findings)
    assert all(f["remedy"] for f in findings if not f["good"] and f["what"] != "running now")
