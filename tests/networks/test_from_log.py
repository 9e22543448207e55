"""Traces of logs: real ones of oneDNN, and those of other libraries as their documentation shows them."""

import gzip
import itertools
import random
import time
import tomllib
from pathlib import Path

import pytest

from deepbench.core.errors import BadInput
from deepbench.networks.traces import kernel_rules as rules
from deepbench.networks.traces.from_log import trace_log, trace_log_text
from deepbench.networks.traces.kernels import case_of, flop_of
from deepbench.networks.traces.logs import FUSED
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
    # The bias of the transposed convolution, and its gradient.
    assert (f"2 calls: {rules.BIASED}",) == one.notes
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
    assert "1 call: more than its kernel is done" in " ".join(trace.notes)


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


def product(kinds="f32 f32 f32", problem="64x32:32x16", attributes="", bias="", weights="blocked"):
    """A line of a product with these types of source, weights and result."""
    src, wei, dst = kinds.split()
    tag = "abcd"[: len(problem.partition(":")[0].split("x"))]
    bias = f" bia:{bias}::blocked:{tag}::f0_mask{1 << len(tag) - 1}" if bias else ""
    arrays = f"src:{src}::blocked:{tag}::f0 wei:{wei}::{weights}:{tag}::f0{bias} dst:{dst}::blocked:{tag}::f0"
    return onednn("matmul", "undef", arrays, problem, attributes=attributes)


def image(
    primitive, attributes="", kinds="f32 f32 f32", sizes="mb2_ic16oc32_ih14oh14kh3sh1dh0ph1_iw14ow14kw3sw1dw0pw1"
):
    src, wei, dst = kinds.split()
    arrays = (
        f"src:{src}::blocked:abcd::f0 wei:{wei}::blocked:abcd::f0 bia:f32::blocked:a::f0 dst:{dst}::blocked:abcd::f0"
    )
    return onednn(primitive, "forward_inference", arrays, sizes, "alg:direct", attributes)


def other(primitive, arrays, problem, words="", way="forward_inference"):
    return onednn(primitive, way, arrays, problem, words)


GEMM = "gemm m=16 n=64 k=32 a_t=0 b_t=0 forward"
BATCH = "batched_gemm batch=8 m=16 n=64 k=32 forward f32"
CONV = "conv n=2 c=16 h=14 w=14 k=32 r=3 s=3 pad_h=1 pad_w=1 stride_h=1 stride_w=1 forward"
DATA = "data_f32::blocked:abcd:f0"


@pytest.mark.parametrize(
    ("line", "kernel", "notes"),
    [
        (product(bias="f32", attributes="attr-post-ops:sum"), f"{GEMM} f32", [rules.BIASED]),
        (product(problem="8x64x32:8x32x16", bias="f32"), BATCH, [rules.BIASED]),
        (product(problem="8x64x32:8x32x16", attributes="attr-post-ops:sum"), BATCH, [rules.ADDED]),
        (product(problem="1x64x32:8x32x16"), BATCH, [rules.SHARED]),
        (product("s8 s8 s32", bias="s32"), f"{GEMM} i8 beta=0", [rules.BIASED]),
        (product("s8 s8 f32", attributes="attr-scales:src:0:f32+wei:2:f32"), f"{GEMM} i8 beta=0", [rules.RESCALED]),
        (product("bf16 bf16 f32", bias="f32"), f"{GEMM} bf16 beta=0", [rules.BIASED]),
        (product(attributes="attr-post-ops:eltwise_relu:0.1"), f"{GEMM} f32 beta=0", [FUSED]),
        (
            product(attributes="attr-post-ops:eltwise_relu attr-dropout:undef attr-scratchpad:user"),
            "linear m=16 n=64 k=32 forward f32 activation=relu bias=no",
            [],
        ),
        (product(attributes="post_ops:'sum;'"), f"{GEMM} f32", []),
        (image("convolution"), f"{CONV} f32 bias=yes", []),
        (image("convolution", "attr-post-ops:sum"), f"{CONV} f32 bias=yes", [rules.ADDED]),
        (
            image("convolution", "attr-scales:wei:1:f32 attr-zero-points:src:0:s32", "s8 s8 s8"),
            f"{CONV} i8 bias=yes",
            [rules.RESCALED],
        ),
        (image("convolution", "attr-scales:dst:0", "u8 s8 u8"), f"{CONV} i8u8 bias=yes", []),
        (
            image("deconvolution", sizes="mb1_ic64oc32_ih14oh28kh2sh2dh0ph0_iw14ow28kw2sw2dw0pw0"),
            "conv n=1 c=32 h=28 w=28 k=64 r=2 s=2 pad_h=0 pad_w=0 stride_h=2 stride_w=2 backward_data f32",
            [rules.BIASED],
        ),
        (
            other("inner_product", "src:bf16::blocked:ab wei:bf16::blocked:ab dst:f32::blocked:ab", "mb6ic16oc8"),
            "gemm m=8 n=6 k=16 a_t=1 b_t=0 forward bf16 beta=0",
            [],
        ),
        (
            other("batch_normalization", DATA, "mb4ic64ih56iw56", "flags:CHR"),
            "batch_norm n=4 c=64 h=56 w=56 forward f32 mode=training",
            [FUSED],
        ),
        (
            other("layer_normalization", "src:bf16::blocked:ab dst:bf16::blocked:ab", "8x768", "flags:CM"),
            "rms_norm rows=8 columns=768 forward bf16",
            [],
        ),
        (
            other("softmax", "src:f32::blocked:ab dst:f32::blocked:ab", "8x768", "alg:softmax_log axis:1"),
            "softmax rows=8 columns=768 forward f32",
            [rules.LOGARITHM],
        ),
    ],
)
def test_how_a_call_of_onednn_differs_from_its_kernel_is_said(line, kernel, notes):
    trace = read(line)

    assert [kernel] == [call.kernel for call in trace.calls]
    assert [f"1 call: {note}" for note in notes] == list(trace.notes)


