"""Bad input ends with one sentence on standard error and exit code 64: no traceback, and no file is damaged."""

import os
import resource
import subprocess
import sys

import pytest

from deepbench.core.op import all_ops
from tests.conftest import ROOT, lines_of, records_of
from tests.help import samples

pytestmark = pytest.mark.programs

NULL = ("--backend", "null", "--quick")


def refused(done, expected):
    assert 64 == done.returncode, (done.stdout, done.stderr)
    assert expected in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert 1 == len(done.stderr.strip().splitlines()), done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "nosuch"], "unknown suite, operation or file 'nosuch'; suites are"),
        (
            ["run", "--op", "nosuch"],
            f"unknown operation 'nosuch'; choose one of {', '.join(sorted(all_ops()))}",
        ),
        (["run", "--precision", "f33"], "unknown precision 'f33'; choose one of f32"),
        (["run", "--backend", "nosuch"], "unknown backend 'nosuch'; choose one of accelerate"),
        (["run", "--precision", "fp32"], "; did you mean f32?"),
        (["run", "--backend", "f32"], "unknown backend 'f32'; choose one of accelerate"),
        (["list", "--op", "conv2d"], "; did you mean conv?"),
        (["list", "--device", "gpu"], "did you mean cuda or hip or xpu? (deepbench info --devices"),
        (["run", *["matmul", "m=64", "n=64", "k=64", "fp32", "dnnl"]], "; did you mean gemm?"),
        (["run", *["gemm", "m=64", "n=64", "k=64", "fp32", "dnnl"]], "; did you mean f32?"),
        (["run", *["gemm", "m=64", "n=64", "k=64", "f32", "onednn,openblass"]], "; did you mean openblas?"),
        (["run", "gemm m=1 n=1 k=1 z=1"], "no field or setting 'z'"),
        (["run", "gemm m=-1 n=1 k=1"], "m must be a whole number from 1"),
        (["run", "gemm m=0 n=1 k=1"], "found 0"),
        (["run", "gemm m=1e3 n=1 k=1"], "found '1e3'"),
        (["run", "gemm m=99999999999999999999999 n=1 k=1"], "at most 20 digits"),
        (["run", "gemm n=1 k=1"], "gemm needs m"),
        (["run", "gemm m=1 n=1 k=1", "--set", "beta"], "--set wants NAME=VALUE"),
        (["run", "gemm m=1 n=1 k=1", "--set", "beta=7"], "beta must be one of 1, 0"),
        (["run", "gemm m=1 n=1 k=1", "--threads", "two"], "threads must be a whole number, found 'two'"),
        (["run", "gemm m=1 n=1 k=1", "--threads", "0"], "threads must be from 1"),
        (["run", "gemm m=1 n=1 k=1", "--rounds", "0"], "--rounds must be from 1"),
        (["run", "gemm m=1 n=1 k=1", "--timeout", "nan"], "--timeout must be a number of seconds"),
        (["run", "gemm m=1 n=1 k=1", "--precision", "i8", "--backend", "openblas"], "no case is left"),
        (
            ["list", *["gemm", "m=1", "n=1", "k=1", "tf32"]],
            "the float64 reference does: deepbench run gemm",
        ),
        (
            ["list", "llm/gpt2", "--set", "batc=2"],
            "unknown parameter or setting 'batc'; parameters of these suites are",
        ),
        (["list", "llm/gpt2", "--set", "phase=dream"], "GPT-2 has no phase 'dream'; it has prefill, decode, train"),
        (["list", "llm/gpt2", "--set", "=2"], "--set wants NAME=VALUE, found '=2'"),
        (["list", "llm/gpt2", "--fit", "4"], "fit wants memory, work or both, such as 4GiB"),
        (["list", "--suites", "quick"], "--suites prints the names of all suites; leave out cases"),
        (["list", "--suites", "--op", "conv"], "--suites prints the names of all suites; leave out cases"),
        (["list", "--suites", "--json"], "--suites prints the names of all suites; leave out cases"),
        (
            ["list", "--device", "cuda", "--backend", "mkl"],
            "--backend mkl is a library for cpu, and --device says cuda",
        ),
        (["info", "--matrix", "--doctor"], "--matrix and --doctor exclude each other; choose one of them"),
        (["info", "--verbose", "--matrix"], "exclude each other; choose one of them"),
        (["run", "--quick", "--rigorous"], "exclude each other; choose one of them"),
        (["run", "quick", "--rounds", "3", "--budget", "1min"], "a budget decides how many rounds there are"),
        (["gate", "a.jsonl", "b.jsonl", "--trust", "a.jsonl"], "--trust A belongs to --rerun"),
        (["run", "missing.csv"], "missing.csv does not exist; expected a list of problems"),
        (["run", "--resume"], "the command is deepbench run --resume -o FILE"),
        (["run", "--resume", "-o", "missing.jsonl"], "missing.jsonl does not exist"),
        (["run", "quick", "--resume", "-o", "x.jsonl"], "--resume takes everything from the file"),
        (
            ["run", "gemm m=1 n=1 k=1", *NULL, "-o", "no/such/folder/x.jsonl"],
            "cannot write no/such/folder/x.jsonl: No such",
        ),
        (["run", "gemm m=1 n=1 k=1", *NULL, "-o", "."], "already exists"),
        (["show", "missing.jsonl"], "does not exist"),
        (["show", "."], ". is a folder"),
        (["show", "a\tb\x1b[31m.jsonl"], "does not exist"),
        (["show"], "Missing argument 'FILE'"),
        (["dance"], "No such command 'dance'"),
        (["run", "--dance"], "No such option"),
    ],
)
def test_bad_arguments_are_refused(deepbench, words, expected):
    refused(deepbench(*words), expected)


