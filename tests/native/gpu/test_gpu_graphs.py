"""Attention and normalizations through the fake cuDNN: answers, refusals, and descriptors that must be refused."""

import ctypes
import itertools

import numpy as np
import pytest

from deepbench.backends.cudnn import attention
from deepbench.backends.cudnn.plans import OperationGraph
from deepbench.core.case import parse_case
from deepbench.core.errors import LibraryError
from deepbench.native.gpu import cudnn
from tests.native.gpu.conftest import Planner

ATTENTION = "attention batch=2 heads=4 kv_heads=2 queries=17 keys=29 head_size=16"
NORM = "layer_norm rows=17 columns=64"


def answer(record):
    return record["status"], record["reason"]


# ---- answers


@pytest.mark.parametrize(
    "change",
    ["", "mask=causal", "mask=causal window=5", "value_size=8", "mask=causal lengths=spread", "lengths=spread"],
)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_attention_is_right(gpu, direction, change):
    record = gpu(f"{ATTENTION} {change} {direction} bf16 cudnn threads=1")

    assert ("ok", None) == answer(record)
    assert (3, 2, 1) == tuple(record["notes"][f"algorithms_{what}"] for what in ("proposed", "tried", "failed"))
    assert "algorithm" not in record["notes"]


@pytest.mark.parametrize(("queries", "lengths"), [(1, "spread"), (5, "equal"), (5, "spread")])
def test_a_paged_cache_is_read(gpu, queries, lengths):
    problem = f"batch=3 heads=4 kv_heads=2 queries={queries} keys=70 head_size=16 mask=causal page=16"
    record = gpu(f"attention {problem} lengths={lengths} forward f16 cudnn threads=1")

    assert ("ok", None) == answer(record)


@pytest.mark.parametrize(
    "text",
    [
        "layer_norm rows=17 columns=64 forward f32 cudnn threads=1",
        "layer_norm rows=17 columns=64 backward bf16 cudnn threads=1",
        "rms_norm rows=3 columns=35 forward f16 cudnn threads=1",
        "rms_norm rows=3 columns=35 backward f32 cudnn threads=1",
        "batch_norm n=3 c=8 h=7 w=9 forward f32 cudnn threads=1 mode=training",
        "batch_norm n=3 c=8 h=7 w=9 forward bf16 cudnn threads=1 mode=training layout=nhwc",
        "batch_norm n=2 c=16 h=4 w=5 d=3 forward f16 cudnn threads=1 mode=training",
        "batch_norm n=2 c=5 h=4 w=5 d=3 forward f32 cudnn threads=1 mode=inference",
        "batch_norm n=3 c=5 h=7 w=9 forward bf16 cudnn threads=1 mode=inference layout=nhwc",
        "batch_norm n=3 c=8 h=7 w=9 backward f32 cudnn threads=1",
        "batch_norm n=2 c=16 h=4 w=5 d=3 backward f16 cudnn threads=1 layout=nhwc",
    ],
)
def test_a_normalization_is_right(gpu, text):
    assert ("ok", None) == answer(gpu(text))


def test_operands_in_memory_use_the_plan_that_was_chosen(gpu, tmp_path):
    log = tmp_path / "log"
    record = gpu(f"{ATTENTION} backward f16 cudnn threads=1 cache=cold", FAKE_GPU_LOG=str(log))

    assert ("ok", None) == answer(record)
    assert {"graph engine 2 operations 20"} == {line for line in log.read_text().splitlines() if "engine 2" in line}


# ---- refusals


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ATTENTION.replace("head_size=16", "head_size=20"), "heads of a multiple of 8 numbers, found 20"),
        (f"{ATTENTION} value_size=12", "heads of a multiple of 8 numbers, found 16 and 12"),
    ],
)
def test_heads_that_kernels_cannot_load_are_refused(gpu, text, reason):
    status, found = answer(gpu(f"{text} forward f16 cudnn threads=1"))

    assert "unsupported" == status
    assert reason in found


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        ("algorithm=composed", "choose algorithm=default"),
        ("algorithm=graph", "choose algorithm=default"),
        ("cache_type=f8e4m3", "no attention forward cache_type=f8e4m3"),
    ],
)
def test_settings_that_the_graph_does_not_express_are_refused(gpu, choice, reason):
    status, found = answer(gpu(f"{ATTENTION} forward f16 cudnn threads=1 {choice}"))

    assert "unsupported" == status
    assert reason in found


