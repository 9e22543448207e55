"""What is read from published tables: columns, versions, and the rows that are left out or not trusted."""

import os

import numpy as np
import pyarrow as pa
import pytest

from deepbench.core.errors import BadInput
from deepbench.gpus import index, package, sheet
from deepbench.gpus.families.family import PRECISIONS
from deepbench.gpus.index import contents
from deepbench.gpus.table import (
    ABOVE_BANDWIDTH,
    ABOVE_PEAK,
    ALONE,
    FINE,
    OF_HOST,
    kernel_at,
    table,
    version_order,
)
from tests.gpus import small_tables
from tests.gpus.small_tables import forget, write, write_sheet

GEMM = {"gemm_dtype": "bfloat16", "kernel_source": "a"}


@pytest.fixture
def gpu(folder):
    """`write` into the folder of one GPU with the sheet of the H100."""
    write_sheet(folder, "h100_sxm")
    return lambda place, rows, **options: write(folder, "h100_sxm", place, rows, **options)


def rows_of(family, every_version=False):
    """Each row as a kernel with its time and framework."""
    found = table("h100_sxm", family, every_version)
    return [
        {**kernel_at(found.kernels, i), "s": float(found.seconds[i]), "of": found.sources[found.source[i]].text}
        for i in range(len(found))
    ]


def products(*sizes, seconds=1e-3, **more):
    return [{**GEMM, "m": m, "n": n, "k": k, "latency": 1e3 * seconds, **more} for m, n, k in sizes]


# ---- columns


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
@pytest.mark.parametrize("whole", [pa.int64(), pa.int16(), pa.uint32(), pa.uint64()], ids=str)
@pytest.mark.parametrize("time", [pa.float64(), pa.float32(), pa.int32()], ids=str)
def test_types_and_order_of_columns_do_not_matter(gpu, text, whole, time):
    columns = {
        "latency": pa.array([2, None, 4], time),
        "k": pa.array([7, 8, 9], whole),
        "other": pa.array([[1], [2], [3]]),
        "gemm_dtype": pa.array(["bfloat16", "bfloat16", "fp8"], pa.string()).cast(text),
        "n": pa.array([5, 6, None], whole),
        "m": pa.array([3, 4, 5], whole),
    }
    gpu("gemm/vllm/1/gemm", pa.table(columns))

    # The second row has no time, and the third no n.
    assert [{"m": 3, "n": 5, "k": 7, "type": 0, "s": 2e-3, "of": "vllm 1"}] == rows_of("linear")
    assert 2 == table("h100_sxm", "linear").unmapped


def test_a_text_takes_its_memory_once(gpu):
    long = "x" * 2_000_000  # 5000 rows of it are 10 GB
    columns = {name: np.arange(1, 5001) for name in "mnk"}
    path = gpu(
        "gemm/vllm/1/gemm",
        pa.table(
            {
                **columns,
                "gemm_dtype": pa.DictionaryArray.from_arrays(pa.array(np.zeros(5000, np.int32)), pa.array([long])),
                "latency": np.ones(5000),
            }
        ),
        row_group_size=2500,
    )

    assert path.stat().st_size < 20e6
    assert 5000 == table("h100_sxm", "linear").unmapped


def test_tables_without_window_and_step_have_none(gpu):
    sizes = {"batch_size": 2, "isl": 64, "num_heads": 8, "num_key_value_heads": 0, "head_dim": 64, "latency": 1.0}
    types = {"attn_dtype": "bfloat16", "kv_cache_dtype": "fp8"}
    gpu("attention/vllm/1/context_attention", [{**sizes, **types}])
    gpu(
        "attention/trtllm/1/context_attention",
        [{**sizes, **types, "step": 8, "window_size": window} for window in (-1, 32, 72)],
    )

    names = ("kv_heads", "queries", "keys", "window", "of")
    found = {tuple(row[name] for name in names) for row in rows_of("attention")}
    # 0 heads of keys and values: one per head of queries. A window of all keys is none.
    assert {(8, 64, 64, 0, "vllm 1"), (8, 64, 72, 0, "trtllm 1"), (8, 64, 72, 32, "trtllm 1")} == found


def test_the_framework_is_that_of_the_folder(gpu):
    gpu("gemm/vllm/0.24.0/gemm", products((1, 2, 3), framework="TRTLLM", version="9"))
    assert ["vllm 0.24.0"] == [row["of"] for row in rows_of("linear")]


def test_a_missing_column_is_named(gpu):
    gpu("gemm/vllm/1/gemm", [{"gemm_dtype": "fp8", "m": 1, "k": 2, "latency": 1.0}])
    with pytest.raises(BadInput, match="has no column n; it has gemm_dtype, m, k, latency"):
        table("h100_sxm", "linear")