@pytest.mark.parametrize("value", ["abc", "-1", "2x", ""])
def test_threads_in_the_environment_must_be_a_number(deepbench, value):
    refused(deepbench("run", "gemm m=1 n=1 k=1", *NULL, OMP_NUM_THREADS=value), "OMP_NUM_THREADS is")


def test_a_warning_says_that_threads_in_the_environment_are_not_used(deepbench, tmp_path):
    done = deepbench("run", "gemm m=1 n=1 k=1", *NULL, "--threads", "1", "-o", "x.jsonl", OMP_NUM_THREADS="7")

    assert 0 == done.returncode
    assert "OMP_NUM_THREADS=7 is ignored" in done.stderr
    assert "1" == records_of(tmp_path / "x.jsonl")[0]["process"]["environment"]["OMP_NUM_THREADS"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (b"\x00\x01\x02\xff", "no complete line"),
        (os.urandom(2000).replace(b"\n", b" ") + b"\n", "line 1: not JSON"),
        (b'{"schema":"deepbench/7"}\n', "use a newer DeepBench"),
    ],
)
def test_bad_result_files_are_refused_and_kept(deepbench, tmp_path, content, expected):
    (tmp_path / "bad.jsonl").write_bytes(content)

    refused(deepbench("show", "bad.jsonl"), expected)
    refused(deepbench("run", "--resume", "-o", "bad.jsonl"), expected)
    assert content == (tmp_path / "bad.jsonl").read_bytes()


def test_a_file_of_a_gigabyte_is_refused_without_reading_it(deepbench, tmp_path):
    with (tmp_path / "big.jsonl").open("wb") as file:
        file.truncate(2**30)

    refused(deepbench("show", "big.jsonl", timeout=10), "1073741824 bytes")


def test_a_file_cut_within_a_line_is_shown_up_to_that_line(deepbench, null_file):
    null_file.write_bytes(null_file.read_bytes()[:-300])

    done = deepbench("show", "out.jsonl", "--csv")

    assert 0 == done.returncode
    assert "the last line is incomplete and was ignored" in done.stderr
    assert 2 == len(done.stdout.splitlines())


def test_an_existing_file_is_kept(deepbench, tmp_path):
    (tmp_path / "mine.jsonl").write_text("precious")

    refused(deepbench("run", "gemm m=1 n=1 k=1", *NULL, "-o", "mine.jsonl"), "already exists")
    assert "precious" == (tmp_path / "mine.jsonl").read_text()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every folder")
def test_a_read_only_folder_is_named(deepbench, tmp_path):
    (tmp_path / "sealed").mkdir(mode=0o500)

    refused(deepbench("run", "gemm m=1 n=1 k=1", *NULL, "-o", "sealed/x.jsonl"), "Permission denied")


def test_a_read_only_file_system_is_named(deepbench):
    refused(deepbench("run", "gemm m=1 n=1 k=1", *NULL, "-o", "/proc/x.jsonl"), "cannot write /proc/x.jsonl")


