"""Files of other programs: each is recognized, and its cases and times are imported or reported as left out."""

import contextlib
import gzip
import json
import time
from pathlib import Path

import pytest

from deepbench import formats
from deepbench.core.errors import BadInput
from deepbench.reporting import views
from deepbench.results import summary
from deepbench.results.file import read_results

FOLDER = Path(__file__).parents[1] / "data" / "imports"


def imported(name, tmp_path, **given):
    text = (FOLDER / name).read_text()
    found = formats.recognize(text)
    options = formats.ImportOptions(**given)
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
    formats.import_file(FOLDER / name, path, options)
    read = read_results(path)  # checks the schema, too
    return found.name, {s.record["case"]: s for s in summary.summarize(read.records, read.order)}, read


def time_of(summaries, text):
    (found,) = [s for case, s in summaries.items() if case.startswith(text)]
    return found.estimate.time_s


def test_nccl_tests_times_ranks_and_bus_bandwidth(tmp_path):
    name, found, read = imported("nccl_tests.json", tmp_path)
    raw = json.loads((FOLDER / "nccl_tests.json").read_text())

    assert "nccl-tests" == name
    assert "2.31.2" == read.header["libraries"]["nccl"]["library"]["version"]
    assert 6 == len(found)
    for result in raw["results"]:
        s = found[f"all_reduce n={result['count']} ranks=2 forward f32 nccl threads=1"]
        assert s.estimate.time_s == pytest.approx(result["out_of_place"]["time"] * 1e-6)
        assert s.bus_bytes_per_s == pytest.approx(result["out_of_place"]["bus_bw"] * 1e9, rel=0.01)
        assert s.is_ranked
        assert "unchecked" == s.status
    assert "PATH=" not in read.path.read_text()  # the environment may contain secrets


def test_nccl_tests_with_one_process_and_with_single_iterations(tmp_path):
    _, many, _ = imported("nccl_tests_v1_typo_8gpu_1proc.json", tmp_path)
    _, each, _ = imported("nccl_tests_v3_per_iter.json", tmp_path)

    assert {8} == {s.record["problem"]["ranks"] for s in many.values()}
    assert {"one"} == {s.record["settings"]["processes"] for s in many.values()}
    assert max(len(s.rounds[0]["measurement"]["samples_s"]) for s in each.values()) > 3


def test_benchdnn_is_row_major_and_deepbench_column_major(tmp_path):
    name, found, _ = imported("benchdnn.csv", tmp_path)

    assert "benchdnn" == name
    assert 44.7e-6 == pytest.approx(time_of(found, "gemm m=16 n=1760 k=1760 a_t=0 b_t=0 forward f32"))
    assert 7.02e-3 == pytest.approx(time_of(found, "gemm m=9124 n=5124 k=2560 a_t=0 b_t=1 forward bf16"))
    assert any("i8u8" in case for case in found)
    assert 54.7e-6 == pytest.approx(
        time_of(found, "conv n=4 c=1 h=161 w=700 k=32 r=5 s=20 pad_h=0 pad_w=0 stride_h=2 stride_w=2 forward f32")
    )
    assert any(case.startswith("conv n=2 c=64 h=56 w=56") for case in found)  # the default batch is two
    skipped = [s for s in found.values() if s.status == "unsupported"]
    assert not [s for s in skipped if s.estimate]


def test_logs_in_one_file_keep_their_ranks(tmp_path):
    text = (FOLDER / "text_nccl_single_all_reduce.txt").read_text()
    both = text + text.replace("Num Ranks: 8", "Num Ranks: 4")
    options = formats.ImportOptions()
    found = formats.read(both, options)

    assert {8, 4} == {int(c.text.split("ranks=")[1].split()[0]) for c in found.cases}
    assert 14 == len(formats.to_results(found, options, [])[1])


def test_a_second_time_of_a_case_is_left_out():
    line = "perf,cpu,brg,,--mode=P --matmul {}8x8:8x8,0.001,1,1,1,1,1"
    text = "\n".join(line.format(o) for o in ("", "", "--attr-post-ops=sum ", "--wtag=ab ", "--attr-post-ops=relu "))
    found = formats.read(text, formats.ImportOptions())
    _, records = formats.to_results(found, formats.ImportOptions(), [])

    assert ["beta=0 weights=packed", "weights=packed", "beta=0"] == [
        r["case"].partition("threads=1 ")[2] for r in records
    ]
    assert 2 == len(found.left_out)  # a duplicate, and more than a product


