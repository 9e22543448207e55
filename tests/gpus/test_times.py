"""Times of kernels: rows that are found, times between them, and the fitted models of all others."""

import dataclasses
import json
import math
import time

import numpy as np
import pytest

from deepbench.gpus import fit, times
from deepbench.gpus.families import families
from deepbench.gpus.published import choose, nearest
from deepbench.gpus.sheet import sheet
from deepbench.gpus.table import kernel_at, table
from deepbench.results.summary import summarize
from tests.gpus import small_tables
from tests.gpus.small_tables import forget, write, write_sheet
from tests.help import samples

MEASURED, INTERPOLATED, MODELLED = range(3)


def asked(family, *kernels, framework="trtllm", machine="h100_sxm"):
    columns = times.as_arrays(kernels, families()[family].keys)
    return times.times(machine, family, columns, framework)


DECODE = {"batch": 4, "heads": 16, "kv_heads": 8, "head_size": 128, "queries": 1, "window": 0, "type": 0, "cache": 0}
PRODUCT = {"m": 256, "n": 4096, "k": 2048, "type": 0}


# ---- rows


@pytest.mark.parametrize(
    "name", ["linear", "attention", "attention_decode", "experts", "latent_attention", "latent_products", "delta"]
)
def test_every_row_is_found_again(gpus, name):
    found = table("l40s", name)
    for code, source in enumerate(found.sources):
        rows = np.flatnonzero(found.source == code)[::7]
        own = times.times("l40s", name, {k: v[rows] for k, v in found.kernels.items()}, source.framework)
        assert found.seconds[rows].tolist() == own.seconds.tolist()
        assert {MEASURED} == set(own.how.tolist())
        assert (own.low_s < own.seconds).all()
        assert (own.seconds < own.high_s).all()


def test_a_framework_without_a_table_has_no_times(gpus):
    assert asked("linear", PRODUCT, framework="sglang") is None
    assert ["trtllm", "vllm"] == times.frameworks("h100_sxm", "linear")


def test_marked_rows_take_no_part(folder):
    write_sheet(folder, "h100_sxm")
    rows = [dict(row) for row in small_tables.gemm("h100_sxm", 1.0)]
    for row in rows:
        if (row["m"], row["n"], row["k"], row["gemm_dtype"]) == (256, 4096, 2048, "bfloat16"):
            right = row["latency"]
            row["latency"] *= 50
    write(folder, "h100_sxm", "gemm/trtllm/1/gemm", rows)
    found = asked("linear", PRODUCT)

    assert INTERPOLATED == found.how[0]
    assert math.isclose(right * 1e-3, found.seconds[0], rel_tol=0.05)


# ---- between rows


@pytest.mark.parametrize("keys", [33, 40, 63, 1500])
def test_a_time_between_two_rows_of_a_smooth_family_lies_on_the_line_between_them(gpus, keys):
    below = 2 ** int(math.log2(keys))
    low, high, middle = (asked("attention_decode", {**DECODE, "keys": k}) for k in (below, 2 * below, keys))
    share = math.log(keys / below) / math.log(2)
    wanted = low.seconds[0] ** (1 - share) * high.seconds[0] ** share

    assert [MEASURED, MEASURED, INTERPOLATED] == [int(found.how[0]) for found in (low, high, middle)]
    assert math.isclose(wanted, middle.seconds[0], rel_tol=1e-12)


def test_the_line_is_that_of_the_same_framework_and_of_equal_other_sizes(gpus):
    kernel = {**DECODE, "keys": 1500}
    of_trtllm, of_vllm = (asked("attention_decode", kernel, framework=name).seconds[0] for name in ("trtllm", "vllm"))
    assert math.isclose(1.1, of_vllm / of_trtllm, rel_tol=1e-9)
    # Twelve heads are in no row, so that a model must answer.
    other = asked("attention_decode", {**kernel, "heads": 12, "kv_heads": 4}).seconds[0]
    assert other != asked("attention_decode", {**kernel, "heads": 16, "kv_heads": 8}).seconds[0]


def test_prompts_whose_first_keys_are_known_lie_on_no_line_of_whole_prompts(gpus):
    """Rows have as many keys as queries; a part of a prompt sees more keys and takes longer."""
    kernel = {"batch": 1, "heads": 16, "kv_heads": 8, "head_size": 128, "window": 0, "type": 0, "cache": 0}
    whole = asked("attention", {**kernel, "queries": 1500, "keys": 1500})
    part = asked("attention", {**kernel, "queries": 1500, "keys": 8000})

    assert INTERPOLATED == whole.how[0]
    assert part.seconds[0] != whole.seconds[0]
    assert part.seconds[0] > 1.2 * whole.seconds[0]


