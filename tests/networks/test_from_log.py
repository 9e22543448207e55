"""Traces of logs: real ones of oneDNN, and those of other libraries as their documentation shows them."""

import itertools
import random
import time
import tomllib
from pathlib import Path

import pytest

from deepbench.core.errors import BadInput
from deepbench.networks.traces.from_log import trace_log, trace_log_text
from deepbench.networks.traces.kernels import case_of, flop_of
from deepbench.networks.traces.trace import parse_trace, suite_text

LOGS = Path(__file__).parents[1] / "data" / "logs"


def read(text, **more):
    return trace_log_text(text, "a net", "net.log", **more)


def kernels(text):
    """The kernels of a log, and the operators that are none."""
    return [call.kernel or call.operator for call in read(text).calls]


# ---- oneDNN

# The library chose the layout in these; kernels of a stack of layers run one after the other.
CHOSEN = {
    "conv n=2 c=16 h=14 w=13 k=32 r=3 s=3 pad_h=1 pad_w=1 stride_h=2 stride_w=1 forward f32 bias=yes "
    "layout=any": "nhwc",
    "conv n=2 c=16 h=14 w=13 k=32 r=3 s=3 pad_h=1 pad_w=1 stride_h=1 stride_w=1 groups=4 forward f32": "any",
    "conv n=2 c=16 h=14 w=13 k=32 r=3 s=3 pad_h=2 pad_w=2 stride_h=1 stride_w=1 dilation_h=2 dilation_w=2 forward bf16 "
    "layout=any": "nhwc",
    "conv n=1 c=8 h=6 w=7 k=16 r=3 s=3 pad_h=1 pad_w=1 stride_h=1 stride_w=1 d=5 t=3 pad_d=1 forward f32": "nhwc",
    "conv n=2 c=16 h=14 w=13 k=32 r=3 s=3 pad_h=1 pad_w=1 stride_h=1 stride_w=1 forward i8u8 layout=any": "nhwc",
}


def examples(name):
    """Kernels, each with the line that stands for it."""
    pairs = itertools.pairwise((LOGS / name).read_text().splitlines())
    return [(a[2:], b) for a, b in pairs if a.startswith("# ") and a != "# reorders"]


@pytest.mark.parametrize(("kernel", "line"), examples("onednn_3.2_kernels.log"))
def test_a_line_of_onednn_is_the_kernel_that_ran(kernel, line):
    wanted = kernel.replace(" layers=3", "")
    if kernel in CHOSEN:
        wanted = f"{wanted.replace(' layout=any', '')} layout={CHOSEN[kernel]}"
    (call,) = read(line).calls

    assert case_of(wanted).text == case_of(call.kernel).text
    assert call.bytes > 0


def test_reorders_have_bytes_but_no_kernel():
    calls = read((LOGS / "onednn_3.2_kernels.log").read_text().partition("# reorders")[2]).calls

    assert [("onednn.reorder", None, 2 * 4 * 64 * 35)] * 2 == [(c.operator, c.kernel, c.bytes) for c in calls]


def test_two_steps_of_a_network_are_one():
    """A network with two convolutions, a transposed one and an LSTM, trained by PyTorch 2.13 with oneDNN 3.12."""
    path = LOGS / "onednn_3.12_two_steps.log"
    one, both = trace_log(path, 2), trace_log(path)

    first, second, up = (2 * 4 * 16 * 256 * 3 * 9, 2 * 4 * 32 * 64 * 16 * 9, 2 * 4 * 32 * 64 * 8 * 4)
    lstm = 2 * 16 * 4 * 4 * 64 * (128 + 64)
    wanted = 2 * first + 3 * (second + up + lstm)  # the first has no gradient for its input
    assert wanted == sum(flop_of(c.kernel) for c in one.calls if c.kernel)
    assert 2 * wanted == sum(flop_of(c.kernel) for c in both.calls if c.kernel)
    assert len(both.calls) == 2 * len(one.calls)
    assert 29 == sum(c.operator == "onednn.reorder" for c in one.calls)
    assert one.is_training
    assert "onednn_3.12_two_steps.log, log of 2 steps" == one.source
    assert () == one.buffers
    with pytest.raises(BadInput, match="in 3 steps, so the steps are not alike"):
        trace_log(path, 3)