@pytest.mark.parametrize(
    ("line", "moved", "reason"),
    [
        (product(attributes="attr-fpmath:bf16"), 14_336, "fpmath:bf16 may change its arithmetic"),
        (product("f16 f16 f16", attributes="attr-acc-mode:f16"), 7_168, "acc-mode:f16 may change its arithmetic"),
        (product(attributes="attr-new-word:1"), 14_336, "the attribute new-word:1"),
        (product(attributes="attr-post-ops:dw:k3s1p1"), 14_336, "dw:k3s1p1 after it is not known"),
        (product(weights="sparse"), 64 * 32 * 4 + 64 * 16 * 4, "the array wei is sparse"),
        (product("f16 u4 f16", "1x5120:5120x17408"), 44_609_536, ""),
        (product("f4_e2m1 f4_e2m1 f32"), 1024 + 256 + 4096, ""),
        (product("f32 f32 bf16"), 8192 + 2048 + 2048, ""),
        (product("bf16 bf16 f16"), 4096 + 1024 + 2048, ""),
        (other("softmax", "src:f32::blocked:ab dst:bf16::blocked:ab", "32x1000", "axis:1"), 192_000, ""),
        (other("eltwise", "src:f32::blocked:ab dst:s8::blocked:ab", "32x1000", "alg:eltwise_relu"), 160_000, ""),
        (other("eltwise", DATA, "4x16x7x7", "alg:eltwise_relu alpha:0.1"), 25_088, "its alpha is 0.1"),
        (other("eltwise", DATA, "4x16x7x7", "alg:eltwise_swish alpha:1.702"), 25_088, "its alpha is 1.702"),
        (other("shuffle", DATA, "2x16x7x7", "axis:1 group:4"), 12_544, ""),
        (other("shuffle", DATA.replace("data", "diff"), "2x16x7x7", "axis:1", "backward_data"), 12_544, ""),
        (other("lrn", DATA, "mb2ic16ih7iw7ls5beta0.75", "alg:lrn_across_channels"), 12_544, ""),
        (other("prelu", f"{DATA} weights_f32::blocked:abcd:f0", "4x16x7x7:1x16x1x1"), 25_152, ""),
        (other("layer_normalization", "src:f32::blocked:ab dst:f32::blocked:ab", "8x768", "flags:GCH"), 49_152, "GCH"),
    ],
)
def test_a_call_of_onednn_with_other_mathematics_or_types_is_no_kernel(line, moved, reason):
    trace = read(line)

    assert [(None, moved)] == [(call.kernel, call.bytes) for call in trace.calls]
    assert reason in " ".join(trace.notes)


