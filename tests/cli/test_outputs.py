"""What a command writes: an input or a result file is never replaced, and a full disk destroys nothing."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from tests.conftest import ROOT, lines_of, records_of
from tests.help import samples
from tests.help.command import run_here

pytestmark = pytest.mark.programs

NULL = ("--backend", "null", "--quick")
TEXT = "gemm m={} n=3 k=4 a_t=0 b_t=0 forward f32 mkl threads=2"

# Of a result file of so many cases, every output is larger than `FULL_BYTES`.
CASES, FULL_BYTES = 200, 8192


@pytest.fixture
def result_file(tmp_path):
    """`a.jsonl`, `b.jsonl` and names of `a.jsonl` that outputs may have."""
    texts = [TEXT.format(m) for m in range(1, CASES + 1)]
    for name in ("a", "b"):
        records = [samples.measured(seconds=1e-3, text=text) for text in texts]
        samples.write(tmp_path / f"{name}.jsonl", records, samples.header(texts))
    for name in ("a.xlsx", "a.parquet", "a.html"):
        os.link(tmp_path / "a.jsonl", tmp_path / name)
    return tmp_path / "a.jsonl"


@pytest.fixture
def full_disk(tmp_path):
    """A folder on a disk with little space, and the options of `subprocess.run` that make it so."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={2 * FULL_BYTES}", "none", str(folder)]
    if os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0:
        yield folder, {}
        subprocess.run(["umount", str(folder)], check=True)
    else:
        limit = FULL_BYTES, FULL_BYTES
        yield folder, {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit)}


def run(folder, *words, **options):
    return subprocess.run(
        [sys.executable, "-m", "deepbench", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["gate", "a.jsonl", "b.jsonl", "--junit", "a.jsonl"],
        ["gate", "a.jsonl", "b.jsonl", "--markdown", "./b.jsonl"],
        ["gate", "a.jsonl", "a.jsonl", "--markdown", "b.jsonl"],
        ["show", "a.jsonl", "--xlsx", "a.xlsx"],
        ["show", "b.jsonl", "--parquet", "a.parquet"],
        ["report", "b.jsonl", "-o", "a.html"],
    ],
)
def test_a_result_file_is_not_replaced_by_an_output(deepbench, result_file, tmp_path, words):
    before = result_file.read_bytes()
    done = deepbench(*words)

    assert 64 == done.returncode, done.stdout
    assert "is a result file and would be replaced; choose another name" in done.stderr
    assert 1 == len(done.stderr.splitlines())
    assert before == result_file.read_bytes() == (tmp_path / "b.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["show", "{}/a.jsonl", "--xlsx", "w.xlsx"], "w.xlsx"),
        (["show", "{}/a.jsonl", "--parquet", "p.parquet"], "p.parquet"),
        (["report", "{}/a.jsonl", "-o", "r.html"], "r.html"),
        (["gate", "{}/a.jsonl", "{}/b.jsonl", "--junit", "g.xml"], "g.xml"),
        (["gate", "{}/a.jsonl", "{}/b.jsonl", "--markdown", "g.md"], "g.md"),
    ],
)
def test_on_a_full_disk_the_old_output_stays_as_it_was(result_file, full_disk, words, name):
    folder, options = full_disk
    (folder / name).write_text("old")
    done = run(folder, *(word.format(result_file.parent) for word in words), **options)

    assert 64 == done.returncode, done.stderr
    assert f"cannot write {name}: " in done.stderr
    assert "free some space" in done.stderr
    assert 1 == len(done.stderr.splitlines()), done.stderr
    assert "old" == (folder / name).read_text()
    assert [name] == [path.name for path in folder.iterdir()]


def test_on_a_full_disk_no_half_database_is_left(result_file, full_disk):
    folder, options = full_disk
    done = run(folder, "show", str(result_file), "--sqlite", "s.db", **options)

    assert 64 == done.returncode, done.stderr
    assert "cannot write s.db: " in done.stderr
    assert 1 == len(done.stderr.splitlines()), done.stderr
    assert [] == list(folder.iterdir())


