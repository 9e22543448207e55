"""The near end of a fleet: what it makes of what hosts send, and how connections end. Their carrier is a script."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from deepbench.core.errors import BadInput
from deepbench.fleets import asking
from deepbench.fleets.asking import Reach
from deepbench.measuring import launch
from deepbench.measuring.carriers import Carrier
from tests.conftest import ROOT

pytestmark = pytest.mark.programs

REPLACED = "\N{REPLACEMENT CHARACTER}"
HEADER_ONLY = json.dumps({"lines": "", "exit_code": 64, "last_output": "deepbench: unknown\x1b suite"})


@pytest.fixture
def reach_of(tmp_path):
    """How hosts are reached whose carrier is this script; the name of the host is $1."""

    def make(script, **options):
        (tmp_path / "carrier").write_text(f"#!/bin/sh\nread request\n{script}\n")
        (tmp_path / "carrier").chmod(0o700)
        return Reach(Carrier("own", (str(tmp_path / "carrier"), "{host}"), uses_shell=True), **options)

    return make


@pytest.fixture
def ask(reach_of, monkeypatch):
    """The results of hosts whose carrier is this script."""
    monkeypatch.setattr(asking, "STEP_S", 0.3)

    def run(script, *hosts, wait_s=20.0, fanout=64):
        addresses = {host: host for host in hosts or ("a",)}
        results = asking.run_once(addresses, 1, ["words"], reach_of(script, wait_s=wait_s, fanout=fanout))
        return [(r.host, r.status, r.reason) for r in results]

    return run


WITHOUT = "the connection ended without a result"
START = """echo '{"started": true}';"""
DONE = f"echo '{HEADER_ONLY}'"
FAILED = f"deepbench: unknown{REPLACED} suite"


@pytest.mark.parametrize(
    ("script", "status", "reason"),
    [
        ("exit 3", "missing", f"{WITHOUT}, exit code 3"),
        (
            "echo 'ssh: no such \033host' >&2; exit 255",
            "missing",
            f"{WITHOUT}, exit code 255, last output: ssh: no such {REPLACED}host",
        ),
        (f"{START} kill -9 $$", "failed", f"{WITHOUT}, killed by SIGKILL"),
        (f"{START} printf oops", "failed", f"{WITHOUT}, exit code 0, last output: oops"),
        (
            f"{START} echo '[1]'; echo '{{\"lines\": 7}}'",
            "failed",
            f"{WITHOUT}, exit code 0, last output: [1]",
        ),
        (f"{START} {DONE}", "failed", FAILED),
        (
            f"""{START} printf '%s\\n' '{{"lines": "[]\\n", "exit_code": 0}}'""",
            "failed",
            "it returned no result file: data must be object",
        ),
        (f"""{START} echo '{{"lines": "", "exit_code": [0]}}'""", "failed", "exit code [0]"),
        (
            f"""{START} printf '{{"lines": "half a'""",
            "failed",
            f'{WITHOUT}, exit code 0, last output: {{"lines": "half a',
        ),
        (f"""{START} printf '\\200\\377\\n'""", "failed", f"{WITHOUT}, exit code 0, last output: {REPLACED * 2}"),
    ],
)
def test_a_host_without_a_result_is_reported_with_the_reason(ask, script, status, reason):
    assert [("a", status, reason)] == ask(script)


def test_a_silent_host_is_missing_and_the_others_go_on(ask):
    start = time.monotonic()
    results = ask("[ $1 = a ] || exit 1; exec sleep 1000", "a", "b", wait_s=1.0)

    assert ("b", "missing", f"{WITHOUT}, exit code 1") == results[0]
    assert ("a", "missing", "no sign of life for 1 s") == results[1]
    assert time.monotonic() - start < 10


def test_a_host_that_falls_silent_is_lost(ask, monkeypatch):
    monkeypatch.setattr(asking, "LOST_S", 1.0)
    signs = f"{START} for i in 1 2 3 4; do sleep 0.5; echo; done; exec sleep 1000"
    start = time.monotonic()

    assert [("a", "failed", "no sign of life for 1 s")] == ask(signs)
    assert 2.5 < time.monotonic() - start < 15  # every sign has counted


def test_hosts_get_signs_of_life_after_their_request(ask, monkeypatch):
    monkeypatch.setattr(asking, "SIGN_S", 0.2)

    assert [("a", "failed", FAILED)] == ask(f"{START} read sign && read sign && {DONE}", wait_s=10.0)


def test_a_carrier_that_does_not_read_stops_nobody(ask, monkeypatch):
    """The request is longer than what a pipe takes."""
    monkeypatch.setattr(launch, "on_host", _longer(launch.on_host))
    start = time.monotonic()

    assert [(host, "failed", FAILED) for host in "ab"] == sorted(ask(f"{START} {DONE}; exec sleep 1000", "a", "b"))
    assert time.monotonic() - start < 10


def _longer(on_host):
    def longer(*arguments, **options):
        words, request = on_host(*arguments, **options)
        return words, request + b"x" * 2**20

    return longer


@pytest.mark.parametrize("script", ["exec yes", "exec cat /dev/zero", f"{START} exec yes"])
def test_a_host_that_sends_without_end_is_cut_off(ask, monkeypatch, script):
    monkeypatch.setattr(asking, "LARGEST_ANSWER_BYTES", 2**19)

    assert [("a", "failed", "it sent more than 524288 bytes")] == ask(script)


def test_a_carrier_that_is_missing_is_reported():
    reach = Reach(Carrier("own", ("/no/such/carrier", "{host}")), wait_s=20.0)
    (result,) = asking.run_once({"a": "a"}, 1, ["words"], reach)

    reason = "cannot start /no/such/carrier: No such file or directory"
    assert ("missing", f"{reason}; check that this program exists and runs") == (result.status, result.reason)


def test_what_a_shell_prints_before_is_no_result(ask):
    words = f"""printf 'welcome to {{"lines"'; echo; {START} echo '{{"other": 1}}'; {DONE}; exec sleep 1000"""
    start = time.monotonic()

    assert [("a", "failed", FAILED)] == ask(words)
    assert time.monotonic() - start < 10  # nobody waits for the end after the result


def test_a_window_of_hosts_is_asked_at_the_same_time(ask, tmp_path):
    """A host leaves the window when its carrier has ended."""
    count = f"echo $(ls {tmp_path}/running) >> {tmp_path}/seen"
    script = f"touch {tmp_path}/running/$1; {count}; sleep 0.2; rm {tmp_path}/running/$1; {START} {DONE}"
    (tmp_path / "running").mkdir()
    hosts = [f"h{i}" for i in range(7)]

    assert sorted(hosts) == sorted(host for host, _, _ in ask(script, *hosts, fanout=3))
    seen = [line.split() for line in (tmp_path / "seen").read_text().splitlines()]
    assert 2 <= max(map(len, seen)) <= 3


@pytest.mark.parametrize(
    ("script", "ending"),
    [
        ("cat > /dev/null; echo input > {mark}", "input"),
        ("trap 'echo SIGTERM > {mark}; exit 0' TERM; while :; do sleep 0.05; done", "SIGTERM"),
        ("trap '' TERM; echo SIGKILL > {mark}; exec sleep 1000", "SIGKILL"),
    ],
)
def test_a_connection_ends_in_steps(ask, tmp_path, script, ending):
    """The end of the input, then SIGTERM, because a carrier that is killed tells nobody; then SIGKILL."""
    start = time.monotonic()

    assert [("a", "missing", "no sign of life for 1 s")] == ask(script.format(mark=tmp_path / "mark"), wait_s=1.0)
    assert f"{ending}\n" == (tmp_path / "mark").read_text()
    assert time.monotonic() - start < 10


NEAR_END = """
import sys
from deepbench.fleets import asking
from deepbench.measuring.carriers import Carrier
asking.SIGN_S = 0.2
reach = asking.Reach(Carrier("own", (sys.argv[1], "{host}"), uses_shell=True))
for result in asking.run_once({"a": "a"}, 1, ["words"], reach):
    print(result.reason)
