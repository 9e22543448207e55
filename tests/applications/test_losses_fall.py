"""A few steps of training make the loss of every application smaller. Those of `detection` and `go` have own files."""

from dataclasses import replace
from statistics import fmean

import pytest

from deepbench.applications.training.application import Setup, applications, find_application
from tests.applications import small_data

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")

# The data, the samples of a batch, and the steps.
RUNS = {
    "image": (small_data.pictures, 32, 30),
    "recommendation": (small_data.ratings, 32, 60),
    "sentiment": (small_data.tweets, 32, 30),
    "speech": (small_data.prompts, 8, 40),
    "translation": (small_data.verses, 32, 30),
}

ELSEWHERE = {"detection", "go"}


def test_no_application_is_left_out():
    assert set(applications()) == {*RUNS, *ELSEWHERE}


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("name", RUNS)
def test_a_few_steps_make_the_loss_smaller(name, precision):
    data, batch, steps = RUNS[name]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        application = find_application(name)
        rung = replace(application.rungs["mini"], batch=batch, samples=batch * steps)
        task = application.torch_task(Setup(name, "mini", precision=precision), rung, [data()])
        losses = []
        for _ in range(steps):
            task.step()
            losses.append(task.loss())
    finally:
        torch.set_num_threads(before)

    assert fmean(losses[-5:]) < 0.9 * fmean(losses[:5]), losses