@pytest.mark.parametrize("place", ["gemm/vllm/1/GEMM", "gemm/vllm/1/gemm_x", "gemm/vllm/x/1/gemm"])
def test_a_table_of_another_name_or_place_is_not_read(gpu, place):
    gpu(place, products((1, 2, 3)))
    with pytest.raises(BadInput, match="h100_sxm has no table of fully connected layers"):
        table("h100_sxm", "linear")


def test_a_table_without_rows_has_no_times(gpu):
    from deepbench.gpus import times

    gpu("gemm/vllm/1/gemm", pa.Table.from_pylist(products((1, 2, 3))).slice(0, 0))
    found = table("h100_sxm", "linear")
    assert (0, []) == (len(found), found.marks.tolist())

    asked = times.as_arrays([{"m": 1, "n": 2, "k": 3, "type": 0}], found.family.keys)
    assert np.isnan(times.times("h100_sxm", "linear", asked, "vllm").seconds).all()


# ---- which rows


def test_the_version_with_most_rows_counts_and_the_newest_of_equal_ones(gpu):
    gpu("gemm/trtllm/1.3.0rc20/gemm", products((1, 1, 1), (1, 1, 2)))
    gpu("gemm/trtllm/1.3.0rc9/gemm", products((1, 1, 3), (1, 1, 4)))
    gpu("gemm/vllm/0.9.0/gemm", products((1, 1, 5), (1, 1, 6), (1, 1, 7)))
    gpu("gemm/vllm/0.24.0/gemm", products((1, 1, 8)))

    assert [1, 2, 5, 6, 7] == [row["k"] for row in rows_of("linear")]
    assert [1, 2, 3, 4, 5, 6, 7, 8] == sorted(row["k"] for row in rows_of("linear", every_version=True))


@pytest.mark.parametrize(
    ("older", "newer"),
    [("1.3.0rc9", "1.3.0rc20"), ("0.9.0", "0.24.0"), ("1.0.0rc6", "1.0.0"), ("0.5.6", "0.5.6.post2")],
)
def test_versions_are_ordered_by_their_numbers(older, newer):
    assert version_order(older) < version_order(newer)


def test_of_equal_kernels_the_faster_counts_within_a_framework(gpu):
    gpu("gemm/vllm/1/gemm", [*products((4, 5, 6), seconds=2e-3), *products((4, 5, 6), seconds=1e-3)])
    gpu("gemm/trtllm/1/gemm", products((4, 5, 6), seconds=3e-3))

    assert [("trtllm 1", 3e-3), ("vllm 1", 1e-3)] == sorted((row["of"], row["s"]) for row in rows_of("linear"))


def test_rows_of_unknown_types_sizes_and_times_are_counted(gpu):
    bad = [
        *products((1, 2, 3), gemm_dtype="float7"),
        *products((0, 2, 3)),
        *products((1, -2, 3)),
        *products((1, 2, 2**41)),
        *(row for s in (0.0, -1.0, float("nan"), float("inf"), 1e5) for row in products((1, 2, 3), seconds=s)),
    ]
    gpu("gemm/vllm/1/gemm", [*products((1, 2, 4)), *bad])

    assert [4] == [row["k"] for row in rows_of("linear")]
    assert len(bad) == table("h100_sxm", "linear").unmapped


def test_exchanges_count_bytes_and_leave_out_those_with_a_launch(gpu):
    def row(**words):
        return {"num_gpus": 4, "message_size": 1000, "latency": 1.0, **words}

    gpu(
        "comm/nccl/2.27.3/nccl",
        [
            *(row(op_name=op, nccl_dtype="half") for op in ("all_gather", "reduce_scatter", "alltoall")),
            row(op_name="all_reduce", nccl_dtype="int8"),
            row(op_name="broadcast", nccl_dtype="half"),
            row(op_name="all_gather", nccl_dtype="int3"),
            row(op_name="all_gather", nccl_dtype="half", num_gpus=1),
        ],
    )
    gpu(
        "comm/vllm/1/custom_allreduce",
        [
            row(allreduce_dtype="bfloat16", backend=f"vllm_{kind}", num_gpus=n)
            for n, kind in ((2, "graph"), (4, "eager"))
        ],
    )
    gpu("comm/trtllm/1/custom_allreduce", [row(allreduce_dtype="bfloat16", implementation="auto")])

    found = {(row["op"], row["ranks"], row["bytes"], row["of"]) for row in rows_of("collectives")}
    of_nccl = {(op, 4, 2000, "nccl 2.27.3") for op in (1, 2, 3)} | {(0, 4, 1000, "nccl 2.27.3")}
    assert of_nccl | {(0, 2, 2000, "vllm 1"), (0, 4, 2000, "trtllm 1")} == found
    assert 4 == table("h100_sxm", "collectives").unmapped


