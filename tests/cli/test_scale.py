"""`deepbench scale --model`: a training step by number of devices."""

import csv
import io
import json
import re

import pytest

from tests.help import samples
from tests.help.terminal import output_of


@pytest.fixture
def steps_file(tmp_path):
    """`steps.jsonl`: the kernels of a step on 1, 2 and 4 devices, and the all-reduce of 2."""
    records = [*samples.kernels_of_steps(1, 2, 4), *samples.all_reduce(2, 2e-3)]
    return samples.write(tmp_path / "steps.jsonl", records)


@pytest.mark.usefixtures("steps_file")
def test_a_training_step_by_number_of_devices(deepbench):
    done = deepbench("scale", "steps.jsonl", "--model", "sentiment_conv")

    assert 0 == done.returncode, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:4]]
    assert [["1", "128"], ["2", "64"], ["4", "32"]] == [row[:2] for row in rows]
    assert "measured" in rows[1]
    assert "withheld" in rows[2]
    assert "It is a sum, not a measured step" in done.stdout


@pytest.mark.usefixtures("steps_file")
def test_programs_get_every_value(deepbench):
    one, two, four = json.loads(deepbench("scale", "steps.jsonl", "--model", samples.TRAINED, "--json").stdout)
    rows = list(
        csv.DictReader(io.StringIO(deepbench("scale", "steps.jsonl", "--model", samples.TRAINED, "--csv").stdout))
    )

    assert one["all_reduce"] is None
    assert two["one_after_the_other"]["seconds"] == pytest.approx(float(rows[1]["step"]))
    assert two["one_after_the_other"]["low_s"] == pytest.approx(float(rows[1]["low"]))
    assert (None, "") == (four["one_after_the_other"], rows[2]["step"])
    assert four["withheld"] == rows[2]["withheld"]


def test_it_fits_80_columns_and_keeps_the_step(tmp_path, steps_file):
    text = output_of(tmp_path, 80, "scale", str(steps_file), "--model", "sentiment_conv", NO_COLOR="1")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()

    assert max(map(len, lines)) <= 80
    assert {"devices", "one", "all-reduce", "step"} <= set(lines[0].split())


@pytest.mark.usefixtures("steps_file")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["steps.jsonl", "--model", "resnet"], "names no model of the file; it has mlperf/sentiment_conv"),
        (["steps.jsonl", "--model", "sentiment", "--ranks", "8"], "leave out --ranks"),
        (["null.jsonl", "--model", "resnet"], "no training step on stated devices; measure one: deepbench run resnet"),
    ],
)
def test_bad_words_are_refused_in_one_sentence(deepbench, tmp_path, words, sentence):
    samples.write(tmp_path / "null.jsonl", [samples.measured()])
    done = deepbench("scale", *words)

    assert (64, "") == (done.returncode, done.stdout)
    assert sentence in done.stderr
