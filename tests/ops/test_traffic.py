"""Least bytes that cross the border of a level of memory, by operation."""

import contextlib
import dataclasses
import math
import resource
import time

import pytest

from deepbench.core.case import parse_case, parse_pattern
from deepbench.core.errors import BadInput
from deepbench.core.op import all_ops, find_op
from deepbench.core.problem import fields_of
from deepbench.core.traffic import product_bytes
from deepbench.networks.reporting.traces import kernel_title
from deepbench.networks.traces.kernels import bytes_of, flop_of

GEMM = "gemm m=1024 n=512 k=2048 forward f32 mkl threads=1"
CONV = "conv n=8 c=64 h=56 w=56 k=64 r=3 s=3 pad_h=1 pad_w=1 forward f32 onednn threads=1"
LSTM = "recurrent cell=lstm hidden=512 batch=4 timesteps=25 {} f32 onednn threads=1"
SPARSE = "sparse_gemm m=1024 n=4 k=512 sparsity=90 forward f32 mkl threads=1"


LAYER_NORM = "layer_norm rows=64 columns=4096 {} f32 onednn threads=1"
GROUP_NORM = "group_norm n=8 c=16 h=28 w=28 groups=4 {} f32 loops threads=1"
BATCH_NORM = "batch_norm n=8 c=16 h=28 w=28 forward f32 onednn threads=1 mode={}"

NORMS = [LAYER_NORM.format("forward"), LAYER_NORM.format("backward"), BATCH_NORM.format("training")]
NORMS += [GROUP_NORM.format("forward"), GROUP_NORM.format("backward")]


def traffic(text, capacity=None):
    case = parse_case(text)
    return find_op(case.op).traffic_bytes(case, capacity)


def operands(text):
    case = parse_case(text)
    return find_op(case.op).operand_bytes(case)


@pytest.mark.parametrize("text", [GEMM, CONV, LSTM.format("forward"), LSTM.format("backward"), SPARSE, *NORMS])
def test_nothing_crosses_if_everything_stays_and_less_never_crosses_a_smaller_level(text):
    size = operands(text)
    crossing = [traffic(text, capacity) for capacity in (2**11, 2**14, 2**17, size - 1)]

    assert 0 == traffic(text, size)
    assert crossing == sorted(crossing, reverse=True)
    assert crossing[-1] >= traffic(text)


def test_a_product_needs_blocks_that_fit():
    """2·m·n·k/√S − 2·S elements, where that is more than every matrix once."""
    s = 2**11 // 4
    m, n, k = 1024, 512, 2048

    assert 4 * (2 * m * n * k / math.sqrt(s) - 2 * s) == pytest.approx(traffic(GEMM, 2**11), abs=4)
    assert 4 * (m * k + k * n + 2 * m * n) == traffic(GEMM, 2**23) == traffic(GEMM)


def test_the_bound_of_a_product_is_below_what_a_blocked_product_moves():
    """With square blocks of C that fill the level, each block reads a row of blocks of A and a column of B."""
    side, elements = 1024, 2**14
    block = math.isqrt(elements)
    moved = 4 * (2 * side * side * (side / block) + 2 * side * side)

    assert 0.5 * moved < product_bytes(side**3, 4 * elements, 4) < moved


def test_overlapping_windows_reduce_what_a_convolution_must_move():
    without_overlap = CONV.replace("r=3 s=3 pad_h=1 pad_w=1", "r=3 s=3 stride_h=3 stride_w=3")
    per_product = [
        traffic(text, 2**11) / parse_case(text).problem.multiply_adds_without_padding
        for text in (CONV, without_overlap)
    ]

    assert per_product[0] < 0.5 * per_product[1]


def test_a_recurrent_layer_reads_weights_that_do_not_stay_in_every_step():
    weights = 4 * 4 * 512**2
    forward, backward = LSTM.format("forward"), LSTM.format("backward")

    assert operands(forward) + 24 * weights == traffic(forward, weights - 1)
    assert operands(forward) == traffic(forward, weights) == traffic(forward)
    assert operands(backward) + 24 * weights == traffic(backward, weights - 1)
    assert operands(LSTM.format("backward_weights")) == traffic(LSTM.format("backward_weights"), weights - 1)