def test_a_step_in_bf16():
    """Two layers of PyTorch 2.13; the bias is in the result before the product is added."""
    found = trace_log(LOGS / "onednn_3.12_bf16_step.log").counts

    assert [
        "gemm m=48 n=16 k=64 a_t=1 b_t=0 forward bf16 result=narrow",
        "gemm m=10 n=16 k=48 a_t=1 b_t=0 forward bf16 result=narrow",
        "gemm m=48 n=16 k=10 a_t=0 b_t=0 forward bf16 beta=0 result=narrow",
        "gemm m=48 n=10 k=16 a_t=0 b_t=1 forward bf16 beta=0 result=narrow",
        "gemm m=64 n=48 k=16 a_t=0 b_t=1 forward bf16 beta=0 result=narrow",
    ] == list(found)


@pytest.mark.parametrize(
    "start",
    [
        "dnnl_verbose,exec,",
        "onednn_verbose,exec,",
        "onednn_verbose,1693533460193.346924,exec,",
        "onednn_verbose,primitive,exec,",
        "onednn_verbose,v1,primitive,exec,",
        "onednn_verbose,v1,1693533460193.346924,primitive,exec,",
    ],
)
@pytest.mark.parametrize("separator", "_:")
def test_all_versions_of_onednn(start, separator):
    arrays = f"src{separator}f32::blocked:ab:f0 wei{separator}f32::blocked:ba:f0 dst{separator}f32::blocked:ab:f0"
    text = f"noise of a program\n{start}cpu,matmul,brg,undef,{arrays},,,17x64:64x35:17x35,0.01\n"

    assert ["gemm m=35 n=17 k=64 a_t=1 b_t=0 forward f32 beta=0"] == kernels(text)


def onednn(primitive, propagation, arrays, problem, other="", attributes=""):
    fields = [primitive, "any", propagation, arrays, attributes, other, problem, "0.1"]
    return ",".join(["onednn_verbose,v1,primitive,exec,cpu", *fields])


def test_inner_products_and_their_gradients():
    arrays = "src:f32::blocked:ab wei:f32::blocked:ab bia:f32::blocked:a dst:f32::blocked:ab"
    lines = [onednn("inner_product", way, arrays, "mb32ic64oc48") for way in ("forward_training", "backward_data")]
    lines.append(onednn("inner_product", "backward_weights", arrays, "mb32ic64oc48"))

    assert [
        "linear m=48 n=32 k=64 forward f32",
        "gemm m=64 n=32 k=48 a_t=0 b_t=0 forward f32 beta=0",
        "gemm m=64 n=48 k=32 a_t=0 b_t=1 forward f32 beta=0",
    ] == kernels("\n".join(lines))
    image = onednn("inner_product", "forward_inference", arrays, "mb32ic64ih7iw7oc48")
    assert 2 * 32 * 64 * 49 * 48 == flop_of(kernels(image)[0])


def test_work_that_is_joined_with_a_kernel_is_said():
    arrays = "src:f32::blocked:acdb wei:f32:a:blocked:Acdb16a dst:f32::blocked:acdb"
    sizes = "mb2_ic8oc8_ih9oh9kh3sh1dh0ph1_iw9ow9kw3sw1dw0pw1"
    plain = onednn("convolution", "forward_inference", arrays, sizes, "alg:convolution_direct")
    fused = onednn(
        "convolution", "forward_inference", arrays, sizes, "alg:auto", "attr-post-ops:eltwise_relu+binary_add:f32"
    )

    assert "net.log, log" == read(plain).source
    trace = read("\n".join([plain, fused]))
    assert 1 == len(trace.counts)
    assert "1 calls do more than their kernels" in trace.source


