"""Single runs are judged by the seeds of the authors."""

import json
import random
import runpy
from types import SimpleNamespace

import pytest

from deepbench.applications.judge.references import ReferenceRuns, references
from deepbench.applications.judge.trained import runs_of, trained
from deepbench.applications.training.application import applications
from tests.conftest import ROOT
from tests.help.trained import seeds, write


def reference(values, runs=None, run_s=60.0):
    return ReferenceRuns("image", "mini", 100, 0.9, {}, runs or len(values), dict(enumerate(values)), run_s, ())


def one(tmp_path, runs):
    (found,) = trained(runs_of(write(tmp_path / "a.jsonl", runs)))
    return found


def test_one_more_seed_is_inside_the_interval_in_99_of_100_cases():
    chance = random.Random(5)
    draw = lambda: 3000 * chance.lognormvariate(0, 0.1)  # noqa: E731
    inside = 0
    for _ in range(2000):
        low, high = reference([draw() for _ in range(10)]).expected
        inside += low <= draw() <= high

    assert 0.982 < inside / 2000 < 0.997


def test_a_run_far_from_all_seeds_is_an_outlier(tmp_path):
    runs = one(tmp_path, seeds(2)).runs  # they reach the target behind some 3000 samples

    assert reference([2800.0, 3000.0, 3200.0, 2900.0]).outlier(runs[0]) is None
    text = reference([1000.0, 1010.0, 1020.0, 990.0]).outlier(runs[0])
    assert text.startswith("reaches the target after 3,000 samples; ")
    assert reference([1000.0, 1010.0]).outlier(runs[0]) is None  # two seeds say too little


def test_a_run_that_misses_the_target_is_an_outlier_where_no_other_seed_did(tmp_path):
    (run, *_) = one(tmp_path, seeds(1, shift=-0.2)).runs

    assert "does not reach the target" in reference([2800.0, 3000.0, 3200.0]).outlier(run)
    assert reference([2800.0, 3000.0, 3200.0], runs=4).outlier(run) is None


@pytest.mark.parametrize(
    ("values", "judgement"),
    [
        ([2900.0, 2950.0, 3000.0, 3010.0], "as expected"),
        ([1000.0, 1010.0, 1020.0, 990.0], "needs more samples"),
        ([9000.0, 9010.0, 9020.0, 9190.0], "needs fewer samples"),
        ([9000.0, 9010.0], None),
    ],
)
def test_all_seeds_together_are_judged(tmp_path, values, judgement):
    assert judgement == reference(values).judge(one(tmp_path, seeds(4)))


def test_seeds_that_are_slow_in_the_reference_too_are_as_expected():
    known = reference([3300.0, 3310.0, 3290.0, 3000.0, 2990.0, 2980.0, 2970.0, 3010.0, 3020.0, 2960.0])

    assert "as expected" == known.judge(SimpleNamespace(all_samples={0: 3301.0, 1: 3309.0, 2: 3291.0}))
    assert "needs more samples" == known.judge(SimpleNamespace(all_samples={0: 3900.0, 1: 3950.0, 2: 3850.0}))


def test_machines_that_need_the_same_samples_are_seldom_found_to_differ():
    chance = random.Random(7)
    draw = lambda n: [3000 * chance.lognormvariate(0, 0.1) for _ in range(n)]  # noqa: E731
    trials = 2000
    found = [reference(draw(10)).judge(SimpleNamespace(all_samples=dict(enumerate(draw(3))))) for _ in range(trials)]

    assert 0.003 < sum(judgement != "as expected" for judgement in found) / trials < 0.02


def test_the_references_are_those_of_the_rungs():
    found = references()
    for (name, rung, batch, target), one in found.items():
        known = applications()[name].rungs[rung]
        assert (batch, target) == (known.batch, known.target), (name, rung)
        assert one.runs >= (10 if rung == "mini" else 1)
        assert [known.every * i for i in range(1, len(one.curve) + 1)] == [point[0] for point in one.curve]
        better = one.curve[-1][1] >= target if applications()[name].metric.higher_is_better else None
        assert better in (True, None), (name, rung)


def test_the_documentation_has_the_table_of_the_references():
    script = runpy.run_path(str(ROOT / "benchmarks" / "references.py"))
    tables = script["tables"](json.loads(script["PATH"].read_text()))

    assert f"{script['BEGIN']}\n\n{tables}\n\n{script['END']}" in script["PAGE"].read_text()