@pytest.mark.parametrize(
    "options",
    [
        *("--attr-fpmath=bf16 ", "--encoding=csr+0.99:: ", "--bia_dt=f32 ", "--attr-post-ops=sum:0.5+relu "),
        *("--attr-post-ops=sum:2 ", "--dt=u8:s8:u8 ", "--wtag=BA16a64b ", "--attr-scales=src:common:0.25 "),
    ],
)
def test_benchdnn_lines_with_other_work_are_left_out(options):
    text = f"perf,cpu,brg,,--mode=P --matmul {options}8x8:8x8,0.001,1,1,1,1,1"
    found = formats.read(text, formats.ImportOptions())

    assert [] == found.cases
    assert 1 == len(found.left_out)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--dt=u8:s8:s32 ", "forward i8u8 onednn threads=1 layout=any bias=yes result=wide"),
        ("--dt=u8:s8:u8 --dir=FWD_I ", "forward i8u8 onednn threads=1 layout=any"),
        ("--stag=axb --dtag=axb --dir=FWD_D ", "forward f32 onednn threads=1 layout=nhwc"),
        ("--stag=axb ", None),
        ("--dir=BWD_W --dt=bf16:f32:bf16 ", None),
    ],
)
def test_benchdnn_convolutions_keep_their_types_and_layout(options, words):
    text = f"perf,cpu,brg,,--mode=P --conv {options}mb1ic8ih9oc8oh9kh3ph1,0.001,1,1,1,1,1"
    found = formats.read(text, formats.ImportOptions())

    assert [words] * bool(words) == [c.text[c.text.index("forward") :] for c in found.cases]


def test_nvbench_imports_only_the_first_device():
    def state(device, m):
        sizes = [{"name": "M", "type": "int64", "value": str(m)}]
        summary = {"tag": "nv/cold/time/gpu/mean", "data": [{"name": "value", "value": "0.001"}]}
        return {"name": f"M={m}", "device": device, "axis_values": sizes, "summaries": [summary]}

    value = {
        "meta": {},
        "devices": [{"id": 0, "name": "T4"}, {"id": 1, "name": "H100"}],
        "benchmarks": [{"name": "a", "states": [state(1, 8)]}, {"name": "b", "states": [state(0, 16)]}],
    }
    found = formats.read(json.dumps(value), formats.ImportOptions(case="gemm m={M} n=8 k=8 f32 cublas"))

    assert "H100" == found.cpu
    assert ["m=8"] == [c.text.split()[1] for c in found.cases]
    assert 1 == len(found.left_out)


def sources_of(found, text):
    (s,) = [s for case, s in found.items() if case.startswith(text)]
    return [
        (source["suite"].removeprefix("deepbench/"), source["row"], source["needed"]) for source in s.record["sources"]
    ]


def test_sources_match_the_direction_and_the_benchmark(tmp_path):
    _, conv, _ = imported("text_nvidia_conv_train_float.txt", tmp_path)

    assert [("train", 1, True)] == sources_of(conv, FIRST_LAYER + " forward")
    assert [("train", 1, True)] == sources_of(conv, FIRST_LAYER + " backward_weights")
    assert [("train", 1, False)] == sources_of(conv, FIRST_LAYER + " backward_data")


def test_a_forward_pass_before_a_backward_pass_is_training(tmp_path):
    _, trains, _ = imported("text_nvidia_rnn_train_half.txt", tmp_path)
    _, infers, _ = imported("text_nvidia_rnn_inference_float.txt", tmp_path)

    assert {"mode=training"} == {case.split()[-1] for case in trains if " forward " in case}
    assert not [case for case in infers if "mode=" in case]
    assert [("train", 1, True)] == sources_of(
        trains, "recurrent cell=vanilla hidden=1760 batch=16 timesteps=50 forward"
    )