def test_on_a_full_disk_a_site_is_refused_in_one_sentence(result_file, full_disk):
    folder, options = full_disk
    done = run(folder, "site", str(result_file.parent), "-o", "public", "--no-published", **options)

    assert 64 == done.returncode, done.stderr
    assert "cannot write" in done.stderr
    assert "None" not in done.stderr
    assert 1 == len(done.stderr.splitlines()), done.stderr


@pytest.mark.usefixtures("result_file")
def test_a_database_is_complete(deepbench, tmp_path):
    assert 0 == deepbench("show", "a.jsonl", "--sqlite", "s.db").returncode
    connection = sqlite3.connect(tmp_path / "s.db")
    assert (CASES,) == connection.execute("select count(*) from cases").fetchone()
    connection.close()


# ---- names


@pytest.mark.parametrize("name", ["my results.jsonl", "it's.jsonl", "-x.jsonl", "$(id).jsonl"])
def test_the_command_that_a_run_suggests_can_be_pasted(deepbench, tmp_path, name):
    done = deepbench("run", "gemm m=3 n=4 k=5", *NULL, "-o", name)
    assert 0 == done.returncode, done.stderr
    suggested = done.stdout.splitlines()[-1].strip()
    assert suggested.startswith("deepbench show ")

    line = f"{sys.executable} -m {suggested}"
    pasted = subprocess.run(
        line, shell=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert 0 == pasted.returncode, pasted.stderr
    assert "3 × 4 × 5" in pasted.stdout


def test_control_characters_in_names_do_not_reach_the_terminal(deepbench, result_file, tmp_path, monkeypatch):
    evil = "\x1b]0;owned\x07\x9b31m"
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").rename(tmp_path / f"{name}{evil}.jsonl")
    a, b = f"a{evil}.jsonl", f"b{evil}.jsonl"
    cut = tmp_path / f"cut{evil}.jsonl"
    cut.write_bytes((tmp_path / a).read_bytes()[:-300])
    (tmp_path / "few.jsonl").write_bytes(b"".join((tmp_path / a).read_bytes().splitlines(True)[:3]))
    runs = [
        ("run", "gemm m=3 n=4 k=5", *NULL, "-o", f"out{evil}.jsonl"),
        ("run", "gemm m=3 n=4 k=5", *NULL, "-o", f"out{evil}.jsonl"),
        ("run", "--resume", "-o", f"out{evil}.jsonl"),
    ]
    commands = [
        *(("show", a), ("show", a, "--json"), ("show", a, "--markdown"), ("show", cut.name), ("show", f"no{evil}")),
        *(("compare", a, b), ("compare", a, b, "--markdown"), ("compare", a, b, "--json")),
        *(("compare", a, "few.jsonl", "--json"), ("compare", "few.jsonl", a, "--markdown")),
        *(("gate", a, b, "--markdown", "gate.md"), ("gate", a, "few.jsonl")),
        *(("report", a, "-o", f"r{evil}.html"), ("show", a, "--xlsx", f"w{evil}.xlsx")),
        *(("show", a, "--by", f"x{evil}"), ("run", evil), ("run", "gemm m=1 n=1 k=1", "--backend", evil)),
    ]

    monkeypatch.chdir(tmp_path)
    printed = [(words, done.returncode, done.stdout + done.stderr) for words in runs for done in [deepbench(*words)]]
    printed += [(words, done.code, done.output + done.errors) for words in commands for done in [run_here(words)]]
    for words, code, text in printed:
        assert code in (0, 1, 2, 64), text
        assert not {"\x1b", "\x07", "\x9b"} & set(text), words
    assert not {"\x1b", "\x07", "\x9b"} & set((tmp_path / "gate.md").read_text())


# ---- what is not there


def test_a_file_that_was_removed_meanwhile_is_not_offered_for_resuming(tmp_path):
    path = tmp_path / "out.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "deepbench", "run", *(f"gemm m={m} n=4 k=4 null" for m in range(1, 30)), "-o", path],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    end = time.monotonic() + 30
    while not path.exists() or len(path.read_bytes().splitlines()) < 3:
        assert time.monotonic() < end, "nothing was measured"
        time.sleep(0.02)
    path.unlink()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)

    assert 130 == process.returncode, err
    assert "was moved, removed or replaced while it was measured" in out
    assert "--resume" not in out


