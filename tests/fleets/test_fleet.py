"""The near end of a fleet: what it makes of what hosts send. Their remote shell is a script."""

import json
import time

import pytest

from deepbench.fleets import session as fleet

pytestmark = pytest.mark.programs

HEADER_ONLY = json.dumps({"lines": "", "exit_code": 64, "last_output": "deepbench: unknown\x1b suite"})


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """The results of hosts whose remote shell runs this script; the name of the host is $1."""

    def run(script, *hosts, wait_s=20.0):
        (tmp_path / "shell").write_text(f"#!/bin/sh\nread request\n{script}\n")
        (tmp_path / "shell").chmod(0o700)
        monkeypatch.setenv("DEEPBENCH_REMOTE_SHELL", str(tmp_path / "shell"))
        addresses = {host: host for host in hosts or ("a",)}
        return [(r.host, r.status, r.reason) for r in fleet.run_once(addresses, 1, ["words"], wait_s)]

    return run


WITHOUT = "the connection ended without a result"
START = """echo '{"started": true}';"""


@pytest.mark.parametrize(
    ("script", "status", "reason"),
    [
        ("exit 3", "missing", f"{WITHOUT}, exit code 3"),
        (
            "echo 'ssh: no such \033host' >&2; exit 255",
            "missing",
            f"{WITHOUT}, exit code 255, last output: ssh: no such \N{REPLACEMENT CHARACTER}host",
        ),
        (f"{START} kill -9 $$", "failed", f"{WITHOUT}, killed by SIGKILL"),
        (f"{START} printf oops", "failed", f"{WITHOUT}, exit code 0, last output: oops"),
        (
            f"{START} echo '[1]'; echo '{{\"lines\": 7}}'",
            "failed",
            f"{WITHOUT}, exit code 0, last output: [1]",
        ),
        (f"{START} echo '{HEADER_ONLY}'", "failed", "deepbench: unknown\N{REPLACEMENT CHARACTER} suite"),
        (
            f"""{START} printf '%s\\n' '{{"lines": "[]\\n", "exit_code": 0}}'""",
            "failed",
            "it returned no result file: data must be object",
        ),
        (f"""{START} echo '{{"lines": "", "exit_code": [0]}}'""", "failed", "exit code [0]"),
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
    monkeypatch.setattr(fleet, "LOST_S", 1.0)
    signs = f"{START} for i in 1 2 3 4; do sleep 0.5; echo; done; exec sleep 1000"
    start = time.monotonic()

    assert [("a", "failed", "no sign of life for 1 s")] == ask(signs)
    assert 2.5 < time.monotonic() - start < 15  # every sign has counted


@pytest.mark.parametrize("script", ["exec yes", "exec cat /dev/zero", f"{START} exec yes"])
def test_a_host_that_sends_without_end_is_cut_off(ask, monkeypatch, script):
    monkeypatch.setattr(fleet, "LARGEST_FILE_BYTES", 2**19)

    assert [("a", "failed", "it sent more than 524288 bytes")] == ask(script)


def test_a_remote_shell_that_is_missing_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPBENCH_REMOTE_SHELL", str(tmp_path / "none"))
    (result,) = fleet.run_once({"a": "a"}, 1, ["words"], 20.0)

    reason = f"cannot start {tmp_path}/none: No such file or directory"
    assert ("missing", f"{reason}; check that this program exists and runs") == (result.status, result.reason)


def test_what_a_shell_prints_before_is_no_result(ask):
    words = (
        f"""printf 'welcome to {{"lines"'; echo; {START} echo '{{"other": 1}}'; echo '{HEADER_ONLY}'; exec sleep 1000"""
    )
    start = time.monotonic()

    assert [("a", "failed", "deepbench: unknown\N{REPLACEMENT CHARACTER} suite")] == ask(words)
    assert time.monotonic() - start < 10  # nobody waits for the end after the result


def test_a_missing_host_is_asked_once_and_reported_in_every_run(tmp_path, monkeypatch):
    (tmp_path / "shell").write_text(f"#!/bin/sh\necho $1 >> {tmp_path}/asked; exit 3\n")
    (tmp_path / "shell").chmod(0o700)
    monkeypatch.setenv("DEEPBENCH_REMOTE_SHELL", str(tmp_path / "shell"))
    monkeypatch.setattr(fleet, "judge", lambda file: None)
    session = fleet.FleetSession(
        tmp_path / "fleet.jsonl",
        {"a": "10.0.0.1", "b": "10.0.0.2"},
        ["words"],
        links="none",
        one_by_one=True,
        wait_s=20.0,
    )
    steps = [step.text for step in session.measure(5)]
    session.close()

    assert ["run 1  a missing", "run 1  b missing"] == sorted(steps)  # no host is left
    assert ["10.0.0.1", "10.0.0.2"] == sorted((tmp_path / "asked").read_text().split())
