"""Rounds of results: those of the package are sound, and the reader knows every name."""

from datetime import date

import pytest

from deepbench.core.errors import BadInput
from deepbench.plan.results_rounds import FOLDER, canonical, find_round, known_rounds, read_round
from deepbench.plan.suites import read_suite, suite_files

TEXT = """
name = "test"
year = 2026
mark = "measured"
first_day = 2026-01-01
last_day = 2026-12-31
schema = "deepbench/1"
oldest_tool = "0.1.0"

[rules]
least_processes = 3
widest_half_interval = 0.15
least_certain = 0.9
most_disturbed = 0.1
most_load_per_core = 0.5
least_timed = 0.5

[[suites]]
name = "mlperf/gnmt"
required = true
precisions = ["f32", "bf16"]
"""


def test_the_rounds_of_the_package_are_named_after_their_files_and_are_no_suites():
    assert {path.stem for path in FOLDER.glob("*.toml")} == {found.name for found in known_rounds()}
    assert [] == [name for name in suite_files() if name.startswith("rounds")]
    for found in known_rounds():
        for suite in found.suites:
            assert {suite.name} == {e.source["suite"] for e in read_suite(suite.name)}


def test_a_round_is_read(tmp_path):
    (tmp_path / "test.toml").write_text(TEXT)
    found = find_round(str(tmp_path / "test.toml"))

    assert ("test", "mlperf/gnmt:phase=train", True) == (found.name, found.suites[0].name, found.suites[0].required)
    assert (3, 0.15) == (found.rules.least_processes, found.rules.widest_half_interval)
    assert found.is_open_on(date(2026, 12, 31))
    assert not found.is_open_on(date(2027, 1, 1))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('name = "test"', 'name = "A b"', "name must have small letters, digits and dashes, found 'A b'"),
        ("year = 2026", 'year = "2026"', "year must be a whole number from 2000 to 9999, found 2026"),
        ("year = 2026", "year = true", "year must be a whole number from 2000 to 9999, found True"),
        ('"measured"', '"guessed"', "mark must be measured or published, found 'guessed'"),
        ("2026-01-01", '"2026-01-01"', "first_day must be a day such as 2026-01-31, without quotes"),
        ("2026-12-31", "2025-12-31", "last_day must not be before first_day, 2026-01-01; found 2025-12-31"),
        ("deepbench/1", "deepbench/2", "schema must be deepbench/1, which this version reads, found 'deepbench/2'"),
        ('"0.1.0"', '"new"', "oldest_tool must be a version such as 0.1.0, found 'new'"),
        (
            "least_processes = 3",
            "least_processes = 0",
            "least_processes must be a whole number from 1 to 1000, found 0",
        ),
        ("= 0.15", "= 1.5", "widest_half_interval must be a share from 0 to 1, found 1.5"),
        ("= 0.15", "= nan", "widest_half_interval must be a share from 0 to 1, found nan"),
        ("least_timed = 0.5", "", "wanted least_timed in the rules of a round, found nothing; add it"),
        ("[rules]", "[rule]", "in a round there is no 'rule'; there are"),
        ("mlperf/gnmt", "mlperf/gnnt", "'mlperf/gnnt' is no suite of this version"),
        ("mlperf/gnmt", "rank", "rank is a choice of other suites (deepbench/train, deepbench/server"),
        ("required = true", 'required = "yes"', "required must be true or false, found 'yes'"),
        ('["f32", "bf16"]', '["f33"]', "unknown precision 'f33'"),
        ('["f32", "bf16"]', '["i8"]', "i8 multiplies 8 bits, which is below the minimum precision of mlperf/gnmt"),
        ('["f32", "bf16"]', '"f32"', "precisions must be a list of names such as f32"),
    ],
)
def test_another_value_is_refused_in_one_sentence(tmp_path, old, new, sentence):
    assert old in TEXT
    path = tmp_path / "test.toml"
    path.write_text(TEXT.replace(old, new, 1))

    with pytest.raises(BadInput) as caught:
        read_round(path)
    assert sentence in str(caught.value)
    assert "test.toml" in str(caught.value)


def test_names_of_suites_are_those_of_result_files():
    assert "deepbench/device" == canonical("deepbench/device")
    assert "llm/llama32_1b:phase=decode,batch=8" == canonical("llm/llama32_1b:batch=8,phase=decode")