def test_a_full_disk_loses_no_record_and_resume_continues(deepbench, tmp_path):
    """A limit on the size of a file stands in for a full disk: write() fails in the middle of a line."""
    cases = [f"gemm m={m} n=4 k=4" for m in range(1, 7)]
    words = ["run", *cases, *NULL, "-o", "out.jsonl"]
    limited = subprocess.run(
        [sys.executable, "-m", "deepbench", *words],
        cwd=tmp_path,
        # Python itself does not notice when it truncates a .pyc file.
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000)),
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert 64 == limited.returncode, limited.stderr
    assert "out.jsonl has everything measured so far. To continue: deepbench run --resume" in limited.stderr
    assert "Traceback" not in limited.stderr
    before = records_of(tmp_path / "out.jsonl")
    assert 0 < len(before) < len(cases)

    done = deepbench("run", "--resume", "-o", "out.jsonl")
    assert 0 == done.returncode, done.stderr
    after = records_of(tmp_path / "out.jsonl")
    assert before == after[: len(before)]
    assert len(cases) == len({r["case"] for r in after}) == len(after)


def test_output_to_a_full_device_fails_with_one_sentence(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "deepbench", "list"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )

    assert 64 == done.returncode
    assert "cannot write the output: No space left" in done.stderr


def test_control_characters_and_markup_in_a_file_have_no_effect(deepbench, null_file):
    lines = lines_of(null_file)
    evil = "[bold red]x[/] \x1b]0;owned\x07 =cmd|' /C calc'!A0 <script>alert(1)</script>"
    lines[0]["machine"]["cpu"] = evil
    lines[0]["libraries"]["null"]["library"]["version"] = evil
    lines[1] |= {"backend": evil, "reason": evil, "op": evil, "precision": evil, "status": "crashed"}
    samples.write(null_file, lines[1:], lines[0])

    for form in ([], ["--full"], ["--csv"], ["--markdown"]):
        done = deepbench("show", "out.jsonl", *form)
        assert 0 == done.returncode, done.stderr
        assert "\x1b" not in done.stdout
        assert "\x07" not in done.stdout
    assert "<script>" not in deepbench("show", "out.jsonl", "--markdown").stdout.replace("\\<script\\>", "")


def test_a_fifo_is_refused_at_once(deepbench, tmp_path):
    for name in ("x.jsonl", "x.csv", "hosts"):
        os.mkfifo(tmp_path / name)

    refused(deepbench("show", "x.jsonl", timeout=20), "x.jsonl is not a regular file")
    refused(deepbench("run", "x.csv", timeout=20), "x.csv is not a regular file; expected a list of problems")
    words = ("all_reduce n=4 ranks=2", "--hostfile", "hosts")
    refused(deepbench("run", *words, timeout=20), "hosts is not a regular file; expected one host per line")
    refused(deepbench("show", "/dev/zero", timeout=20), "/dev/zero is not a regular file")


def test_a_fifo_among_plug_ins_is_refused_at_once(deepbench, tmp_path):
    (tmp_path / "plugins" / "backends").mkdir(parents=True)
    os.mkfifo(tmp_path / "plugins" / "backends" / "mine.py")

    done = deepbench("list", timeout=20, DEEPBENCH_PLUGINS=str(tmp_path / "plugins"))
    refused(done, "mine.py is not a regular file")


def test_a_library_that_a_file_names_is_loaded_only_with_trust(deepbench, null_file, tmp_path):
    header, *records = lines_of(null_file)
    library = tmp_path / "libevil.so"
    library.write_text("no library")
    header["libraries"] = {"mkl": {"library": {"name": "MKL", "version": "1", "path": str(library)}}}
    for record in records:
        record["case"] = record["case"].replace(" null ", " mkl ")
        record["backend"] = "mkl"
    header["plan"]["cases"] = [{"case": r["case"], "sources": []} for r in records]
    samples.write(null_file, records, header)
    no_library = {"DEEPBENCH_MKL_PATH": "/no/such/library.so"}

    done = deepbench("run", "--against", "out.jsonl", **no_library)
    refused(done, f"out.jsonl names libraries to load: DEEPBENCH_MKL_PATH={library};")
    assert "add --trust out.jsonl" in done.stderr
    refused(
        deepbench("run", "--against", "out.jsonl", "--trust", "other.jsonl"),
        "wanted --trust out.jsonl, found other.jsonl",
    )
    refused(deepbench("run", "gemm m=1 n=1 k=1", "--trust", "out.jsonl"), "--trust FILE belongs to --against FILE")
    done = deepbench("run", "--against", "out.jsonl", "--trust", "./out.jsonl", **no_library)
    assert 64 == done.returncode
    first, second = done.stderr.strip().splitlines()
    assert f"deepbench: loading {library} (DEEPBENCH_MKL_PATH), as out.jsonl says" == first
    assert "libevil.so" in second  # it cannot be loaded
    assert ["libevil.so", "out.jsonl"] == sorted(p.name for p in tmp_path.iterdir())