def test_imported_times_are_in_the_totals_of_applications_and_libraries(tmp_path):
    _, found, _ = imported("text_nvidia_gemm_train_half.txt", tmp_path)
    summaries = list(found.values())

    assert {"f16f16"} == {s.record["precision"] for s in summaries}
    (row,) = views.by_application(summaries).rows
    assert row["kernels"] > row["measured"] == len(summaries)  # the suite lists more
    assert len(summaries) == len(views.by_backend(summaries).rows)


def test_nvbench_requires_a_case_and_imports_skipped_states(tmp_path):
    with pytest.raises(BadInput, match="--case"):
        imported("nvbench_gemm_2026_reconstructed.json", tmp_path)
    name, found, read = imported(
        "nvbench_gemm_2026_reconstructed.json", tmp_path, case="gemm m={M} n={N} k={K} f16 cublas"
    )

    assert "nvbench" == name
    assert {"ok": 0, "unchecked": 2, "unsupported": 1} == {
        status: sum(s.status == status for s in found.values()) for status in ("ok", "unchecked", "unsupported")
    }
    assert "Quadro GV100" == read.header["machine"]["cpu"]


def test_pyperf_keeps_processes_separate(tmp_path):
    case = "gemm m=2 n=3 k=4 f32 openblas"
    value = {
        "version": "1.0",
        "metadata": {"hostname": "h", "cpu_model_name": "C"},
        "benchmarks": [
            {
                "metadata": {"name": case},
                "runs": [{"warmups": [[1, 0.5]]}, {"values": [1e-3, 2e-3]}, {"values": [3e-3]}],
            }
        ],
    }
    text = json.dumps(value)
    options = formats.ImportOptions()
    found = formats.recognize(text).read(text, options)

    assert [[1e-3, 2e-3], [3e-3]] == [list(p) for p in found.cases[0].processes_s]
    assert ["gemm m=2 n=3 k=4 a_t=0 b_t=0 forward f32 openblas threads=1"] == [c.text for c in found.cases]
    with pytest.raises(BadInput, match="not a case"):
        imported("pyperf.json", tmp_path)


FIRST_LAYER = "conv n=4 c=1 h=161 w=700 k=32 r=5 s=20 pad_h=0 pad_w=0 stride_h=2 stride_w=2"
VGG_LAYER = "conv n=8 c=3 h=224 w=224 k=64 r=3 s=3 pad_h=1 pad_w=1 stride_h=1 stride_w=1"
LSTM = "recurrent cell=lstm hidden=512 batch=16 timesteps=25"


@pytest.mark.parametrize(
    ("name", "count", "case", "seconds"),
    [
        ("nvidia_gemm_train_float", 4, "gemm m=1760 n=16 k=1760 a_t=1 b_t=0 forward f32 cublas", 37e-6),
        ("nvidia_gemm_inference_int8", 5, "gemm m=1024 n=4 k=512 a_t=0 b_t=0 forward i8 cublas", 9e-6),
        ("nvidia_conv_train_float", 15, FIRST_LAYER + " backward_data f32 cudnn", 156e-6),
        ("nvidia_rnn_train_half", 12, LSTM + " backward_weights f16 cudnn", 79e-6),
        ("nvidia_sparse", 4, "sparse_gemm m=7680 n=2 k=2560 sparsity=95 forward f32 cusparse", 40e-6),
        ("amd_gemm", 5, "gemm m=", None),
        ("amd_conv", 12, VGG_LAYER + " backward_weights f32 miopen", 385e-6),
        ("amd_rnn", 6, "recurrent cell=gru hidden=2816 batch=32 timesteps=1500 backward_data f32 miopen", 857210e-6),
        ("intel_gemm", 5, "gemm m=1760 n=7133 k=1760 a_t=0 b_t=1 forward f32 mkl", 9701.4e-6),
        ("intel_conv_csv", 9, VGG_LAYER + " backward_weights f32 onednn", 1.23e-3),
        ("intel_sparse", 3, "sparse_gemm m=7860 n=2 k=2560 sparsity=95 forward f32 mkl", 121e-6),
        ("intel_libxsmm_conv", 1, "conv n=16 c=2048 h=7 w=7 k=512 r=1 s=1", 0.00063374),
        ("nccl_single_all_reduce", 7, "all_reduce n=3097600 ranks=8 forward f32 nccl", 2.485e-3),
        ("baidu_ring_all_reduce", 7, "all_reduce n=100000 ranks=16 forward f32 ring", 0.494103e-3),
        ("osu_allreduce", 7, "all_reduce n=100000 ranks=2 forward f32 mpich", 0.09e-3),
    ],
)  # fmt: skip
def test_output_of_the_originals_programs(tmp_path, name, count, case, seconds):
    # These files do not name their library.
    backend = {"osu_allreduce": "mpich", "intel_libxsmm_conv": "onednn"}.get(name)
    found_by, found, _ = imported(f"text_{name}.txt", tmp_path, backend=backend)

    assert "DeepBench" == found_by
    assert count == len(found)
    if seconds is not None:
        assert seconds == pytest.approx(time_of(found, case))


