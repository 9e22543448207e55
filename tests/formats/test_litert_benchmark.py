"""Results of benchmark_model: text as TensorFlow's and LiteRT's sources write it, and damaged text."""

import json
import re

import pytest

import deepbench
from deepbench.api.foreign import convert
from deepbench.core.errors import BadInput
from tests.conftest import ROOT

FOLDER = ROOT / "tests" / "data" / "imports"
WORDS = ["gemm m=64 n=4 k=32", "conv n=1 c=4 h=6 w=6 k=8 r=3 s=3", "recurrent cell=lstm hidden=8 batch=2 timesteps=5"]

PARAMETERS = "Num threads: [4]\nGraph: [/data/local/tmp/deepbench/{name}.tflite]\nSignature to run: []\n"
STATISTICS = "count=50 first=120 curr=101 min=98 max=130 avg=102.5 std=4 p5=99 median=101 p95=110"
TIMINGS = "Inference timings in us: Init: 17187, First inference: 180, Warmup (avg): 120.5, Inference (avg): 102.5"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """With an export of three problems in f32, and of those in 8 bits that have it."""
    monkeypatch.chdir(tmp_path)
    deepbench.export_problems(WORDS, "tflite", "models", precisions=["f32", "i8"], directions="forward")
    return tmp_path


def run(name="gemm_1", more="", statistics=STATISTICS, timings=TIMINGS, parameters=PARAMETERS):
    """What one run prints."""
    return (
        f"STARTING!\nLog parameter values verbosely: [0]\n{parameters.format(name=name)}{more}"
        f"Loaded model /data/local/tmp/deepbench/{name}.tflite\nInitialized session in 17.187ms.\n"
        "Running benchmark for at least 1 iterations and at least 0.5 seconds but terminate if exceeding 150 seconds.\n"
        "count=1 curr=180\n\n"
        "Running benchmark for at least 50 iterations and at least 1 seconds but terminate if exceeding 150 seconds.\n"
        f"{statistics}\n\n{timings}\n"
        "Note: as the benchmark tool itself affects memory footprint, the following is only APPROXIMATE to the actual "
        "memory footprint of the model at runtime. Take the information at your discretion.\n"
        "Memory footprint delta from the start of the tool (MB): init=4.21094 overall=46.0859\n"
    )


def imported(folder, text, **options):
    """The results, and what was left out."""
    (folder / "log.txt").write_bytes(text.encode())
    (folder / "log.jsonl").unlink(missing_ok=True)
    path, found, _ = convert("log.txt", problems="models/counts.json", **options)
    return deepbench.load(path), found


def reason_of(folder, text):
    """Why a run beside a good one has no time."""
    results, _ = imported(folder, text + run("conv_3"))
    (record,) = [s.record for s in results.summaries if s.record["op"] != "conv"]
    assert "unsupported" == record["status"]
    return record["reason"]


def left_out(folder, text):
    """Why a run beside a good one is left out."""
    results, found = imported(folder, text + run("conv_3"))
    assert 1 == len(results.summaries)
    (reason,) = found.left_out
    return reason


def test_a_run_is_a_process_with_one_mean(folder):
    results, found = imported(folder, f"deepbench: machine=Pixel 8\n{run()}")
    (summary,) = results.summaries

    assert "gemm m=64 n=4 k=32 a_t=0 b_t=0 forward f32 litert threads=4 beta=0 weights=packed" == summary.record["case"]
    assert [102.5e-6] == [*summary.record["measurement"]["samples_s"]]
    assert ([], [], "Pixel 8") == (found.left_out, found.remarks, results.header["machine"]["cpu"])
    assert {
        "runs": 50,
        "init_s": 0.017187,
        "first_inference_s": 180e-6,
        "warm_up_mean_s": 120.5e-6,
        "least_s": 98e-6,
        "largest_s": 130e-6,
        "deviation_s": 4e-6,
        "median_s": 101e-6,
        "p5_s": 99e-6,
        "p95_s": 110e-6,
        "memory_init_mb": 4.21094,
        "memory_mb": 46.0859,
        "imported_from": "benchmark_model",
    } == summary.record["notes"]
    assert "from benchmark_model, unchecked" in " ".join(str(results).split())


def test_several_runs_of_a_model_are_processes(folder):
    slower = run(statistics=STATISTICS.replace("102.5", "104.5"), timings=TIMINGS.replace("102.5", "104.5"))
    results, _ = imported(folder, run() + run("conv_3") + slower)
    gemm = results.summaries[0]

    assert [[102.5e-6], [104.5e-6]] == [[*r["measurement"]["samples_s"]] for r in gemm.rounds]
    assert 102.5e-6 < gemm.time_s < 104.5e-6