def test_rows_that_are_far_apart_have_no_line(folder):
    write_sheet(folder, "h100_sxm")
    rows = [row for row in small_tables.generation_attention("h100_sxm", 1.0) if row["step"] + 1 in (64, 8192)]
    write(folder, "h100_sxm", "attention/trtllm/1/generation_attention", rows)
    kernel = {**DECODE, "keys": 600}
    low, high, found = (asked("attention_decode", {**DECODE, "keys": k}) for k in (64, 8192, 600))
    share = math.log(600 / 64) / math.log(8192 / 64)
    line = low.seconds[0] ** (1 - share) * high.seconds[0] ** share

    assert not math.isclose(line, found.seconds[0], rel_tol=1e-3), kernel


def test_beyond_the_rows_times_are_modelled_and_less_certain(gpus):
    inside, beyond = asked(
        "attention_decode", {**DECODE, "heads": 12, "kv_heads": 4, "keys": 999}, {**DECODE, "keys": 65536}
    ).how
    assert (INTERPOLATED, MODELLED) == (inside, beyond)

    # Four times the largest m of the table: about four times as long, by the roofline.
    found = asked("linear", {**PRODUCT, "m": 32768})
    assert MODELLED == found.how[0]
    wanted = 1e-3 * small_tables.time_ms("h100_sxm", 2 * 32768 * 4096 * 2048, 0)
    assert math.isclose(wanted, found.seconds[0], rel_tol=0.2)


def test_a_kernel_of_a_type_without_rows_has_no_time(gpus):
    found = asked("linear", {**PRODUCT, "type": 3}, PRODUCT)
    assert [True, False] == np.isnan(found.seconds).tolist()


def test_intervals_of_rows_have_the_spread_of_the_frameworks(gpus):
    found = asked("linear", PRODUCT)
    # All ratios of the two are 1.1; half of a 95 % interval of a normal distribution with this median.
    spread = math.log(1.1) * 1.96 / 0.6745 / math.sqrt(2)
    assert math.isclose(spread, math.log(found.high_s[0] / found.seconds[0]), rel_tol=1e-6)
    assert math.isclose(spread, math.log(found.seconds[0] / found.low_s[0]), rel_tol=1e-6)


# ---- models


def noisy(folder, sigma):
    """A model of products whose times have noise that nothing explains."""
    write_sheet(folder, "h100_sxm")
    random = np.random.default_rng(1)
    rows = [
        {**row, "latency": row["latency"] * float(np.exp(random.normal(0, sigma)))}
        for row in small_tables.gemm("h100_sxm", 1.0)
        if row["gemm_dtype"] == "bfloat16"
    ]
    write(folder, "h100_sxm", "gemm/trtllm/1/gemm", rows)
    return fit.fit(table("h100_sxm", "linear"), (0,))


def test_held_out_errors_are_small_for_a_formula(gpus):
    for family, group in (("linear", (0,)), ("attention_decode", ()), ("experts", (0,))):
        errors = fit.fitted("h100_sxm", family, group).total
        assert errors.median < 0.02, family
        assert errors.low < 0 < errors.high, family


def test_held_out_errors_of_noise_are_not_smaller_than_the_noise(folder):
    errors = noisy(folder, 0.2).total
    # The median of |exp(x) - 1| of normal noise of 0.2 is 0.134.
    assert 0.1 < errors.median < 0.3
    assert errors.high - errors.low > 2 * 1.96 * 0.2 * 0.8


def test_intervals_contain_the_times_of_kernels_that_no_model_saw(folder):
    model = noisy(folder, 0.2)
    rows = table("h100_sxm", "linear")
    fresh = np.random.default_rng(2)
    kernels = {"m": 2 ** fresh.integers(0, 13, 400) + 1, "n": np.full(400, 3000), "k": np.full(400, 3000)}
    kernels = {**kernels, "type": np.zeros(400, np.int64)}
    predicted = model.seconds(rows.family, kernels, sheet("h100_sxm"), 0)
    low, high = model.interval(predicted)
    work = rows.family.work(kernels)
    exact = small_tables.START_S + np.maximum(work.flop / (0.8 * 989e12), work.bytes / (0.8 * 3.35e12))
    measured = exact * np.exp(fresh.normal(0, 0.2, 400))

    inside = (predicted * low <= measured) & (measured <= predicted * high)
    assert 0.85 < inside.mean() <= 1.0