def test_a_missing_time_is_unsupported_and_a_missing_library_is_an_error(tmp_path):
    _, found, _ = imported("text_nvidia_gemm_inference_int8_nopad.txt", tmp_path)

    assert 1 == sum(s.status == "unsupported" for s in found.values())
    with pytest.raises(BadInput, match="--backend"):
        imported("text_arm_gemm.txt", tmp_path)
    _, found, _ = imported("text_arm_gemm.txt", tmp_path, backend="reference", machine="Raspberry Pi 3")
    assert 4 == len(found)


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda p: p.name)
def test_damaged_files_give_fewer_cases_or_one_sentence(path):
    text = path.read_text()
    for damaged in (text[: len(text) // 2], text[len(text) // 3 :], text.replace("0", "x"), text.replace('"', "")):
        options = formats.ImportOptions(backend="reference", case="gemm m={M} n={N} k={K} f32 reference")
        try:
            formats.to_results(formats.read(damaged, options), options, [])
        except BadInput as error:
            assert "\n" not in str(error)


PERF = "perf,cpu,brg,,--mode=P --conv {},0.001,1,1,1,1,1"
SLOW = {
    "blanks": "m n k time (usec)" + " " * 9_000,
    "letters": PERF.format("a" * 9_000),
    "quotes": PERF.format('n"' * 4_500 + "x"),
}


@pytest.mark.parametrize("line", SLOW.values(), ids=SLOW)
def test_the_time_to_read_a_line_grows_with_its_length_alone(line):
    """A regular expression that backtracks took half a second for each of these lines."""
    text = "\n".join([PERF.format("mb1ic8ih9oc8oh9kh3ph1"), *[line] * 100])
    for program in (formats.formats()["benchdnn"], formats.formats()["DeepBench"]):
        begin = time.process_time()
        program.matches(text)
        with contextlib.suppress(BadInput):
            program.read(f"# Number of Ranks 2\neduce\n{text}", formats.ImportOptions())

        assert time.process_time() - begin < 2


@pytest.mark.parametrize("start", ["perf,cpu,", "time (usec) ", "# Number of Ranks 2 "])
def test_a_line_that_no_program_writes_is_refused(start):
    text = f"time (usec)\n# Number of Ranks 2\neduce\n{start}{' ' * 200_000}"
    begin = time.process_time()
    with pytest.raises(BadInput, match=r"line 4 has 2000.. characters; a line has at most 10000"):
        formats.read(text, formats.ImportOptions())

    assert time.process_time() - begin < 2


def test_metadata_is_not_copied_for_each_of_many_runs():
    metadata = {f"m{i}": i for i in range(100_000)}
    runs = [{"metadata": {"x": 1}}] * 1000
    text = json.dumps({"version": "1.0", "benchmarks": [{"metadata": metadata, "runs": runs}]})
    begin = time.process_time()
    with pytest.raises(BadInput, match="100000 entries of metadata; a benchmark has at most 1000"):
        formats.read(text, formats.ImportOptions())

    assert time.process_time() - begin < 2


def nccl_file(path, **changes):
    """The file of nccl-tests with other values in each of its results."""
    value = json.loads((FOLDER / "nccl_tests.json").read_text())
    for result in value["results"]:
        for place in ("out_of_place", "in_place"):
            result[place] |= changes
    path.write_text(json.dumps(value))
    return path


def test_an_infinite_bandwidth_is_missing(tmp_path):
    source = nccl_file(tmp_path / "nccl.json", bus_bw=1.5)
    formats.import_file(source, tmp_path / "finite.jsonl", formats.ImportOptions())
    nccl_file(source, bus_bw=float("inf"))
    formats.import_file(source, tmp_path / "infinite.jsonl", formats.ImportOptions())
    finite, infinite = (read_results(tmp_path / f"{name}.jsonl").records for name in ("finite", "infinite"))

    assert {1.5e9} == {r["notes"]["their_bus_bytes_per_s"] for r in finite}
    assert len(finite) == len(infinite)
    assert not [r for r in infinite if "their_bus_bytes_per_s" in r["notes"]]


@pytest.mark.parametrize("word", ["inf", "nan", "1e999"])
def test_an_infinite_time_is_missing(tmp_path, word):
    text = (FOLDER / "text_nvidia_sparse.txt").read_text()
    for old, name in (("181", "dense"), ("29 ", "sparse")):
        assert old in text
        (tmp_path / "in.txt").write_text(text.replace(old, f"{word} ", 1))
        formats.import_file(tmp_path / "in.txt", tmp_path / f"{name}.jsonl", formats.ImportOptions())
    dense, sparse = (read_results(tmp_path / f"{name}.jsonl").records for name in ("dense", "sparse"))

    assert [True, False] == [r["notes"]["their_dense_s"] is None for r in dense[:2]]
    assert ["unsupported", "unchecked"] == [r["status"] for r in sparse[:2]]


def test_infinite_metadata_gives_no_traceback(tmp_path):
    benchmark = {"metadata": {"name": "gemm m=2 n=3 k=4 f32 openblas"}, "runs": [{"values": [1e-3]}]}
    value = {"version": "1.0", "metadata": {"cpu_model_name": float("inf")}, "benchmarks": [benchmark]}
    (tmp_path / "in.json").write_text(json.dumps(value))
    formats.import_file(tmp_path / "in.json", tmp_path / "out.jsonl", formats.ImportOptions())

    assert read_results(tmp_path / "out.jsonl").header["machine"]["cpu"] is None


@pytest.mark.parametrize("error", [BadInput("no space"), KeyboardInterrupt()])
def test_an_import_that_fails_leaves_no_file_in_the_way(tmp_path, monkeypatch, error):
    from deepbench.results.file import Store

    append, calls = Store.append, iter(range(100))

    def fail_later(store, line):
        if next(calls) > 2:
            raise error
        append(store, line)

    monkeypatch.setattr(Store, "append", fail_later)
    source = FOLDER / "text_nvidia_sparse.txt"
    with pytest.raises(type(error)):
        formats.import_file(source, tmp_path / "out.jsonl", formats.ImportOptions())
    assert [] == list(tmp_path.iterdir())
    monkeypatch.undo()
    formats.import_file(source, tmp_path / "out.jsonl", formats.ImportOptions())

    assert 4 == len(read_results(tmp_path / "out.jsonl").records)


SGEMM = "SGEMM(N,N,{},1,1) 1 usec"


def test_a_file_with_more_cases_than_any_program_measures_is_refused_while_it_is_read():
    text = "\n".join(SGEMM.format(i + 1) for i in range(100_000))
    begin = time.process_time()
    with pytest.raises(BadInput, match="the file has more than 10000 cases; at most so many are imported at once"):
        formats.read(text, formats.ImportOptions())

    assert time.process_time() - begin < 4


@pytest.mark.parametrize(("runs", "values", "what"), [(10_001, 1, "10001 processes"), (2, 300_000, "600000 times")])
def test_a_file_with_more_times_than_any_program_takes_is_refused(runs, values, what):
    metadata = {"name": "gemm m=1 n=1 k=1 f32 onednn"}
    content = {"version": "1.0", "metadata": metadata, "benchmarks": [{"runs": [{"values": [1e-3] * values}] * runs}]}

    with pytest.raises(BadInput, match=f"pyperf: the file has {what}; at most"):
        formats.read(json.dumps(content), formats.ImportOptions())


def test_what_is_said_about_an_imported_file_is_not_limited():
    found = formats.read("\n".join([SGEMM.format(1)] * 3), formats.ImportOptions())
    found.left_out += ["x"] * 20_000

    assert 1 == len(formats.to_results(found, formats.ImportOptions(), [])[1])


# ---- text of others as people have it

TEMPLATE = "Output template: perf,%engine%,%impl%,%name%,%prb%,%Gops%,%-time%,%-Gflops%,%0time%,%0Gflops%"
PRODUCT = "perf,cpu,brg,,--matmul --mode=P {}64x32:32x16,6.5536e-05,0.001,65.5,{},32.7"
BENCHDNN = f"{TEMPLATE}\n{PRODUCT.format('', 0.002)}"
NCCL = """# Collective test starting: {}
#  Rank  0 Group  0 Pid      1 on     HOST device  0 [0000:01:00] {}
#  Rank  1 Group  0 Pid      2 on     HOST device  1 [0000:02:00] NVIDIA H100
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
{}"""
ROW = "  1024   256     float     sum      -1    10.00    0.10    0.10       0    12.50    0.08    0.08       0"
TABLE = """    m       n      k      a_t     b_t      precision        time (usec)
   1760     16   1760      0      0      float          {}"""
TEXTS = {
    "benchdnn": BENCHDNN,
    "nccl-tests": NCCL.format("all_reduce_perf", "NVIDIA H100", ROW),
    "DeepBench": TABLE.format(50),
}


@pytest.mark.parametrize("program", TEXTS)
@pytest.mark.parametrize(
    "before",
    [
        *("[1,0]<stdout>:", "0: ", " 0: ", "node1: ", "[0] ", "trainer-1  | ", "| ", "> ", "\x1b[32m", "    "),
        *("2026-11-25T10:00:00.5Z stdout F ", "2026-11-25 10:00:00,123 INFO ", "Nov 25 10:00:00 host job[7]: "),
        *("2026-11-25 10:00:00 [1,0]<stderr>: ", "job#7: "),
    ],
)
def test_what_launchers_and_people_put_before_lines_is_left_out(program, before):
    plain = formats.read(TEXTS[program], formats.ImportOptions())
    found = formats.read("\n".join(before + line for line in TEXTS[program].splitlines()), formats.ImportOptions())

    assert plain.cases
    assert (plain.cases, plain.left_out, plain.program) == (found.cases, found.left_out, found.program)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "gzip"])