def test_cases_have_the_work_of_the_models_and_the_rows_of_their_suite(folder):
    deepbench.export_problems(["deepbench/device"], "tflite", "device", precisions="f32", most_multiply_adds=10**6)
    counts = json.loads((folder / "device" / "counts.json").read_text())
    text = "".join(run(problem["name"]) for problem in counts["problems"])
    (folder / "log.txt").write_text(text)
    results = deepbench.import_results("log.txt", "device.jsonl", problems="device/counts.json")

    assert len(counts["problems"]) == len(results.summaries) > 5
    assert {"deepbench/device"} == {row["suite"] for s in results.summaries for row in s.record["sources"]}
    assert "Imported times are unchecked" in str(deepbench.rank("device.jsonl", "Raspberry Pi 3").report())


def test_lines_of_a_phones_log_are_read(folder):
    before = "09-28 10:04:31.319  2638  2638 I tflite  : "
    for prefix in (before, "INFO: ", "\x1b[32m", "10:04:31.319  2638-2638  tflite          org.tensorflow.lite  I  "):
        results, _ = imported(folder, "".join(prefix + line + "\r\n" for line in run().splitlines()))
        assert [102.5e-6] == [s.time_s for s in results.summaries], prefix


def test_an_older_program_prints_more_parameters_and_fewer_figures(folder):
    """TensorFlow Lite of 2020: every parameter, and no percentiles."""
    more = "Use gpu : [0]\nUse xnnpack : [1]\nAllow fp16 : [0]\n#threads used for CPU inference: [2]\n"
    older = run(
        more=more, parameters=PARAMETERS.replace("Num threads: [4]\n", ""), statistics=STATISTICS.partition(" p5")[0]
    )
    results, _ = imported(folder, older.replace("Log parameter values verbosely: [0]\n", ""))
    (summary,) = results.summaries

    assert (102.5e-6, 2, "XNNPACK") == (
        summary.time_s,
        summary.record["threads"],
        summary.record["notes"]["implementation"],
    )


def test_a_number_of_threads_that_is_not_stated_is_said(folder):
    silent = run(parameters=PARAMETERS.replace("Num threads: [4]\n", ""))
    results, found = imported(folder, silent)

    assert [1] == [s.record["threads"] for s in results.summaries]
    assert any("does not say how many threads" in remark for remark in found.remarks)
    assert [3] == [s.record["threads"] for s in imported(folder, silent, threads=3)[0].summaries]


def test_kernels_are_told_apart(folder):
    more = "Use xnnpack: [{}]\n"
    results, found = imported(folder, run(more=more.format(1)) + run(more=more.format(0)))

    assert ["XNNPACK"] == [s.record["notes"]["implementation"] for s in results.summaries]
    assert (
        "occurs twice in the file (gemm_1.tflite with XNNPACK, gemm_1.tflite with built-in kernels)"
        in (found.left_out[0])
    )


COMPLETE = "Explicitly applied {} delegate, and the model graph will be completely executed by the delegate.\n"
GPU = "Use gpu: [1]\nAllow lower precision in gpu: [0]\n"


def test_products_of_8_bits_say_that_their_results_are_narrow(folder):
    results, found = imported(folder, run("gemm_2") + run("conv_4"))

    assert ["i8", None] == [s.record["notes"].get("their_result") for s in results.summaries]
    assert any("products of 8 bits have results of 8 bits" in remark for remark in found.remarks)


def test_cores_are_told_apart(folder):
    text = "deepbench: model=gemm_1.tflite\ndeepbench: cores={}\n" + run() + "deepbench: exit=0\n"
    results, found = imported(folder, text.format("f0") + text.format("0f"))

    assert ["f0"] == [s.record["notes"]["cores"] for s in results.summaries]
    assert "(gemm_1.tflite on cores f0, gemm_1.tflite on cores 0f)" in found.left_out[0]


def test_delegates_are_devices(folder):
    gpu = run(more=GPU + COMPLETE.format("GPU"))
    nnapi = run("conv_3", more="Use NNAPI: [1]\nNNAPI accelerator name: [x]\n" + COMPLETE.format("NNAPI"))
    xnnpack = run("recurrent_5", more="Use xnnpack: [1]\n" + COMPLETE.format("XNNPACK"))
    results, found = imported(folder, gpu + nnapi + xnnpack)

    assert [] == found.left_out
    assert [("litert:gpu", 1), ("litert:nnapi", 1), ("cpu", 4)] == [
        (s.record["device"], s.record["threads"]) for s in results.summaries
    ]
    assert "device=litert:gpu" in results.summaries[0].record["case"]


