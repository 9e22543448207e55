"""Gate and rank as functions."""

import pytest

import deepbench
from deepbench.core.errors import BadInput
from tests.help import samples


@pytest.fixture
def two(tmp_path):
    """Two files of the same case: the second takes half as long again."""
    for name, factor in (("a", 1.0), ("b", 1.5)):
        rounds = [samples.measured(seconds=factor * (1e-3 + n * 1e-6), round_number=n) for n in range(1, 6)]
        samples.write(tmp_path / f"{name}.jsonl", rounds)
    return tmp_path / "a.jsonl", tmp_path / "b.jsonl"


def test_a_gate_finds_the_slower_file(two):
    found = deepbench.gate(*two)

    assert "regression" == found.outcome.verdict
    assert 1 == len(found.regressions())
    assert "<failure" in found.junit()
    assert "REGRESSION" in found.markdown()


def test_a_gate_passes_what_is_within_its_margin(two):
    a, b = two

    assert "passed" == deepbench.gate(a, a).outcome.verdict
    assert "passed" == deepbench.gate(a, b, margin=0.6).outcome.verdict


@pytest.fixture
def machines(tmp_path):
    for name, seconds in (("fast", 1e-3), ("slow", 2e-3)):
        samples.write(tmp_path / f"{name}.jsonl", [*samples.ocr(seconds=seconds)])
    return tmp_path / "fast.jsonl", tmp_path / "slow.jsonl"


def test_machines_are_ranked_by_time_or_by_cost(machines):
    def order(**options):
        (found,) = deepbench.rank(*machines, application="ocr", **options).rankings
        return [m.machine.name for m in found.ranked]

    assert ["fast", "slow"] == order()
    assert ["slow", "fast"] == order(prices={"fast": 5.0, "slow": 1.0})


def test_results_are_ranked_as_files_are(machines):
    loaded = [deepbench.load(path) for path in machines]

    assert deepbench.rank(*loaded).report().text("json") == deepbench.rank(*machines).report().text("json")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"application": "nothing"}, "no machine has a time of application 'nothing'"),
        ({"prices": {"other": 1.0}}, "none of fast, slow"),
    ],
)
def test_what_cannot_be_ranked_is_one_sentence(machines, change, sentence):
    with pytest.raises(BadInput, match=sentence):
        deepbench.rank(*machines, **change)


def test_a_machine_counts_once(machines):
    with pytest.raises(BadInput, match="named twice"):
        deepbench.rank(machines[0], machines[0])
