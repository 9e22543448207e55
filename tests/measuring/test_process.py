"""Processes: how they are ended, and how their end is described."""

import errno
import os
import resource
import subprocess
import sys
import tempfile
import time

import pytest

from deepbench.core.case import parse_case
from deepbench.measuring import process
from deepbench.measuring.heat import measure_case
from deepbench.measuring.parent import open_backends
from deepbench.plan.modes import QUICK

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("code", "text"), [(0, "exit code 0"), (7, "exit code 7"), (-9, "killed by SIGKILL"), (-35, "killed by signal 35")]
)
def test_an_exit_status_in_words(code, text):
    assert text == process.exit_status(code)


def test_everything_that_a_process_started_ends_with_it(tmp_path):
    """Also where the process itself has ended before."""
    pids = tmp_path / "pids"
    command = ["sh", "-c", f"sleep 1000 & echo $! > {pids}.new; mv {pids}.new {pids}; exit 3"]
    with tempfile.TemporaryFile() as output:
        child = process.start(command, os.environ, output)
        assert 3 == child.wait(10)
        process.end([child])

    end = time.monotonic() + 10
    while _runs(int(pids.read_text())):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_process_gets_time_to_end_by_itself():
    with tempfile.TemporaryFile() as output:
        children = [process.start(["sh", "-c", f"sleep {s}; exit 5"], os.environ, output) for s in (0.1, 1000)]
        start = time.monotonic()
        process.end(children, grace_s=1.0)

    assert [5, -9] == [child.returncode for child in children]
    assert 0.9 < time.monotonic() - start < 10


def test_a_process_that_does_not_end_by_itself_gets_sigterm_before_it_is_killed():
    ready = "echo ready; while :; do sleep 0.05; done"
    scripts = (f"trap 'exit 5' TERM; {ready}", f"trap '' TERM; {ready}")
    children = [process.start(["sh", "-c", script], os.environ, subprocess.PIPE) for script in scripts]
    for child in children:
        assert b"ready\n" == child.stdout.readline()
    process.end(children, term_s=1.0)

    assert [5, -9] == [child.returncode for child in children]


def test_the_last_line_of_the_output_is_quoted_without_control_characters():
    with tempfile.TemporaryFile() as output:
        assert "" == process.last_output(output)
        code = "print('x' * 5000); print('\\x1b[31mno such host'); print()"
        process.start([sys.executable, "-c", code], os.environ, output).wait(10)

        assert ", last output: \N{REPLACEMENT CHARACTER}[31mno such host" == process.last_output(output)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "lets this user start no further process"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "free some memory"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), "check that this program exists"),
    ],
)
def test_a_process_that_the_system_does_not_start_is_a_reason(monkeypatch, error, words):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(process.subprocess, "Popen", refuse)
    for case in ("gemm m=3 n=4 k=5 forward i8 null threads=1", "all_reduce n=10 ranks=2 forward f32 mpich threads=1"):
        record = measure_case(parse_case(case), 1, QUICK.rules, 30.0)
        assert "unavailable" == record["status"]
        if "null" in case:
            assert words in record["reason"]
    answers = open_backends(["null", "reference"], 30.0)
    for answer in answers.values():
        assert words in f"{answer['unavailable']['reason']}; {answer['unavailable']['remedy']}"


def test_libraries_wait_for_each_other_where_the_system_allows_few_processes(monkeypatch):
    running, popen = [], subprocess.Popen

    def refuse_a_second(*words, **options):
        if any(child.poll() is None for child in running):
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        running.append(popen(*words, **options))
        return running[-1]

    monkeypatch.setattr(process.subprocess, "Popen", refuse_a_second)
    answers = open_backends(["null", "reference", "null"], 60.0)

    assert ["null", "reference"] == list(answers)
    assert all("library" in answer for answer in answers.values()), answers


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("OpenBLAS error: Memory allocation still failed after 10 retries, giving up.", "out_of_memory"),
        ("terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc", "out_of_memory"),
        ("libgomp: could not create thread pool: Cannot allocate memory\nexiting", "out_of_memory"),
        ("segmentation fault", "crashed"),
        ("", "crashed"),
    ],
)
def test_a_failed_allocation_is_recognized_by_what_the_library_prints(text, status):
    with tempfile.TemporaryFile() as output:
        output.write(text.encode())
        ending = process.failure("exit code 1", output)

    assert status == ending.status
    assert ending.reason.startswith("exit code 1")


@pytest.mark.parametrize("length", [7, 300_000])
def test_the_standard_input_ends_only_with_the_parent_or_at_the_end(length):
    """It may be longer than a pipe usually holds, and no other child keeps it open."""
    with tempfile.TemporaryFile() as output:
        start = time.monotonic()
        idle = process.start(["sleep", "1000"], os.environ, output, request=b"x" * length)
        reader = process.start(["sh", "-c", "wc -c; exit 5"], os.environ, output, request=b"x" * length)
        other = process.start(["sleep", "1000"], os.environ, output)
        assert time.monotonic() - start < 10
        assert reader.poll() is None
        process.end([reader, idle], grace_s=1.0)

        assert (5, f", last output: {length}") == (reader.returncode, process.last_output(output))
        process.end([other])


def test_a_command_that_ends_without_reading_its_standard_input_is_no_error():
    with tempfile.TemporaryFile() as output:
        child = process.start(["true"], os.environ, output, request=b"x" * 300_000)
        process.end([child], grace_s=10.0)

    assert 0 == child.returncode


def _runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_large_file_can_be_written_in_between(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            (tmp_path / "a").write_bytes(bytes(100))
        with process.unlimited_files():
            (tmp_path / "b").write_bytes(bytes(100))
        with pytest.raises(OSError, match="File too large"):
            (tmp_path / "c").write_bytes(bytes(100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
