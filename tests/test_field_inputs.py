"""Inputs of people who do this job, reduced, and what each of them is: an answer, or a refusal with the true reason.

Each was once read wrongly, in silence, or refused for a reason that was not true.
"""

import json
import re
from pathlib import Path

import pytest

from deepbench import formats
from deepbench.core.errors import BadInput
from deepbench.networks.traces.from_log import trace_log
from deepbench.networks.traces.kernels import flop_of
from tests.help.command import run_here

FIELD = Path(__file__).parent / "data" / "field"


def field(name):
    (path,) = FIELD.glob(f"{name}*")
    return path


# ---- logs

LOGS = {
    "02": {"gemm m=64 n=8 k=32 a_t=1 b_t=0 forward f16 beta=0 result=narrow": 1},
    "03-two-c": {
        "gemm m=16 n=8 k=32 a_t=1 b_t=0 forward f16 beta=0 result=narrow": 1,
        "gemm m=64 n=8 k=32 a_t=1 b_t=0 forward f16 beta=0 result=narrow": 1,
    },
    "03-two-m": {
        "conv n=1 c=8 h=16 w=16 k=8 r=3 s=3 pad_h=1 pad_w=1 stride_h=1 stride_w=1 forward f32": 1,
        "conv n=1 c=8 h=32 w=32 k=8 r=3 s=3 pad_h=1 pad_w=1 stride_h=1 stride_w=1 forward f32": 1,
    },
    "06": {"batch_norm n=1 c=64 h=16 w=16 d=32 forward f32 mode=training": 1},
    "07": {"gemm m=64 n=8 k=32 a_t=0 b_t=0 forward bf16 beta=0 result=narrow": 1},
    "10": {"gemm m=16 n=64 k=32 a_t=0 b_t=0 forward f32 beta=0": 1},
    "11": {
        "gemm m=16 n=64 k=32 a_t=0 b_t=0 forward f32 beta=0": 1,
        "gemm m=16 n=8 k=32 a_t=0 b_t=0 forward f32 beta=0": 1,
    },
    "13": {},
    "14": {
        "conv n=2 c=8 h=16 w=16 k=8 r=3 s=3 pad_h=1 pad_w=1 stride_h=1 stride_w=1 forward bf16 layout=nhwc": 1,
    },
    "16": {"gemm m=16 n=64 k=32 a_t=0 b_t=0 forward f32 beta=0": 1},
    "22": {"conv n=2 c=16 h=14 w=14 k=8 r=1 s=1 pad_h=0 pad_w=0 stride_h=1 stride_w=1 backward_data bf16": 1},
    "23": {"gemm m=16 n=64 k=32 a_t=0 b_t=0 forward f32 beta=0": 1},
    "30": {"conv n=1 c=8 h=14 w=14 k=8 r=3 s=3 pad_h=1 pad_w=1 stride_h=2 stride_w=2 forward f32 layout=any": 1},
}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_has_these_kernels(name):
    assert LOGS[name] == dict(trace_log(field(name)).counts)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("02", ["1 call was not understood", "m 16", "it is cut off"]),
        ("07", ["1 call in comments left out"]),
        ("10", ["1 call was not understood", "the line is cut off"]),
        ("30", ["1 call: its padding is not the same on both sides"]),
    ],
)
def test_what_a_log_leaves_out_is_on_the_screen(name, words):
    done = run_here(["trace", str(field(name))])

    assert 0 == done.code
    text = " ".join(done.output.split())
    for word in words:
        assert word.replace("m 16", "-m 16") in text
    assert word in " ".join(json.loads(run_here(["trace", str(field(name)), "--json"]).output)["notes"])


def test_the_flop_of_a_padded_convolution_are_those_of_its_outputs():
    (kernel,) = trace_log(field("30")).counts

    assert 2 * 8 * 8 * 9 * 49 == flop_of(kernel) == 56_448


