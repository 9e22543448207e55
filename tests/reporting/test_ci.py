"""The texts of a CI job: the verdict first, nothing sold as more than it is, and nothing of a file as markup."""

import xml.etree.ElementTree as xml

import pytest

from deepbench.core.json_lines import to_line
from deepbench.judge import gate
from deepbench.judge.ci import CiVerdict
from deepbench.judge.compare import compare_files
from deepbench.judge.resolution import Resolution, resolution
from deepbench.reporting import ci
from deepbench.results.file import read_results
from tests.help.samples import disturbed, header, measured

CASES = [f"gemm m={n} n=3 k=4 forward f32 {{backend}} threads=1" for n in (2, 3, 5)]


@pytest.fixture
def outcome(tmp_path):
    """The verdict on a second side that takes so much longer, per case."""

    def judge(*slower, margin=0.05, make=measured):
        files = []
        for side, factors in (("a", (1.0,) * len(slower)), ("b", slower)):
            records = [
                make(text=text, seconds=1e-3 * factor * (1 + 0.001 * n), round_number=n + 1)
                for text, factor in zip(CASES, factors, strict=False)
                for n in range(8)
            ]
            content = [header(dict.fromkeys(r["case"] for r in records)), *records]
            (tmp_path / f"{side}.jsonl").write_bytes(b"".join(to_line(line).encode() for line in content))
            files.append(read_results(tmp_path / f"{side}.jsonl"))
        return gate.judge(compare_files(*files), margin), compare_files(*files)

    return judge


def verdict(outcome, refusal=None, **facts):
    seen = Resolution(6, 0, 0.012, ())
    return CiVerdict("old", "new", "A CPU", 0.05, seen, refusal, outcome, repeat=("run", "--ab", "x=a,b"), **facts)


def test_a_regression_comes_first_with_its_interval_and_how_to_repeat_it(outcome):
    v = verdict(outcome(1.2, 1.0, 1.0)[0], seen_again=("gemm",))
    text = ci.comment(v)
    assert text.startswith("### DeepBench: Slower: 1 slower, 2 not slower by 5 % or more")
    assert (1, "regression") == (v.exit_code, v.verdict)
    assert "deepbench run --ab x=a,b" in text
    assert "20.0 % slower" in text
    assert "<details><summary>2 not slower</summary>" in text
    assert "slowdowns from 1.2 % on can be seen here" in text
    assert "confirms nothing about others" in text


def test_a_refusal_draws_no_conclusion(outcome):
    v = verdict(None, refusal="this machine is busy")
    assert (2, "refused") == (v.exit_code, v.verdict)
    assert "No conclusion about the change follows" in ci.comment(v)
    (case,) = xml.fromstring(ci.junit(v, 1.0)).iter("testcase")
    assert "this machine is busy" == case.find("skipped").get("message")


def test_hostile_names_are_no_markup(outcome):
    nothing, names = Resolution(1, 0, None, ()), ("`</details><script>", "new\n# title", "@everyone | [x](y)")
    v = CiVerdict(*names, 0.05, nothing, None, outcome(1.0)[0])
    text = ci.comment(v)
    assert "<script>" not in text.replace("`'</details><script>`", "")
    assert "\n# title" not in text
    assert "\\[x\\]" in text


def test_a_long_table_fits_a_comment(outcome):
    found = outcome(1.0, 1.0, 1.0)[0]
    many = gate.GateVerdict(found.cases * 400)
    assert len(ci.comment(verdict(many))) < 65_000


def test_the_resolution_is_that_of_equal_sides(outcome):
    equal = resolution(outcome(1.0, 1.0, 1.0)[1], 0.05)
    assert 0 <= equal.share < 0.05
    assert equal.why_not(0.05) is None
    assert "can tell slowdowns from" in Resolution(6, 0, 0.08, ()).why_not(0.05)


def test_a_machine_that_calls_equal_builds_slower_is_refused(outcome):
    found = resolution(outcome(1.3, 1.0, 1.0)[1], 0.05)
    assert "would be called slower" in found.why_not(0.05)


def test_a_disturbed_machine_is_refused(outcome):
    found = resolution(outcome(1.0, 1.0, 1.0, make=disturbed)[1], 0.05)
    assert found.share is None
    assert "other programs disturb this machine: 3 of 3 cases say nothing" == found.why_not(0.05)
