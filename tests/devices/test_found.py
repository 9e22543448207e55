"""`deepbench info --devices` with candidates that abort, hang, print, and say damaged or huge things."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.programs

BACKEND = """
import os, signal, sys, time
from deepbench.core.backend import DeviceBackend, FoundDevice
from deepbench.core.errors import Unavailable

HOSTILE = "\\x1b[31m<script>alert(1)</script>\\u202e"


class Chips(DeviceBackend):
    name, title, device, default = "chips", "Chips", "chips:good", False
    reaches_shared = ()

    def open(self):
        return {"name": self.title, "version": None, "path": None}

    def candidates(self):
        words = ["good", "none", "aborts", "leaves", "raises", "hangs", "prints", "no_list", "no_device", "names"]
        return [*words, "huge", HOSTILE]

    def probe(self, candidate):
        good = FoundDevice("chips:good", "A chip", "driver 1.0", "/lib/chip.so")
        if candidate == "none":
            raise Unavailable("the board has no power", "switch it on")
        if candidate == "aborts":
            print("F0000 no device here")
            sys.stdout.flush()
            os.abort()
        if candidate == "leaves":
            os._exit(3)
        if candidate == "raises":
            raise ZeroDivisionError("a bug of the plug-in")
        if candidate == "hangs":
            time.sleep(1000)
        if candidate == "prints":
            for stream in (1, 2):
                os.write(stream, b'{"devices": []}\\n' + b"x" * 2**20)
            return [FoundDevice("chips:prints", HOSTILE, HOSTILE * 1000)]
        if candidate == "no_list":
            return None
        if candidate == "no_device":
            return ["chips:text"]
        if candidate == "names":
            names = ("", "chips:<b>", "x" * 1000, 7, None, "chips:\\x1b[1m", "chips:ok\\n", "chips:ok")
            return [FoundDevice(name, "x", "y") for name in names]
        if candidate == "huge":
            return [FoundDevice(f"chips:good:{i}", "t" * 10_000, "u" * 1_000) for i in range(1, 200)]
        if candidate == HOSTILE:
            raise Unavailable(HOSTILE * 10, HOSTILE)
        return [good]


BACKEND = Chips()
"""

CODE = """
import json, sys
from dataclasses import asdict
from deepbench.measuring import devices

found = devices.find_devices(["chips"], 1.5)
print(json.dumps(asdict(found)))
devices.find_devices = lambda: found
sys.argv = ["deepbench", "info", "--devices"]
from deepbench.cli import main
main()
"""


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    """What was found, and what the command prints of it."""
    folder = tmp_path_factory.mktemp("chips")
    (folder / "backends").mkdir()
    (folder / "backends" / "chips.py").write_text(textwrap.dedent(BACKEND))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "DEEPBENCH_PLUGINS": str(folder), "COLUMNS": "100"}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, env=env)
    assert 0 == done.returncode, done.stderr
    first, _, shown = done.stdout.partition("\n")
    return json.loads(first), shown


@pytest.fixture
def found(answer):
    return {row["device"]: row for row in answer[0]["reached"]}


@pytest.fixture
def failed(answer):
    return {row["candidate"]: row["reason"] for row in answer[0]["failed"]}


def test_a_good_candidate_is_found_whatever_the_others_do(found):
    assert "A chip" == found["chips:good"]["title"]
    assert {"chips": "driver 1.0"} == found["chips:good"]["through"]


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        ("none", "the board has no power"),
        ("aborts", "SIGABRT"),
        ("leaves", "exit code 3"),
        ("raises", "a bug of the plug-in"),
        ("hangs", "no sign of life for 1.5 s"),
        ("no_list", "TypeError"),
        ("no_device", "TypeError"),
    ],
)
def test_a_bad_candidate_is_named_with_its_reason(failed, candidate, reason):
    assert reason in failed[candidate]


def test_what_a_candidate_prints_is_no_answer(found):
    assert "chips:prints" in found


def test_texts_are_printable_and_short(found, failed):
    for text in (found["chips:prints"]["title"], found["chips:prints"]["through"]["chips"], *failed.values()):
        assert text.isprintable()
    assert len(found["chips:prints"]["through"]["chips"]) <= 200


def test_names_that_are_none_are_left_out(found):
    own = {name for name in found if not name.startswith("chips:good")}

    assert {"chips:prints", "chips:ok"} == own


def test_of_many_devices_some_count(found):
    several = [name for name in found if name.startswith("chips:good:")]

    assert 64 == len(several)
    assert all(len(found[name]["title"]) <= 200 for name in several)


def test_the_command_prints_devices_and_failures_without_control_codes(answer):
    shown = answer[1]

    assert "chips:good" in shown
    assert "the board has no power" in shown
    assert "switch it on" in shown
    assert "no sign of life for 1.5 s" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
