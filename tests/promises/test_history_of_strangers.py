"""Folders of result files that strangers wrote: `history` ends with a result or one sentence, soon."""

import json
import os
import sys

import pytest
from hypothesis import given, settings

from deepbench.api import history as api
from deepbench.judge import history as judge
from tests.help import over_time, samples
from tests.help.command import run_here
from tests.promises.test_hostile import GOOD, changed, several_changes

EVIL = "\x1b]0;owned\x07\x9b31m\u202e=cmd|' /C calc'!A0</script><img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def _without_ruptures(monkeypatch):
    """These tests are about reading and showing."""
    monkeypatch.setitem(sys.modules, "ruptures", None)


def check_outputs(folder, page):
    """Every form of output has no control characters, and the JSON is strict."""
    for words in ([], ["--full"], ["--json"], ["--csv"], ["--markdown"], ["-o", str(page)]):
        done = run_here(["history", str(folder), *words])
        assert done.code in (0, 1, 64), done.errors
        assert "Traceback" not in done.errors
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(done.output + done.errors)
        if words == ["--json"] and done.code != 64:
            json.loads(done.output, parse_constant=lambda name: pytest.fail(name))


def test_control_codes_in_hosts_versions_names_and_paths_do_nothing(tmp_path):
    folder = tmp_path / f"f{EVIL[:8]}"
    for day in range(8):
        over_time.write(folder, f"d{day}{EVIL[:8]}.jsonl", {2: 1e-3}, day, f"1.{day}{EVIL}", host=EVIL, cpu=EVIL)
    check_outputs(folder, tmp_path / "page.html")

    html = (tmp_path / "page.html").read_text()
    assert "<img" not in html
    assert "\x1b" not in html


def test_dates_that_cannot_be_right_are_left_out_with_a_reason(tmp_path):
    for name, started in {
        "far": "9999-12-31T23:59:59+00:00",
        "past": "0001-01-01T00:00:00+00:00",
        "text": "tomorrow",
        "evil": EVIL,
        "zone": "2026-01-01T00:00:00+23:59",
    }.items():
        over_time.write(tmp_path, f"{name}.jsonl", {2: 1e-3}, started=started)
    over_time.write(tmp_path, "good.jsonl", {2: 1e-3})
    check_outputs(tmp_path, tmp_path / "page.html")
    found = json.loads(run_here(["history", str(tmp_path), "--json"]).output)

    assert ["zone", "good"] == [os.path.basename(r["file"])[:-6] for r in found["machines"][0]["runs"]]
    assert 4 == len(found["left_out"])


def test_many_files_of_the_same_second_are_no_order(tmp_path):
    for i in range(40):
        over_time.write(tmp_path, f"{i:02}.jsonl", {2: 1e-3 * (1 + (i >= 20))}, 0)
    check_outputs(tmp_path, tmp_path / "page.html")


def test_extreme_times_can_be_shown(tmp_path):
    for day, seconds in enumerate((1e-12, 1e8, 1e-12, 1e8, 1e-9, 1.0)):
        over_time.write(tmp_path, f"{day}.jsonl", {2: seconds}, day)
    check_outputs(tmp_path, tmp_path / "page.html")


def test_nan_is_no_time(tmp_path):
    path = over_time.write(tmp_path, "a.jsonl", {2: 1e-3})
    path.write_text(path.read_text().replace('"samples_s":[', '"samples_s":[NaN,'))
    over_time.write(tmp_path, "b.jsonl", {2: 1e-3}, 1)
    done = run_here(["history", str(tmp_path), "--json"])

    assert 1 == done.code
    assert ["b.jsonl"] == [os.path.basename(run["file"]) for run in json.loads(done.output)["machines"][0]["runs"]]


def test_what_is_no_file_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "gone.jsonl").symlink_to("nowhere")
    (tmp_path / "device.jsonl").symlink_to("/dev/zero")
    over_time.write(tmp_path, "good.jsonl", {2: 1e-3})
    done = run_here(["history", str(tmp_path)])

    assert 1 == done.code
    assert 3 == len(done.errors.splitlines())
    assert all(name in done.errors for name in ("pipe", "gone", "device"))
    assert "1 file, " in done.output


def test_too_much_is_refused_before_it_is_read(tmp_path, monkeypatch):
    over_time.write_step(tmp_path, count=5)
    monkeypatch.setattr(api, "MOST_FILES", 4)
    assert "has more than 4 result files; name a smaller folder" in run_here(["history", str(tmp_path)]).errors
    monkeypatch.setattr(api, "MOST_FILES", 100)
    monkeypatch.setattr(api, "MOST_BYTES", 1000)
    assert "has more than 1000 bytes of results" in run_here(["history", str(tmp_path)]).errors
    monkeypatch.setattr(api, "MOST_BYTES", 10**9)
    monkeypatch.setattr(judge, "MOST_TIMES", 9)
    assert "there are more than 9 times; name fewer files" in run_here(["history", str(tmp_path)]).errors


@settings(max_examples=40)
@given(several_changes)
def test_a_file_that_matches_the_schema_has_a_history(tmp_path_factory, changes):
    folder = tmp_path_factory.mktemp("hostile")
    lines = json.loads(json.dumps(GOOD))
    for (number, place), new in changes:
        try:
            lines[number] = changed(lines[number], place, new)
        except (KeyError, IndexError, TypeError):
            return
    try:
        samples.write(folder / "a.jsonl", lines[1:], lines[0])
    except ValueError:
        return  # a number that JSON does not have
    samples.write(folder / "b.jsonl", GOOD[1:], {**GOOD[0], "started": "2026-11-22T00:00:00+00:00"})
    for form in ("--json", "--full"):
        done = run_here(["history", str(folder), form])
        assert done.code in (0, 1), done.errors