def test_the_bytes_of_a_product_without_a_kernel():
    (call,) = trace_log(field("13")).calls

    assert None is call.kernel
    assert 128 * 256 * 2 + 256 * 16 + 16 * 2 + 128 * 16 * 2 == call.bytes
    assert "of the framework" not in run_here(["trace", str(field("13"))]).output


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("04", "the line has more commas than fields; one may be a decimal comma"),
        ("05-f32", "there is no product of f32 that adds in f32_bf16_r"),
        ("05-i8", "there is no product of s8 that adds in s32 and has results in bf16"),
        ("15-mkldnn-0.log", "this is MKL-DNN 0.x"),
        ("15-mkldnn-0-e", "oneDNN 1.0 and later are read"),
    ],
)
def test_a_log_that_is_not_understood_says_why(name, reason):
    with pytest.raises(BadInput, match="no call was understood: 1 call was not understood, the first:") as error:
        trace_log(field(name))

    assert reason in str(error.value)
    assert "wanted" not in str(error.value)


# ---- results of other programs


def imported(name, tmp_path, **options):
    """What the file contains, and the result file that was made of it."""
    target = tmp_path / f"{name}.jsonl"
    options = formats.ImportOptions(machine="M", **options)
    found, _ = formats.import_file(field(name), target, options)
    return found, target


PRODUCT = "gemm m=16 n=64 k=32 a_t=0 b_t=0 forward {} onednn threads=1 beta=0 weights=packed"


@pytest.mark.parametrize(
    ("name", "case", "seconds"),
    [
        ("01", PRODUCT.format("f32"), 2e-6),
        ("17", PRODUCT.format("f32"), 2e-6),
        ("18-old-cfg.txt", PRODUCT.format("i8u8"), 2e-6),
        ("18-old-cfg-b", PRODUCT.format("bf16"), 2e-6),
        ("18-t", PRODUCT.format("i8u8").replace("m=16 n=64 k=32", "m=128 n=1 k=64"), 2e-6),
    ],
)
def test_a_line_of_benchdnn_is_this_case_with_this_time(name, case, seconds, tmp_path):
    found, _ = imported(name, tmp_path)

    assert {case: [[seconds]]} == {c.text: [pytest.approx(list(p)) for p in c.processes_s] for c in found.cases}


def test_a_problem_that_is_measured_three_times_says_so(tmp_path):
    found, _ = imported("29", tmp_path)

    assert ["occurs 3 times in the file; the first one is used"] == [
        reason.partition(": ")[2] for reason in found.left_out
    ]


def test_the_text_of_nccl_tests(tmp_path):
    found, _ = imported("20", tmp_path)

    assert {
        "all_reduce n=256 ranks=2 forward f32 nccl threads=1": 10e-6,
        "all_reduce n=256 ranks=2 forward f32 nccl threads=1 place=in": 12.5e-6,
    } == {c.text: pytest.approx(c.processes_s[0][0]) for c in found.cases}


RELU = "elementwise kind=relu n=1024 f32 torch"


def test_nvbench_without_meta_has_its_time(tmp_path):
    found, _ = imported("19-nvbench-without-meta.json", tmp_path, case=RELU)

    assert [[[2e-6]]] == [[list(p) for p in c.processes_s] for c in found.cases]


@pytest.mark.parametrize(
    ("name", "reason", "options"),
    [
        ("19-nvbench-without-meta-null", "none of the 1 cases in the file has a time", {"case": RELU}),
        ("33", "none of the 1 cases in the file has a time", {"case": RELU}),
        ("28-no-row", "no rows: the program was aborted", {"library": "cuBLAS 7.5"}),
        ("28-cut-row", "1760 16 1760 0 0Aborted", {"library": "cuBLAS 7.5"}),
    ],
)
def test_a_file_without_times_is_refused(name, reason, options, tmp_path):
    with pytest.raises(BadInput, match=reason):
        imported(name, tmp_path, **options)

    assert not list(tmp_path.iterdir())


