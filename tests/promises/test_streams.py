"""Standard output and error that are closed or full: no traceback, no lost record, no exit code that misleads."""

import fcntl
import io
import itertools
import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT, records_of
from tests.help import samples

pytestmark = pytest.mark.process

TEXT = "gemm m=2 n=3 k=4 a_t=0 b_t=0 forward f32 mkl threads=2"
STEADY = [1.00, 1.01, 0.99, 1.005, 0.995]
RUN = "run 'gemm m=3 n=4 k=5' --backend null --quick -o out.jsonl"

LOST = "results still go to out.jsonl"

# How a shell redirects, the exit code of a command that succeeds, and what it says on standard error.
REDIRECTIONS = {
    ">&-": (141, "standard output is closed"),
    "2>&-": (0, ""),
    ">&- 2>&-": (141, ""),
    "| true": (141, ""),
    ">/dev/full": (64, "cannot write the output: No space left on device"),
    ">/dev/full 2>/dev/full": (64, ""),
}


@pytest.fixture
def shell(tmp_path):
    """Run a command line of `deepbench` in a shell; the exit code is that of `deepbench`, not of what reads from it."""

    def run(line, **environment):
        # A reader of `| true` has ended before the command prints.
        line = f"{sys.executable} -m deepbench {line}".replace("| true", "> >(true)")
        return subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.fixture
def two_files(tmp_path):
    """`a.jsonl` and `b.jsonl` are the same, `slow.jsonl` is slower."""
    for name, factor in (("a", 1.0), ("b", 1.0), ("slow", 1.3)):
        records = [samples.measured(seconds=s * factor, round_number=i, text=TEXT) for i, s in enumerate(STEADY, 1)]
        samples.write(tmp_path / f"{name}.jsonl", records, samples.header([TEXT]))


READING = (
    *("list", "info --matrix", "--help", "show a.jsonl", "show a.jsonl --csv"),
    *("compare a.jsonl b.jsonl", "gate a.jsonl b.jsonl", "report a.jsonl"),
)


ALL_WAYS = ("show a.jsonl",)
FEW_WAYS = (">&-", "2>&-", ">/dev/full")


def of_lane(redirections):
    """`make test` has one redirection of each kind, `make test-long` all."""
    return [pytest.param(way, marks=[] if way in FEW_WAYS else [pytest.mark.long]) for way in redirections]


# Every redirection of one command, and one redirection of each of the others.
@pytest.mark.parametrize(
    ("line", "redirection"),
    [
        *itertools.product(ALL_WAYS, REDIRECTIONS),
        *zip((line for line in READING if line not in ALL_WAYS), itertools.cycle(REDIRECTIONS), strict=False),
    ],
)
@pytest.mark.usefixtures("two_files")
def test_success_without_output_has_its_own_exit_code(shell, line, redirection):
    code, sentence = REDIRECTIONS[redirection]
    done = shell(f"{line} {redirection}")

    assert (code, f"deepbench: {sentence}\n" if sentence else "") == (done.returncode, done.stderr)


@pytest.mark.parametrize("redirection", of_lane(REDIRECTIONS))
@pytest.mark.usefixtures("two_files")
def test_a_regression_is_a_regression_although_nobody_reads_it(shell, redirection, tmp_path):
    done = shell(f"gate a.jsonl slow.jsonl --junit gate.xml {redirection}")

    assert 1 == done.returncode
    assert "Traceback" not in done.stderr
    assert "failures" in (tmp_path / "gate.xml").read_text()


@pytest.mark.parametrize(
    "redirection",
    [
        pytest.param(redirection, marks=[] if redirection in (">&-", "| head -1", ">/dev/full") else [pytest.mark.long])
        for redirection in (*REDIRECTIONS, "| head -1")
    ],
)
def test_a_run_measures_everything_whatever_happens_to_its_output(shell, redirection, tmp_path):
    code, _ = REDIRECTIONS.get(redirection, (None, None))
    done = shell(f"{RUN} --rounds 2 {redirection}")

    assert 2 == len(records_of(tmp_path / "out.jsonl")), done.stderr
    assert code in (None, done.returncode)
    assert "Traceback" not in done.stderr
    if "2>" not in redirection and redirection != "| head -1":
        assert LOST in done.stderr, done.stderr
        assert 1 == len(done.stderr.splitlines())


@pytest.mark.parametrize("redirection", of_lane(REDIRECTIONS))
def test_bad_input_is_bad_input_whatever_happens_to_its_output(shell, redirection):
    done = shell(f"show none.jsonl {redirection}")

    assert 64 == done.returncode
    assert ("2>" in redirection) == ("none.jsonl does not exist" not in done.stderr)


def test_without_standard_error_messages_do_not_get_into_the_output(shell, two_files, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(path.read_bytes()[:-300])  # reading it gives a warning
    done = shell("show a.jsonl --json 2>&-")

    assert 0 == done.returncode
    assert 1 == len(json.loads(done.stdout)["cases"])


def test_a_file_that_is_opened_does_not_become_standard_output(shell, tmp_path):
    """Whatever is opened first would get the number of the closed stream, and everything printed."""
    done = shell(f"{RUN} <&- >&- 2>&-")

    assert 141 == done.returncode
    assert 1 == len(records_of(tmp_path / "out.jsonl"))


@pytest.mark.usefixtures("two_files")
def test_a_pipe_that_does_not_block_gets_everything(tmp_path):
    """Other programs that share the pipe may have made it so."""
    reader, writer = os.pipe()
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    process = subprocess.Popen(
        [sys.executable, "-m", "deepbench", "list", "deepbench/train"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    with open(reader, "rb") as file:
        lines = file.read().splitlines()
    _, errors = process.communicate(timeout=60)

    assert (0, b"") == (process.returncode, errors)
    assert len(lines) > 600


@pytest.mark.parametrize(
    ("line", "form"),
    [("show c.jsonl", "--json"), ("compare c.jsonl d.jsonl", "--csv"), ("published show V100", "--markdown")],
)
@pytest.mark.usefixtures("two_files")
def test_programs_get_utf8_whatever_the_terminal_shows(shell, tmp_path, line, form):
    record = samples.measured(text=TEXT)
    record["library"]["version"] = "1.0 µ"
    samples.write(tmp_path / "c.jsonl", [record], samples.header([TEXT]))
    header = samples.header([TEXT])
    header["machine"]["cpu"] = "µ"
    samples.write(tmp_path / "d.jsonl", [record], header)

    ascii_only = shell(f"{line} {form}", PYTHONIOENCODING="ascii")
    utf8 = shell(f"{line} {form}", PYTHONIOENCODING="utf-8")
    assert ascii_only.stdout == utf8.stdout
    assert not utf8.stdout.isascii() or line.startswith("published"), line
    assert "\N{REPLACEMENT CHARACTER}" not in utf8.stdout


def test_print_for_programs_takes_any_text(monkeypatch):
    from deepbench.cli.streams import print_for_programs

    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    print_for_programs("µ \udcff")

    assert "µ \N{REPLACEMENT CHARACTER}".encode() == stream.buffer.getvalue()