"""


def test_a_host_that_gave_up_while_this_process_was_stopped_is_asked_again(reach_of, tmp_path):
    """It heard nothing, as if this process had ended."""
    again = f"[ -e {tmp_path}/asked ] && {{ {START} {DONE}; exit; }}"
    first = f"echo > {tmp_path}/asked; {START} sleep 3; exit 1"
    carrier = reach_of(f"{again}; {first}").carrier.words[0]
    near_end = subprocess.Popen(
        [sys.executable, "-c", NEAR_END, carrier], env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE
    )
    try:
        end = time.monotonic() + 20
        while not (tmp_path / "asked").exists():
            assert time.monotonic() < end
            time.sleep(0.02)
        time.sleep(0.3)
        near_end.send_signal(signal.SIGSTOP)
        time.sleep(4.0)
        near_end.send_signal(signal.SIGCONT)
        assert f"{FAILED}\n" == near_end.communicate(timeout=20)[0].decode()
    finally:
        near_end.kill()
        near_end.wait()


def test_too_many_open_files_are_refused_before_any_host_is_asked(monkeypatch):
    monkeypatch.setattr(asking.resource, "getrlimit", lambda _: (1024, 4096))
    reach = Reach(Carrier("own", ("true", "{host}")), fanout=1000)
    asking.require_files(300, reach)

    wanted = r"1000 hosts at the same time need 3040 open files, and the limit is 1024; raise it \(ulimit -n 3040\), or"
    with pytest.raises(BadInput, match=wanted):
        asking.require_files(5000, reach)


def test_a_python_of_the_hosts_gets_no_paths_of_this_one(monkeypatch, tmp_path):
    """Else it would load the package of another machine."""
    monkeypatch.setenv("PYTHONHOME", "/here")
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "carrier").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\ncat > {tmp_path}/request\n')
    (tmp_path / "carrier").chmod(0o700)
    reach = Reach(Carrier("own", (str(tmp_path / "carrier"), "{host}")), python="/opt/python3")
    list(asking.run_once({"a": "a"}, 1, ["words"], Reach(reach.carrier, reach.python, wait_s=1.0)))
    request = json.loads((tmp_path / "request").read_text().splitlines()[0])

    assert "a /usr/bin/env /opt/python3 -P -m deepbench.measuring.remote\n" == (tmp_path / "words").read_text()
    assert ["/opt/python3", "-P", "-m", "deepbench", "run", "words", "-o"] == request["command"]
    assert set() == {"PYTHONHOME", "PYTHONPATH"} & request["environment"].keys()
