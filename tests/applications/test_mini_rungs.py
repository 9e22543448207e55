"""Every application is trained in its smallest size, and the run is judged by its reference."""

import pytest

from deepbench.applications import datasets
from deepbench.applications.judge.references import reference_of
from deepbench.applications.judge.trained import runs_of
from deepbench.applications.training.application import applications
from deepbench.results.file import read_results


@pytest.mark.applications
@pytest.mark.parametrize("name", applications())
def test_one_run_reaches_the_target_as_other_seeds_do(deepbench, tmp_path, name):
    pytest.importorskip("torch")
    for data in applications()[name].datasets:
        try:
            datasets.find(datasets.find_dataset(data))
        except datasets.MissingData as error:
            pytest.skip(str(error))
    done = deepbench("train", name, "--seeds", "1", "-o", "a.jsonl", timeout=1200)
    (run,) = runs_of(read_results(tmp_path / "a.jsonl"))
    reference = reference_of(run.setup)

    assert ("ok", 0) == (run.status, done.returncode), run.end
    assert reference is not None
    assert run.samples_to_target is not None
    assert None is reference.outlier(run)
