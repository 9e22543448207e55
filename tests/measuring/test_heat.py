"""Rivals of a heat take turns; one that fails leaves, and the others continue."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from deepbench.core import registry
from deepbench.core.case import parse_case
from deepbench.measuring import heat
from deepbench.measuring.heat import Rival, measure_heat
from deepbench.plan.modes import QUICK
from tests.conftest import ROOT

pytestmark = [pytest.mark.programs, pytest.mark.alone]

CASE = "gemm m=33 n=17 k=9 forward f32 {} threads=1"

# A library that writes down when it computes, with a thread that always works: both must rest while a rival runs.
DIARY = """
import os, sys, threading, time
sys.path.insert(0, {root!r})
from tests.help.liars import Honest

class Diary(Honest):
    name = title = {name!r}

    def open(self):
        self.file = open(os.environ["DEEPBENCH_TEST_DIARY"] + {name!r}, "a", buffering=1)
        threading.Thread(target=self.write, daemon=True).start()
        return super().open()

    def write(self):
        while True:
            self.file.write(f"{{time.monotonic():.6f}}\\n")
            time.sleep(0.0002)

BACKEND = Diary()
"""


@pytest.fixture
def rivals_of(plugins, tmp_path, monkeypatch):
    """Measure cases on these fake libraries in one heat."""
    for name in ("diary_a", "diary_b"):
        (plugins / "backends" / f"{name}.py").write_text(DIARY.format(root=str(ROOT), name=name))
    monkeypatch.setenv("DEEPBENCH_PLUGINS", str(plugins))
    monkeypatch.setenv("DEEPBENCH_TEST_DIARY", f"{tmp_path}/")
    registry.registered.cache_clear()
    yield lambda *names, rules=QUICK.rules, timeout_s=20.0: measure_heat(
        [Rival(parse_case(CASE.format(name))) for name in names], 1, rules, timeout_s
    )
    registry.registered.cache_clear()


def test_rivals_run_in_common_slices_and_each_names_the_others(rivals_of):
    records = rivals_of("honest", "printer", "scribbler")

    assert ["ok"] * 3 == [r["status"] for r in records], [r["reason"] for r in records]
    assert 1 == len({r["heat"]["id"] for r in records})
    texts = [r["case"] for r in records]
    assert [[t for t in texts if t != own] for own in texts] == [r["heat"]["rivals"] for r in records]
    counts = [len(set(r["measurement"]["slices"])) for r in records]
    assert min(counts) > 1
    assert all(len(r["measurement"]["slices"]) == len(r["measurement"]["samples_s"]) for r in records)


def test_the_work_of_rivals_is_not_load_of_other_programs(rivals_of):
    """Whoever finishes last must know what those used whose processes have ended. All saw the same other programs."""
    rules = replace(QUICK.rules, least_slices=20, most_s=0.4)
    loads = [r["measurement"]["other_cpus"] for r in rivals_of("honest", "printer", "scribbler", rules=rules)]

    assert max(loads) - min(loads) < 0.4, loads


def test_a_case_alone_is_in_no_heat(rivals_of):
    (record,) = rivals_of("honest")

    assert record["heat"] is None
    assert {0} == set(record["measurement"]["slices"])


def test_a_rival_does_nothing_while_another_one_runs(rivals_of, tmp_path):
    a, b = rivals_of("diary_a", "diary_b")

    assert ("ok", "ok") == (a["status"], b["status"])
    moments = []
    for name in ("diary_a", "diary_b"):
        times = [float(line) for line in (tmp_path / name).read_text().split()]
        moments += [(t, name) for t in times]
    moments.sort()
    changes = sum(one != other for (_, one), (_, other) in pairwise(moments))
    assert changes >= QUICK.rules.least_slices
    # A thread that writes five times per millisecond is silent during the other's slices. Only at their ends may both
    # write within a millisecond.
    both = [
        len({name for t, name in moments[max(0, i - 5) : i + 5] if abs(t - now) < 0.001}) > 1
        for i, (now, _) in enumerate(moments)
    ]
    assert sum(both) <= 10 * changes, "the rivals ran at the same time"
    assert sum(both) < len(both) / 2


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("crasher", "crashed"),
        ("leaver", "crashed"),
        ("lazy", "wrong"),
        ("firstonly", "wrong"),
        ("absent", "unavailable"),
        ("refuser", "unsupported"),
        ("hungry", "out_of_memory"),
        ("hanger", "timeout"),
    ],
)
def test_a_rival_that_fails_leaves_and_the_others_continue(rivals_of, name, status):
    failed, honest, other = rivals_of(name, "honest", "printer", timeout_s=3.0)

    assert (status, "ok", "ok") == (failed["status"], honest["status"], other["status"]), failed["reason"]
    assert honest["heat"]["id"] == other["heat"]["id"]
    assert [other["case"]] == [text for text in honest["heat"]["rivals"] if text != failed["case"]]


def test_the_only_rival_that_is_left_is_measured(rivals_of):
    for names in (("honest", "lazy"), ("lazy", "honest")):
        statuses = {r["backend"]: r["status"] for r in rivals_of(*names, timeout_s=5.0)}

        assert {"honest": "ok", "lazy": "wrong"} == statuses


def test_rivals_that_do_not_fit_together_are_measured_one_after_the_other(rivals_of, monkeypatch):
    monkeypatch.setattr(heat.describe, "memory_available", lambda: int(1.5 * heat.RIVAL_BYTES))
    records = rivals_of("honest", "printer")

    assert ["ok", "ok"] == [r["status"] for r in records]
    assert [None, None] == [r["heat"] for r in records]


def test_more_rivals_than_fit_into_a_heat_are_split(rivals_of, monkeypatch):
    monkeypatch.setattr(heat, "MOST_RIVALS", 2)
    records = rivals_of("honest", "printer", "scribbler")

    assert ["ok"] * 3 == [r["status"] for r in records]
    assert records[0]["heat"]["id"] == records[1]["heat"]["id"]
    assert records[2]["heat"] is None


def test_a_rival_without_memory_next_to_others_is_measured_alone(rivals_of, monkeypatch):
    runs, original = [], heat._Heat.run

    def run(self):
        records = original(self)
        runs.append(len(records))
        if len(records) > 1:
            records[0] = {**records[0], "status": "out_of_memory", "measurement": None}
        return records

    monkeypatch.setattr(heat._Heat, "run", run)
    records = rivals_of("honest", "printer")

    assert ["ok", "ok"] == [r["status"] for r in records]
    assert [2, 1] == runs


def test_no_process_of_a_heat_is_left_or_stopped_after_ctrl_c(tmp_path):
    """SIGINT while rivals take turns."""
    script = (
        "from deepbench.core.case import parse_case\n"
        "from deepbench.measuring.heat import Rival, measure_heat\n"
        "from deepbench.plan.modes import Rules\n"
        f"rivals = [Rival(parse_case({CASE.format('reference')!r}))] * 3\n"
        "measure_heat(rivals, 1, Rules(most_s=60.0, least_slices=5000), 60.0)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DEEPBENCH_TEST_HEAT": str(tmp_path)}
    run = subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=subprocess.PIPE)
    mark = f"DEEPBENCH_TEST_HEAT={tmp_path}".encode()
    deadline = time.monotonic() + 30
    while len(processes_with(mark)) < 4:
        assert time.monotonic() < deadline, "the workers did not start"
        time.sleep(0.05)
    time.sleep(1.0)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=10)

    assert [] == processes_with(mark)


def processes_with(text):
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if text in file.read():
                    found.append(int(name))
        except OSError:
            continue
    return found