@pytest.mark.parametrize(
    ("name", "more", "reason"),
    [
        ("gemm_1", "Use gpu: [1]\n" + COMPLETE.format("GPU"), "GPU delegate: it may compute f32 in 16 bits"),
        ("gemm_1", GPU, "GPU delegate: the output does not say that it was applied"),
        (
            "gemm_1",
            GPU + "Though GPU delegate is explicitly applied, the model graph will not be executed by the delegate.\n",
            "GPU delegate: nothing of it ran there",
        ),
        (
            "gemm_1",
            GPU
            + "Explicitly applied GPU delegate, and the model graph will be partially executed by the delegate w/ 1 "
            "delegate kernels.\n",
            "GPU delegate: only a part of it ran there",
        ),
        ("gemm_2", GPU + COMPLETE.format("GPU"), "it computes models of 8 bits in floating point"),
        ("gemm_1", "Use Hexagon: [1]\n" + COMPLETE.format("Hexagon"), "Hexagon delegate: it has no f32"),
        ("gemm_1", "Allow fp16: [1]\n", "Allow fp16: it may compute f32 in 16 bits"),
        ("gemm_1", "xnnpack_force_fp16: [1]\n", "xnnpack_force_fp16: it may compute f32 in 16 bits"),
        ("gemm_1", GPU + "Use NNAPI: [1]\n", "several delegates were asked for"),
        ("gemm_1", "External delegate path: [lib.so]\n", "does not know what this delegate computes"),
        ("gemm_1", COMPLETE.format("EXTERNAL"), "deepbench does not know the delegate EXTERNAL"),
    ],
)
def test_a_device_or_precision_that_is_not_certain_is_left_out(folder, name, more, reason):
    assert reason in left_out(folder, run(name, more=more))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (run(timings="").partition("count=50")[0], "the output ends without timings"),
        (run(timings="").partition("Initialized")[0] + "Segmentation fault\n", "without timings: Segmentation fault"),
        (
            run(timings="").partition("Initialized")[0]
            + "ERROR: Failed to allocate tensors!\nERROR: Benchmarking failed.\n",
            "the program says that it failed: ERROR: Failed to allocate tensors!",
        ),
        (run() + "Benchmarking failed.\n", "the program says that it failed"),
        (run() + "deepbench: exit=139\n", "the program ended with exit code 139"),
        (run(more="Enable op profiling: [1]\n"), "its time includes the profiling of operators"),
        (run(more="Run w/o invoking kernels: [1]\n"), "it called no kernels"),
        (run(timings=TIMINGS.replace("102.5", "inf")), "its Inference (avg) is 'inf'"),
        (run(timings=TIMINGS.replace("102.5", "nan")), "its Inference (avg) is 'nan'"),
        (run(timings=TIMINGS.replace("102.5", "-102.5")), "its Inference (avg) is '-102.5'"),
        (run(timings=TIMINGS.replace("102.5", "1e999")), "its Inference (avg) is '1e999'"),
        (run(timings=TIMINGS.replace("102.5", "\x1b]0;x\x07")), "its Inference (avg) is"),
        (run(timings=TIMINGS.replace("102.5", "9e30"), statistics="count=1"), "is not that of a kernel"),
        (run(timings=TIMINGS.replace("102.5", "120")), "its means contradict each other: 102.5 and 120"),
        (run(statistics=STATISTICS.replace("min=98", "min=118")), "is not between its smallest 0.000118 s"),
        (run(statistics=STATISTICS.replace("std=4", "std=-4")), "its std is '-4'"),
        (run(statistics=STATISTICS.replace("count=50", "count=x")), "its count is 'x'"),
        (
            run(timings=TIMINGS.replace("102.5", "3"), statistics="count=5000 curr=3(all same)"),
            "its time of 3e-06 s is rounded to 1e-06 s, which is too coarse",
        ),
        (run(timings=TIMINGS.replace("102.5", "0"), statistics="count=9 curr=0(all same)"), "its mean is 0"),
    ],
)
def test_a_run_without_a_time_that_can_be_believed_says_why(folder, text, reason):
    found = reason_of(folder, text)
    assert reason in found
    assert found.isprintable()


def test_a_failed_run_beside_good_ones_of_the_same_model_is_named(folder):
    results, found = imported(folder, run() + run() + "deepbench: exit=1\n" + run())

    assert [2] == [len(s.rounds) for s in results.summaries]
    assert ["a run of gemm_1.tflite: the program ended with exit code 1"] == found.left_out