def test_recurrent_layers_with_peepholes_or_summed_directions_are_no_kernel():
    arrays = "src_layer_f32::blocked:abc:f0 wei_layer_f32:o:blocked:a:f0 {} bia_f32::blocked:abcd:f0"
    arrays += " dst_layer_f32::blocked:abc:f0"

    def lstm(more="", way="unidirectional_left2right", cell="vanilla_lstm"):
        words = f"alg:{cell} direction:{way} activation:undef"
        return read(other("rnn", arrays.format(more), "l1t10mb8sic64slc64dhc64dic64", words))

    plain = lstm()
    assert ["recurrent cell=lstm hidden=64 batch=8 timesteps=10 input_size=64 forward f32"] == list(plain.counts)
    assert () == plain.notes
    for changed, reason in (
        (lstm("wei_peephole_f32::blocked:abc:f0"), "it has wei_peephole"),
        (lstm(way="bidirectional_sum"), "its direction is bidirectional_sum"),
        (lstm(cell="vanilla_augru"), "its cell is vanilla_augru"),
    ):
        assert {} == changed.counts
        assert reason in " ".join(changed.notes)


@pytest.mark.parametrize("cut", [0, 3])
def test_a_line_that_is_cut_off_changes_nothing_about_equal_lines(cut):
    lines = [product()] * 3
    lines.insert(cut, product().removesuffix("0.1"))
    trace = read("\n".join(lines))

    assert {f"{GEMM} f32 beta=0": 3} == trace.counts
    assert "1 call was not understood" in " ".join(trace.notes)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (product("f32 x7 f32"), "'wei:x7::blocked:ab::f0' is no array whose type is known"),
        ("onednn_verbose,v1,graph,exec,cpu,100002,sdp,matmul;softmax,,in0_f16:1,fpmath:strict,x,y,0.1", "of a graph"),
    ],
)
def test_a_line_of_onednn_that_is_not_understood_whole_is_nothing(line, reason):
    with pytest.raises(BadInput, match="no call was understood") as error:
        read(line)

    assert reason in str(error.value)


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
    assert "3 calls were not understood, the first: rocblas-bench -f axpy" in " ".join(trace.notes)
    with pytest.raises(BadInput, match=r"no call was understood: 3 calls .*axpy is no product"):
        read("\n".join(bad))


ROCBLAS = (
    "./rocblas-bench -f gemm_strided_batched -r f32_r --transposeA N --transposeB N -m 64 -n 32 -k 128 --alpha 1 "
    "--lda 64 --stride_a {stride} --ldb 128 --stride_b 4096 --beta {beta} --ldc 64 --stride_c 2048 --batch_count 12"
)
HIPBLASLT = (
    "hipblaslt-bench --api_method c -m 64 -n 8 -k 32 --lda 32 --ldb 32 --ldc 64 --ldd 64 --alpha 1 --beta 0 "
    "--transA T --transB N --batch_count 1 --a_type f16_r --b_type f16_r --c_type f16_r --d_type f16_r "
    "--compute_type f32_r --activation_type none"
)
TYPED = "rocblas-bench -f gemm -r s -m 1024 -n 512 -k 256"
F16 = "gemm m=64 n=8 k=32 a_t=1 b_t=0 forward f16 beta=0 result=narrow"
MIOPEN = (
    "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 2 -c 8 -H 16 -W 16 -k 8 -y 3 -x 3 -p 1 -q 1 "
    "-u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1"
)


