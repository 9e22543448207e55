"""Rules that all readers of networks share: kernels from the shapes of arrays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepbench.core.errors import BadInput
from deepbench.networks.traces import kernel_rules as rules
from deepbench.networks.traces.kernel_rules import Window
from deepbench.networks.traces.kernels import flop_of


@pytest.mark.parametrize(
    ("shape", "strides", "dense", "elements"),
    [
        ((2, 3), (3, 1), True, 6),
        ((2, 3), (1, 2), True, 6),  # by columns
        ((2, 1, 3), (3, 99, 1), True, 6),  # the stride of a single element says nothing
        ((2, 3), (4, 1), False, 6),
        ((2, 3), (0, 1), False, 3),  # one row twice
        ((2, 3), (3, 2), False, 6),
        ((), (), True, 1),
        ((0, 3), (3, 1), False, 0),
    ],
)
def test_what_an_array_fills(shape, strides, dense, elements):
    assert elements == rules.distinct(shape, strides)
    if elements:
        assert dense == rules.is_dense(shape, strides)


@given(
    *(st.integers(1, n) for n in (30, 5, 3, 2)),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_padding_at_one_end_keeps_the_flop_of_a_convolution(side, window, stride, dilation, pads):
    outputs = (side + sum(pads) - dilation * (window - 1) - 1) // stride + 1
    if outputs < 1:
        return
    sides = Window([window], [stride], [pads[0]], [dilation])
    kernel = rules.convolution(sides, (2, 3, side), (2, 4, outputs), "f32")

    assert 2 * 2 * 4 * outputs * 3 * window == flop_of(kernel)
    if pads[0] == pads[1]:
        assert f" w={side} " in kernel
        assert (f" pad_w={pads[0]} " in kernel) or not pads[0]


def test_a_product_of_one_matrix_is_no_batch():
    assert "gemm m=4 n=3 k=5 a_t=1 b_t=0 forward f32 beta=0" == rules.product(1, 4, 3, 5, "f32", a_t=1)
    assert "batched_gemm batch=2 m=4 n=3 k=5 forward f32" == rules.product(2, 4, 3, 5, "f32")


@pytest.mark.parametrize(
    "rule",
    [
        lambda: rules.upsample((1, 2, 4, 4), (1, 2, 8, 12), "f32"),
        lambda: rules.upsample((1, 2, 4, 4), (1, 2, 6, 6), "f32"),
        lambda: rules.upsample((1, 2, 0, 4), (1, 2, 0, 8), "f32"),
        lambda: rules.pooling("max", Window([2], [2], [0], [2]), (1, 2, 8), (1, 2, 3), "f32"),
        lambda: rules.reduction("sum", (2, 3, 4), [1], "f32"),
        lambda: rules.reduction("sum", (), [], "f32"),
        lambda: rules.by_rows("softmax", (0, 0), 0, "f32"),
        lambda: rules.attention((4, 8), (4, 8), (4, 8), False, "f32"),
        lambda: rules.batch_norm((2, 3, 4, 5, 6, 7), "f32"),
        lambda: rules.elementwise("relu", 8, None),
    ],
)
def test_what_is_no_kernel_is_refused(rule):
    with pytest.raises(BadInput):
        rule()