def test_integers_and_attention_like_products_of_onednn():
    def matmul(kinds, problem, tags=("ab", "ab")):
        src, weights, dst = kinds
        arrays = f"src:{src}::blocked:{tags[0]} wei:{weights}::blocked:{tags[1]} dst:{dst}::blocked:ab"
        return kernels(onednn("matmul", "undef", arrays, problem))

    assert ["gemm m=35 n=17 k=64 a_t=0 b_t=0 forward i8u8 beta=0"] == matmul(("u8", "s8", "f32"), "17x64:64x35")
    assert ["onednn.matmul"] == matmul(("u8", "s8", "u8"), "17x64:64x35")  # results in 8 bits
    assert ["onednn.matmul"] == matmul(("f64", "f64", "f64"), "17x64:64x35")
    heads = ("2x4x16x8:2x4x8x16", ("acbd", "adbc"))
    assert ["batched_gemm batch=8 m=16 n=16 k=8 a_t=1 forward f32"] == matmul(("f32",) * 3, *heads)
    assert ["gemm m=5 n=24 k=3 a_t=0 b_t=0 forward f32 beta=0"] == matmul(("f32",) * 3, "4x6x3:1x3x5", ("abc", "abc"))


# ---- AMD


@pytest.mark.parametrize(("kernel", "line"), examples("amd_as_documented.log"))
def test_lines_of_amd(kernel, line):
    assert [kernel] == kernels(f"before\n{line}\nafter")


def test_what_amd_transposes_is_a_data_gradient():
    line = "MIOpenDriver conv -n 2 -c 16 -H 10 -W 10 -k 8 -y 2 -x 2 -p 0 -q 0 -u 2 -v 2 -l 1 -j 1 -m trans -g 1 -F 1"
    (kernel,) = kernels(line)

    assert "conv n=2 c=8 h=20 w=20 k=16 r=2 s=2 pad_h=0 pad_w=0 stride_h=2 stride_w=2 backward_data f32" == kernel
    assert 2 * 2 * 16 * 100 * 8 * 4 == flop_of(kernel)


def test_lines_that_are_not_understood_are_counted_and_the_first_is_quoted():
    good = "./rocblas-bench -f gemm -r f32_r --transposeA N --transposeB N -m 8 -n 8 -k 8 --alpha 1 --beta 0"
    bad = ["./rocblas-bench -f axpy -r f32_r -n 8", "MIOpenDriver lrn -n 4", "MIOpenDriver rnn -n 4,3 -H 8 -W 8 -m gru"]
    trace = read("\n".join([bad[0], good, *bad[1:]]))

    assert 1 == len(trace.calls)
    assert "3 lines were not understood, the first: ./rocblas-bench -f axpy" in trace.source
    with pytest.raises(BadInput, match=r"ROCBLAS_LAYER=2.*axpy is no product"):
        read("\n".join(bad))


# ---- cuDNN

TENSOR = """\
i!     {name}: type=cudnnTensorDescriptor_t:
i!         dataType: type=cudnnDataType_t; val=CUDNN_DATA_{kind} ({number});
i!         nbDims: type=int; val=4;
i!         dimA: type=int; val=[{sizes}];
i!         strideA: type=int; val=[{strides}];
"""
CONVOLUTION = """\
i!     convDesc: type=cudnnConvolutionDescriptor_t:
i!         mode: type=cudnnConvolutionMode_t; val=CUDNN_CROSS_CORRELATION (1);
i!         dataType: type=cudnnDataType_t; val=CUDNN_DATA_FLOAT (0);
i!         arrayLength: type=int; val=2;
i!         padA: type=int; val=[1,1];
i!         strideA: type=int; val=[2,2];
i!         dilationA: type=int; val=[1,1];
i!         groupCount: type=int; val=1;
"""
END = "i! Time: 2019-06-04T18:09:15.727680 (0d+0h+0m+5s since start)\ni! Process=1; Thread=2; GPU=0.\n\n\n"


def tensor(name, sizes, kind="FLOAT", last=False):
    _, c, h, w = sizes
    strides = (h * w * c, 1, w * c, c) if last else (c * h * w, h * w, w, 1)
    numbers = [",".join(map(str, values)) for values in (sizes, strides)]
    return TENSOR.format(name=name, kind=kind, number=0, sizes=numbers[0], strides=numbers[1])


def cudnn(function, *arguments):
    return f"I! CuDNN (v8302) function {function}() called:\n{''.join(arguments)}{END}"


