"""Commands on other hosts: who can read what they get, who can connect to them, and how they end.

Hosts are processes of this machine: a program replaces ssh and runs the command here.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deepbench.measuring import launch, remote
from tests.conftest import NO_LIBRARIES, ROOT, records_of

pytestmark = pytest.mark.process

SHELL = '#!/bin/sh\nshift; exec sh -c "$*"\n'


def eventually(condition, most_s=60.0):
    """The first value of `condition()` that is true; fails after some time."""
    end = time.monotonic() + most_s
    while not (value := condition()):
        assert time.monotonic() < end, "timeout"
        time.sleep(0.05)
    return value


def processes_with(mark):
    """Process numbers and command lines of the processes with this text in their environment."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (path / "environ").read_bytes():
                found[int(path.name)] = (path / "cmdline").read_bytes()
        except OSError:
            continue
    return found


def is_stopped(pid):
    try:
        return ") T " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def listening(pids):
    """The sockets on which these processes wait for connections."""
    sockets = set()
    for pid in pids:
        try:
            links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        sockets |= {link.removeprefix("socket:[").rstrip("]") for link in links if link.startswith("socket:")}
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return {row[9] for row in rows if row[3] == "0A"} & sockets


@pytest.fixture
def start(tmp_path, plugins):
    """Start a command whose hosts are processes of this machine; all of them have `mark` in their environment."""
    (tmp_path / "shell").write_text(SHELL)
    (tmp_path / "shell").chmod(0o700)
    (tmp_path / "hosts").write_text("127.0.0.1\n127.0.0.2\n")
    started = []

    def run(*words, **options):
        known = {"PYTHONPATH": str(ROOT), "DEEPBENCH_PLUGINS": str(plugins), "OMP_WAIT_POLICY": "a-secret-value"}
        known |= {"DEEPBENCH_REMOTE_SHELL": str(tmp_path / "shell"), "DEEPBENCH_TEST_MARK": str(tmp_path)}
        command = [sys.executable, "-m", "deepbench", *words, "--hostfile", "hosts", "-o", "out.jsonl"]
        environment = {**os.environ, **NO_LIBRARIES, **known, **options}
        log = open(tmp_path / "log", "wb")  # noqa: SIM115
        started.append(subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log))
        log.close()
        return started[-1]

    run.mark = f"DEEPBENCH_TEST_MARK={tmp_path}\0".encode()
    yield run
    for process in started:
        process.kill()
        process.wait()
    for pid in processes_with(run.mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


FLEET = ("fleet", "gemm m=33 n=17 k=9 i8 hanger threads=1", "--links", "none")
GROUP = ("run", "all_reduce n=40 ranks=2 f32 groupstopper", "--rounds", "1")


@pytest.mark.parametrize(
    ("words", "module", "how"),
    [
        (FLEET, b"deepbench.measuring.worker", signal.SIGKILL),
        (GROUP, b"measuring.group.rank", signal.SIGKILL),
        (GROUP, b"measuring.group.rank", signal.SIGINT),
        pytest.param(FLEET, b"deepbench.measuring.worker", signal.SIGHUP, marks=pytest.mark.long),
        pytest.param(FLEET, b"deepbench.measuring.worker", signal.SIGINT, marks=pytest.mark.long),
        pytest.param(GROUP, b"measuring.group.rank", signal.SIGHUP, marks=pytest.mark.long),
    ],
)
def test_everything_on_all_hosts_ends_with_the_command(start, words, module, how):
    """Also stopped processes, and those that a library has started."""
    command = start(*words)

    def are_busy():
        found = processes_with(start.mark)
        busy = [pid for pid, line in found.items() if module in line]
        children = [line for line in found.values() if line.startswith(b"sleep\0")]
        return len(busy) >= 2 and (len(children) == 2 if words == FLEET else any(map(is_stopped, busy)))

    eventually(are_busy)
    command.send_signal(how)
    command.wait(20)
    eventually(lambda: not processes_with(start.mark), 10.0)


@pytest.mark.long
def test_everything_ends_although_the_carrier_keeps_the_input_open(start, tmp_path):
    """As srun and kubectl may do; with `kill -9` of the command."""
    (tmp_path / "shell").write_text('#!/bin/sh\nshift; { cat; sleep 1000; } | sh -c "$*"\n')
    command = start(*FLEET)
    eventually(lambda: sum(line.startswith(b"sleep\0") for line in processes_with(start.mark).values()) == 2)
    command.kill()
    command.wait(20)

    def far_ends_are_gone():
        return not [line for line in processes_with(start.mark).values() if b"-m\0deepbench" in line]

    eventually(far_ends_are_gone, 20.0)


def test_nobody_can_connect_to_a_fleet_or_read_its_variables(start):
    start(*FLEET)
    eventually(lambda: sum(line.startswith(b"sleep\0") for line in processes_with(start.mark).values()) == 2)
    found = processes_with(start.mark)

    assert set() == listening(found)
    assert [] == [line for line in found.values() if b"a-secret-value" in line]


def test_nobody_can_read_the_variables_of_ranks_on_hosts(start):
    start(*GROUP)

    def ranks():
        found = [pid for pid, line in processes_with(start.mark).items() if b"measuring.group.rank" in line]
        return found if len(found) >= 2 else None

    environment = Path(f"/proc/{eventually(ranks)[0]}/environ").read_bytes().split(b"\0")
    (place,) = (value for value in environment if value.startswith(b"DEEPBENCH_COORDINATOR="))
    token = place.rpartition(b":")[2]

    assert len(token) >= 16
    assert [] == [line for line in processes_with(start.mark).values() if token in line or b"a-secret-value" in line]


def test_ranks_start_through_a_command_with_a_place_for_the_host(start, tmp_path):
    command = start(
        *("run", "all_reduce n=40 ranks=2 f32 grouphonest", "--rounds", "1"),
        DEEPBENCH_REMOTE_SHELL=f"{tmp_path}/shell {{host}}",
    )

    assert 0 == command.wait(60), (tmp_path / "log").read_text()
    assert ["ok"] == [r["status"] for r in records_of(tmp_path / "out.jsonl")]


# ---- the far end alone


FAR_END = "from deepbench.measuring import remote; remote.LOST_S = {}; raise SystemExit(remote.main())"


@pytest.fixture
def far_end(tmp_path):
    """Start the far end with a request; its standard input stays open."""
    started = []

    def begin(command, environment=None, returns_file=False, request=None, lost_s=remote.LOST_S):
        near = launch.package_path({**os.environ, "DEEPBENCH_REMOTE_SHELL": "unused", **(environment or {})})
        _, line = launch.on_host("here", near, command, returns_file=returns_file)
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", FAR_END.format(lost_s)],
            env=launch.package_path({**os.environ, "TMPDIR": str(tmp_path)}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        process.stdin.write(line if request is None else request)
        process.stdin.flush()
        return process

    yield begin
    for process in started:
        process.kill()
        with process:  # closes its pipes
            pass


@pytest.mark.parametrize(("script", "code"), [("echo yes; exit 7", 7), ("echo yes; kill -9 $$", 137)])
def test_output_and_exit_code_come_back(far_end, script, code):
    process = far_end(["sh", "-c", script])

    assert b"yes\n" == process.stdout.read()
    assert code == process.wait(20)


def test_a_value_that_is_no_utf_8_arrives_as_it_is(far_end):
    value = os.fsdecode(b"\xffA 'b'")
    process = far_end(["sh", "-c", 'printf %s "$OMP_TEST"'], {"OMP_TEST": value, "HOME_OF_A_SECRET": "x"})

    assert b"\xffA 'b'" == process.stdout.read()


BACKGROUND = "setsid sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; sleep 1000"


@pytest.mark.parametrize("returns_file", [False, True])
def test_the_end_of_standard_input_ends_what_the_command_has_started(far_end, tmp_path, returns_file):
    mark = tmp_path / "pid"
    process = far_end(["sh", "-c", BACKGROUND.format(mark)], returns_file=returns_file)
    eventually(mark.exists)
    process.stdin.close()

    assert 1 == process.wait(20)
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()
    assert [mark] == list(tmp_path.iterdir())  # no temporary file is left


@pytest.mark.parametrize("returns_file", [False, True])
def test_sigterm_ends_the_command_in_order(far_end, tmp_path, returns_file):
    """It gets SIGTERM itself. What it leaves is killed."""
    mark, bye = tmp_path / "pid", tmp_path / "bye"
    background = f"(trap '' TERM; exec sleep 1000) & echo $! > {mark}.new; mv {mark}.new {mark}"
    script = f"trap 'echo > {bye}; exit 0' TERM; {background}; while :; do sleep 0.05; done"
    process = far_end(["sh", "-c", script], returns_file=returns_file)
    eventually(mark.exists)
    process.terminate()

    assert 1 == process.wait(20)
    assert bye.exists()
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()
    assert {mark, bye} == set(tmp_path.iterdir())  # no temporary file is left
    assert "deepbench: ended by SIGTERM\n" == process.stderr.read().decode()


def test_a_command_ends_when_its_near_end_is_silent(far_end, tmp_path):
    """The input is open, as where a carrier does not close it."""
    mark = tmp_path / "pid"
    process = far_end(["sh", "-c", BACKGROUND.format(mark)], returns_file=True, lost_s=2.0)
    for _ in range(3):
        time.sleep(1.0)
        process.stdin.write(b"\n")
        process.stdin.flush()
    assert process.poll() is None
    start = time.monotonic()

    assert 1 == process.wait(20)
    assert 1.5 < time.monotonic() - start < 15
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()
    assert "deepbench: no sign of life of the command that measures for 2 s\n" == process.stderr.read().decode()


def test_a_far_end_that_was_stopped_does_not_blame_the_near_end(far_end, tmp_path):
    """Both may have been stopped."""
    mark = tmp_path / "pid"
    process = far_end(["sh", "-c", BACKGROUND.format(mark)], returns_file=True, lost_s=2.0)
    eventually(mark.exists)
    process.send_signal(signal.SIGSTOP)
    time.sleep(4.0)
    process.send_signal(signal.SIGCONT)
    time.sleep(0.5)

    assert process.poll() is None
    assert 1 == process.wait(20)  # nothing has come since


def test_a_far_end_ends_where_no_request_comes(far_end):
    process = far_end([], request=b"", lost_s=1.0)

    assert -signal.SIGALRM == process.wait(20)


def test_signs_of_life_are_answered(far_end):
    process = far_end(["sh", "-c", "exec sleep 1000"], returns_file=True)
    assert b"\n" == process.stdout.readline()
    assert {"started": True} == json.loads(process.stdout.readline())
    for _ in range(3):
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert b"\n" == process.stdout.readline()


def test_a_command_has_a_path_although_the_launcher_gives_none(far_end, monkeypatch):
    monkeypatch.delenv("PATH")

    assert b"/bin:/usr/bin\n" == far_end(["/bin/sh", "-c", "echo $PATH"]).stdout.read()


def test_a_far_end_that_is_killed_takes_its_command_along(far_end, tmp_path):
    mark = tmp_path / "pid"
    process = far_end(["sh", "-c", f"echo $$ > {mark}.new; mv {mark}.new {mark}; exec sleep 1000"])
    eventually(mark.exists)
    process.kill()

    eventually(lambda: not Path(f"/proc/{mark.read_text().strip()}").exists(), 10.0)


def test_a_file_comes_back_with_signs_of_life_before(far_end):
    script = 'sleep 0.2; echo never shown; echo the last >&2; echo "{}" > "$0"; echo "half a li" >> "$0"; exit 3'
    process = far_end(["sh", "-c", script], returns_file=True)
    messages = [json.loads(line) for line in process.stdout.read().splitlines() if line]

    assert {"started": True} == messages[0]
    assert {"lines": "{}\nhalf a li\n", "exit_code": 3, "last_output": "the last"} == messages[1]
    assert 0 == process.wait(20)


@pytest.mark.parametrize("request_line", [b'{"command": ["echo", "yes"]', b"hello\n", b"[1]\n", b"{}\n"])
def test_a_request_that_is_none_starts_nothing(far_end, request_line):
    process = far_end([], request=request_line)
    output, errors = process.communicate(timeout=20)

    assert (64, b"") == (process.returncode, output)
    found = f"found {len(request_line)} bytes: {request_line[:5].decode().strip()}"
    assert errors.decode().startswith(f"deepbench: expected a request of another host on standard input, {found}")
    assert 1 == len(errors.splitlines())


def test_a_request_without_end_is_refused(far_end):
    process = far_end([], request=b"x" * (remote.LONGEST_REQUEST_BYTES + 1))

    assert 64 == process.wait(20)
