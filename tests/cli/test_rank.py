"""`deepbench rank`: which machine for which application."""

import csv
import io
import json

import pytest

from tests.help import samples


@pytest.fixture
def three(tmp_path):
    """Three machines with OCR: a fast one, a slow one, and one without one of the kernels."""
    for name, seconds in (("fast", 1e-3), ("slow", 2e-3)):
        rounds = [{**r, "round": n} for n in range(1, 4) for r in samples.ocr(seconds=seconds * (1 + 0.01 * n))]
        samples.write(tmp_path / f"{name}.jsonl", rounds)
    samples.write(tmp_path / "part.jsonl", samples.ocr()[:3])
    return ["fast.jsonl", "slow.jsonl", "part.jsonl"]


def test_one_command_says_which_machine_is_cheapest_and_how_certain_that_is(deepbench, three):
    prices = ["--price", "fast=5/h", "--price", "slow.jsonl=1", "--price", "part=1/h"]
    done = deepbench("rank", *three, "--application", "ocr", *prices)

    assert 0 == done.returncode, done.stderr
    answer = done.stdout.splitlines()[-1]
    assert "fast costs 2.50× as much as slow; the intervals do not overlap: certain at 95 %." in answer
    assert answer.endswith("Not ranked: part (3 of 4 kernels).")
    rows = [line.split() for line in done.stdout.splitlines() if " i8 " in line]
    assert [["1", "slow"], ["2", "fast"], ["–", "part"]] == [row[:2] for row in rows]


def test_without_prices_machines_are_ranked_by_time_next_to_published_ones(deepbench, three):
    done = deepbench("rank", *three, "TitanXp", "--application", "OCR (server)", "--json")
    (found,) = json.loads(done.stdout)

    assert ("time", "NVIDIA TitanXp", "no interval") == (found["ranked_by"], found["best"], found["certainty"])
    assert ["NVIDIA TitanXp", "fast", "slow", "part"] == [m["machine"] for m in found["machines"]]
    fast = found["machines"][1]
    assert fast["low"] < fast["time"] < fast["high"]
    assert fast["over_best_low"] is None
    assert found["machines"][3]["time"] is None


def test_without_an_application_there_is_a_matrix_and_csv_has_every_value(deepbench, three):
    done = deepbench("rank", *three)
    line = next(line for line in done.stdout.splitlines() if line.startswith("OCR (server)"))
    assert ["fast", "4.06", "ms", "i8"] == line.split()[2:6]
    assert line.rstrip().endswith("– 3 of 4")

    rows = list(csv.DictReader(io.StringIO(deepbench("rank", *three, "--csv").stdout)))
    assert ["1", "2", ""] == [row["rank"] for row in rows]
    assert "| OCR (server) | fast |" in deepbench("rank", *three, "--markdown").stdout


def test_part_of_the_name_of_one_application_is_enough(deepbench, three):
    found = json.loads(deepbench("rank", *three, "T4", "--application", "SPEECH", "--json").stdout)

    assert {"Speech Recognition"} == {r["application"] for r in found}
    table = deepbench("rank", *three, "--application", "oc").stdout.splitlines()
    assert "fast: conv 100 % of the time." == table[-2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rank", "fast.jsonl", "--application", "Speech"], "there are OCR"),
        (["rank", "fast.jsonl", "none.jsonl"], "none.jsonl does not exist"),
        (
            ["rank", "fast.jsonl", "Cray"],
            "is not a published machine; see deepbench published list; a result file ends",
        ),
        (["rank", "fast.jsonl", "--price", "2.5/h"], "--price wants a machine and the price of an hour"),
        (["rank", "fast.jsonl", "--price", "fast=free"], "such as fast=2.5/h, found 'fast=free'"),
        (["rank", "fast.jsonl", "--price", "other=2/h"], "--price names none of fast: 'other'"),
        (["rank", "fast.jsonl", "--precision", "int4"], "unknown precision 'int4'"),
        (["rank", "T4", "NVIDIA T4"], "a machine is named twice"),
        (["rank", "fast.jsonl", "slow.jsonl", "./fast.jsonl"], "a machine is named twice: fast.jsonl, ./fast.jsonl;"),
        (["rank", "V100", "--application", "recognition"], "is part of several: Face Recognition, Speech Recognition;"),
        (["rank", "empty.jsonl"], "no case comes from a suite that names applications"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(deepbench, three, tmp_path, words, message):
    samples.write(tmp_path / "empty.jsonl", [samples.measured()])
    done = deepbench(*words)

    assert 64 == done.returncode, done.stdout
    assert message in done.stderr
    assert 1 == len(done.stderr.strip().splitlines()), done.stderr


def test_two_files_of_one_name_are_told_apart_by_their_folders(deepbench, tmp_path):
    for folder in ("a", "b"):
        samples.write(tmp_path / folder / "run.jsonl", samples.ocr())
    (found,) = json.loads(deepbench("rank", "a/run.jsonl", "b/run.jsonl", "--price", "a/run.jsonl=1", "--json").stdout)

    assert {"a/run.jsonl": 1.0, "b/run.jsonl": None} == {m["machine"]: m["price_per_h"] for m in found["machines"]}