def test_a_case_without_a_time_is_not_slower(tmp_path):
    files = [imported(name, tmp_path, library="cuBLAS 7.5")[1] for name in ("12-gate-a", "12-gate-b")]
    gate = run_here(["gate", *map(str, files), "--unchecked"])

    assert 1 == gate.code
    assert "1 not measured" in gate.output
    assert "slower" not in gate.output.splitlines()[0]
    compare = run_here(["compare", *map(str, files)])
    assert "--unchecked" in " ".join(compare.errors.split())
    assert "were not checked" in " ".join(compare.errors.split())


def test_what_other_programs_record_may_explain_a_difference(tmp_path):
    case = "gemm m=64 n=64 k=64 f32 openblas"
    files = [imported(name, tmp_path, case=case)[1] for name in ("32-pyperf-a", "32-pyperf-b")]
    text = " ".join(run_here(["compare", *map(str, files), "--unchecked"]).output.split())

    assert re.search(r"\b(9\.\d|10\.0) % faster", text)
    assert "no recorded difference" not in text.lower()
    assert "timer: time.time() → clock_gettime" in text
    assert "Python: 2.7.13" in text


# ---- networks and definitions


@pytest.mark.costly
def test_autocast_that_is_not_applied_is_said():
    pytest.importorskip("torch", reason="PyTorch not found; pip install torch")
    program = f"{field('08')}:build"
    real, shapes = (run_here(["trace", program, *more]).output for more in ([], ["--meta"]))

    assert "linear 32 × 8 × 64 bf16" in real
    assert "autocast" not in real
    assert "autocast was not applied" in " ".join(shapes.split())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("24", "the operator Quant of custom (quant_x), which is none of ONNX"),
        ("25", "is a pointer of Git LFS, not the file itself; fetch it: git lfs pull"),
        ("26", "the operator Scan (scan0), which runs a network of its own"),
        ("27", "consumed_inputs"),
    ],
)
def test_an_onnx_file_is_refused_for_its_true_reason(name, reason):
    pytest.importorskip("onnx", reason="onnx not found; pip install onnx")
    done = run_here(["trace", str(field(name))])

    assert 0 != done.code
    assert reason in " ".join(done.errors.split())


def test_all_shapes_that_operators_of_others_leave_open_are_asked_for_at_once():
    pytest.importorskip("onnx", reason="onnx not found; pip install onnx")
    names = [f"{letter}{i}" for letter in "de" for i in range(4)]
    asked = " ".join(run_here(["trace", str(field("24"))]).errors.split())
    sizes = [
        f"--set={name}={size}" for name, size in zip(names, (1, 3, 16, 16, 8, 3, 3, 3), strict=True) if name in asked
    ]
    done = run_here(["trace", str(field("24")), *sizes])

    assert 0 == done.code
    assert "custom.Quant" in done.output
    assert "conv 1 × 3 × 16 × 16, 8 of 3 × 3, pad 1" in done.output


@pytest.mark.parametrize(
    ("name", "reason"),
    [("09", "its scale is used as weight + 1"), ("34", "it has no op_type")],
)
def test_a_definition_with_other_mathematics_is_refused(name, reason):
    text = " ".join(run_here(["list", str(field(name)), "--coverage"]).output.split())

    assert reason in text
    assert "0 of 1 definitions match" in text


def test_both_orders_of_a_matrix_become_the_same_sizes():
    lines = run_here(["list", str(field("35")), "--fit", "64MiB", "--backend", "openblas"]).output.splitlines()

    assert 2 == len(lines)
    assert 1 == len({tuple(line.split()[1:4]) for line in lines})
    assert all(" m=2 " in line for line in lines)


@pytest.mark.parametrize("word", ["f64", "fp64", "double", "float32", "int8"])
def test_a_precision_that_there_is_not_gets_the_list_of_those_that_there_are(word):
    done = run_here(["run", "gemm", "m=8", "n=8", "k=8", word])

    assert 64 == done.code
    assert "f32, bf16, f16, tf32" in done.errors
    assert "unknown suite" not in done.errors