def test_experts_of_the_faulty_routing_are_left_out(gpu):
    sizes = {"num_tokens": 64, "inter_size": 2048, "topk": 8, "moe_tp_size": 1, "moe_ep_size": 1, "moe_dtype": "fp8"}
    deepseek, other = {"hidden_size": 7168, "num_experts": 256}, {"hidden_size": 4096, "num_experts": 128}
    rows = [
        {**sizes, **shape, "distribution": routing, "latency": 1.0}
        for shape in (deepseek, other)
        for routing in ("balanced", "power_law_1.2", "power_law_9")
    ]
    gpu("moe/vllm/1/moe", rows)

    assert {(7168, 2), (4096, 0), (4096, 2)} == {(row["hidden"], row["routing"]) for row in rows_of("experts")}


def test_tables_that_are_like_no_operation_are_counted(gpus):
    (found,) = [one for one in contents() if one.machine == "h100_sxm"]
    assert {"mhc_module": 3} == found.other


def test_machines_have_a_sheet_and_a_table(folder):
    write_sheet(folder, "only_sheet")
    write(folder, "only_tables", "gemm/vllm/1/gemm", products((1, 2, 3)))
    write_sheet(folder, "both")
    write(folder, "both", "gemm/vllm/1/gemm", products((1, 2, 3)))
    write_sheet(folder, "\x1b[31mred")
    write(folder, "\x1b[31mred", "gemm/vllm/1/gemm", products((1, 2, 3)))

    assert ("both",) == package.machines()
    assert package.is_machine("BOTH")
    with pytest.raises(BadInput, match="'bath' is no GPU of the published tables; there are both; did you mean"):
        package.find("bath")


# ---- the index


def test_the_index_counts_rows_of_all_versions_and_is_kept(gpus):
    found = {one.machine: one for one in index.contents()}
    own = found["l40s"]

    assert 2 * 14 * 25 * 2 == own.families["linear"]
    assert {"mhc_module": 3} == own.other
    assert sum(own.families.values()) + 3 == own.rows
    assert ("trtllm 1.3.0rc20", "vllm 0.24.0") == own.sources

    forget()
    before = package.row_count
    try:
        package.row_count = None  # nothing is counted again
        assert [own] == [one for one in index.contents() if one.machine == "l40s"]
    finally:
        package.row_count = before


def test_a_new_table_is_counted(gpu):
    gpu("gemm/vllm/1/gemm", products((1, 2, 3)))
    assert [1] == [one.rows for one in index.contents()]

    gpu("gemm/vllm/2/gemm", products((1, 2, 3), (1, 2, 4)))
    forget()
    assert [3] == [one.rows for one in index.contents()]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "[3]", '[{"machine": "h100_sxm"}]', "[" * 10_000]
    + [
        '[{"machine": "h100_sxm", "rows": 7, "families": [1], "other": {}, "sources": []}]',
        '[{"machine": "other", "rows": 7, "families": {}, "other": {}, "sources": []}]',
        '[{"machine": "h100_sxm", "rows": "x", "families": {}, "other": {}, "sources": []}]',
    ],
)
def test_a_damaged_index_is_made_again(gpu, text):
    gpu("gemm/vllm/1/gemm", products((1, 2, 3)))
    before = index.contents()
    (path,) = (package.folder().parent / "state" / "gpus").glob("index-*.json")
    path.write_text(text)

    assert before == index.contents()


# ---- marks


# So many short times that no time looks like that of the host.
SHORT = [
    r for kind in ("bfloat16", "fp8") for m in range(1, 20) for r in products((m, 8, 8), seconds=2e-6, gemm_dtype=kind)
]


def marks_of(gpu, rows):
    gpu("gemm/vllm/1/gemm", [*SHORT, *rows])
    found = table("h100_sxm", "linear")
    return {
        kernel_at(found.kernels, i)["k"]: int(found.marks[i]) for i in range(len(found)) if found.kernels["n"][i] > 8
    }


def test_rows_above_the_peak_are_marked(gpu):
    side = 16384
    flop = 2 * side**2 * side
    seconds = flop / 989e12
    rows = [
        *products((side, side, side), seconds=seconds / 1.01),
        *products((side, side, side + 64), seconds=seconds / 1.03),
        # Of 8 bits, the peak is twice as high.
        *products((side, side, side + 128), seconds=seconds / 1.9, gemm_dtype="fp8"),
    ]
    assert {side: FINE, side + 64: ABOVE_PEAK, side + 128: FINE} == marks_of(gpu, rows)