def test_encodings_and_compression_are_read(tmp_path, encoding):
    content = gzip.compress(BENCHDNN.encode()) if encoding == "gzip" else BENCHDNN.encode(encoding)
    (tmp_path / "in").write_bytes(content)
    found, count = formats.import_file(tmp_path / "in", tmp_path / "out.jsonl", formats.ImportOptions())

    assert (1, [[2e-6]]) == (count, [list(samples) for samples in found.cases[0].processes_s])


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08 no gzip", gzip.compress(b"x" * 1000, mtime=0)[:-9]])
def test_damaged_compressed_files_are_refused(tmp_path, content):
    (tmp_path / "in").write_bytes(content)
    with pytest.raises(BadInput, match="cannot read"):
        formats.import_file(tmp_path / "in", tmp_path / "out.jsonl", formats.ImportOptions())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (TEMPLATE, "no line of results follows the template"),
        (f"{TEMPLATE}\n{PRODUCT.format('', 'nan')}", "its time is 'nan'"),
        (f"{TEMPLATE}\n{PRODUCT.format('', '-1')}", "its time is '-1'"),
        (f"{TEMPLATE}\n{PRODUCT.format('', '0,002')}", "one may be a decimal comma"),
        (f"{TEMPLATE}\n{PRODUCT.format('--cold-cache=wei ', 0.002)}", "only a part of the arrays is cold"),
        (f"{TEMPLATE}\n{PRODUCT.format('mb64 ', 0.002)}", "the word 'mb64' before the problem is not understood"),
        (PERF.format("mb2ic16oc32_iw100ow100kw3pw1"), "one-dimensional convolutions are not supported"),
        (f"3:FAILED (errors:12 total:1024) __REPRO: --mode=P --matmul 64x32:32x16\n{BENCHDNN}", "FAILED (errors:12"),
        (NCCL.format("reduce_perf", "NVIDIA H100", ROW), "reduce_perf: no operation of deepbench"),
        (NCCL.format("all_reduce_perf", "NVIDIA H100", ROW[:46]), "a row with 6 words and 13 columns"),
        (NCCL.format("all_reduce_perf", "NVIDIA H100", "# done"), "the table of times has no rows"),
        (NCCL.format("all_reduce_perf", "x", ROW).replace(" time ", " cputime "), "its times are those of the CPU"),
        (TABLE.format("50,5"), "its time is '50,5'"),
        (TABLE.format("-"), "its time is '-'"),
        (TABLE.format("50").replace(" 1760     16", "-1760     16"), "found -1760"),
        (TABLE.format(""), "a row without time, which may be cut off"),
    ],
)
def test_what_is_not_read_is_named_with_the_true_reason(text, reason):
    with pytest.raises(BadInput) as error:
        formats.to_results(formats.read(text, formats.ImportOptions()), formats.ImportOptions(), [])

    assert reason in str(error.value)