def test_sparse_products_count_indices_and_gathers():
    case = parse_case(SPARSE)
    op, p = find_op("sparse_gemm"), case.problem
    dense = 4 * (p.k * p.n + 2 * p.m * p.n)

    assert 8 * p.non_zeros + 4 * (p.m + 1) + dense == traffic(SPARSE, 2**14)
    assert p.non_zeros * p.n == op.gathers(case)
    assert p.non_zeros == op.gathers(parse_case(f"{SPARSE} order=row"))
    assert 0 == find_op("gemm").gathers(parse_case(GEMM))


def test_steps_and_smallest_problems():
    lstm, single = parse_case(LSTM.format("forward")), parse_case(LSTM.replace("=25", "=1").format("forward"))
    op = find_op("recurrent")

    assert (25, 1) == (op.steps(lstm), op.steps(single))
    assert "cell=lstm hidden=1 batch=1 timesteps=32" == op.smallest(lstm).text
    assert "cell=lstm hidden=1 batch=1 timesteps=1" == op.smallest(single).text
    assert "m=1 n=1 k=1 a_t=0 b_t=0" == find_op("gemm").smallest(parse_case(GEMM)).text
    assert find_op("conv").smallest(parse_case(CONV)).multiply_adds == 1


def test_the_algorithm_that_a_library_used_decides_which_flop_count():
    case, op = parse_case(CONV), find_op("conv")
    direct = op.other_flop(case)["without_padding"]

    assert direct == op.algorithm_flop(case, "direct") == 4 * op.least_flop(case)
    assert op.least_flop(case) == op.algorithm_flop(case, "winograd") == op.algorithm_flop(case, "")


def test_memory_counts_every_pass():
    text = "memory kind=read n=1024 passes=10 forward f32 loops threads=1"

    assert [40960, 0, 40960] == [traffic(text), traffic(text, 4096), traffic(text, 4095)]


def test_what_does_not_fit_of_a_row_crosses_twice():
    row, level = 4 * 4096, 2**13
    once = traffic(LAYER_NORM.format("forward"))

    assert 4 * (2 * 64 * 4096 + 2 * 4096) == once == traffic(LAYER_NORM.format("forward"), row)
    assert once + 64 * (row - level) == traffic(LAYER_NORM.format("forward"), level)
    assert traffic(LAYER_NORM.format("backward")) + 64 * (2 * row - level) == traffic(
        LAYER_NORM.format("backward"), level
    )


def test_the_second_pass_of_lamb_reads_parameters_and_state_again():
    text, n = "optimizer kind={} n=4096 forward f32 reference threads=1", 4 * 4096

    assert 7 * n == traffic(text.format("lamb")) == traffic(text.format("adam")) == traffic(text.format("adam"), n)
    assert 7 * n + 2 * n == traffic(text.format("lamb"), n)
    assert 7 * n == traffic(text.format("lamb"), 3 * n)
    assert 0 == traffic(text.format("lamb"), 4 * n)


def test_gradients_of_experts_without_rows_are_written():
    text = "grouped_gemm groups=64 tokens=4 m=256 k=128 {} f32 reference threads=1"

    assert operands(text.format("backward_weights")) == traffic(text.format("backward_weights"))
    assert operands(text.format("forward")) > traffic(text.format("forward"))


def test_channels_with_given_statistics_cross_once():
    channel = 4 * 8 * 28 * 28

    assert traffic(BATCH_NORM.format("inference")) == traffic(BATCH_NORM.format("inference"), 2**13)
    assert traffic(BATCH_NORM.format("training")) + 16 * (channel - 2**13) == traffic(
        BATCH_NORM.format("training"), 2**13
    )