def test_without_a_folder_for_temporary_files_the_sentence_says_so(tmp_path):
    code = (
        "import sys, tempfile; tempfile._candidate_tempdir_list = lambda: ['/no/such/folder']\n"
        f"sys.argv = ['deepbench', 'run', 'gemm m=3 n=4 k=5', {', '.join(map(repr, NULL))}, '-o', 'out.jsonl']\n"
        "from deepbench.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert 64 == done.returncode
    assert "deepbench: no folder for temporary files can be written; set TMPDIR" in done.stderr
    assert 1 == len(done.stderr.splitlines()), done.stderr


@pytest.mark.parametrize("most", [7, 9])
def test_too_many_open_files_are_no_matter_of_the_output(tmp_path, most):
    done = run(
        tmp_path,
        *("run", "gemm m=3 n=4 k=5", *NULL, "-o", "out.jsonl"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)),
    )

    assert 64 == done.returncode
    assert "Too many open files; raise the limit: ulimit -n" in done.stderr
    assert "output" not in done.stderr


# ---- a budget and two sides


def test_a_budget_into_which_nothing_fits_is_refused_with_the_time_that_is_needed(deepbench, tmp_path):
    words = ("run", "gemm m=3 n=4 k=5", "--backend", "null", "-o", "out.jsonl")
    done = deepbench(*words, "--budget", "0.1s")

    assert 64 == done.returncode, done.stdout
    assert "no case fits into the budget of 0.1 s" in done.stderr
    assert "one round of the cheapest case takes about 0." in done.stderr
    assert "allow at least" in done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_a_budget_into_which_nothing_fits_keeps_a_file_that_was_there(deepbench, null_file):
    header = lines_of(null_file)[0]
    header["plan"]["budget_s"] = 1e-3
    samples.write(null_file, [], header)
    done = deepbench("run", "--resume", "-o", "out.jsonl")

    assert 64 == done.returncode, done.stdout
    assert "no case fits into the budget" in done.stderr
    assert null_file.exists()


@pytest.mark.parametrize("taken", ["a", "b"])
def test_two_sides_leave_no_file_when_one_name_is_taken(deepbench, tmp_path, taken):
    (tmp_path / f"two.{taken}.jsonl").write_text("precious")
    done = deepbench("run", "gemm m=3 n=4 k=5", *NULL, "--ab", "threads=1,2", "-o", "two")

    assert 64 == done.returncode, done.stdout
    assert f"two.{taken}.jsonl already exists; choose another name with -o" in done.stderr
    assert [f"two.{taken}.jsonl"] == [path.name for path in tmp_path.iterdir()]
    assert "precious" == (tmp_path / f"two.{taken}.jsonl").read_text()


def test_two_sides_leave_no_file_when_the_other_side_cannot_be_measured(deepbench, tmp_path):
    words = ("gemm m=3 n=4 k=5", "--quick", "--ab", "backend=null,mkl", "-o", "two")
    done = deepbench("run", *words, DEEPBENCH_MKL_PATH="/no/such/library.so")

    assert 64 == done.returncode, done.stdout
    assert "MKL not found" in done.stderr
    assert [] == list(tmp_path.iterdir())


# ---- options that exclude each other


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["show", "out.jsonl", "--json", "--csv"], "--json and --csv exclude each other"),
        (["compare", "out.jsonl", "out.jsonl", "--markdown", "--json"], "--markdown and --json exclude each other"),
        (["run", "--quick", "--rigorous", "quick"], "--quick and --rigorous exclude each other"),
    ],
)
@pytest.mark.usefixtures("null_file")
def test_options_that_exclude_each_other_are_refused(deepbench, words, expected):
    done = deepbench(*words)

    assert (64, "") == (done.returncode, done.stdout)
    assert expected in done.stderr
    assert 1 == len(done.stderr.splitlines())


def test_the_mode_of_a_run_is_that_of_its_option(deepbench, tmp_path):
    for name, words in (("quick", ["--quick"]), ("default", [])):
        done = deepbench("run", "gemm m=3 n=4 k=5", "--backend", "null", "--rounds", "1", *words, "-o", f"{name}.jsonl")
        assert 0 == done.returncode, done.stderr
        assert name == lines_of(tmp_path / f"{name}.jsonl")[0]["plan"]["mode"]
        assert 1 == len(records_of(tmp_path / f"{name}.jsonl"))
