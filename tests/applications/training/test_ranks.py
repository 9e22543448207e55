"""Ranks that share a batch compute the gradients of the whole batch."""

import os

import pytest

from deepbench.applications.training import checkpoint
from deepbench.applications.training.application import Rung, Setup, find_application
from tests.applications import small_data

pytestmark = [pytest.mark.programs, pytest.mark.torch]

torch = pytest.importorskip("torch")

SIZES = {"model": "transformer", "words": 40, "length": 9, "width": 64, "layers": 1, "rate": 2e-3}
RUNG = Rung("small", 16, 16 * 8, 16 * 4, 0.5, SIZES)


def gradients(ranks):
    """Those of the first step of a translation. Verses differ in length, so ranks have different numbers of words."""
    from deepbench.applications.tasks.translation import torch_version

    torch_version.DROPOUT = 0.0  # each rank has its own random numbers
    torch.set_num_threads(1)
    run = find_application("translation").torch_task(
        Setup("translation", "mini", ranks=ranks), RUNG, [small_data.verses()]
    )
    run.step()
    return {name: parameter.grad.numpy() for name, parameter in run.model.named_parameters()}


def rank(number, folder, ranks):
    if ranks > 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        store = f"file://{folder}/store"
        torch.distributed.init_process_group("gloo", init_method=store, rank=number, world_size=ranks)
    found = gradients(ranks)
    if number == 0:
        checkpoint.write(folder / f"{ranks}.npz", found)
    if ranks > 1:
        torch.distributed.barrier()
    os._exit(0)


def test_two_ranks_have_the_gradients_of_one(tmp_path):
    for ranks in (1, 2):
        torch.multiprocessing.spawn(rank, (tmp_path, ranks), nprocs=ranks)
    alone, both = (checkpoint.read(tmp_path / f"{ranks}.npz") for ranks in (1, 2))

    assert alone.keys() == both.keys()
    for name, value in alone.items():
        assert value == pytest.approx(both[name], abs=1e-6), name
        assert abs(value).max() > 1e-4 or name.endswith("bias"), name
