"""Sparse products through the fake cuSPARSE and hipSPARSE."""

import pytest

PRODUCT = "sparse_gemm m=60 n={} k=50 sparsity=90"
BACKENDS = ["cusparse", "hipsparse"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", ["column", "row"])
def test_every_algorithm_for_matrices_is_tried(gpu, tmp_path, backend, order):
    record = gpu(
        f"{PRODUCT.format(7)} forward f32 {backend} threads=1 order={order}", FAKE_GPU_LOG=str(tmp_path / "log")
    )

    assert ("ok", None) == (record["status"], record["reason"])
    assert "CSR_ALG2" == record["notes"]["algorithm"]
    assert (3, 2, 1) == tuple(record["notes"][f"algorithms_{n}"] for n in ("proposed", "tried", "failed"))
    assert f"order {2 if order == 'row' else 1}" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_single_column_is_a_vector(gpu, tmp_path, backend):
    record = gpu(f"{PRODUCT.format(1)} forward f32 {backend} threads=1", FAKE_GPU_LOG=str(tmp_path / "log"))

    assert "ok" == record["status"], record["reason"]
    assert "SpMV algorithm 3" in (tmp_path / "log").read_text()
    assert "CSR_ALG2" == record["notes"]["algorithm"]


@pytest.mark.parametrize(
    ("precision", "types"), [("f16", "2,2,0 compute 0"), ("bf16", "14,14,0 compute 0"), ("i8", "3,3,10 compute 10")]
)
def test_types_of_lower_precisions(gpu, tmp_path, precision, types):
    record = gpu(f"{PRODUCT.format(4)} forward {precision} cusparse threads=1", FAKE_GPU_LOG=str(tmp_path / "log"))

    assert "ok" == record["status"], record["reason"]
    assert f"types {types}" in (tmp_path / "log").read_text()


def test_a_sparse_product_brings_its_dense_one_on_the_same_card(deepbench):
    words = ("sparse_gemm m=60 n=7 k=50 sparsity=90", "--device", "cuda")
    lines = deepbench("list", *words).stdout.splitlines()

    assert [line for line in lines if line.startswith("gemm") and " cublaslt " in line]
    assert [] == [line for line in lines if " mkl " in line]
