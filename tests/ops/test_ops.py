"""The check of every operation finds wrong results: one element, a transposed filter, a missing bias."""

import itertools
import re

import numpy as np
import pytest

from deepbench.core import operands
from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput
from deepbench.core.op import all_ops, find_op
from deepbench.core.precision import dtype
from deepbench.measuring.check import check
from deepbench.ops import sparse_gemm
from deepbench.ops.conv import check as conv_check
from deepbench.ops.recurrent import check as recurrent_check
from deepbench.ops.recurrent import problem as recurrent_problem
from deepbench.ops.recurrent import reference as recurrent_reference

# These are checked like large problems, by sums and samples; see `_as_large`.
LARGE = [
    "conv n=2 c=40 h=12 w=10 k=70 r=3 s=3 pad_h=1 pad_w=1",
    "conv n=2 c=64 h=20 w=15 k=128 r=5 s=5 pad_h=1 pad_w=1 stride_h=2 stride_w=2 groups=2",
    "recurrent cell=vanilla hidden=100 batch=6 timesteps=9",
    "recurrent cell=lstm hidden=70 batch=5 timesteps=7",
    "recurrent cell=gru hidden=70 batch=7 timesteps=9",
    "recurrent cell=lstm hidden=40 batch=5 timesteps=7 input_size=50 layers=2 bidirectional=1",
    "recurrent cell=gru hidden=40 batch=7 timesteps=9 input_size=50 bidirectional=1",
    "sparse_gemm m=400 n=30 k=200 sparsity=90",
    "sparse_gemm m=400 n=30 k=200 sparsity=50 structure=2_4",
]


@pytest.fixture(autouse=True)
def _as_large(request, monkeypatch):
    """Check the problems in `LARGE` like large ones."""
    named = request.node.callspec.params.values() if hasattr(request.node, "callspec") else ()
    if any(isinstance(v, str) and (v.startswith(tuple(LARGE)) or v in LARGE_SIZES) for v in named):
        for module in (conv_check, recurrent_check, sparse_gemm):
            monkeypatch.setattr(module, "FULL_CHECK_MULTIPLY_ADDS", 0)


LARGE_SIZES = ("n=2 c=96 h=20 w=20 k=192 r=3 s=3", "n=2 c=40 h=12 w=10 k=70 r=3 s=3")


def texts():
    """Every operation in every direction and in several precisions, small and large."""
    for op in all_ops().values():
        if op.name == "gemm" or op.is_group:
            continue  # test_gemm.py, test_collective.py
        small = [f"{op.name} {op.smoke[i].text}" for i in (1, -1)]
        small += [f"{op.name} {p.text}" for p in op.smoke if op.name == "recurrent" and not p.is_recurrence_only]
        large = [text for text in LARGE if text.split()[0] == op.name]
        for text, direction in itertools.product([*small, *large], op.directions):
            for kind in ("f32", "bf16", "i8u8"):
                from deepbench.core.precision import find_precision as precision

                if op.allows(direction, precision(kind)) and not (kind == "i8u8" and "vanilla" in text):
                    yield f"{text} {direction} {kind} reference threads=1"


TEXTS = list(texts())
GEMMS = [f"gemm m=33 n=17 k=9 {words} reference threads=1" for words in ("forward f32", "b_t=1 forward i8")]


def solved(text):
    """A case with the correct results in its outputs."""
    c = parse_case(text)
    op = find_op(c.op)
    arrays = op.operands(c)
    for name, values in op.reference(c, arrays).items():
        arrays[name][...] = values
    return c, op, arrays


def test_the_outputs_follow_free_inputs_and_the_old_ones_are_wrong():
    """Moved numbers give another right result, which the check knows; a remembered one fails it."""
    found = set()
    for text in [*TEXTS, *GEMMS]:
        c, op, arrays = solved(text)
        free = op.free_inputs(c)
        if not free or any(arrays[name].size < 2 for name in free):
            continue
        before = {name: arrays[name].copy() for name in free}
        for name in free:
            operands.rotate(arrays[name])
            assert np.array_equal(np.roll(before[name].reshape(-1), -1), arrays[name].reshape(-1)), text
        assert not check(op, c, arrays).passed, text
        op.reset(c, arrays)
        for name, values in op.reference(c, arrays).items():
            arrays[name][...] = values
        assert check(op, c, arrays).passed, text
        found.add(c.op)
    assert {"gemm", "batched_gemm", "conv", "linear", "layer_norm", "sparse_gemm", "weight_only_gemm"} <= found


