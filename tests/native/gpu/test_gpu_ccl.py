"""Collectives through the fake NCCL and RCCL, over shared memory."""

import pytest

from tests.native.gpu.test_gpu_faults import device_of

CASE = "all_reduce n=1001 ranks={} forward {} {} threads=1"


@pytest.mark.parametrize("backend", ["nccl", "rccl"])
@pytest.mark.parametrize(("precision", "type"), [("f32", 7), ("f16", 6), ("bf16", 9)])
def test_each_rank_adds_on_its_own_gpu(gpu, tmp_path, backend, precision, type):
    record = gpu(CASE.format(3, precision, backend), FAKE_GPU_LOG=str(tmp_path / "log"))

    assert ("ok", None) == (record["status"], record["reason"])
    assert "yes" == record["group"]["deterministic"]
    assert 3 == len(record["group"]["cards"])
    log = (tmp_path / "log").read_text()
    assert all(f"rank {r} of 3 type {type} in place 0 algorithm default" in log for r in range(3))
    assert "events" == device_of(record)["clock"]
    assert {"2.28.9"} == {record["library"]["version"]}


@pytest.mark.parametrize("backend", ["nccl", "rccl"])
@pytest.mark.parametrize("op", ["reduce_scatter", "all_gather", "all_to_all", "broadcast", "send_receive"])
def test_other_collectives(gpu, backend, op):
    record = gpu(f"{op} n=999 ranks=3 forward bf16 {backend} threads=1")

    assert ("ok", None) == (record["status"], record["reason"])


def test_in_place_with_a_named_algorithm(gpu, tmp_path):
    text = f"{CASE.format(2, 'f32', 'nccl')} algorithm=ring place=in"
    record = gpu(text, FAKE_GPU_LOG=str(tmp_path / "log"))

    assert ("ok", None) == (record["status"], record["reason"])
    assert "rank 1 of 2 type 7 in place 1 algorithm Ring" in (tmp_path / "log").read_text()


def test_ranks_that_add_in_different_orders_are_not_deterministic(gpu):
    record = gpu(CASE.format(3, "f32", "nccl"), FAKE_CCL_ORDER="1")

    assert "wrong" == record["status"]
    assert "not deterministic: call 1: rank 1 has other bits than rank 0" == record["reason"]


def test_more_ranks_than_visible_gpus_are_unsupported(gpu):
    record = gpu(CASE.format(3, "f32", "nccl"), CUDA_VISIBLE_DEVICES="0,1")

    assert "unsupported" == record["status"]
    assert "this host has 3 ranks, but CUDA_VISIBLE_DEVICES allows 2 GPUs" in record["reason"]


def test_the_reason_of_a_failed_communicator_is_the_librarys_text(gpu):
    record = gpu(CASE.format(2, "f32", "nccl"), FAKE_GPU_FAIL="ncclCommInitRank=3")

    assert "crashed" == record["status"]
    assert "ncclCommInitRank" in record["reason"]
    assert "an error of the fake" in record["reason"]


@pytest.mark.parametrize("backend", ["nccl", "rccl"])
@pytest.mark.parametrize("place", ["out", "in"])
def test_one_process_drives_all_gpus(gpu, backend, place):
    record = gpu(f"{CASE.format(3, 'f32', backend)} processes=one place={place}", FAKE_GPU_CARDS="4")

    assert ("ok", None) == (record["status"], record["reason"])
    assert "ncclAllReduce, one process" == record["notes"]["implementation"]
    assert 3 == len(record["group"]["cards"])
    assert {1} == set(record["group"]["hosts"].values())


def test_one_process_with_too_few_gpus_is_unsupported(gpu):
    record = gpu(f"{CASE.format(3, 'f32', 'nccl')} processes=one", FAKE_GPU_CARDS="2")

    assert "unsupported" == record["status"]
    assert "GPU number 3 is needed, this process may use 2" in record["reason"]


def test_on_cpus_each_rank_needs_its_own_process(gpu):
    record = gpu("all_reduce n=10 ranks=2 forward f32 mpich threads=1 processes=one")

    assert ("unsupported", True) == (record["status"], "choose processes=each" in record["reason"])