@pytest.mark.parametrize(
    ("stride", "beta", "notes"),
    [(8192, 0, []), (1, 0, [rules.SHARED]), (0, 0, [rules.SHARED]), (8192, 1, [rules.ADDED])],
)
def test_a_batch_of_rocblas_ends_with_its_size(stride, beta, notes):
    trace = read(ROCBLAS.format(stride=stride, beta=beta) + " \n")

    assert ["batched_gemm batch=12 m=64 n=32 k=128 forward f32"] == list(trace.counts)
    assert [f"1 call: {note}" for note in notes] == list(trace.notes)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{TYPED}\n", "gemm m=1024 n=512 k=256 a_t=0 b_t=0 forward f32 beta=0"),
        (
            "hipblaslt-bench --a_type bf16_r --b_type bf16_r --c_type bf16_r --d_type bf16_r -m 8 -n 16 -k 32\n",
            "gemm m=8 n=16 k=32 a_t=0 b_t=0 forward bf16 beta=0 result=narrow",
        ),
        ("hipblaslt-bench -m 64 -n 8 -k 32 -r f16_r --transA T --transB N -i 10 -v", F16),
        (f"{HIPBLASLT}\necho -n next\n", F16),
        (f"{HIPBLASLT}\nrm -f out.bin\nls -l\n", F16),
        (f"{HIPBLASLT}; sleep 1\n", F16),
        (f"{HIPBLASLT} 2>&1 | tee -a log.txt\n", F16),
        (f"{HIPBLASLT} > out.csv && echo -n ok\n", F16),
        (f"<pre>{HIPBLASLT}</pre>", F16),
        (f"{HIPBLASLT}[2026-11-25T10:00:00][rank 2] next\n", F16),
        (HIPBLASLT.replace("--alpha", "^\n   --alpha"), F16),
        (HIPBLASLT.replace("--alpha", "`\n   --alpha"), F16),
        (f"0: {HIPBLASLT}".replace("--alpha", "\\\n0:  --alpha"), F16),
        (f"0: {HIPBLASLT}".replace(" --alpha 1", " --alpha\n0: 1"), F16),
        (HIPBLASLT.replace("-m 64 -n 8 -k 32", "--sizem 64 --sizen 8 --sizek 32"), F16),
    ],
)
def test_a_command_is_read_as_its_program_reads_it(text, found):
    trace = read(text)

    assert {found: 1} == trace.counts
    assert () == trace.notes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (TYPED, "ends with a size, which may be cut off"),
        (
            "rocblas-bench -f gemm -r s --transposeA N --transposeB N -m 8 -n 8 -k 8 --alpha 1 --lda 8 \n",
            "before --ldb",
        ),
        (HIPBLASLT.partition(" --beta")[0] + "\n", "it ends before --beta, which hipblaslt writes"),
        ("hipblaslt-bench -m 8 -n 8 -k 8\n", "it ends before --lda"),
        (HIPBLASLT.replace("--beta 0", "--beta nan"), "beta is 'nan', no number"),
        (HIPBLASLT.replace("-m 64", "--grouped_gemm -m 64"), "a group of products"),
        (
            "rocblas-bench -f gemm_ex -r h --batch_count 4 -m 8 -n 8 -k 8 --compute_type s",
            "gemm_ex is one product, and --batch_count is 4",
        ),
        (MIOPEN.partition(" -q")[0] + " \n", "-F is missing"),
        (MIOPEN.partition(" -l")[0], "-F is missing"),
        (MIOPEN.partition(" -F")[0] + "\n", "-F is missing"),
        (MIOPEN.replace("-p 1", "-p -1"), "a padding less than 0"),
        ("MIOpenDriver bnorm -n 4 -c 8 -H 2 -W 2 -m 1 --forw 0", "-b is missing"),
        ("MIOpenDriver bnormfp16fp32 -n 4 -c 8 -H 2 -W 2 -m 1 --forw 1", "fp16fp32 is no precision of ours"),
        ("MIOpenDriver lrn -n 1 -c 8", "MIOpenDriver lrn is not read; conv, pool"),
        ("which rocblas-bench\n/opt/rocm/bin/rocblas-bench\nhipblaslt-bench: command not found", "wanted the log"),
    ],
)
def test_a_command_that_is_not_understood_whole_says_why(text, reason):
    with pytest.raises(BadInput) as error:
        read(text)

    assert reason in str(error.value)


def test_a_softmax_of_miopen_may_be_its_logarithm():
    trace = read("MIOpenDriver softmax -n 16 -c 1000 -H 1 -W 1 -m 1 -a 2 -F 1 -t 1")

    assert (f"1 call: {rules.LOGARITHM}",) == trace.notes


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


def value(name, text):
    return f"i!     {name}: type=int; val={text};\n"


def cudnn_conv(kinds="FLOAT FLOAT FLOAT", sums="FLOAT", math="DEFAULT_MATH", function="Forward", *more):
    arrays = [tensor(n, s, k) for n, s, k in zip(("xDesc", "wDesc", "yDesc"), (X, W, Y), kinds.split(), strict=True)]
    how = f"i!         mathType: type=cudnnMathType_t; val=CUDNN_{math} (0);\n"
    described = CONVOLUTION.replace("CUDNN_DATA_FLOAT", f"CUDNN_DATA_{sums}") + how
    return cudnn(f"cudnnConvolution{function}", *arrays, described, *more)