def test_a_program_that_prints_nothing_does_not_damage_the_run_before(folder):
    crashed = "deepbench: model=conv_3.tflite\nSegmentation fault\ndeepbench: exit=139\n"
    results, _ = imported(folder, f"deepbench: model=gemm_1.tflite\n{run()}deepbench: exit=0\n{crashed}")

    assert ["unchecked", "unsupported"] == [s.status for s in results.summaries]
    assert "exit code 139: Segmentation fault" in results.summaries[1].record["reason"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (run("mobilenet"), "mobilenet.tflite: counts.json has no such model"),
        (run("../../etc/gemm_1.txt\x1b[2J"), "counts.json has no such model"),
        ("STARTING!\n" + TIMINGS + "\n", "a run that names no model: the output may be damaged"),
        ("deepbench: model=gemm_2.tflite\n" + run("gemm_1"), "gemm_1.tflite: the loop named gemm_2.tflite before it"),
    ],
)
def test_a_run_of_no_problem_is_left_out(folder, text, reason):
    found = left_out(folder, text)
    assert reason in found
    assert found.isprintable()


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        (run(), {"problems": None}, "knows models and not problems; name the counts.json"),
        (run(), {"clock": "1GHz"}, "--clock says nothing about results of benchmark_model; leave it out"),
        (run(), {"case": "gemm m=1 n=1 k=1"}, "--case says nothing about results of benchmark_model; leave it out"),
        (f"deepbench: machine=A\n{run()}deepbench: machine=B\n", {}, "runs of A and of B"),
        (run("mobilenet"), {}, "no case that deepbench knows: mobilenet.tflite"),
        ("STARTING!\nGraph: [gemm_1.tflite]\n" * 20_001, {}, "more than 20000 runs"),
        ("Graph: [gemm_1.tflite]\n" + "x" * 10_001, {}, "line 2 has 10001 characters"),
    ],
)
def test_a_log_that_cannot_be_imported_is_one_sentence(folder, text, options, reason):
    (folder / "log.txt").write_text(text)
    with pytest.raises(BadInput, match=re.escape(reason)):
        deepbench.import_results("log.txt", **{"problems": "models/counts.json", **options})
    assert not (folder / "log.jsonl").exists()


def test_the_export_must_be_for_phones(folder):
    deepbench.export_problems(["gemm m=4 n=4 k=4 f32"], "scalesim", "scalesim")
    (folder / "log.txt").write_text(run())

    with pytest.raises(BadInput, match="the export was for scalesim, and benchmark_model runs those for tflite"):
        deepbench.import_results("log.txt", problems="scalesim/counts.json")


def test_long_damaged_lines_end_soon(folder):
    parts = ["Graph: [", "a: ", "count=1 x=", "Explicitly applied ", "emory footprint (MB", "Model:  ", "graph will "]
    text = run() + "".join((part * 900)[:990] + "\n" for part in parts for _ in range(300))

    results, _ = imported(folder, text)

    assert [102.5e-6] == [s.time_s for s in results.summaries]


TABLE = "benchmark_litert_model.txt"
IN_TABLE = [WORDS[0], "conv n=1 c=64 h=56 w=56 k=64 r=3 s=3", WORDS[2]]


@pytest.fixture
def table(folder):
    """What ai-edge-litert 2.3.0 printed for three models, without the lines of its runtime, which name files."""
    deepbench.export_problems(IN_TABLE, "tflite", "three", precisions="f32", directions="forward")
    return (FOLDER / TABLE).read_text()


def test_the_table_of_the_program_in_the_wheel(folder, table):
    (folder / "log.txt").write_text(table)
    results = deepbench.import_results("log.txt", problems="three/counts.json", machine="a Xeon")
    found = {s.record["op"]: s for s in results.summaries}

    assert (3.46e-3, 2) == (found["conv"].time_s, found["conv"].record["threads"])
    notes = found["conv"].record["notes"]
    assert (20, 1.66e-3, 10.05e-3, 8.18e-3) == tuple(notes[n] for n in ("runs", "least_s", "largest_s", "init_s"))
    assert "its time of 2e-05 s is rounded to 5e-06 s, which is too coarse" == found["gemm"].record["reason"]
    assert "ended with exit code 1: RuntimeError: Failed to load model" in found["recurrent"].record["reason"]


@pytest.mark.parametrize(
    ("accelerators", "reason"),
    [
        ("GPU | CPU", "GPU | CPU: the output does not say which of them ran it"),
        ("GPU", "GPU: the output does not say in which precision it ran"),
        ("NPU", "NPU: the output does not say in which precision it ran"),
        (None, "the output does not name the accelerator that ran it; use benchmark_model"),
    ],
)
def test_an_accelerator_that_is_not_certain_is_left_out(folder, table, accelerators, reason):
    line = "INFO benchmark_litert_model: Accelerators:    CPU\n"
    text = table.replace(line, line.replace("CPU", accelerators) if accelerators else "")
    (folder / "log.txt").write_text(text + run("gemm_1"))
    _, found, _ = convert("log.txt", problems="three/counts.json")

    assert f"conv_2.tflite: {reason}" in found.left_out