def test_what_does_not_fit_of_a_group_crosses_twice():
    group, level = 4 * 4 * 28 * 28, 2**13
    once = traffic(GROUP_NORM.format("forward"))

    assert 4 * (2 * 8 * 16 * 28 * 28 + 2 * 16) == once == traffic(GROUP_NORM.format("forward"), group)
    assert once + 8 * 4 * (group - level) == traffic(GROUP_NORM.format("forward"), level)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("rope tokens=64 heads=5 dim=16 forward", 64 * 5 * 16 * 2 + 64 * 16),
        ("top_k rows=64 columns=100 k=8 forward", 64 * (100 + 8 + 8)),
        ("top_k rows=64 columns=100 k=8 backward", 64 * (100 + 8 + 8)),
        ("loss kind=cross_entropy rows=64 columns=100 forward", 64 * (100 + 1) + 1),
        ("loss kind=focal rows=64 columns=100 backward", 64 * 100 * 3 + 1),
    ],
)
def test_operations_that_pass_over_their_numbers_once(text, numbers):
    assert 4 * numbers == traffic(f"{text} f32 loops threads=1") == traffic(f"{text} f32 loops threads=1", 2**10)


def largest(op):
    """Problems of an operation with the largest value in one field, and in each."""
    for base in op.smoke[:2]:
        numbers = [f for f in fields_of(op.Problem) if "words" not in f.metadata]
        for changed in [*([f] for f in numbers), numbers]:
            with contextlib.suppress(BadInput):
                yield dataclasses.replace(base, **{f.name: f.metadata["most"] for f in changed})


@pytest.mark.parametrize("name", sorted(all_ops()))
def test_the_largest_problem_is_counted_as_soon_as_a_small_one(name):
    """Suites of others may list it. Two billion sequences were a list of as many numbers."""
    op = find_op(name)
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    for problem in largest(op):
        for direction in op.directions:
            kernel = f"{name} {problem.text} {direction}"
            with contextlib.suppress(BadInput):
                flop_of(kernel)
                bytes_of(kernel)
                kernel_title(kernel)

    assert time.process_time() - begin < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024  # KiB


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (
            "attention batch=2049 heads=1 kv_heads=1 queries=9 keys=9 head_size=8 lengths=spread",
            "with lengths=spread, batch must be at most 2048, found 2049",
        ),
        ("grouped_gemm groups=4097 tokens=9 m=1 k=1", "groups must be a whole number from 1 to 4096, found 4097"),
    ],
)
def test_what_is_drawn_for_each_problem_has_a_limit(problem, sentence):
    with pytest.raises(BadInput, match=sentence):
        parse_pattern(problem)


@pytest.mark.parametrize(
    ("text", "elements"),
    [  # what is read of x, w or dy, and what is written
        ("conv n=2 c=3 h=8 w=6 k=5 r=1 s=1 stride_h=2 stride_w=2 forward", 2 * 3 * 4 * 3 + 5 * 3 + 2 * 5 * 4 * 3),
        ("conv n=2 c=3 h=8 w=6 k=5 r=1 s=1 stride_h=2 stride_w=2 backward_data", 2 * 5 * 4 * 3 + 5 * 3 + 2 * 3 * 48),
        ("conv n=2 c=3 h=8 w=6 k=5 r=1 s=1 stride_h=2 stride_w=2 backward_weights", 2 * 3 * 12 + 2 * 5 * 12 + 5 * 3),
        ("conv n=1 c=2 h=3 w=3 k=4 r=1 s=1 pad_h=1 pad_w=1 backward_data", 4 * 9 + 8 + 2 * 9),
        ("conv n=1 c=2 h=3 w=3 k=4 r=1 s=1 pad_h=1 pad_w=1 backward_weights", 2 * 9 + 4 * 9 + 8),
        ("conv n=1 c=2 h=3 w=3 k=4 r=1 s=1 pad_h=1 pad_w=1 backward_weights bias=yes", 2 * 9 + 4 * 25 + 8 + 4),
        ("conv n=1 c=2 h=1 w=3 k=4 r=3 s=1 pad_h=1 forward", 2 * 3 + 4 * 2 + 4 * 3),
        ("pooling kind=max n=2 c=3 h=8 w=6 r=1 s=2 stride_h=2 stride_w=3 forward", 2 * 3 * (4 * 4 + 4 * 2)),
    ],
)
def test_what_only_meets_padding_or_is_skipped_is_not_read(text, elements):
    assert 4 * elements == traffic(f"{text} f32 reference threads=1")
    assert 0 == traffic(f"{text} f32 reference threads=1", operands(f"{text} f32 reference threads=1"))
