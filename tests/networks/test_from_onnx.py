"""Traces of ONNX files: FLOP of formulas by hand, and sentences about files that are open, damaged or not alike."""

import random
import sys
import time
import tomllib
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")

import numpy as np  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from deepbench.core.errors import BadInput, Unavailable  # noqa: E402
from deepbench.networks.traces import kernel_rules as rules  # noqa: E402
from deepbench.networks.traces import onnx_file  # noqa: E402
from deepbench.networks.traces.from_onnx import trace_onnx  # noqa: E402
from deepbench.networks.traces.kernels import flop_of  # noqa: E402
from deepbench.networks.traces.onnx_file import read_onnx  # noqa: E402
from deepbench.networks.traces.trace import parse_trace, suite_text  # noqa: E402
from tests.help.mutations import MANY, try_mutations  # noqa: E402

pytestmark = pytest.mark.torch

F32 = TensorProto.FLOAT
newest = pytest.mark.skipif(onnx.defs.onnx_opset_version() < 23, reason="needs onnx 1.18 for operators of opset 23")
KINDS = {
    "f32": F32,
    "f16": TensorProto.FLOAT16,
    "bf16": TensorProto.BFLOAT16,
    "s8": TensorProto.INT8,
    "u8": TensorProto.UINT8,
    "s64": TensorProto.INT64,
    "s32": TensorProto.INT32,
}


def value(name, *sizes, kind="f32"):
    return helper.make_tensor_value_info(name, KINDS[kind], sizes)


def weight(name, *sizes, kind="f32"):
    """A weight without its values, which nobody needs."""
    if kind == "f32":
        return numpy_helper.from_array(np.zeros(sizes, np.float32), name)
    data = bytes(int(np.prod(sizes)) * {"s8": 1, "u8": 1, "f16": 2, "bf16": 2, "s32": 4}[kind])
    return helper.make_tensor(name, KINDS[kind], sizes, data, raw=True)


