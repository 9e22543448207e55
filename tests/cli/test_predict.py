"""`deepbench predict`: a step from the kernels of a file, with the real step where the file has it."""

import json

import pytest

from tests.conftest import NO_LIBRARIES
from tests.help import samples
from tests.help.predicted import PARAMETERS, kernels, network, step


@pytest.fixture
def suite(tmp_path):
    network().save(tmp_path / "my.suite")
    return "my.suite"


def test_a_step_is_the_sum_of_its_kernels(deepbench, suite, tmp_path):
    samples.write(tmp_path / "a.jsonl", kernels())
    found = json.loads(deepbench("predict", suite, "--with", "a.jsonl", "--json").stdout)[0]

    others = 1e-5  # an addition takes as long whatever its size
    assert found["predicted"]["seconds"] == pytest.approx(2 * 1e-3 + 1e-5 + others, rel=1e-3)
    assert [] == found["missing"]
    assert found["measured"] is None
    layers = {row["layer"]: row["time"] for row in found["layers"] if row["part"] is None}
    assert layers == pytest.approx({"layers.*": 2 * 1e-3 + 1e-5, "(no module)": others}, rel=2e-3)


def test_the_measured_step_in_a_file_stands_next_to_the_prediction(deepbench, suite, tmp_path):
    lines = [step(2.1e-3)]
    for record in kernels():
        lines += [record, step(2.1e-3), step(9.0, "another"), step(9.0, is_training=False)]
    samples.write(tmp_path / "a.jsonl", lines)

    done = deepbench("predict", suite, "--with", "a.jsonl")

    assert "measured   2.10 ms" in done.stdout, done.stderr
    assert "error      -3.8 % (predicted over measured, less 1)" in done.stdout


def test_a_missing_kernel_withholds_the_time(deepbench, suite, tmp_path):
    samples.write(tmp_path / "a.jsonl", [r for r in kernels() if r["op"] != "gemm"])
    done = deepbench("predict", suite, "--with", "a.jsonl")

    assert "predicted  withheld: 1 kernel has no time in 2 calls (not measured)" in done.stdout, done.stderr


def test_disturbed_kernels_are_named(deepbench, suite, tmp_path):
    samples.write(tmp_path / "a.jsonl", kernels(make=samples.disturbed))
    done = deepbench("predict", suite, "--with", "a.jsonl", "--picture", "step.svg")

    assert "other programs interfered, so the time is an upper bound; measure again" in done.stdout, done.stderr
    assert "(disturbed)" in (tmp_path / "step.svg").read_text()


def test_what_faster_libraries_would_save(deepbench, suite, tmp_path):
    samples.write(tmp_path / "a.jsonl", [*kernels(), *kernels("onednn", 0.4e-3)])
    done = deepbench("predict", suite, "--with", "a.jsonl")

    assert "820 µs with the fastest library of each kernel, 2.46 times as fast: onednn for 1 kernel" in done.stdout


def test_weak_scaling_adds_the_all_reduce(deepbench, suite, tmp_path):
    samples.write(tmp_path / "a.jsonl", kernels())
    samples.write(tmp_path / "r.jsonl", samples.all_reduce(2, 1e-3, n=PARAMETERS))
    words = ("predict", suite, "--with", "a.jsonl", "--with", "r.jsonl", "--devices", "1,2,4")
    one, two, four = json.loads(deepbench(*words, "--json").stdout)

    assert one["one_after_the_other"]["seconds"] == pytest.approx(2.02e-3, rel=1e-3)
    assert two["one_after_the_other"]["seconds"] == pytest.approx(3.02e-3, rel=0.02)
    assert two["overlapped"]["seconds"] == pytest.approx(2.02e-3, rel=1e-3)
    assert four["one_after_the_other"] is None
    assert "over 4 ranks in f32; measure it" in four["withheld"]
    table = deepbench(*words).stdout
    assert "67 %" in table  # efficiency of two devices
    assert "Withheld, 4 devices" in table


def test_memory_and_capacity(deepbench, suite, tmp_path):
    samples.write(tmp_path / "a.jsonl", kernels())
    done = deepbench("predict", suite, "--with", "a.jsonl", "--memory", "1MB")

    assert "one device of 1MB holds it" in done.stdout, done.stderr