def test_tests_of_benchdnn_without_a_result_are_counted():
    states = "0:SKIPPED (Case not supported) __REPRO: --matmul --dt=f16 8x8:8x8\n"
    found = formats.read(f"{states}{states}1:PASSED __REPRO: --matmul 64x32:32x16\n{BENCHDNN}", formats.ImportOptions())

    assert 1 == len(found.cases)
    assert ["SKIPPED, 2 tests, the first: --matmul --dt=f16 8x8:8x8 (Case not supported)"] == found.left_out


def test_other_sections_do_not_hide_those_that_are_read():
    sections = [NCCL.format(f"{name}_perf", "NVIDIA H100", ROW) for name in ("all_reduce", "reduce")]
    found = formats.read("\n".join([*sections, BENCHDNN]), formats.ImportOptions())
    options = formats.ImportOptions()
    alone = formats.read("\n".join(sections), options)

    assert ["results of nccl-tests: put them into a file of their own"] == found.left_out
    assert 2 == len(alone.cases)
    assert alone.left_out[0].startswith("reduce_perf: no operation")


@pytest.mark.parametrize("program", ["# rccl-tests version 2.17 rccl-headers=22707 rccl-library=22707\n", ""])
def test_rccl_is_no_nccl(program):
    found = formats.read(program + NCCL.format("all_reduce_perf", "AMD Instinct MI300X", ROW), formats.ImportOptions())

    assert ("RCCL", "2.27.7" if program else None) == (found.library, found.version)
    assert all(" rccl " in case.text for case in found.cases)