def integers(name, *values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def saved(folder, nodes, inputs, weights=(), outputs=("y",), opset=17):
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(list(nodes), "net", list(inputs), results, list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def node(kind, *inputs, outputs=("y",), **attributes):
    return helper.make_node(kind, inputs, outputs, **attributes)


def kernels(folder, nodes, inputs, weights=(), **more):
    """The kernels of a network, and the operators that are none."""
    nodes = [nodes] if hasattr(nodes, "op_type") else nodes
    trace = trace_onnx(saved(folder, nodes, inputs, weights, **more), {})
    return [*trace.counts.elements(), *(c.operator for c in trace.others)]


# ---- single operators


def test_convolutions(tmp_path):
    x, w = value("x", 2, 8, 14, 14), weight("w", 16, 4, 3, 3)
    plain = node("Conv", "x", "w", "b", pads=[1, 1, 1, 1], strides=[2, 2], dilations=[1, 1], group=2)
    sizes = "conv n=2 c=8 h=14 w=14 k=16 r=3 s=3 pad_h=1 pad_w=1 stride_h=2 stride_w=2 groups=2"

    assert [f"{sizes} forward f32 bias=yes"] == kernels(tmp_path, plain, [x], [w, weight("b", 16)])


@pytest.mark.parametrize(("side", "window", "stride"), [(224, 7, 2), (56, 3, 2), (10, 4, 1)])
def test_padding_at_one_end_keeps_the_flop(tmp_path, side, window, stride):
    conv = node("Conv", "x", "w", auto_pad="SAME_UPPER", strides=[stride, stride])
    found = kernels(tmp_path, conv, [value("x", 2, 3, side, side)], [weight("w", 5, 3, window, window)])

    q = -(-side // stride)
    assert [2 * 2 * 5 * q * q * 3 * window**2] == list(map(flop_of, found))


def test_padding_that_is_the_same_at_both_ends_has_no_note(tmp_path):
    conv = node("Conv", "x", "w", auto_pad="SAME_LOWER")
    trace = trace_onnx(saved(tmp_path, [conv], [value("x", 1, 3, 14, 14)], [weight("w", 8, 3, 3, 3)]), {})

    assert ["conv n=1 c=3 h=14 w=14 k=8 r=3 s=3 pad_h=1 pad_w=1 stride_h=1 stride_w=1 forward f32"] == list(
        trace.counts
    )
    assert () == trace.notes


@pytest.mark.parametrize(
    ("operator", "inputs", "kernel", "note"),
    [
        (
            node("ConvTranspose", "x", "w", "b", strides=[2, 2]),
            [value("x", 1, 8, 7, 7), value("w", 8, 4, 2, 2), value("b", 4)],
            "conv n=1 c=4 h=14 w=14 k=8 r=2 s=2 pad_h=0 pad_w=0 stride_h=2 stride_w=2 backward_data f32",
            rules.BIASED,
        ),
        (
            node("Gemm", "x", "w", "b"),
            [value("x", 8, 32), value("w", 32, 16), value("b", 16)],
            "gemm m=16 n=8 k=32 a_t=0 b_t=0 forward f32 beta=0",
            rules.BIASED,
        ),
        (
            node("MatMul", "x", "w"),
            [value("x", 1, 64, 32), value("w", 8, 32, 16)],
            "batched_gemm batch=8 m=16 n=64 k=32 forward f32",
            rules.SHARED,
        ),
        (node("LogSoftmax", "x"), [value("x", 2, 10)], "softmax rows=2 columns=10 forward f32", rules.LOGARITHM),
    ],
)
def test_how_an_operator_differs_from_its_kernel_is_said(tmp_path, operator, inputs, kernel, note):
    trace = trace_onnx(saved(tmp_path, [operator], inputs), {})

    assert [kernel] == list(trace.counts)
    assert (f"1 call: {note}",) == trace.notes


def test_peepholes_are_no_kernel(tmp_path):
    inputs = [value("x", 5, 2, 8), value("w", 1, 64, 8), value("r", 1, 64, 16), value("p", 1, 48)]
    lstm = node("LSTM", "x", "w", "r", "", "", "", "", "p", hidden_size=16)

    assert {} == trace_onnx(saved(tmp_path, [lstm], inputs), {}).counts


def test_a_transposed_convolution_is_a_data_gradient(tmp_path):
    up = node("ConvTranspose", "x", "w", strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
    (kernel,) = kernels(tmp_path, up, [value("x", 2, 16, 10, 10)], [weight("w", 16, 8, 3, 3)])

    assert "conv n=2 c=8 h=20 w=20 k=16 r=3 s=3 pad_h=1 pad_w=1 stride_h=2 stride_w=2 backward_data f32" == kernel
    assert 2 * 2 * 16 * 10 * 10 * 8 * 9 == flop_of(kernel)


def test_products(tmp_path):
    x, w, b = value("x", 3, 5), weight("w", 5, 7), weight("b", 7)
    turned = weight("w", 7, 5)

    assert ["linear m=7 n=3 k=5 forward f32"] == kernels(
        tmp_path, node("Gemm", "x", "w", "b", transB=1), [x], [turned, b]
    )
    assert ["linear m=7 n=3 k=5 forward f32 bias=no"] == kernels(
        tmp_path, node("Gemm", "x", "w", transB=1), [x], [turned]
    )
    by_rows = "gemm m=7 n=3 k=5 a_t=0 b_t=0 forward f32 beta=0"
    assert [by_rows] == kernels(tmp_path, node("Gemm", "x", "w", "b"), [x], [w, b])
    assert [by_rows] == kernels(tmp_path, node("MatMul", "x", "w"), [x], [w])
    stored = "gemm m=7 n=3 k=5 a_t=1 b_t=1 forward f32"
    both = node("Gemm", "x", "w", "c", transA=1, transB=1)
    assert [stored] == kernels(tmp_path, both, [value("x", 5, 3), value("c", 3, 7)], [turned])


def test_products_of_many_matrices(tmp_path):
    def of(left, right):
        return kernels(tmp_path, node("MatMul", "x", "z"), [value("x", *left), value("z", *right)])

    assert ["batched_gemm batch=8 m=7 n=3 k=5 forward f32"] == of((2, 4, 3, 5), (2, 4, 5, 7))
    assert ["batched_gemm batch=8 m=7 n=3 k=5 forward f32"] == of((2, 1, 3, 5), (4, 5, 7))
    assert ["gemm m=7 n=24 k=5 a_t=0 b_t=0 forward f32 beta=0"] == of((2, 4, 3, 5), (5, 7))
    assert ["gemm m=1 n=3 k=5 a_t=0 b_t=0 forward f32 beta=0"] == of((3, 5), (5,))
    assert ["gemm m=7 n=1 k=5 a_t=0 b_t=0 forward f32 beta=0"] == of((5,), (5, 7))


@pytest.mark.parametrize(
    ("kind", "gates", "cell", "more"),
    [
        ("LSTM", 4, "lstm", {}),
        ("GRU", 3, "gru", {"linear_before_reset": 1}),
        ("GRU", 3, "gru", {}),
        ("RNN", 1, "vanilla", {}),
    ],
)
@pytest.mark.parametrize("ways", [1, 2])
def test_recurrent_layers(tmp_path, kind, gates, cell, more, ways):
    direction = {"direction": "bidirectional"} if ways == 2 else {}
    layer = node(kind, "x", "w", "r", hidden_size=16, **direction, **more)
    weights = [weight("w", ways, gates * 16, 8), weight("r", ways, gates * 16, 16)]
    (kernel,) = kernels(tmp_path, layer, [value("x", 5, 4, 8)], weights)

    assert kernel.startswith(f"recurrent cell={cell} hidden=16 batch=4 timesteps=5 input_size=8")
    assert ("gru_reset=before" in kernel) == (kind == "GRU" and not more)
    assert 2 * 5 * 4 * gates * 16 * (16 + 8) * ways == flop_of(kernel)


def test_normalizations_and_softmax(tmp_path):
    image, rows = value("x", 2, 8, 6, 6), value("x", 2, 5, 12)
    four = [weight(name, 8) for name in "sbmv"]
    batch = node("BatchNormalization", "x", "s", "b", "m", "v")
    layer = node("LayerNormalization", "x", "s", "b", axis=-1)
    group = node("GroupNormalization", "x", "s", "b", num_groups=4)
    own = [weight("s", 12), weight("b", 12)]

    assert ["batch_norm n=2 c=8 h=6 w=6 forward f32"] == kernels(tmp_path, batch, [image], four)
    assert ["layer_norm rows=10 columns=12 forward f32"] == kernels(tmp_path, layer, [rows], own)
    assert ["group_norm n=2 c=8 h=36 w=1 groups=4 forward f32"] == kernels(tmp_path, group, [image], four[:2], opset=21)
    instance = node("InstanceNormalization", "x", "s", "b")
    assert ["group_norm n=2 c=8 h=36 w=1 groups=8 forward f32"] == kernels(tmp_path, instance, [image], four[:2])
    assert ["softmax rows=10 columns=12 forward f32"] == kernels(tmp_path, node("Softmax", "x"), [rows])
    assert ["Softmax"] == kernels(tmp_path, node("Softmax", "x", axis=1), [rows])
    assert ["softmax rows=2 columns=60 forward f32"] == kernels(tmp_path, node("LogSoftmax", "x"), [rows], opset=11)


def test_functions_of_elements(tmp_path):
    x, z = value("x", 4, 6), value("z", 4, 6)

    def of(*nodes, inputs=(x,), weights=(), **more):
        return kernels(tmp_path, list(nodes), inputs, weights, **more)

    for name, kind in {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Elu": "elu"}.items():
        assert [f"elementwise kind={kind} n=24 forward f32"] == of(node(name, "x"))
    for name, kind in {"Add": "add", "Mul": "multiply", "Sum": "add"}.items():
        assert [f"elementwise kind={kind} n=24 forward f32"] == of(node(name, "x", "z"), inputs=(x, z))
    assert ["elementwise kind=gelu_tanh n=24 forward f32"] == of(node("Gelu", "x", approximate="tanh"), opset=20)
    assert ["Add"] == of(node("Add", "x", "z"), inputs=(x, value("z", 6)))  # the same row many times
    limits = [numpy_helper.from_array(np.float32(n), name) for name, n in (("zero", 0), ("six", 6), ("twenty", 20))]
    assert ["elementwise kind=relu6 n=24 forward f32"] == of(node("Clip", "x", "zero", "six"), weights=limits)
    assert ["elementwise kind=hardtanh n=24 forward f32"] == of(node("Clip", "x", "zero", "twenty"), weights=limits)
    assert ["elementwise kind=relu n=24 forward f32"] == of(node("Clip", "x", "zero"), weights=limits)
    assert ["Clip"] == of(node("Clip", "x", "", "six"), weights=limits)
    assert ["elementwise kind=relu6 n=24 forward f32"] == of(node("Clip", "x", min=0.0, max=6.0), opset=6)


def test_pooling_reductions_and_resizing(tmp_path):
    x = value("x", 2, 8, 16, 16)

    def of(made, weights=(), **more):
        return kernels(tmp_path, made, [x], weights, **more)

    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    sizes = "n=2 c=8 h=16 w=16 r=3 s=3 pad_h=1 pad_w=1 stride_h=2 stride_w=2 forward f32"
    assert [f"pooling kind=max {sizes}"] == of(node("MaxPool", "x", **window))
    assert [f"pooling kind=average {sizes}"] == of(node("AveragePool", "x", **window))
    assert ["reduction kind=mean rows=16 columns=256 forward f32"] == of(node("GlobalAveragePool", "x"))
    assert ["reduction kind=mean rows=16 columns=256 forward f32"] == of(node("ReduceMean", "x", axes=[2, 3]))
    assert ["reduction kind=max rows=2 columns=2048 axis=rows forward f32"] == of(node("ReduceMax", "x", axes=[0]))
    summed = node("ReduceSum", "x", "axes")
    assert ["reduction kind=sum rows=16 columns=256 forward f32"] == of(summed, [integers("axes", 2, 3)])
    assert ["ReduceSum"] == of(summed, [integers("axes", 1)])
    assert ["reduction kind=sum rows=1 columns=4096 forward f32"] == of(node("ReduceSum", "x"))
    sizes = [numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")]
    assert ["upsample n=2 c=8 h=16 w=16 forward f32"] == of(node("Resize", "x", "", "scales"), sizes)
    assert ["Resize"] == of(node("Resize", "x", "", "scales", mode="linear"), sizes)


def test_lookups_and_top_k(tmp_path):
    places = value("i", 4, 6, kind="s64")
    table = weight("table", 1000, 32)

    path = saved(tmp_path, [node("Gather", "table", "i")], [places], [table])
    (call,) = trace_onnx(path, {}).calls
    assert "embedding_bag rows=1000 dim=32 bags=24 bag=1 forward f32" == call.kernel
    assert 2 * 24 * 32 * 4 + 24 * 8 == call.bytes  # not the whole table
    assert ["Gather"] == kernels(tmp_path, node("Gather", "x", "i"), [value("x", 1000, 32), places])
    best = node("TopK", "x", "k", outputs=("y", "places"))
    assert ["top_k rows=4 columns=20 k=3 forward f32"] == kernels(
        tmp_path, best, [value("x", 4, 20)], [integers("k", 3)], outputs=("y", "places")
    )


@newest
def test_normalization_by_the_mean_square(tmp_path):
    rms = node("RMSNormalization", "x", "s")
    found = kernels(tmp_path, rms, [value("x", 2, 5, 12)], [weight("s", 12)], opset=23)

    assert ["rms_norm rows=10 columns=12 forward f32"] == found


def test_an_operator_that_the_package_does_not_know(tmp_path):
    with pytest.raises(BadInput, match=r"does not know it in opset 17: Nothing; pip install -U onnx"):
        kernels(tmp_path, node("Nothing", "x"), [value("x", 3)])


@newest
def test_attention(tmp_path):
    heads = [value(name, 2, heads, 16, 8) for name, heads in (("q", 4), ("k", 2), ("v", 2))]
    wide = [value(name, 2, 16, width) for name, width in (("q", 32), ("k", 16), ("v", 16))]
    own = "attention batch=2 heads=4 kv_heads=2 queries=16 keys=16 head_size=8 mask=causal forward f32"

    assert [own] == kernels(tmp_path, node("Attention", "q", "k", "v", is_causal=1), heads, opset=23)
    side_by_side = node("Attention", "q", "k", "v", is_causal=1, q_num_heads=4, kv_num_heads=2)
    assert [own] == kernels(tmp_path, side_by_side, wide, opset=23)


def test_quantized_operators(tmp_path):
    def conv(data, kind):
        scales = [weight(n, 1) for n in ("xs", "ws", "ys")]
        zeros = [weight("xz", 1, kind=data), weight("wz", 1, kind=kind), weight("yz", 1, kind=data)]
        made = node("QLinearConv", "x", "xs", "xz", "w", "ws", "wz", "ys", "yz", pads=[1, 1, 1, 1])
        weights = [weight("w", 16, 8, 3, 3, kind=kind), *scales, *zeros]
        return kernels(tmp_path, made, [value("x", 2, 8, 14, 14, kind=data)], weights)

    sizes = "conv n=2 c=8 h=14 w=14 k=16 r=3 s=3 pad_h=1 pad_w=1 stride_h=1 stride_w=1"
    assert [f"{sizes} forward i8u8"] == conv("u8", "s8")
    assert [f"{sizes} forward i8"] == conv("s8", "s8")
    assert ["QLinearConv"] == conv("u8", "u8")  # weights without a sign
    product = node("MatMulInteger", "x", "w")
    inputs = [value("x", 3, 5, kind="u8")], [weight("w", 5, 7, kind="s8")]
    assert ["gemm m=7 n=3 k=5 a_t=0 b_t=0 forward i8u8 beta=0"] == kernels(tmp_path, product, *inputs)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_narrow_floats(tmp_path, kind):
    product = node("MatMul", "x", "w")
    found = kernels(tmp_path, product, [value("x", 3, 5, kind=kind)], [weight("w", 5, 7, kind=kind)])

    assert [f"gemm m=7 n=3 k=5 a_t=0 b_t=0 forward {kind} beta=0 result=narrow"] == found


# ---- networks


def chain(folder, batch="batch"):
    """Two layers whose second has a shape that the file computes."""
    nodes = [
        node("Conv", "x", "w", outputs=["a"], pads=[1, 1, 1, 1], name="/stem/conv/Conv"),
        node("Relu", "a", outputs=["r"], name="/stem/block/block.1/Relu"),
        node("Shape", "r", outputs=["sizes"]),
        node("Slice", "sizes", "zero", "one", outputs=["first"]),
        node("Concat", "first", "rest", outputs=["wanted"], axis=0),
        node("Reshape", "r", "wanted", outputs=["flat"]),
        node("Transpose", "v", outputs=["turned"], perm=[1, 0]),
        node("MatMul", "flat", "turned", name="/head/head.fc/MatMul"),
    ]
    constants = [integers("zero", 0), integers("one", 1), integers("rest", -1)]
    weights = [weight("w", 16, 8, 3, 3), weight("v", 10, 16 * 36), *constants]
    return saved(folder, nodes, [value("x", batch, 8, 6, 6)], weights)


def test_open_dimensions_are_asked_for_and_filled_in(tmp_path):
    path = chain(tmp_path)
    with pytest.raises(BadInput, match=r"leaves open batch; state them, such as --set batch=8"):
        trace_onnx(path, {})
    trace = trace_onnx(path, {"batch": 4})

    assert 2 * 4 * 16 * 36 * 8 * 9 + 2 * 4 * 10 * 16 * 36 == sum(
        flop_of(k) * n for k, n in trace.counts.items() if k.split()[0] in ("conv", "gemm")
    )
    assert trace.title == "net, batch 4"
    assert trace_onnx(path, {"x.0": 4}).counts == trace.counts
    with pytest.raises(BadInput, match=r"no dimension 'bach'.*batch"):
        trace_onnx(path, {"batch": 4, "bach": 2})
    with pytest.raises(BadInput, match="from 1 to"):
        trace_onnx(path, {"batch": 0})


def test_dimensions_without_a_name_are_named_by_input_and_axis(tmp_path):
    path = chain(tmp_path, None)

    with pytest.raises(BadInput, match=r"leaves open x\.0"):
        trace_onnx(path, {})
    assert trace_onnx(path, {"x.0": 2}).counts


def test_shapes_constants_and_views_are_no_work(tmp_path):
    trace = trace_onnx(chain(tmp_path), {"batch": 4})

    assert ["Conv", "Relu", "MatMul"] == [c.operator for c in trace.calls]
    assert 1 == trace.views  # the Reshape; the transposed weight is computed when a network is loaded
    assert ["stem.conv", "stem.block.1", "head.fc"] == [c.where for c in trace.calls]
    assert 16 * 8 * 9 + 10 * 16 * 36 == trace.parameters
    conv, relu, product = trace.calls
    assert conv.writes == relu.reads
    assert relu.writes[0] in product.reads  # through the Reshape
    assert 4 * (4 * 8 * 36 + 16 * 8 * 9 + 4 * 16 * 36) == conv.bytes


def test_statistics_are_no_parameters(tmp_path):
    batch = node("BatchNormalization", "x", "s", "b", "m", "v")
    trace = trace_onnx(saved(tmp_path, [batch], [value("x", 2, 8, 6, 6)], [weight(n, 8) for n in "sbmv"]), {})

    assert 16 == trace.parameters


def test_factors_are_no_parameters(tmp_path):
    nodes = [node("MatMul", "x", "w", outputs=["h"]), node("Div", "h", "by")]
    factor = numpy_helper.from_array(np.float32(8), "by")
    trace = trace_onnx(saved(tmp_path, nodes, [value("x", 3, 5)], [weight("w", 5, 7), factor]), {})

    assert 35 == trace.parameters


def test_a_shape_that_depends_on_data_can_be_stated(tmp_path):
    nodes = [node("NonZero", "x", outputs=["places"]), node("Cast", "places", outputs=["f"], to=F32), node("Tanh", "f")]
    path = saved(tmp_path, nodes, [value("x", 4, 6)])

    with pytest.raises(BadInput, match=r"'places' depends on data; state what is open, such as --set places\.1=8"):
        trace_onnx(path, {})
    assert ["elementwise kind=tanh n=10 forward f32"] == list(trace_onnx(path, {"places.1": 5}).counts)


def test_control_flow_is_refused(tmp_path):
    branch = helper.make_graph([node("Tanh", "x")], "branch", [], [value("y", 4)])
    choice = node("If", "c", then_branch=branch, else_branch=branch)
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])

    with pytest.raises(BadInput, match="operator If"):
        kernels(tmp_path, choice, [value("x", 4), condition])


def test_functions_of_a_file_are_replaced_by_their_operators(tmp_path):
    body = [node("MatMul", "a", "b", outputs=["c"]), node("Relu", "c", outputs=["d"])]
    own = helper.make_function("mine", "Layer", ["a", "b"], ["d"], body, [helper.make_opsetid("", 17)])
    call = helper.make_node("Layer", ["x", "w"], ["y"], domain="mine")
    graph = helper.make_graph([call], "net", [value("x", 3, 5)], [value("y", 3, 7)], [weight("w", 5, 7)])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    path = tmp_path / "net.onnx"
    path.write_bytes(helper.make_model(graph, functions=[own], opset_imports=imports).SerializeToString())

    assert ["gemm", "elementwise"] == [k.split()[0] for k in trace_onnx(path, {}).counts]


def test_operators_of_others_need_shapes_in_the_file(tmp_path):
    call = helper.make_node("FusedThing", ["x"], ["h"], domain="com.example")
    last = node("Tanh", "h")
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]

    def trace(known):
        inner = [value("h", 3, 5)] if known else []
        graph = helper.make_graph([call, last], "net", [value("x", 3, 5)], [value("y", 3, 5)], value_info=inner)
        path = tmp_path / "net.onnx"
        path.write_bytes(helper.make_model(graph, opset_imports=imports).SerializeToString())
        return trace_onnx(path, {})

    assert ["com.example.FusedThing", "Tanh"] == [c.operator for c in trace(True).calls]
    with pytest.raises(
        BadInput, match=r"'h', the result of FusedThing of com\.example, which is none of ONNX, cannot be told"
    ):
        trace(False)


def test_weights_in_other_files_are_not_read(tmp_path):
    own = weight("w", 5, 7)
    own.ClearField("raw_data")
    own.data_location = TensorProto.EXTERNAL
    own.external_data.add(key="location", value="../../etc/passwd")

    assert ["gemm"] == [k.split()[0] for k in kernels(tmp_path, node("MatMul", "x", "w"), [value("x", 3, 5)], [own])]


@pytest.mark.parametrize("content", [b"", b"hello", b"\x08\x07\x12\xff\xff\xff", bytes(range(256)) * 40])
def test_files_that_are_no_network_get_a_sentence(tmp_path, content):
    path = tmp_path / "net.onnx"
    path.write_bytes(content)

    with pytest.raises(BadInput, match=r"net\.onnx"):
        trace_onnx(path, {})


def test_every_cut_off_file_gets_a_sentence(tmp_path):
    content = chain(tmp_path, 4).read_bytes()
    path = tmp_path / "cut.onnx"
    for length in range(0, len(content), max(1, len(content) // 60)):
        path.write_bytes(content[:length])
        try:
            trace_onnx(path, {})
        except BadInput as error:
            assert "cut.onnx" in str(error)


def test_changed_bytes_give_a_trace_or_a_sentence(tmp_path):
    content = chain(tmp_path, 4).read_bytes()
    chosen, path = random.Random(7), tmp_path / "changed.onnx"
    for _ in range(300):
        changed = bytearray(content)
        for _ in range(chosen.randrange(1, 4)):
            changed[chosen.choice([*range(400), *range(len(content) - 900, len(content))])] = chosen.randrange(256)
        path.write_bytes(changed)
        try:
            trace_onnx(path, {})
        except BadInput as error:
            assert "changed.onnx" in str(error)


def test_arrays_that_do_not_fit_get_a_sentence(tmp_path):
    with pytest.raises(BadInput, match="MatMul or its arrays are not valid"):
        kernels(tmp_path, node("MatMul", "x", "w"), [value("x", 3, 5)], [weight("w", 6, 7)])
    with pytest.raises(BadInput, match="'z' is read before"):
        kernels(tmp_path, node("Tanh", "z"), [value("x", 3, 5)])


def test_a_missing_file_and_a_missing_package(tmp_path, monkeypatch):
    with pytest.raises(BadInput, match="does not exist"):
        trace_onnx(tmp_path / "no.onnx", {})
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(Unavailable, match="pip install onnx"):
        trace_onnx(tmp_path / "no.onnx", {})


def test_a_trace_is_a_suite_like_any_other(tmp_path):
    trace = trace_onnx(chain(tmp_path), {"batch": 4})

    assert parse_trace(tomllib.loads(suite_text(trace)), "a.suite") == trace


# ---- files that PyTorch writes


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("resnet", {"depth": 18, "image": 64, "batch": 2}),
        ("mobilenet", {"image": 64, "batch": 2}),
        ("words", {"width": 64, "batch": 4, "steps": 6, "vocabulary": 100}),
        ("deepspeech2", {"hidden": 64, "layers": 2, "batch": 2, "frames": 101}),
    ],
)
@pytest.mark.costly
def test_the_work_is_what_pytorch_does(tmp_path, monkeypatch, name, settings):
    torch = pytest.importorskip("torch")
    import warnings

    from deepbench.networks.traces.from_torch import trace_torch

    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import networks

    module, x, *_ = getattr(networks, name)(**settings)
    module.eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()  # the exporter joins equal weights
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keep = torch.onnx.TrainingMode.PRESERVE  # normalizations are not joined with convolutions
        torch.onnx.export(module, (x,), str(tmp_path / "net.onnx"), dynamo=False, opset_version=17, training=keep)

    def run():
        with torch.no_grad():
            module(x)

    def work(trace):
        found = Counter()
        for kernel, count in trace.counts.items():
            found[kernel.split()[0].replace("linear", "gemm")] += flop_of(kernel) * count
        return found

    theirs = trace_torch(run, [module], name, name, False)
    ours = trace_onnx(tmp_path / "net.onnx", {})

    assert work(theirs) == work(ours)
    assert theirs.parameters == ours.parameters


# ---- files that do more harm than they are long

X = value("x", 4, 4)


def with_functions(folder, nodes, functions, opset=17):
    graph = helper.make_graph(nodes, "net", [X], [helper.make_empty_tensor_value_info("y")])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
    path = folder / "net.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=imports, functions=functions).SerializeToString())
    return path


def function(name, nodes):
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    return helper.make_function("mine", name, ["x"], ["y"], nodes, imports)


def in_a_row(kind, count, domain=""):
    names = ["x", *(f"y{i}" for i in range(1, count)), "y"]
    return [helper.make_node(kind, [a], [b], domain=domain) for a, b in pairwise(names)]


def refused(path):
    begin = time.process_time()
    with pytest.raises(BadInput) as found:
        trace_onnx(path, {})
    assert time.process_time() - begin < 3
    assert len(str(found.value)) < 400
    return str(found.value)


def test_functions_that_call_functions_are_counted_before_they_are_replaced(tmp_path):
    functions = [function(f"f{i}", in_a_row(f"f{i + 1}", 10, "mine")) for i in range(8)]
    functions.append(function("f8", in_a_row("Relu", 10)))
    path = with_functions(tmp_path, in_a_row("f0", 1, "mine"), functions)
    assert path.stat().st_size < 3000

    assert "has 1000000000 operators, with its functions; at most 20000 are read" in refused(path)


def test_functions_are_replaced_by_their_operators(tmp_path):
    functions = [function("f0", in_a_row("f1", 3, "mine")), function("f1", in_a_row("Relu", 2))]

    assert 12 == len(trace_onnx(with_functions(tmp_path, in_a_row("f0", 2, "mine"), functions), {}).calls)


def test_functions_that_call_themselves_are_refused(tmp_path):
    path = with_functions(tmp_path, in_a_row("f", 1, "mine"), [function("f", in_a_row("f", 1, "mine"))])

    assert "has functions that call each other" in refused(path)


@pytest.mark.parametrize(
    ("nodes", "inputs", "weights", "sentence"),
    [
        (in_a_row("Relu", 20_001), [X], (), "has 20001 operators, with its functions; at most 20000 are read"),
        (
            [node("Add", f"c{i}", "c0", outputs=(f"c{i + 1}",)) for i in range(4001)] + in_a_row("Relu", 1),
            [X],
            [integers("c0", 1)],
            "computes more than 4000 sizes",
        ),
        (
            [node("Einsum", "x", "x", equation="ij,jk->ik" + " " * 90_000)],
            [X],
            (),
            "Einsum has a text of more than 1000 characters (equation)",
        ),
        (in_a_row("Relu", 1), [value("x", *[1] * 17)], (), "'x' has 17 axes; at most 16 are read"),
        (
            [node("Reshape", "x", "s")],
            [value("x", 1)],
            [numpy_helper.from_array(np.ones(1000, np.int64), "s")],
            "'y' has 1000 axes",
        ),
        ([node("Sum", *["x"] * 300_000)], [X], (), "has 300001 inputs and outputs of operators"),
        (in_a_row("Relu", 1), [X], [weight(f"w{i}") for i in range(50_000)], "has 50001 weights and inputs"),
    ],
    ids=["operators", "constants", "equation", "axes", "reshape", "inputs", "weights"],
)
def test_files_that_take_long_are_refused(tmp_path, nodes, inputs, weights, sentence):
    assert sentence in refused(saved(tmp_path, nodes, inputs, weights))


@pytest.mark.parametrize("version", [2**62, 2**31, 0, -1])
def test_versions_that_no_package_has_are_refused(tmp_path, version):
    path = saved(tmp_path, in_a_row("Relu", 1), [X], opset=version)

    assert f"has operators of opset {version}; wanted a version from 1 to 10000" in refused(path)


def test_many_sets_of_operators_are_refused(tmp_path):
    model = onnx.load(str(saved(tmp_path, in_a_row("Relu", 1), [X])))
    model.opset_import.extend(helper.make_opsetid(f"d{i}", 1) for i in range(100))
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())

    assert "names 101 sets of operators; at most 100 are read" in refused(tmp_path / "net.onnx")


def test_values_of_a_tensor_in_an_attribute_are_not_read_from_another_file(tmp_path, monkeypatch):
    """The shape of z would be the number in that file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.bin").write_bytes(np.array([3], np.int64).tobytes())
    elsewhere = TensorProto(name="v", data_type=TensorProto.INT64, dims=[1], data_location=TensorProto.EXTERNAL)
    elsewhere.external_data.add(key="location", value="other.bin")
    nodes = [
        node("ConstantOfShape", "one", outputs=("s",), value=elsewhere),
        node("Expand", "x", "s", outputs=("y",)),
    ]
    path = saved(tmp_path, nodes, [value("x", 1)], [integers("one", 1)])

    assert "depends on data" in refused(path) or "cannot be told" in refused(path)


def test_a_shape_that_the_file_only_states_is_not_computed(tmp_path):
    """The result would have a billion numbers."""
    ends = [numpy_helper.from_array(np.array(n, np.float64), name) for name, n in (("a", 0), ("b", 1e9), ("c", 1))]
    model = onnx.load(
        str(saved(tmp_path, [node("Range", "a", "b", "c", outputs=("q",)), *in_a_row("Relu", 1)], [X], ends))
    )
    model.graph.value_info.append(helper.make_tensor_value_info("q", TensorProto.DOUBLE, [1]))
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    begin = time.process_time()
    trace_onnx(tmp_path / "net.onnx", {})

    assert time.process_time() - begin < 3


def test_values_of_large_weights_are_not_read(tmp_path):
    small, large = integers("s", 4, 4), weight("w", 300, 300)
    path = saved(tmp_path, [node("Gemm", "x", "w", "b")], [value("x", 4, 300)], [small, large, weight("b", 300)])
    model = read_onnx(onnx, path)

    whole = onnx.load(str(path))
    assert len(path.read_bytes()) > 360_000 > 5000 > model.ByteSize()
    assert [small, weight("b", 300)] == [t for t in model.graph.initializer if t.name != "w"]
    for tensor in whole.graph.initializer:
        if tensor.name == "w":
            tensor.ClearField("raw_data")
    assert whole == model


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\x3a\x80\x80\x80\x01" + b"\x0a\x00" * 2**20, "parts or"),
        (b"\x3a\x85\x80\x80\x01" + b"\x52\x80\x80\x80\x01" + b"x" * 2**21, "parts or"),
        (b"\x3a\x05", "is no ONNX file, or it is damaged"),
        (b"\xff" * 30, "is no ONNX file, or it is damaged"),
        (b"\x0b", "is no ONNX file, or it is damaged"),
        (b"\x3a" + b"\xff" * 9 + b"\x01", "is no ONNX file, or it is damaged"),
        (b"", "has no operator"),
    ],
    ids=["empty operators", "one text", "cut off", "bits", "a group", "a long part", "nothing"],
)
def test_what_protocol_buffers_would_make_large_is_refused(tmp_path, monkeypatch, content, sentence):
    monkeypatch.setattr(onnx_file, "MOST_PARTS", 100_000)
    monkeypatch.setattr(onnx_file, "MOST_REST_BYTES", 10**6)
    path = tmp_path / "net.onnx"
    path.write_bytes(content)

    assert sentence in refused(path)


def test_messages_within_messages_have_a_limit(tmp_path):
    content = b""
    for level in range(60):  # a graph in an attribute of an operator in a graph …
        size = bytes([len(content) & 0x7F | 0x80, len(content) >> 7])
        content = (b"\x0a", b"\x2a", b"\x32")[(59 - level) % 3] + size + content
    path = tmp_path / "net.onnx"
    path.write_bytes(b"\x3a" + bytes([len(content) & 0x7F | 0x80, len(content) >> 7]) + content)

    assert "has more than 40 messages within each other" in refused(path)


def nets(folder):
    yield saved(
        folder, [node("Conv", "x", "w", pads=[1, 1, 1, 1])], [value("x", 1, 2, 6, 6)], [weight("w", 4, 2, 3, 3)]
    )
    nodes = [node("Reshape", "x", "s", outputs=("r",)), node("Gemm", "r", "w", transB=1)]
    yield saved(folder, nodes, [value("x", 4, 6)], [integers("s", 2, 12), weight("w", 5, 12)])
    yield with_functions(folder, in_a_row("f0", 2, "mine"), [function("f0", in_a_row("Relu", 2))])


@pytest.mark.parametrize("count", [300, pytest.param(MANY, marks=pytest.mark.long)])
def test_a_damaged_file_of_onnx_ends_with_a_trace_or_a_sentence(tmp_path, count):
    originals = [path.read_bytes() for path in nets(tmp_path)]
    path = tmp_path / "net.onnx"

    def read(content):
        path.write_bytes(content)
        trace_onnx(path, {})

    ended = try_mutations(originals, read, count, tmp_path / "kept")
    assert ended["read"]
    assert ended["refused"]
