"""Sparse products through the fake cuSPARSE and hipSPARSE."""

import pytest

PRODUCT = "sparse_gemm m=60 n={} k=50 sparsity=90"
BACKENDS = ["cusparse", "hipsparse"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", ["column", "row"])
def test_every_algorithm_for_matrices_is_timed(gpu, tmp_path, backend, order):
    record = gpu(
        f"{PRODUCT.format(7)} forward f32 {backend} threads=1 order={order}", FAKE_GPU_LOG=str(tmp_path / "log")
    )

    assert ("ok", None) == (record["status"], record["reason"])
    assert "CSR_ALG2" == record["notes"]["algorithm"]
    assert (3, 2, 1) == tuple(record["notes"][f"algorithms_{n}"] for n in ("proposed", "tried", "failed"))
    assert f"order {2 if order == 'row' else 1}" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_single_column_is_multiplied_as_a_vector(gpu, tmp_path, backend):
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


def test_a_sparse_product_is_listed_with_its_dense_one_on_the_same_device(deepbench):
    words = ("sparse_gemm m=60 n=7 k=50 sparsity=90", "--device", "cuda")
    lines = deepbench("list", *words).stdout.splitlines()

    assert [line for line in lines if line.startswith("gemm") and " cublaslt " in line]
    assert [] == [line for line in lines if " mkl " in line]


TWO_OF_FOUR = "sparse_gemm m=32 n=16 k=64 sparsity=50 structure=2_4"


@pytest.mark.parametrize("backend", ["cusparselt", "hipsparselt"])
@pytest.mark.parametrize(
    ("precision", "types"),
    [("bf16", "14,14,14 compute 2"), ("f16", "2,2,2 compute 2"), ("i8", "3,3,10")],
)
def test_2_4_products(gpu, tmp_path, backend, precision, types):
    narrow = " result=narrow" if precision in ("bf16", "f16") else ""
    text = f"{TWO_OF_FOUR} forward {precision} {backend} threads=1{narrow}"
    record = gpu(text, FAKE_GPU_LOG=str(tmp_path / "log"))

    assert ("ok", None) == (record["status"], record["reason"])
    assert f"SpMMA algorithm 7 types {types}" in (tmp_path / "log").read_text()
    notes = record["notes"]
    assert ("id=7 split_k=1", 7100) == (notes["algorithm"], notes["workspace_bytes"])
    assert notes["pack_s"] > 0
    assert notes["search_s"] > 0


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ("sparsity=90", "structure=2_4 and sparsity=50"),
        ("sparsity=50 structure=2_4", "choose result=narrow"),
        ("sparsity=50 structure=2_4 result=narrow order=row", "choose order=column"),
    ],
)
def test_unsupported_settings_of_2_4_products_have_a_reason(gpu, changed, reason):
    sizes, _, settings = changed.partition(" result")
    settings = f"result{settings}" if settings else ""
    record = gpu(f"sparse_gemm m=32 n=16 k=64 {sizes} forward f16 cusparselt threads=1 {settings}")

    assert "unsupported" == record["status"]
    assert reason in record["reason"]


def test_sizes_that_the_library_rejects_are_unsupported(gpu):
    text = "sparse_gemm m=36 n=16 k=64 sparsity=50 structure=2_4 forward i8 cusparselt threads=1"
    record = gpu(text)

    assert ("unsupported", True) == (record["status"], "not supported" in record["reason"])


def test_a_failed_search_is_reported(gpu):
    record = gpu(f"{TWO_OF_FOUR} forward i8 cusparselt threads=1", FAKE_GPU_FAIL="cusparseLtMatmulSearch=7")

    assert "crashed" == record["status"]
    assert "cusparseLtMatmulSearch" in record["reason"]