def test_the_time_of_the_cpu_is_no_time_of_an_operation():
    value = json.loads((FOLDER / "nccl_tests.json").read_text())
    for result in value["results"]:
        result["out_of_place"]["cpu_time"] = result["out_of_place"].pop("time")
    found = formats.read(json.dumps(value), formats.ImportOptions())

    assert all("place=in" in case.text for case in found.cases)
    assert "its time is that of the CPU (-C 1)" in found.left_out[0]


def test_benchmarks_that_claim_one_case_are_named(tmp_path):
    benchmarks = [{"metadata": {"name": n}, "runs": [{"values": [1e-3]}] * 2} for n in ("gemm_64", "gemm_128")]
    (tmp_path / "in.json").write_text(json.dumps({"version": "1.0", "benchmarks": benchmarks}))
    options = formats.ImportOptions(case="gemm m=64 n=64 k=64 f32 openblas")
    found, count = formats.import_file(tmp_path / "in.json", tmp_path / "out.jsonl", options)

    assert 1 == count  # case, of two processes
    assert "occurs twice in the file (gemm_64, gemm_128); the first one is used" in found.left_out[0]


def test_a_number_of_threads_that_nobody_gave_is_said():
    text, said = (FOLDER / "benchdnn.csv").read_text(), []
    for threads in (None, 4):
        options = formats.ImportOptions(threads=threads)
        found = formats.read(text, options)
        _, records = formats.to_results(found, options, [])
        assert {threads or 1} == {r["threads"] for r in records}
        said.append(found.remarks)

    assert [["the file does not say how many threads there were; they count as 1 (--threads N)"], []] == said


@pytest.mark.parametrize(("option", "name"), [({"problems": "{}"}, "problems"), ({"clock_hz": 1e9}, "clock")])
def test_an_option_that_a_format_does_not_use_is_refused(option, name):
    text = (FOLDER / "pyperf.json").read_text()

    with pytest.raises(BadInput, match=f"--{name} says nothing about results of pyperf; leave it out"):
        formats.read(text, formats.ImportOptions(**option))
