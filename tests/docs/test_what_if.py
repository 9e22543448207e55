"""The page about what-if: its tables and its example are those of the script, and its knobs and its file work."""

import re

import pytest

from deepbench.networks.what_if import effects
from deepbench.networks.what_if.hardware import Hardware
from deepbench.networks.what_if.knobs import Change
from tests.conftest import ROOT
from tests.help.scripts import benchmark

PAGE = (ROOT / "docs" / "what-if.md").read_text(encoding="utf-8")


def test_a_row_of_the_table_is_that_of_the_script():
    sheets = benchmark("time_model").sheets()
    (hardware,) = [sheet for sheet in sheets if "V100" in sheet.name]
    row = benchmark("time_model").own_row(hardware, [sheet for sheet in sheets if sheet is not hardware])

    assert row in PAGE.splitlines()


def test_the_table_has_a_row_for_each_data_sheet():
    for sheet in benchmark("time_model").sheets():
        assert f"| {sheet.name} | " in PAGE


def test_the_example_prints_what_the_page_says():
    assert "\n".join(benchmark("time_model").example()) in PAGE


def test_the_file_of_hardware_can_be_read_and_every_knob_turned():
    parts = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    hardware = Hardware.parse("".join(parts)).replace("overhead.operator_s=1e-6")
    rows = re.findall(r"^\| (`.+`) \| ", PAGE, re.MULTILINE)
    knobs = [knob for row in rows for knob in re.findall(r"`([^`]+)`", row)]

    assert len(knobs) > 8
    for knob in knobs:
        change = Change.parse(knob)
        assert hardware.replace(*change.of_hardware) != hardware or change.knobs[0].is_time


def test_the_errors_of_other_devices_are_those_of_the_table():
    sums = [
        float(text.replace("\N{MINUS SIGN}", "-")) / 100 for text in re.findall(r"([+\u2212]\d+) % \|$", PAGE, re.M)
    ]

    assert 11 == len(sums)
    factors = [max(1 + value, 1 / (1 + value)) for value in sums]
    assert max(factors) == pytest.approx(effects.OTHER_DEVICE, abs=0.05)
    rows = [
        row.split(" | ")
        for row in PAGE.splitlines()
        if row.count(" | ") == 9 and " % | " in row and "unseen" not in row
    ]
    errors = [float(row[7].removesuffix(" %")) / 100 for row in rows]
    assert (min(errors), max(errors)) == pytest.approx(effects.OTHER_DEVICE_KERNEL)