def test_held_out_shapes_are_the_same_for_every_type_and_framework(gpus):
    rows = table("h100_sxm", "linear")
    folds = fit.fold_of(rows.family, rows.kernels)
    by_shape = {}
    for i in range(len(rows)):
        shape = tuple(int(rows.kernels[name][i]) for name in "mnk")
        by_shape.setdefault(shape, set()).add(int(folds[i]))

    assert {1} == {len(found) for found in by_shape.values()}
    assert set(range(fit.FOLDS)) == set(folds.tolist())


def test_few_rows_have_no_model(folder):
    write_sheet(folder, "h100_sxm")
    rows = [row for row in small_tables.gemm("h100_sxm", 1.0) if row["gemm_dtype"] == "fp8"]
    write(folder, "h100_sxm", "gemm/vllm/1/gemm", rows[: fit.LEAST_ROWS - 1])
    assert fit.fit(table("h100_sxm", "linear"), (1,)) is None
    assert np.isnan(asked("linear", {**PRODUCT, "m": 3, "type": 1}, framework="vllm").seconds[0])


@pytest.mark.parametrize("sizes", [{"n", "k"}, {"m", "n"}])
def test_a_table_with_few_different_sizes_has_a_model_or_none(folder, sizes):
    """LightGBM must not end in an error where columns are constant."""
    write_sheet(folder, "h100_sxm")
    rows = [
        {"gemm_dtype": "bfloat16", **{name: 64 if name in sizes else i for name in "mnk"}, "latency": 0.01}
        for i in range(1, 151)
    ]
    write(folder, "h100_sxm", "gemm/trtllm/1/gemm", rows)
    found = asked("linear", {"m": 64, "n": 64, "k": 64, "type": 0}, {"m": 200, "n": 200, "k": 200, "type": 0})
    assert 1e-5 == found.seconds[0]
    assert found.seconds[1] > 0


@pytest.mark.parametrize("is_held", [True, False])
def test_tables_whose_shapes_are_all_held_out_or_none(folder, is_held):
    write_sheet(folder, "h100_sxm")
    family = families()["linear"]
    m = np.arange(1, 3000)
    folds = fit.fold_of(family, {"m": m, "n": 0 * m + 64, "k": 0 * m + 64, "type": 0 * m})
    chosen = m[(folds == 0) == is_held][:200].tolist()
    rows = [{"gemm_dtype": "fp8", "m": size, "n": 64, "k": 64, "latency": 0.01} for size in chosen]
    write(folder, "h100_sxm", "gemm/vllm/1/gemm", rows)
    found = fit.fit(table("h100_sxm", "linear"), (1,))

    assert (found is None) == is_held
    if found is not None:
        assert found.total is None
        low, high = found.interval(np.array([1e-5]))
        assert low[0] <= 0.5 < 2 <= high[0]


# ---- remembered models


@pytest.fixture
def own(folder):
    """A GPU with a table of products alone, and a way to its model as if the process had just begun."""
    write_sheet(folder, "h100_sxm")
    rows = [row for row in small_tables.gemm("h100_sxm", 1.0) if row["gemm_dtype"] == "bfloat16"]
    write(folder, "h100_sxm", "gemm/trtllm/1/gemm", rows)

    def again():
        forget()
        return fit.fitted("h100_sxm", "linear", (0,))

    again.rows = rows
    again.folder = folder
    again.kept = lambda: sorted((folder.parent / "state" / "gpus").glob("h100_sxm-linear-*.json"))
    return again


def test_a_remembered_model_is_used_again(own, monkeypatch):
    first = own()
    monkeypatch.setattr(fit, "fit", None)  # nothing is fitted any more
    assert first == own()


@pytest.mark.parametrize("what", ["table", "sheet"])
def test_another_table_or_sheet_is_fitted_anew(own, what):
    first = own()
    if what == "table":
        doubled = [{**row, "latency": 2 * row["latency"]} for row in own.rows]
        write(own.folder, "h100_sxm", "gemm/trtllm/1/gemm", doubled)
    else:
        write_sheet(own.folder, "h100_sxm", {**small_tables.SHEETS["h100_sxm"], "mem_bw": 3e12})
    second = own()

    assert 2 == len(own.kept())
    assert first != second
    if what == "table":
        assert math.isclose(2, second.floor_s / first.floor_s)