@pytest.mark.parametrize(("precision", "multiple"), [("f32", 4), ("bf16", 8)])
@pytest.mark.parametrize("words", ["forward {} cudnn threads=1 mode=training", "backward {} cudnn threads=1"])
def test_channels_that_kernels_cannot_load_are_refused(gpu, precision, multiple, words):
    text = "batch_norm n=3 c=10 h=7 w=9"
    status, reason = answer(gpu(f"{text} {words.format(precision)}"))

    assert "unsupported" == status
    assert f"needs c to be a multiple of {multiple}, found 10" in reason
    assert ("ok", None) == answer(gpu(f"{text} forward {precision} cudnn threads=1 mode=inference"))


def test_an_old_version_is_refused(gpu):
    status, reason = answer(gpu(f"{ATTENTION} forward f16 cudnn threads=1", FAKE_GPU_CUDNN="91002"))

    assert "unsupported" == status
    assert "attention needs cuDNN 9.16, found 9.10" in reason
    assert ("ok", None) == answer(gpu(f"{NORM} forward f16 cudnn threads=1", FAKE_GPU_CUDNN="91002"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [("page=16 mask=causal", "leave out page"), ("queries=1 keys=1", "from one query to one key")],
)
def test_a_gradient_that_does_not_exist_is_refused(gpu, change, reason):
    text = ATTENTION.replace("queries=17 keys=29 ", "") if "queries" in change else ATTENTION
    status, found = answer(gpu(f"{text} {change} backward f16 cudnn threads=1"))

    assert "unsupported" == status
    assert reason in found


def test_a_graph_without_an_engine_is_unsupported(gpu):
    status, reason = answer(gpu(f"{NORM} forward f16 cudnn threads=1", FAKE_GPU_FAIL="cudnnBackendFinalize=3000"))

    assert "unsupported" == status
    assert "CUDNN_STATUS_NOT_SUPPORTED" in reason


# ---- descriptors

SIZES = (2, 4, 6, 8)
NUMBERS = itertools.count(1000)


@pytest.fixture
def fake(fakes, monkeypatch):
    """cuDNN of the fake, in this process."""
    for library in ("CUDNN", "CUBLAS", "CUBLASLT", "NVRTC", "CUDART"):
        monkeypatch.setenv(f"DEEPBENCH_{library}_PATH", str(fakes["cuda"]))
    return Planner()


def blank(fake, kind, *attributes):
    """A descriptor with these attributes: number, type, and values."""
    descriptor = cudnn.Descriptor(fake, kind)
    for number, type_number, *values in attributes:
        descriptor.set(number, type_number, *values)
    return descriptor


def tensor(fake, sizes=SIZES, strides=None, type_name="f32", **options):
    strides = strides or [480, 48, 8, 1][-len(sizes) :]
    return cudnn.tensor(fake, next(NUMBERS), type_name, sizes, strides, **options)


def counts(graph, type_name="s32", batch=2):
    return graph.tensor(f"counts {next(NUMBERS)}", type_name, (batch, 1, 1, 1))


def array(graph, *sizes, type_name="f32"):
    return graph.tensor(f"array {next(NUMBERS)}", type_name, sizes or SIZES)


def norm(graph, kind, mode, rows=5, without=(), **changed):
    """A normalization of rows; `changed` tensors replace those that belong there."""
    forward = kind == "forward"
    numbers = {"x": 2002, "scale": 2005, "shift": 2006, "epsilon": 2007, "y": 2013, "mean": 2003, "reciprocal": 2004}
    if not forward:
        numbers = {"x": 2101, "mean": 2102, "reciprocal": 2103, "dy": 2104, "scale": 2105}
        numbers |= {"dscale": 2107, "dshift": 2108, "dx": 2109}
    of_row, of_column = (rows, 1, 1, 1), (1, 8, 1, 1)
    sizes = {"mean": of_row, "reciprocal": of_row}
    sizes |= dict.fromkeys(("scale", "shift", "dscale", "dshift"), of_column)
    tensors = {name: array(graph, *sizes.get(name, (rows, 8, 1, 1))) for name in numbers if name != "epsilon"}
    if forward:
        tensors["epsilon"] = graph.scalar(1e-5)
    tensors = {numbers[name]: found for name, found in (tensors | changed).items() if name not in without}
    values = [(2000 if forward else 2100, cudnn.NORM_MODE, mode)]
    if forward:
        is_training = not {"mean", "reciprocal"} <= set(without)
        values.append((2001, cudnn.NORM_PHASE, cudnn.TRAINING if is_training else cudnn.INFERENCE))
    graph.add(cudnn.NORM_FORWARD if forward else cudnn.NORM_BACKWARD, None, None, tensors, values)


def read_before_written(fake, graph):
    between = graph.virtual("f32", SIZES)
    graph.pointwise(cudnn.IDENTITY, between, to=array(graph))
    graph.pointwise(cudnn.IDENTITY, array(graph), to=between)
    graph.finish()


def one_number_twice(fake, graph):
    first = array(graph)
    graph._next -= 1
    graph.pointwise(cudnn.ADD, first, array(graph))
    graph.finish()


def unfinished(fake, graph):
    graph._operations.append(cudnn.Descriptor(fake, cudnn.RESHAPE))
    graph.finish()


def destroyed(fake, graph):
    gone = array(graph)
    fake.function("cudnnBackendDestroyDescriptor")(gone.descriptor.handle)
    graph.pointwise(cudnn.IDENTITY, gone)


def execute(fake, graph, forget=()):
    """Plan exp(x), compute it, and return x and y."""
    arrays = {name: np.linspace(-1, 1, 384, dtype=np.float32) for name in "xy"}
    graph.pointwise(cudnn.EXPONENTIAL, graph.tensor("x", "f32", SIZES), to=graph.tensor("y", "f32", SIZES))
    handle = ctypes.c_void_p()
    fake.call("cudnnCreate", ctypes.byref(handle))
    config = cudnn.configurations(fake, graph.finish(handle))[0]
    plan = cudnn.plan(fake, config, handle)
    addresses = {number: arrays[name].ctypes.data for name, number in graph.numbers.items() if name not in forget}
    variant = cudnn.variant(fake, addresses, arrays["x"].ctypes.data)
    fake.call("cudnnBackendExecute", handle, plan.handle, variant.handle)
    fake.call("cudaStreamSynchronize", None)
    return arrays


TENSOR_ATTRIBUTES = (
    (cudnn.TENSOR_TYPE, cudnn.DATA_TYPE, 0),
    (cudnn.TENSOR_SIZES, cudnn.INT64, 2, 3, 4),
    (cudnn.TENSOR_STRIDES, cudnn.INT64, 12, 4, 1),
    (cudnn.TENSOR_ALIGNMENT, cudnn.INT64, 16),
)

WRONG = {
    "tensor: strides of another rank": lambda f, g: tensor(f, (2, 3, 4), (12, 4)),
    "tensor: a size of 0": lambda f, g: tensor(f, (2, 0, 4)),
    "tensor: a stride of 0": lambda f, g: tensor(f, (2, 3, 4), (12, 0, 1)),
    "tensor: virtual and by value": lambda f, g: tensor(f, (1, 1, 1), is_virtual=True, is_by_value=True),
    "tensor: two numbers by value": lambda f, g: tensor(f, (1, 2, 1), is_by_value=True),
    "tensor: booleans in memory": lambda f, g: tensor(f, type_name="bool"),
    "tensor: no number": lambda f, g: blank(f, cudnn.TENSOR, *TENSOR_ATTRIBUTES).finish(),
    "tensor: an attribute of a product": lambda f, g: blank(
        f, cudnn.TENSOR, (cudnn.MATMUL_A, cudnn.DESCRIPTOR, tensor(f))
    ),
    "tensor: its number as a float": lambda f, g: blank(f, cudnn.TENSOR, (cudnn.TENSOR_ID, cudnn.FLOAT, 1.0)),
    "tensor: its number twice": lambda f, g: blank(f, cudnn.TENSOR, *[(cudnn.TENSOR_ID, cudnn.INT64, 1)] * 2),
    "tensor: changed when it is finished": lambda f, g: tensor(f).set(cudnn.TENSOR_IS_VIRTUAL, cudnn.BOOLEAN, True),
    "pointwise: a sum of one": lambda f, g: g.pointwise(cudnn.ADD, array(g)),
    "pointwise: an exponential of two": lambda f, g: g.pointwise(cudnn.EXPONENTIAL, array(g), array(g)),
    "pointwise: nothing to choose by": lambda f, g: g.pointwise(cudnn.SELECT, array(g), g.scalar(1.0)),
    "pointwise: an index without an axis": lambda f, g: g.pointwise(cudnn.INDEX, array(g), type_name="s32"),
    "pointwise: an axis too far": lambda f, g: g.pointwise(cudnn.INDEX, array(g), type_name="s32", axis=4),
    "pointwise: an index in f32": lambda f, g: g.pointwise(cudnn.INDEX, array(g), axis=1),
    "pointwise: a comparison in f32": lambda f, g: g.pointwise(cudnn.LESS, array(g), array(g)),
    "pointwise: sizes that do not fit": lambda f, g: g.pointwise(cudnn.ADD, array(g), array(g, 2, 4, 3, 8)),
    "pointwise: a function that does not exist": lambda f, g: g.pointwise(999, array(g)),
    "matmul: other inner sizes": lambda f, g: g.matmul(array(g), array(g)),
    "matmul: heads that are no groups": lambda f, g: g.matmul(array(g), array(g, 2, 3, 8, 6)),
    "matmul: numbers of rows in f32": lambda f, g: g.matmul(array(g), array(g, 2, 4, 8, 6), rows=counts(g, "f32")),
    "matmul: too few numbers of rows": lambda f, g: g.matmul(array(g), array(g, 2, 4, 8, 6), rows=counts(g, batch=1)),
    "matmul: another result": lambda f, g: g.matmul(array(g), array(g, 2, 4, 8, 6), to=array(g)),
    "matmul: whole numbers": lambda f, g: g.matmul(array(g, type_name="s32"), array(g, 2, 4, 8, 6)),
    "reduction: to a size that is no divisor": lambda f, g: g.reduce(cudnn.SUM, array(g), array(g, 2, 4, 4, 8)),
    "reduction: to the same sizes": lambda f, g: g.reduce(cudnn.SUM, array(g), array(g)),
    "reduction: by a product": lambda f, g: g.reduce(1, array(g)),
    "reshape: into other memory": lambda f, g: g.add(
        cudnn.RESHAPE, None, None, {cudnn.RESHAPE_X: array(g), cudnn.RESHAPE_Y: g.virtual("f32", (2, 4, 8, 6))}
    ),
    "pages: a table that is too short": lambda f, g: g.load_pages(
        array(g, 9, 2, 4, 8), array(g, 2, 1, 3, 1, type_name="s32"), counts(g), g.virtual("f32", (2, 2, 17, 8))
    ),
    "pages: lengths in f32": lambda f, g: g.load_pages(
        array(g, 9, 2, 4, 8), array(g, 2, 1, 5, 1, type_name="s32"), counts(g, "f32"), g.virtual("f32", (2, 2, 17, 8))
    ),
    "pages: heads of another size": lambda f, g: g.load_pages(
        array(g, 9, 2, 4, 8), array(g, 2, 1, 5, 1, type_name="s32"), counts(g), g.virtual("f32", (2, 2, 17, 16))
    ),
    "norm: layers without a shift": lambda f, g: norm(g, "forward", cudnn.LAYER_NORM, without=("shift",)),
    "norm: a mean of squares with a shift": lambda f, g: norm(g, "forward", cudnn.RMS_NORM, without=("mean",)),
    "norm: training without a deviation": lambda f, g: norm(g, "forward", cudnn.LAYER_NORM, without=("reciprocal",)),
    "norm: no epsilon": lambda f, g: norm(g, "forward", cudnn.LAYER_NORM, without=("epsilon",)),
    "norm: an epsilon in memory": lambda f, g: norm(g, "forward", cudnn.LAYER_NORM, epsilon=array(g, 1, 1, 1, 1)),
    "norm: a scale for each row": lambda f, g: norm(g, "forward", cudnn.LAYER_NORM, scale=array(g, 5, 1, 1, 1)),
    "norm: another result": lambda f, g: norm(g, "forward", cudnn.LAYER_NORM, y=array(g, 4, 8, 1, 1)),
    "norm: groups": lambda f, g: norm(g, "forward", 3),
    "norm: gradients without a deviation": lambda f, g: norm(g, "backward", cudnn.LAYER_NORM, without=("reciprocal",)),
    "norm: gradients without a mean": lambda f, g: norm(g, "backward", cudnn.LAYER_NORM, without=("mean",)),
    "norm: gradients in another type": lambda f, g: norm(
        g, "backward", cudnn.LAYER_NORM, dx=array(g, 5, 8, 1, 1, type_name="f16")
    ),
    "graph: a tensor is read before it is written": read_before_written,
    "graph: two tensors with one number": one_number_twice,
    "graph: an operation that is not finished": unfinished,
    "graph: a tensor that is gone": destroyed,
    "graph: a tensor as an operation": lambda f, g: blank(
        f, cudnn.OPERATION_GRAPH, (cudnn.GRAPH_OPERATIONS, cudnn.DESCRIPTOR, tensor(f))
    ).finish(),
    "graph: no operations": lambda f, g: blank(f, cudnn.OPERATION_GRAPH).finish(),
    "pack: one address too few": lambda f, g: blank(
        f,
        cudnn.VARIANT_PACK,
        (cudnn.PACK_IDS, cudnn.INT64, 1, 2),
        (cudnn.PACK_POINTERS, cudnn.POINTER, 64),
        (cudnn.PACK_WORKSPACE, cudnn.POINTER, 64),
    ).finish(),
    "pack: no address": lambda f, g: cudnn.variant(f, {1: 0}, 64),
    "pack: no workspace": lambda f, g: cudnn.variant(f, {1: 64}, 0),
    "execution: a tensor without an address": lambda f, g: execute(f, g, forget=("y",)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_descriptor_is_refused(fake, name):
    with pytest.raises(LibraryError, match="2000"):
        WRONG[name](fake, OperationGraph(fake))


def test_the_descriptors_that_are_changed_above_are_right_themselves(fake):
    graph = OperationGraph(fake)
    blank(fake, cudnn.TENSOR, *TENSOR_ATTRIBUTES, (cudnn.TENSOR_ID, cudnn.INT64, 1)).finish()
    assert tensor(fake)
    graph.matmul(array(graph), array(graph, 2, 4, 8, 6), rows=counts(graph), columns=counts(graph), inner=counts(graph))
    graph.matmul(array(graph), array(graph, 2, 2, 8, 6))
    graph.reduce(cudnn.SUM, array(graph), array(graph, 2, 2, 6, 8))
    graph.transpose(array(graph), "f16")
    table = array(graph, 2, 1, 5, 1, type_name="s32")
    graph.load_pages(array(graph, 9, 2, 4, 8), table, counts(graph), graph.virtual("f32", (2, 2, 17, 8)))
    norm(graph, "forward", cudnn.LAYER_NORM)
    norm(graph, "forward", cudnn.LAYER_NORM, without=("mean", "reciprocal"))
    norm(graph, "forward", cudnn.RMS_NORM, without=("mean", "reciprocal", "shift"))
    norm(graph, "backward", cudnn.LAYER_NORM)
    norm(graph, "backward", cudnn.RMS_NORM, without=("mean", "dshift"))
    graph.finish()
    arrays = execute(fake, OperationGraph(fake))
    assert np.allclose(np.exp(arrays["x"]), arrays["y"], rtol=1e-6)


def test_a_graph_has_as_many_operations_as_it_needs(fake):
    for text, operations in (("mask=none", 10), ("mask=causal", 14)):
        case = parse_case(f"{ATTENTION.replace('queries=17', 'queries=29')} {text} forward f16 cudnn threads=1")
        assert operations == len(attention.operation_graph(fake, case)._operations)