@pytest.mark.parametrize(
    "text", ["gemm m=40 n=30 k=20 a_t=1", "gemm m=1 n=1 k=1", "sparse_gemm m=40 n=30 k=20 sparsity=50"]
)
def test_outputs_that_every_call_adds_to_tell_how_many_calls_they_contain(text):
    c = parse_case(f"{text} forward f32 reference threads=1")
    op = find_op(c.op)
    arrays, once = op.operands(c), op.reference(c, op.operands(c))["c"]
    initial = arrays["c"].copy()
    for calls in (0, 1, 7, 100_000):
        arrays["c"][...] = initial + calls * (once - initial)

        assert calls == pytest.approx(op.calls_in(c, arrays), rel=1e-3, abs=1e-3)
    for words in ("beta=0", "result=narrow"):
        other = parse_case(f"{text} forward bf16 reference threads=1 {words}")

        assert op.calls_in(other, op.operands(other)) is None


def outputs(op, arrays):
    return [name for name in arrays if name in op.outputs]


def float_outputs(op, arrays):
    """Without positions, which have no small errors and are always numbers."""
    return [name for name in outputs(op, arrays) if arrays[name].dtype.kind not in "iu"]


@pytest.mark.parametrize("text", TEXTS)
def test_correct_results_pass_and_one_wrong_element_of_any_output_is_found(text):
    c, op, arrays = solved(text)
    verdict = check(op, c, arrays)
    assert verdict.passed, verdict
    if text.startswith(tuple(LARGE)) and c.op != "recurrent" and " i8u8 " not in text:
        assert re.search("sum of|projection", verdict.how)

    for name in outputs(op, arrays):
        array = arrays[name]
        place = tuple(n * 2 // 3 for n in array.shape)
        before = array[place].copy()
        # An error of twice a typical value; the next test has smaller errors in f32. The gradients of a layer below
        # others differ much between gates, so there it is twice the largest value.
        is_stacked = getattr(c.problem, "layers", 1) > 1
        typical = np.sqrt(np.mean(array.astype(np.float64) ** 2)) or 1
        changed = before.astype(np.float64) + 2 * (np.abs(array).astype(np.float64).max() if is_stacked else typical)
        array[place] = (
            changed if array.dtype.kind == "f" or array.dtype.name == "bfloat16" else (int(before) + 99) % 128
        )
        assert not check(op, c, arrays).passed, name
        array[place] = before


@pytest.mark.parametrize("text", [t for t in TEXTS if " f32 " in t])
def test_a_small_error_of_one_element_is_found_in_f32(text):
    c, op, arrays = solved(text)

    for name in float_outputs(op, arrays):
        array = arrays[name]
        place = tuple(n // 2 for n in array.shape)
        before = array[place].copy()
        array[place] += 0.05 * np.sqrt(np.mean(array.astype(np.float64) ** 2))
        assert not check(op, c, arrays).passed, name
        array[place] = before


@pytest.mark.parametrize("text", TEXTS)
def test_an_output_that_was_not_written_is_found(text):
    c, op, arrays = solved(text)
    right = {name: arrays[name].copy() for name in outputs(op, arrays)}
    op.reset(c, arrays)
    fresh = {name: arrays[name].copy() for name in right}
    for name, values in right.items():
        for other, whole in right.items():
            arrays[other][...] = whole
        arrays[name][...] = fresh[name]  # only this one was not written
        assert not check(op, c, arrays).passed, name
        arrays[name][...] = values


@pytest.mark.parametrize("text", [t for t in TEXTS if " f32 " in t])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_element_that_is_not_a_number_is_found(text, value):
    c, op, arrays = solved(text)

    for name in float_outputs(op, arrays):
        place = tuple(n - 1 for n in arrays[name].shape)
        before = arrays[name][place].copy()
        arrays[name][place] = value
        assert not check(op, c, arrays).passed, name
        arrays[name][place] = before


@pytest.mark.parametrize("size", ["n=2 c=5 h=9 w=9 k=6 r=3 s=3", LARGE_SIZES[0]])
@pytest.mark.parametrize(
    ("direction", "filters"), [("forward", "w"), ("backward_data", "w"), ("backward_weights", "dw")]
)
def test_a_transposed_filter_is_found(size, direction, filters):
    c, op, arrays = solved(f"conv {size} {direction} f32 reference threads=1")
    right = {name: values.copy() for name, values in arrays.items()}
    turned = np.ascontiguousarray(right[filters].swapaxes(2, 3))
    if filters == "dw":
        arrays["dw"][...] = turned
    else:
        answer = op.reference(c, {**right, "w": turned})
        for name, values in answer.items():
            arrays[name][...] = values

    assert not check(op, c, arrays).passed


@pytest.mark.parametrize("size", ["n=2 c=5 h=9 w=9 k=6 r=3 s=3", LARGE_SIZES[1]])
@pytest.mark.parametrize("kind", ["f32", "bf16", "i8u8"])
def test_a_convolution_without_its_bias_is_found(size, kind):
    c, op, arrays = solved(f"conv {size} forward {kind} reference threads=1 bias=yes")
    without = {**arrays, "b": 0 * arrays["b"]}
    arrays["y"][...] = op.reference(c, without)["y"]

    assert not check(op, c, arrays).passed


@pytest.mark.parametrize("cell", ["vanilla", "lstm", "gru"])
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_a_recurrent_layer_without_its_bias_or_with_transposed_weights_is_found(cell, kind):
    text = f"recurrent cell={cell} hidden=20 batch=6 timesteps=5 forward {kind} reference threads=1"
    for name, fault in (("b", lambda b: 0 * b), ("r", lambda r: np.ascontiguousarray(r.swapaxes(-3, -1)))):
        c, op, arrays = solved(text)
        arrays["y"][...] = op.reference(c, {**arrays, name: fault(arrays[name])})["y"]
        assert not check(op, c, arrays).passed, name


def test_exchanged_rows_of_a_batch_are_found():
    c, op, arrays = solved("recurrent cell=gru hidden=20 batch=9 timesteps=5 forward f32 reference threads=1")
    arrays["y"][:, [4, 5]] = arrays["y"][:, [5, 4]]

    assert not check(op, c, arrays).passed


@pytest.mark.parametrize("block", [2, 4, 6, 8, 16])
@pytest.mark.parametrize("cell", ["vanilla", "lstm", "gru"])
def test_a_copied_block_of_rows_is_found(cell, block):
    c, op, arrays = solved(f"recurrent cell={cell} hidden=20 batch=32 timesteps=5 forward f32 reference threads=1")
    arrays["y"][:, block : 2 * block] = arrays["y"][:, :block]

    assert not check(op, c, arrays).passed


def test_sampled_steps_are_not_counted_as_covered(monkeypatch):
    text = "recurrent cell=gru hidden=10 batch=7 timesteps=200 forward f32 reference threads=1"
    c, op, arrays = solved(text)
    assert arrays["y"].size == check(op, c, arrays).covers

    monkeypatch.setattr(recurrent_problem, "LARGE_MULTIPLY_ADDS", 0)
    verdict = check(op, c, arrays)

    assert verdict.passed
    # Rows 0 and 5 are checked at all 200 steps, the other five rows at 66 or fewer.
    assert 2 * 200 * 10 < verdict.covers <= (2 * 200 + 5 * 66) * 10
    assert arrays["y"].size == verdict.of


def test_a_bias_larger_than_the_sums_is_not_an_error():
    """Rounding errors are relative to everything that is added, including the bias."""
    c, op, arrays = solved("conv n=1 c=1 h=64 w=64 k=8 r=1 s=1 forward f32 reference threads=1 bias=yes")

    assert check(op, c, arrays).passed


def test_padding_in_depth_alone_makes_three_dimensions():
    c, op, arrays = solved("conv n=1 c=1 h=4 w=4 k=1 r=1 s=1 pad_d=1 forward f32 reference threads=1")

    assert (1, 1, 3, 4, 4) == arrays["y"].shape
    assert check(op, c, arrays).passed


def test_a_step_that_forgets_its_state_is_found():
    c, op, arrays = solved("recurrent cell=lstm hidden=20 batch=3 timesteps=5 forward f32 reference threads=1")
    half = {name: values[2:].copy() if name == "x" else values for name, values in arrays.items()}
    later = parse_case("recurrent cell=lstm hidden=20 batch=3 timesteps=3 forward f32 reference threads=1")
    arrays["y"][2:] = op.reference(later, half)["y"]  # as if it started again at step 2

    assert not check(op, c, arrays).passed


@pytest.mark.parametrize("beta", ["0", "1"])
def test_a_sparse_product_that_ignores_beta_is_found(beta):
    text = "sparse_gemm m=40 n=7 k=50 sparsity=90 forward f32 reference threads=1 beta={}"
    c, op, arrays = solved(text.format(beta))
    other = parse_case(text.format("1" if beta == "0" else "0"))
    arrays["c"][...] = op.reference(other, arrays)["c"]

    assert not check(op, c, arrays).passed


def test_gradients_of_the_reference_match_finite_differences():
    """For every input of every cell."""
    for cell, extra in (("vanilla", ""), ("lstm", ""), ("gru", ""), ("gru", "gru_reset=before")):
        sizes = f"recurrent cell={cell} hidden=4 batch=3 timesteps=3"
        backward = parse_case(f"{sizes} backward f32 reference threads=1 {extra}")
        forward = parse_case(f"{sizes} forward f32 reference threads=1 {extra}")
        op = find_op("recurrent")
        arrays = {name: values.astype(np.float64) for name, values in op.operands(backward).items()}
        found = op.reference(backward, arrays)
        for name in ("x", "h0", "c0", "w", "r", "b"):
            if name not in arrays:
                continue
            place = tuple(n // 2 for n in arrays[name].shape)
            ends = []
            for step in (1e-6, -1e-6):
                moved = arrays[name].copy()
                moved[place] += step
                ends.append((op.reference(forward, {**arrays, name: moved})["y"] * arrays["dy"]).sum())
            assert found[f"d{name}"][place] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-6), (cell, name)


@pytest.mark.parametrize("text", ["", "groups=4", "dilation_h=2 stride_w=2", "d=4 t=2 pad_d=1"])
def test_gradients_of_a_convolution_are_its_adjoints(text):
    """<y(x, w), dy> = <x, dx(dy, w)> = <w, dw(x, dy)>."""
    op = find_op("conv")
    made = {}
    for direction in op.directions:
        c = parse_case(f"conv n=2 c=4 h=9 w=8 k=8 r=3 s=2 pad_h=1 {text} {direction} f32 reference threads=1")
        made |= {n: a.astype(np.float64) for n, a in op.operands(c).items() if n in ("x", "w", "dy")}
    results = {}
    for direction in op.directions:
        c = parse_case(f"conv n=2 c=4 h=9 w=8 k=8 r=3 s=2 pad_h=1 {text} {direction} f32 reference threads=1")
        results |= op.reference(c, made)

    inner = (results["y"] * made["dy"]).sum()
    assert inner == pytest.approx((results["dx"] * made["x"]).sum())
    assert inner == pytest.approx((results["dw"] * made["w"]).sum())


def test_flop_of_a_convolution_without_padding():
    c = parse_case(
        "conv n=1 c=4 h=7 w=7 k=8 r=1 s=1 pad_h=3 pad_w=3 stride_h=2 stride_w=2 forward f32 reference threads=1"
    )
    op = find_op("conv")

    assert (1, 7, 7) == c.problem.output
    assert 2 * 8 * 4 * 7 * 7 == op.flop(c)
    assert 2 * 8 * 4 * 3 * 3 == op.other_flop(c)["without_padding"]


def test_flop_of_a_sparse_product():
    c = parse_case("sparse_gemm m=7680 n=2 k=2560 sparsity=95 forward f32 reference threads=1")
    op = find_op("sparse_gemm")

    assert 2 * 7680 * 128 * 2 == op.flop(c)
    assert 19 == pytest.approx(op.other_flop(c)["original"] / op.flop(c))
    assert 20 == op.other_flop(c)["dense"] / op.flop(c)
    arrays = op.operands(c)
    assert 7680 * 128 == arrays["row_starts"][-1] == arrays["columns"].size
    lengths = np.diff(arrays["row_starts"])
    assert 9 < lengths.std() < 13  # √(2560 · 0.95 · 0.05) = 11, as for independent zeros
    row = arrays["columns"][arrays["row_starts"][5] : arrays["row_starts"][6]]
    assert (np.diff(row) > 0).all()


def stored(values, kind):
    """Rounded as a step that stores this type leaves them."""
    return values.astype(dtype(kind)).astype(np.float64)


def layer_in_16_bits(text, kind, wrong_step=None):
    """A vanilla layer as PyTorch computes it: every step stores 16 bits, and dr is a sum of all steps in 16 bits.

    `wrong_step` is left out of dr.
    """
    c = parse_case(text)
    op = find_op(c.op)
    arrays = op.operands(c)
    x, h, w, r, b, dy = (arrays[name].astype(np.float64) for name in ("x", "h0", "w", "r", "b", "dy"))
    h, w, r, b = h[0, 0], w[0, 0, 0], r[0, 0, :, 0], b[0, 0]
    before, after = [], []
    for t in range(c.problem.timesteps):
        before.append(h)
        h = stored(np.maximum(stored(stored(h @ r, kind) + stored(x[t] * w + b[0], kind), kind), 0), kind)
        after.append(h)
    dh, sums = np.zeros(h.shape), {"dr": np.zeros(r.shape), "dw": np.zeros(w.shape), "db": np.zeros(w.shape)}
    for t in reversed(range(c.problem.timesteps)):
        gate = stored(dh + stored(dy[t], kind), kind) * (after[t] > 0)
        arrays["dx"][t, :, 0] = stored(gate @ w, kind)
        if t != wrong_step:
            sums["dr"] = stored(sums["dr"] + stored(before[t].T @ gate, kind), kind)
        sums["dw"] += x[t].T[0] @ gate
        sums["db"] += gate.sum(axis=0)
        dh = stored(gate @ r.T, kind)
    arrays["y"][...], arrays["dh0"][...] = np.stack(after), dh
    dr, dw, db = (arrays[name][0, 0] for name in ("dr", "dw", "db"))
    dr[:, 0], dw[0], db[0] = sums["dr"], stored(sums["dw"], kind), sums["db"]
    return c, op, arrays


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("sizes", ["hidden=128 batch=16 timesteps=50", "hidden=96 batch=64 timesteps=100"])
def test_errors_of_16_bits_are_followed_through_the_steps(kind, sizes, is_large, monkeypatch):
    """Each step rounds its result, which later steps read, and the sum of dr is rounded after each step."""
    if is_large:
        monkeypatch.setattr(recurrent_check, "FULL_CHECK_MULTIPLY_ADDS", 0)
        monkeypatch.setattr(recurrent_reference, "SAMPLED_ROWS", 16)
        monkeypatch.setattr(recurrent_reference, "PARTIAL_SUMS", 16)
    text = f"recurrent cell=vanilla {sizes} backward {kind} reference threads=1"

    c, op, arrays = layer_in_16_bits(text, kind)
    verdict = check(op, c, arrays)

    assert verdict.passed, verdict.sentence
    assert 0.02 < verdict.error < 1  # the tolerance is not so wide that it means nothing


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_a_step_that_is_missing_in_a_16_bit_sum_is_found(kind):
    text = f"recurrent cell=vanilla hidden=128 batch=16 timesteps=50 backward {kind} reference threads=1"
    c, op, arrays = layer_in_16_bits(text, kind, wrong_step=49)

    assert not check(op, c, arrays).passed


def without_bias(arrays, gates):
    arrays["db"][...] = 0


def with_other_gates(arrays, gates):
    for name in ("dw", "dr"):
        arrays[name][..., [0, 1], :] = arrays[name][..., [1, 0], :]


def with_one_wrong_element(arrays, gates):
    arrays["dr"][0, 0, 3, 0, 5] += 2 * np.sqrt((arrays["dr"] ** 2).mean())


def without_last_step(arrays, gates):
    for name in ("dw", "dr", "db"):
        arrays[name][...] = gates[name]


FAULTS = [without_bias, with_one_wrong_element, without_last_step]


@pytest.mark.parametrize(
    ("cell", "fault"),
    [*itertools.product(["vanilla", "lstm", "gru"], FAULTS), ("lstm", with_other_gates), ("gru", with_other_gates)],
)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_faults_of_16_bit_gradients_are_found(cell, kind, fault):
    text = f"recurrent cell={cell} hidden=64 batch=16 timesteps=30 backward {kind} reference threads=1"
    c, op, arrays = solved(text)
    assert check(op, c, arrays).passed
    shorter = {**arrays, "dy": arrays["dy"].copy()}
    shorter["dy"][-1] = 0  # as if the gradient of the last step had been forgotten
    fault(arrays, op.reference(c, shorter))

    assert not check(op, c, arrays).passed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rope tokens=4 heads=2 dim=7", "dim must be even, because pairs of numbers are turned; found dim=7"),
        ("group_norm n=1 c=6 h=2 w=2 groups=4", "c must be a multiple of groups, found c=6 and groups=4"),
        ("top_k rows=3 columns=8 k=9", "k must be at most columns=8, found k=9"),
        ("loss kind=cross_entropy rows=3", "cross_entropy needs at least two columns to choose from; add for example"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(text, message):
    with pytest.raises(BadInput, match=re.escape(message)):
        parse_case(f"{text} forward f32 reference threads=1")