def damaged(content):
    """Some ways in which a file may be damaged."""
    kept = json.loads(content)
    yield b""
    yield content[: len(content) // 2]
    yield b"[" * 10_000
    yield b"\xff\xfe" + content
    yield json.dumps({**kept, "ranges": [1]}).encode()
    yield json.dumps({**kept, "text": "tree\nnum_class=1\n"}).encode()
    yield json.dumps({**kept, "errors": [{"count": "many"}]}).encode()
    # LightGBM does not check numbers of nodes: with these it would read elsewhere, or never end.
    yield content.replace(b"left_child=", b"left_child=99999 ")
    yield content.replace(b"split_feature=", b"split_feature=99999 ")
    yield content.replace(b"num_leaves=127", b"num_leaves=900000000")


def test_a_damaged_model_is_fitted_anew(own, monkeypatch):
    first = own()
    (path,) = own.kept()
    content = path.read_bytes()
    for bad in damaged(content):
        path.write_bytes(bad)
        found = own()
        assert first == found
        assert content == path.read_bytes()


def test_a_model_of_another_kernel_is_not_used(own):
    first = own()
    (path,) = own.kept()
    from deepbench.core.json_lines import with_checksum

    other = dataclasses.asdict(dataclasses.replace(first, family="experts", floor_s=1.0))
    path.write_bytes(with_checksum(json.dumps(other).encode()))
    assert first == own()


def test_a_model_is_data_and_nothing_of_it_is_executed(own, tmp_path):
    first = own()
    (path,) = own.kept()
    trap = tmp_path / "executed"
    for text in (
        f"__import__('os').mkdir({str(trap)!r})",
        f"!!python/object/apply:os.mkdir [{trap}]",
        f"$(mkdir {trap})",
    ):
        path.write_text(text)
        assert first == own()
    assert not trap.exists()


def test_without_a_place_to_remember_models_are_fitted_each_time(own, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DEEPBENCH_STATE", str(tmp_path / "file"))
    assert own() == own()


def test_a_fit_uses_one_thread(own):
    """Threads of LightGBM wait for each other by spinning: beside other programs, a fit took 30 times as long."""
    own()
    forget()
    for path in own.kept():
        path.unlink()
    wall, cpu = time.monotonic(), time.process_time()
    fit.fitted("h100_sxm", "linear", (0,))
    assert time.process_time() - cpu < 1.2 * (time.monotonic() - wall) + 0.1


# ---- our results next to them


def test_results_next_to_published_times(gpus):
    texts = {
        "linear m=4096 n=256 k=2048 forward bf16 {backend} threads=1": 3e-5,  # a row
        "gemm m=4096 n=256 k=2048 a_t=0 b_t=0 forward f16 {backend} threads=1": 3e-5,
        "linear m=99999 n=256 k=2048 forward bf16 {backend} threads=1": 3e-5,  # beyond all rows
        "softmax rows=4 columns=4 forward bf16 {backend} threads=1": 3e-5,  # no table
    }
    records = [samples.measured("reference", text=text, seconds=s) for text, s in texts.items()]
    found = nearest(summarize(records), "h100_sxm")

    flop, traffic = 2 * 256 * 4096 * 2048, 2 * (4096 * 2048 + 256 * 2048 + 256 * 4096)
    row = 1e-3 * small_tables.time_ms("h100_sxm", flop, traffic)
    assert [("linear", None), ("linear", "f16 next to their bf16 and ours adds to C, or stores 32 bits")] == [
        (n.family, n.remark) for n in found
    ]
    for near in found:
        assert "measured" == near.how
        assert {"trtllm": pytest.approx(row), "vllm": pytest.approx(1.1 * row)} == dict(near.by_framework)
        assert math.isclose(3e-5 / (1.05 * row), near.ratio, rel_tol=0.01)
        assert near.is_within == (row <= 3e-5 <= 1.1 * row)


def test_rows_are_chosen_by_sizes_type_and_framework(gpus):
    found = choose("h100_sxm", "gemm", "bf16", "vllm", {"n": "4096", "k": "2048"})
    kernels = [kernel_at(found.rows.kernels, i) for i in found.order]

    assert 14 == len(kernels)
    assert [{"m": m, "n": 4096, "k": 2048, "type": 0} for m in small_tables.POWERS] == kernels
    assert {"vllm"} == {found.rows.sources[found.rows.source[i]].framework for i in found.order}


def test_a_product_that_is_not_aligned_as_the_rows_are_is_modelled(gpus):
    even, odd = asked("linear", {**PRODUCT, "m": 100, "n": 1000}, {**PRODUCT, "m": 100, "n": 1001}).how
    assert (INTERPOLATED, MODELLED) == (even, odd)