X, W, Y = (4, 16, 14, 14), (32, 16, 3, 3), (4, 32, 7, 7)
SIZES = "conv n=4 c=16 h=14 w=14 k=32 r=3 s=3 pad_h=1 pad_w=1 stride_h=2 stride_w=2"


@pytest.mark.parametrize(
    ("function", "names", "direction"),
    [
        ("cudnnConvolutionForward", ("xDesc", "wDesc", "yDesc"), "forward"),
        ("cudnnConvolutionBackwardData", ("dxDesc", "wDesc", "dyDesc"), "backward_data"),
        ("cudnnConvolutionBackwardFilter", ("xDesc", "dwDesc", "dyDesc"), "backward_weights"),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_convolutions_of_cudnn(function, names, direction, last):
    arrays = [tensor(name, sizes, "HALF", last) for name, sizes in zip(names, (X, W, Y), strict=True)]
    layout = " layout=nhwc" if last else ""

    assert [f"{SIZES} {direction} f16{layout}"] == kernels(cudnn(function, *arrays, CONVOLUTION))


def test_cudnn_9_writes_without_marks():
    text = cudnn("cudnnConvolutionForward", tensor("xDesc", X), tensor("wDesc", W), tensor("yDesc", Y), CONVOLUTION)
    text = text.replace("I! CuDNN (v8302)", "cuDNN (v90000)").replace("i! Time", "Time").replace("i!", "")

    assert [f"{SIZES} forward f32"] == kernels(text)


def test_other_calls_of_cudnn():
    def value(name, text):
        return f"i!     {name}: type=int; val={text};\n"

    pooling = "i!     poolingDesc: type=cudnnPoolingDescriptor_t:\n" + "".join(
        f"i!         {line};\n"
        for line in (
            *("mode: type=cudnnPoolingMode_t; val=CUDNN_POOLING_MAX (0)", "nbDims: type=int; val=2"),
            *("windowDimA: type=int; val=[3,3]", "paddingA: type=int; val=[1,1]", "strideA: type=int; val=[2,2]"),
        )
    )
    relu = "i!     activationDesc: type=cudnnActivationDescriptor_t:\n"
    relu += "i!         mode: type=cudnnActivationMode_t; val=CUDNN_ACTIVATION_RELU (1);\n"
    y = (4, 16, 7, 7)

    assert ["pooling kind=max n=4 c=16 h=14 w=14 r=3 s=3 pad_h=1 pad_w=1 stride_h=2 stride_w=2 forward f32"] == kernels(
        cudnn("cudnnPoolingForward", pooling, tensor("xDesc", X), tensor("yDesc", y))
    )
    spatial = value("mode", "CUDNN_BATCHNORM_SPATIAL (1)")
    assert ["batch_norm n=4 c=16 h=14 w=14 forward f32 mode=training"] == kernels(
        cudnn("cudnnBatchNormalizationForwardTraining", spatial, tensor("xDesc", X), tensor("yDesc", X))
    )
    assert ["batch_norm n=4 c=16 h=14 w=14 backward f32"] == kernels(
        cudnn("cudnnBatchNormalizationBackward", spatial, tensor("xDesc", X), tensor("dyDesc", X))
    )
    instance = value("mode", "CUDNN_SOFTMAX_MODE_INSTANCE (0)")
    rows = (32, 1000, 1, 1)
    assert ["softmax rows=32 columns=1000 forward f32"] == kernels(
        cudnn("cudnnSoftmaxForward", instance, tensor("xDesc", rows), tensor("yDesc", rows))
    )
    assert ["elementwise kind=relu n=12544 forward f32"] == kernels(
        cudnn("cudnnActivationForward", relu, tensor("xDesc", X), tensor("yDesc", X))
    )


def test_calls_of_cudnn_without_sizes_are_said_and_descriptions_are_not():
    known = cudnn("cudnnConvolutionForward", tensor("xDesc", X), tensor("wDesc", W), tensor("yDesc", Y), CONVOLUTION)
    unknown = cudnn("cudnnBackendExecute", "i!     handle: type=cudnnHandle_t; streamId=0x0;\n")
    silent = cudnn("cudnnSetConvolutionGroupCount", "i!     groupCount: type=int; val=1;\n")
    trace = read(known + unknown + silent + known)

    assert 2 == len(trace.calls)
    assert "1 line was not understood" in trace.source
    assert "cudnnBackendExecute" in trace.source


# ---- all


def test_a_text_without_calls_says_what_is_wanted(tmp_path):
    for text in ("", "hello\nworld\n", "onednn_verbose,info,oneDNN v3.2.0\n"):
        with pytest.raises(BadInput, match=r"net\.log: wanted the log of a library: of oneDNN \(ONEDNN_VERBOSE=1\)"):
            read(text)
    with pytest.raises(BadInput, match="does not exist"):
        trace_log(tmp_path / "no.log")
    with pytest.raises(BadInput, match="at least 1"):
        read("", steps=0)


def test_damaged_lines_never_stop_the_reading():
    lines = [line for path in sorted(LOGS.iterdir()) for line in path.read_text().splitlines() if ",exec," in line]
    lines.append(
        cudnn("cudnnConvolutionForward", tensor("xDesc", X), tensor("wDesc", W), tensor("yDesc", Y), CONVOLUTION)
    )
    lines.append(
        "MIOpenDriver conv -n 2 -c 16 -H 10 -W 10 -k 8 -y 2 -x 2 -p 0 -q 0 -u 2 -v 2 -l 1 -j 1 -m conv -g 1 -F 1"
    )
    lines.append("./rocblas-bench -f gemm -r f32_r --transposeA N --transposeB N -m 8 -n 8 -k 8 --alpha 1 --beta 0")
    chosen = random.Random(5)
    characters = "0123456789abx:,_-=+[]()* \x00é"
    for _ in range(1500):
        line = chosen.choice(lines)
        for _ in range(chosen.randrange(1, 6)):
            place = chosen.randrange(len(line))
            line = line[:place] + chosen.choice(characters) * chosen.choice([0, 1, 1, 30]) + line[place + 1 :]
        try:
            read(line)
        except BadInput as error:
            assert "net.log" in str(error)


def test_a_trace_is_a_suite_like_any_other():
    trace = trace_log(LOGS / "onednn_3.12_two_steps.log", 2)

    assert parse_trace(tomllib.loads(suite_text(trace)), "a.suite") == trace


LINE = (
    "onednn_verbose,v1,primitive,exec,cpu,matmul,brg,undef,src_f32::blocked:ab::f0 wei_f32::blocked:ab::f0 "
    "dst_f32::blocked:ab::f0,,,64x64:64x64,0.01"
)


@pytest.mark.parametrize(
    "text",
    [
        "onednn_verbose," * 200_000,
        "# " + "onednn_verbose," * 200_000,
        "\n" * 2_000_000,
        "x" * 4_000_000,
        f"# {LINE}\n" * 20_000,
        "rocblas-bench -f gemm\n" + " -m 1\n" * 200_000,
        "rocblas-bench -f gemm" + " \\\n" * 500_000,
        "I! CuDNN (" * 300_000,
        "\x1b[" * 1_000_000,
    ],
    ids=["one line", "one comment", "line ends", "one word", "comments", "options", "backslashes", "cuDNN", "colours"],
)
def test_the_time_to_read_a_log_grows_with_its_length_alone(text):
    """Each takes a second at most; the first two took minutes, because each call looked for the end of its line."""
    begin = time.process_time()
    with pytest.raises(BadInput):
        read(text)

    assert time.process_time() - begin < 4


def test_a_log_that_repeats_a_call_is_read_in_time_that_grows_with_its_length():
    begin = time.process_time()
    assert 20_000 == len(read(f"{LINE}\n" * 20_000).calls)
    assert time.process_time() - begin < 4


def test_a_log_larger_than_those_of_a_step_is_refused(tmp_path):
    path = tmp_path / "net.log"
    with open(path, "wb") as file:
        file.truncate(16 * 2**20 + 1)

    with pytest.raises(
        BadInput, match="has 16777217 bytes, and at most 16777216 are read; expected the log of a library"
    ):
        trace_log(path)