@pytest.mark.usefixtures("suite")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("my.suite",), "name a result file with --with FILE, or measure the kernels with --measure"),
        (("my.suite", "--measure", "--set", "batch=2"), "has one step only, of one size; leave out --set and --train"),
        (("my.suite", "--measure", "--validate"), "--validate runs the real step, such as that of mymodel.py:build"),
        (("my.suite", "--measure", "--sweep", "batch"), "--sweep wants NAME=VALUE"),
        (("my.suite", "--measure", "--sweep", "batch=1,x"), "--sweep wants batch=1,2,4, found '1,x'"),
        (("my.suite", "--measure", "--devices", "0"), "--devices wants 1,2,4, found '0'"),
        (("my.suite", "--measure", "--strong"), "add --devices 1,2,4"),
        (("my.suite", "--measure", "--devices", "2", "--strong"), "say which, such as --set batch=64"),
        (("my.suite", "--measure", "--memory", "much"), "--memory wants a size such as 16GiB, found 'much'"),
        (("my.suite", "--measure", "--picture", "a.png"), "--picture wants a name that ends in .svg"),
        (("vision/resnet18", "--measure", "--devices", "2"), "add --train"),
        (("nothing.suite", "--measure"), "nothing.suite"),
    ],
)
def test_what_is_wrong_is_a_sentence(deepbench, words, sentence):
    done = deepbench("predict", *words)

    assert 64 == done.returncode
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_a_sweep_of_a_model_of_the_package(deepbench, tmp_path):
    """The real command from end to end. Small weights would need many copies to be larger than the caches."""
    without = {n: path for n, path in NO_LIBRARIES.items() if "OPENBLAS" not in n}  # so that it is soon done
    (tmp_path / "tiny.toml").write_text(
        'title = "Tiny"\n[sizes]\nparameters = 64\n[phases.inference]\nbatch = 2\n[kernels]\nall = """\n'
        'gemm m=512 n=batch k=512 count=3 # first\n"""\n'
    )
    words = ("predict", "tiny.toml", "--backend", "openblas", "--sweep", "batch=1,2,4", "--measure", "-o", "k.jsonl")
    done = deepbench(*words, **without)

    assert 0 == done.returncode, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.split()[:1] in (["1"], ["2"], ["4"])]
    assert ["1", "2", "4"] == [row[0] for row in rows]
    assert "k.jsonl has the kernels" in done.stdout
    again = done.stdout.splitlines()[-1].split()
    assert ["deepbench", "predict", "tiny.toml"] == again[:3]
    assert [
        row for row in deepbench(*again[1:], **without).stdout.splitlines() if row.split()[:1] in (["1"], ["2"], ["4"])
    ] == [row for row in done.stdout.splitlines() if row.split()[:1] in (["1"], ["2"], ["4"])]


def test_where_no_kernel_can_be_measured_no_file_is_said_to_have_them(deepbench, tmp_path):
    (tmp_path / "tiny.toml").write_text(
        'title = "Tiny"\n[sizes]\nparameters = 64\n[phases.inference]\nbatch = 2\n[kernels]\nall = """\n'
        'softmax rows=4 columns=8 count=3 # first\n"""\n'
    )
    done = deepbench("predict", "tiny.toml", "--backend", "openblas", "--measure", "-o", "k.jsonl", **NO_LIBRARIES)

    assert 0 == done.returncode, done.stderr
    assert "has the kernels" not in done.stdout
    assert "predicted  withheld: 1 kernel has no time" in done.stdout
    assert "0 ns" not in done.stdout
    assert (tmp_path / "k.jsonl").exists() == ("k.jsonl" in done.stdout)


def test_a_report_draws_the_step(deepbench, suite, tmp_path):
    samples.write(tmp_path / "a.jsonl", [*kernels(), step(2.1e-3)])
    done = deepbench("report", "a.jsonl", "--network", suite, "-o", "step.html")

    assert 0 == done.returncode, done.stderr
    assert "net, batch 4, training step, 1 thread" in (tmp_path / "step.html").read_text()
    wrong = deepbench("report", "a.jsonl", "--network", "a.jsonl")
    assert 64 == wrong.returncode
    assert "wanted a suite that deepbench trace wrote" in wrong.stderr