RELU = "i!     activationDesc: type=a:\ni!         mode: type=a; val=CUDNN_ACTIVATION_RELU (1);\n"
IDENTITY = "i!     activationDesc: type=a:\ni!         mode: type=a; val=CUDNN_ACTIVATION_IDENTITY (5);\n"


@pytest.mark.parametrize(
    ("text", "kernel", "notes"),
    [
        (cudnn_conv("HALF HALF HALF", "HALF"), f"{SIZES} forward f16f16", []),
        (cudnn_conv("HALF HALF FLOAT"), f"{SIZES} forward f16 result=wide", []),
        (cudnn_conv("INT8 INT8 FLOAT", "INT32"), f"{SIZES} forward i8 result=wide", [rules.RESCALED]),
        (
            cudnn_conv("FLOAT FLOAT FLOAT", "FLOAT", "FMA_MATH", "Forward", value("beta", "1.000000")),
            f"{SIZES} forward f32",
            [rules.ADDED],
        ),
        (
            cudnn_conv("FLOAT FLOAT FLOAT", "FLOAT", "FMA_MATH", "BiasActivationForward", IDENTITY),
            f"{SIZES} forward f32",
            [],
        ),
        (
            cudnn(
                "cudnnBatchNormalizationForwardTrainingEx",
                value("mode", "CUDNN_BATCHNORM_SPATIAL (1)"),
                value("bnOps", "CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION (2)"),
                tensor("xDesc", X),
            ),
            "batch_norm n=4 c=16 h=14 w=14 forward f32 mode=training",
            [FUSED],
        ),
        (
            cudnn(
                "cudnnSoftmaxForward",
                value("algo", "CUDNN_SOFTMAX_LOG (2)"),
                value("mode", "CUDNN_SOFTMAX_MODE_INSTANCE (0)"),
                tensor("xDesc", (32, 1000, 1, 1)),
            ),
            "softmax rows=32 columns=1000 forward f32",
            [rules.LOGARITHM],
        ),
    ],
)
def test_how_a_call_of_cudnn_differs_from_its_kernel_is_said(text, kernel, notes):
    trace = read(text)

    assert [kernel] == [call.kernel for call in trace.calls]
    assert [f"1 call: {note}" for note in notes] == list(trace.notes)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (cudnn_conv(math="TENSOR_OP_MATH_ALLOW_CONVERSION"), "may be converted to fewer bits"),
        (cudnn_conv("FLOAT FLOAT FLOAT", "HALF"), "no convolution of f32 that adds in f16"),
        (cudnn_conv("HALF FLOAT HALF"), "no convolution of f16 and f32"),
        (cudnn_conv("FLOAT FLOAT HALF"), "no kernel in f32 has results in f16"),
        (
            cudnn("cudnnActivationForward", RELU, tensor("xDesc", X), tensor("yDesc", X, "HALF")),
            "its data have the types f16 and f32",
        ),
    ],
)
def test_a_call_of_cudnn_in_types_that_we_have_not_is_not_understood(text, reason):
    with pytest.raises(BadInput, match=reason):
        read(text)


def test_cudnn_9_writes_without_marks():
    text = cudnn("cudnnConvolutionForward", tensor("xDesc", X), tensor("wDesc", W), tensor("yDesc", Y), CONVOLUTION)
    text = text.replace("I! CuDNN (v8302)", "cuDNN (v90000)").replace("i! Time", "Time").replace("i!", "")

    assert [f"{SIZES} forward f32"] == kernels(text)


def test_other_calls_of_cudnn():
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
    assert "1 call was not understood" in " ".join(trace.notes)
    assert "cudnnBackendExecute" in " ".join(trace.notes)


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
    """Each takes a second at most."""
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


@pytest.mark.parametrize(
    "encode", [lambda b: gzip.compress(b), lambda b: b.decode().encode("utf-16"), lambda b: b"\xef\xbb\xbf" + b]
)
def test_a_log_may_be_compressed_or_in_another_encoding(tmp_path, encode):
    path = LOGS / "onednn_3.12_bf16_step.log"
    (tmp_path / "other.log").write_bytes(encode(path.read_bytes()))

    assert trace_log(path).counts == trace_log(tmp_path / "other.log").counts