def test_rows_faster_than_the_memory_are_marked_if_they_do_not_fit_into_the_cache(gpu):
    cache = 50e6
    found = {}
    rows = []
    for share, faster in ((1.9, 1.5), (2.1, 1.5), (2.1, 1.0)):
        k = int(share * cache / 2 / 8192) + (faster > 1)
        size = 2 * (8192 * k + k) + 2 * 8192
        rows += products((1, 8192, k), seconds=size / (3.35e12 * faster))
        found[k] = ABOVE_BANDWIDTH if share > 2 and faster > 1 else FINE
    assert found == marks_of(gpu, rows)


def test_rows_alone_among_their_neighbours_are_marked(gpu):
    rows = [
        row
        for k, factors in ((1024, (1, 1, 3, 1, 1)), (2048, (1, 1, 1 / 3, 1, 1)), (4096, (1, 1, 1.9, 1, 1)))
        for m, factor in zip((256, 512, 1024, 2048, 4096), factors, strict=True)
        for row in products((m, 4096, k), seconds=1e-7 * m * factor)
    ]
    # A step that stays is a change of the algorithm.
    rows += [r for i in range(6) for r in products((2**i, 4096, 512), seconds=1e-5 if i < 3 else 4e-5)]
    gpu("gemm/vllm/1/gemm", [*SHORT, *rows])
    found = table("h100_sxm", "linear")
    marked = [kernel_at(found.kernels, i) for i in np.flatnonzero(found.marks)]

    assert [(1024, 1024), (1024, 2048)] == sorted((row["m"], row["k"]) for row in marked)
    assert {ALONE} == set(found.marks[found.marks > 0].tolist())


def test_times_of_the_host_are_marked(gpu):
    slow = [r for m in range(1, 101) for r in products((m, 512, 512), seconds=60e-6, gemm_dtype="fp8_block")]
    large = products((8192, 4096, 4096), seconds=400e-6, gemm_dtype="fp8_block")
    quick = [r for m in range(1, 101) for r in products((m, 512, 512), seconds=4e-6)]
    gpu("gemm/vllm/1/gemm", [*slow, *large, *quick])
    found = table("h100_sxm", "linear")

    assert 100 * [OF_HOST] == found.marks[(found.kernels["type"] == 2) & (found.kernels["m"] < 8192)].tolist()
    assert not found.marks[found.kernels["m"] == 8192].any()
    assert not found.marks[found.kernels["type"] == 0].any()


# ---- data sheets


def test_a_sheet_is_read_in_si_units(gpus):
    page = sheet.sheet("l40s")
    assert (864e9, 48 * 2**30, 700, 32e9, 8) == (
        page.bytes_per_s,
        page.memory_bytes,
        page.power_w,
        page.link_bytes_per_s,
        page.devices_per_node,
    )
    assert {"bf16": 362e12, "f8e4m3": 733e12, "i8": 733e12} == page.peak
    assert "NVIDIA L40S 48GB" == page.title
    # It does not multiply 4 bits, so 8 bits stand for them.
    assert [362e12, 733e12, 733e12, 733e12] == [page.peak_of(name) for name in PRECISIONS]


def test_what_a_sheet_does_not_state_is_unknown(folder):
    (folder / "new.yaml").write_text(
        "gpu:\n  mem_bw: 1e12\n  bfloat16_tc_flops: 1.5e14\n  power: null\n  fp8_tc_flops:\n"
    )
    page = sheet.sheet("new")

    assert (None, None, None, None) == (page.memory_bytes, page.power_w, page.link_bytes_per_s, page.devices_per_node)
    assert ("new", {"bf16": 1.5e14}) == (page.title, page.peak)


def test_another_folder_is_named_by_the_variable(folder, monkeypatch):
    assert folder == package.require_folder()
    (folder / "data").rmdir()
    with pytest.raises(BadInput, match="has no folder data with tables; DEEPBENCH_GPU_TABLES names the folder systems"):
        package.require_folder()


def test_a_table_that_vanishes_ends_in_a_sentence(gpu):
    path = gpu("gemm/vllm/1/gemm", products((1, 2, 3)))
    (file,) = package.tables("h100_sxm")
    os.unlink(path)
    for look in (package.row_count, package.facts):
        with pytest.raises(BadInput, match=r"gemm_perf\.parquet"):
            look(file)


def test_the_small_package_has_no_marked_row(gpus):
    """Its times follow from a formula below the peak, so that no mark is deserved."""
    for machine in small_tables.SHEETS:
        for name in ("linear", "attention", "attention_decode", "experts", "latent_attention", "collectives", "delta"):
            assert not table(machine, name).marks.any(), (machine, name)
