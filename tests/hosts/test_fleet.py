"""Fleets whose hosts are processes of this machine: results, missing hosts, failing hosts, slow hosts."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import NO_LIBRARIES, ROOT, lines_of
from tests.hosts.lab import Lab, missing

pytestmark = pytest.mark.hosts

CASE = "gemm m=33 n=17 k=9 i8 null threads=1"

# Replaces ssh: every host is this machine, except one that does not answer.
SHELL = """#!/bin/sh
host=$1; shift
[ "$host" = absent ] && { echo no such host >&2; exit 255; }
export DEEPBENCH_TEST_HOST=$host
exec sh -c "$*"
"""


@pytest.fixture(scope="session")
def plugins(tmp_path_factory):
    """A folder of plug-ins with one library."""
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "backends").mkdir()
    text = "from tests.help.liars import Honest\nclass Own(Honest):\n    name = title = 'honest'\nBACKEND = Own()\n"
    (folder / "backends" / "honest.py").write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{text}")
    return folder


@pytest.fixture
def fleet(deepbench, tmp_path, plugins):
    """Run `deepbench fleet` on hosts with these names."""

    def run(hosts, *words, shell=SHELL, **environment):
        (tmp_path / "shell").write_text(shell)
        (tmp_path / "shell").chmod(0o700)
        (tmp_path / "hosts").write_text("".join(f"{h}\n" for h in hosts))
        known = {"DEEPBENCH_REMOTE_SHELL": str(tmp_path / "shell"), "DEEPBENCH_PLUGINS": str(plugins), **NO_LIBRARIES}
        words = ("fleet", *words, "--hostfile", "hosts", "--links", "none", "-o", "fleet.jsonl")
        done = deepbench(*words, **known, **environment)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


def test_equal_hosts_write_one_file_that_show_reads(fleet, deepbench, tmp_path):
    done = fleet(["a", "b"], CASE, "--quick", "--runs", "2")

    assert 2 == done.returncode, done.stdout + done.stderr
    assert "• undecided: none of the 2 hosts can be compared" in done.stdout  # `null` computes nothing
    header, *results = lines_of(tmp_path / "fleet.jsonl")
    assert "deepbench-fleet/1" == header["schema"]
    assert {("a", 1, "ok"), ("b", 1, "ok"), ("a", 2, "ok"), ("b", 2, "ok")} == {
        (r["host"], r["run"], r["status"]) for r in results
    }
    shown = deepbench("show", "fleet.jsonl")
    assert done.stdout.split("•")[1].split("fleet.jsonl")[0].strip() in shown.stdout
    content = json.loads(deepbench("show", "fleet.jsonl", "--json").stdout)
    assert ["a", "b"] == [row["host"] for row in content["hosts"]]
    one = deepbench("show", "fleet.jsonl", "--host", "b")
    assert "33×17×9" in one.stdout or "33 × 17 × 9" in one.stdout, one.stdout
    assert 64 == deepbench("show", "fleet.jsonl", "--host", "c").returncode


def test_hosts_are_reached_by_a_line_of_the_user(deepbench, tmp_path, plugins):
    """Its program gets the command as words, without PATH, and none of our variables among them."""
    script = f'#!/bin/sh\necho "$*" >> {tmp_path}/lines\nshift 2\nunset PATH\nexec "$@"\n'
    (tmp_path / "tool").write_text(script)
    (tmp_path / "tool").chmod(0o700)
    known = {"DEEPBENCH_PLUGINS": str(plugins), "OMP_WAIT_POLICY": "a-secret-value", **NO_LIBRARIES}
    words = ("--through", f"{tmp_path}/tool -w={{host}} --", "--hosts", "n1,n2", "--quick", "--runs", "2")
    done = deepbench("fleet", CASE.replace("null", "honest"), *words, "-o", "fleet.jsonl", **known)

    assert 2 == done.returncode, done.stdout + done.stderr  # two runs can find no slow host
    header, *results = lines_of(tmp_path / "fleet.jsonl")
    assert ("own", ["n1", "n2"], None) == (header["through"], header["expected"], header["links"])
    assert ["ok"] * 4 == [r["status"] for r in results]
    assert [None, True] == [r["lines"][0]["plan"].get("no_limits") for r in results if r["host"] == "n1"]
    lines = (tmp_path / "lines").read_text().splitlines()
    begins = [line.partition(" PYTHONPATH")[0] for line in lines]
    assert ["-w=n1 -- /usr/bin/env"] * 2 + ["-w=n2 -- /usr/bin/env"] * 2 == sorted(begins)
    assert "a-secret-value" not in str(lines)


STATUSES = {"a": "ok", "absent": "missing", "b": "ok"}


def test_a_missing_host_is_reported_first(fleet, tmp_path):
    done = fleet(["a", "absent", "b"], CASE, "--quick", "--runs", "2")

    assert 1 == done.returncode
    reason = "the connection ended without a result, exit code 255, last output: no such host"
    assert f"• absent returned no result: run 2: {reason}" in done.stdout
    results = [(r["host"], r["run"], r["status"]) for r in lines_of(tmp_path / "fleet.jsonl")[1:]]
    expected = [(host, run, status) for run in (1, 2) for host, status in STATUSES.items()]
    assert expected == sorted(results, key=lambda result: (result[1], result[0]))


def test_a_failing_host_is_reported_with_its_error_message(fleet, tmp_path):
    """It lacks a library that the other host has."""
    begin, _, run = SHELL.rpartition("exec")
    without = 'unset DEEPBENCH_PLUGINS; sed -u s/DEEPBENCH_PLUGINS/NO_PLUGINS/ | sh -c "$*"\n'
    shell = f'{begin}[ "$host" = a ] && exec{run}{without}'
    done = fleet(["a", "b"], CASE.replace("null", "honest"), "--quick", "--runs", "1", shell=shell)

    assert 1 == done.returncode, done.stdout + done.stderr
    assert "• b returned no result: run 1: deepbench: unknown suite, operation or file 'honest'" in done.stdout, (
        done.stdout
    )


def test_the_others_finish_when_a_host_is_lost(fleet, tmp_path):
    """What serves it there is killed as soon as it measures. The host is asked again in the next run."""
    import threading

    def kill():
        end = time.monotonic() + 60
        while time.monotonic() < end:
            for path in Path("/proc").glob("[0-9]*/environ"):
                try:
                    variables = path.read_bytes()
                    words = path.with_name("cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                on_host_b = b"DEEPBENCH_TEST_HOST=b\0" in variables and str(tmp_path).encode() in variables
                if on_host_b and b"deepbench" in words and b"run" in words:  # its parent is the far end
                    stat = path.with_name("stat").read_text().rpartition(")")[2].split()
                    os.kill(int(stat[1]), signal.SIGKILL)
                    return
            time.sleep(0.05)

    killer = threading.Thread(target=kill)
    killer.start()
    done = fleet(["a", "b"], CASE, "--quick", "--runs", "3")
    killer.join()

    assert 1 == done.returncode, done.stdout + done.stderr
    results = {(r["host"], r["run"]): r for r in lines_of(tmp_path / "fleet.jsonl")[1:]}
    assert ["ok"] * 3 == [results["a", run]["status"] for run in (1, 2, 3)]
    assert ["failed", "ok", "ok"] == [results["b", run]["status"] for run in (1, 2, 3)]
    reason = results["b", 1]["reason"]
    assert reason.startswith("the connection ended without a result, ")
    assert f"• b failed in some runs: run 1: {reason}" in done.stdout


@pytest.mark.long
def test_a_host_with_four_fifths_of_a_core_is_reported_as_slow():
    """Three hosts take turns on this machine; a control group limits one. (benchmarks/fleet.py: nine tenths.)"""
    if reason := missing():
        pytest.skip(reason)
    try:
        lab = Lab(3, None, {"h1": 0.8})
    except OSError as error:
        pytest.skip(f"control groups of this machine do not allow to limit CPUs: {error}")
    with lab:
        case = "gemm m=1024 n=1024 k=1024 f32 openblas threads=1"
        words = ["fleet", case, "--hostfile", "hosts", "--one-by-one", "--links", "none", "-o", "fleet.jsonl"]
        process = lab.start([sys.executable, "-m", "deepbench", *words], PYTHONPATH=str(ROOT))
        text = process.communicate(timeout=900)[0]

    assert f"• {lab.address('h1')} is slow: 1." in text, text
    assert 1 == process.returncode
    assert f"{lab.address('h0')} is slow" not in text
