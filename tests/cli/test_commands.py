"""The command as a person types it: run, resume, show, list, scale. Mostly on `null`, which takes no time."""

import csv
import io
import json
import re
import signal
import subprocess
import sys
import time

import pytest

from deepbench.cli import root
from tests.conftest import NO_LIBRARIES, ROOT, lines_of, records_of
from tests.help import samples
from tests.help.terminal import output_of

pytestmark = pytest.mark.programs

RUN = ("run", "gemm m=3 n=4 k=5", "gemm m=6 n=7 k=8", "--backend", "null", "-o", "out.jsonl")


def test_run_prints_machine_libraries_cases_estimate_table_and_next_command(deepbench, tmp_path):
    done = deepbench(*RUN)

    assert 0 == done.returncode, done.stderr
    for word in ("machine ", "null ", "cases      2", "estimated  ", "gemm ", "3 × 4 × 5 NN"):
        assert word in done.stdout
    assert done.stdout.rstrip().endswith("deepbench show out.jsonl --full")
    assert "\x1b" not in done.stdout
    header, *records = lines_of(tmp_path / "out.jsonl")
    assert "deepbench/1" == header["schema"]
    assert {"unchecked"} == {r["status"] for r in records}
    assert 6 <= len(records) <= 10


def test_without_a_name_the_file_is_named_after_the_time(deepbench, tmp_path):
    done = deepbench("run", "gemm m=3 n=4 k=5", "--backend", "null", "--quick")
    (path,) = tmp_path.glob("deepbench-*.jsonl")

    assert path.name in done.stdout


def test_a_record_holds_how_it_was_measured(deepbench, tmp_path):
    deepbench(*RUN, "--quick", "--set", "pin=cores", "--threads", "1", KMP_BLOCKTIME="0")
    record = records_of(tmp_path / "out.jsonl")[0]

    assert "pin=cores" in record["case"]
    assert 1 == len(record["process"]["cpus"])
    assert "0" == record["process"]["environment"]["KMP_BLOCKTIME"]
    assert "1" == record["process"]["environment"]["OMP_NUM_THREADS"]
    measurement = record["measurement"]
    n = len(measurement["samples_s"])
    assert n == len(measurement["cpu_s"]) == len(measurement["involuntary_switches"]) == len(measurement["steal_s"])


def test_without_a_compiler_the_loop_is_in_python_and_the_record_says_so(deepbench, tmp_path):
    done = deepbench(*RUN, "--quick", DEEPBENCH_NO_NATIVE_LOOP="1")

    assert {"python"} == {r["measurement"]["loop"] for r in records_of(tmp_path / "out.jsonl")}
    assert "Python loop" in done.stdout


def test_show_by_application_and_by_backend(deepbench):
    words = ["deepbench/device", "--op", "gemm", "--application", "Keyword Spotting", "--backend", "openblas,reference"]
    others = {name: path for name, path in NO_LIBRARIES.items() if name != "DEEPBENCH_OPENBLAS_PATH"}
    deepbench("run", *words, "--quick", "-o", "out.jsonl", **others)

    shown = deepbench("show", "out.jsonl", "--by", "application")
    assert 0 == shown.returncode, shown.stderr
    line = next(line for line in shown.stdout.splitlines() if "Keyword Spotting" in line)
    # The suite lists convolutions of this application, too, which the run left out.
    assert " of 4 kernels" in line
    assert "100 %" not in line
    (row,) = json.loads(deepbench("show", "out.jsonl", "--by", "application", "--json").stdout)
    assert row["kernels"] > row["measured"] > 0
    assert row["time"] is None
    assert row["sum"] > 0

    rows = list(csv.DictReader(io.StringIO(deepbench("show", "out.jsonl", "--by", "backend", "--csv").stdout)))
    assert rows
    assert all(float(r["NumPy float64"]) > 0 and float(r["OpenBLAS"]) > 0 for r in rows)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--by", "colour"], "--by is application, backend, limit, excess, parts or ranks, found colour"),
        (["--by", "application"], "no case comes from a suite that names applications"),
        (["--by", "backend"], "out.jsonl: no case has a time"),
        (["--by", "parts"], "out.jsonl: no case with a time has parts; measure some with deepbench run recurrent"),
    ],
)
@pytest.mark.usefixtures("null_file")
def test_a_view_that_does_not_exist_is_refused_in_one_sentence(deepbench, words, message):
    done = deepbench("show", "out.jsonl", *words)

    assert 64 == done.returncode
    assert message in done.stderr
    assert 1 == len(done.stderr.splitlines())


def test_show_prints_a_file_in_every_format(deepbench):
    deepbench("run", "deepbench/device", "--op", "recurrent", "--backend", "null", "--quick", "-o", "out.jsonl")

    table = deepbench("show", "out.jsonl")
    assert 0 == table.returncode, table.stderr
    assert "LSTM 256, batch 1, 150 steps" in table.stdout

    rows = list(csv.DictReader(io.StringIO(deepbench("show", "out.jsonl", "--csv").stdout)))
    assert 3 == len(rows)
    assert {"unchecked"} == {r["status"] for r in rows}
    assert all(float(r["time_s"]) > 0 and r["flop_per_s"] == "" and r["applications"] for r in rows)

    content = json.loads(deepbench("show", "out.jsonl", "--json").stdout)
    assert 3 == len(content["cases"])
    assert all(c["suite_rows"].startswith("deepbench/device:") for c in content["cases"])

    markdown = deepbench("show", "out.jsonl", "--markdown").stdout.splitlines()
    assert 5 == sum(line.startswith("|") for line in markdown)
    assert all(line.count(" | ") in (5, 6) for line in markdown[2:5])  # a disturbed time has no interval


def test_list_prints_lines_that_run_takes(deepbench):
    listed = deepbench(
        "list", "deepbench/device", "--op", "gemm", "--backend", "null", "--precision", "i8"
    ).stdout.splitlines()

    assert 13 == len(listed)
    assert listed[0] == deepbench("list", listed[0]).stdout.strip()
    assert 13 == len(deepbench("list", *listed).stdout.splitlines())


def test_list_names_the_suites(deepbench):
    out = deepbench("list", "--suites").stdout

    for suite in ("deepbench/train", "deepbench/server", "deepbench/device", "quick"):
        assert suite in out


def test_suites_are_listed_by_group_with_phases_in_80_columns(deepbench):
    lines = deepbench("list", "--suites").stdout.splitlines()

    assert max(map(len, lines)) <= 80
    titles = [line for line in lines if line and not line.startswith(" ")]
    assert [
        "The original's problems",
        "Chosen problems",
        "Language models",
        "Models of MLPerf, from 2018 to today",
    ] == (titles[:4])
    (llama,) = [line for line in lines if line.split()[:1] == ["mlperf/llama31_8b"]]
    assert ["problems", "train,", "prefill,", "decode"] == llama.split()[2:]


def test_the_coverage_of_definitions_of_others_fits_into_80_columns(deepbench, tmp_path):
    axes = {"M": {"type": "var"}, "N": {"type": "const", "value": 96}, "K": {"type": "const", "value": 64}}
    a, b, c = ({"shape": list(shape), "dtype": "bfloat16"} for shape in ("MK", "NK", "MN"))
    table = {"op_type": "gemm", "axes": axes, "inputs": {"A": a, "B": b}, "outputs": {"C": c}}
    lines = [json.dumps({"axes": {"M": m}, "inputs": {}}) for m in (5, 0)]
    names = {"gemm_n96_k64": "gemm", "a_name_that_is_longer_than_a_column_should_be_" * 2: "sampling"}
    for folder, (name, op_type) in enumerate(names.items()):
        (tmp_path / "theirs" / str(folder)).mkdir(parents=True)
        path = tmp_path / "theirs" / str(folder) / "definition.json"
        path.write_text(json.dumps({**table, "name": name, "op_type": op_type, "tags": ["model:qwen3"]}))
        path.with_name("workload.jsonl").write_text("\n".join(lines))

    text = re.sub("\x1b.[0-9;]*m", "", output_of(tmp_path, 80, "list", "theirs", "--coverage"))
    rows = [json.loads(line) for line in deepbench("list", "theirs", "--coverage", "--json").stdout.splitlines()]
    listed = deepbench("list", "theirs", "--backend", "null").stdout

    assert max(map(len, text.splitlines())) <= 80
    assert "1 of 2 definitions match an operation." in text
    assert "1 of 4 workloads are cases here." in text
    first = next(line for line in text.splitlines() if line.startswith("gemm_n96_k64"))
    assert ["2", "1", "gemm", "bf16;", "1"] == first.split()[1:6]
    assert [["gemm", "bf16", 2, 1], [None, None, 2, 0]] == [
        [row[name] for name in ("operation", "precision", "workloads", "cases")] for row in rows
    ]
    assert {"op_type sampling is not matched with any operation": 2} == rows[1]["reasons"]
    assert ["qwen3"] == rows[0]["models"]
    assert "gemm m=96 n=5 k=64 a_t=1 b_t=0 forward bf16 null threads=" in listed
    for wrong in (("theirs", "quick"), (), ("theirs", "--op", "gemm"), ("quick",)):
        done = deepbench("list", *wrong, "--coverage")
        assert (64, True) == (done.returncode, "--coverage" in done.stderr), wrong


def test_set_takes_several_parameters_of_a_model_in_one_word(deepbench):
    words = ["list", "llm/llama32_1b", "--op", "gemm", "--backend", "mkl"]
    out = deepbench(*words, "--set", "phase=decode,batch=2,4,context=512").stdout
    again = deepbench(*words, "--set", "phase=decode", "--set", "batch=2", "--set", "batch=4").stdout
    fitted = deepbench(*words, "--set", "phase=decode,batch=2", "--fit", "64MiB", "--json").stdout

    assert out == again
    assert {"n=2", "n=4"} == {line.split()[2] for line in out.splitlines()}
    assert "m 128256 → " in fitted
    assert "fit=64MiB" in fitted


def test_list_as_json_contains_the_application(deepbench):
    first = json.loads(deepbench("list", "deepbench/train", "--backend", "mkl", "--json").stdout.splitlines()[0])

    assert "Speech Recognition" == first["sources"][0]["application"]


def test_a_missing_library_is_reported_once(deepbench, tmp_path):
    words = ["gemm m=3 n=4 k=5", "gemm m=3 n=4 k=6", "f32", "--backend", "mkl,null", "--quick", "-o", "out.jsonl"]
    done = deepbench("run", *words, **NO_LIBRARIES)

    assert 0 == done.returncode, done.stderr
    assert {"mkl": "unavailable", "null": "unchecked"} == {
        r["backend"]: r["status"] for r in records_of(tmp_path / "out.jsonl")
    }
    assert 1 == done.stdout.count("MKL unavailable: MKL not found")
    assert "(2 cases)" in done.stdout


def test_a_run_whose_only_library_is_missing_is_refused_with_the_remedy(deepbench, tmp_path):
    done = deepbench("run", "gemm m=3 n=4 k=5 f32 mkl", "--quick", "-o", "out.jsonl", **NO_LIBRARIES)

    assert 64 == done.returncode, done.stdout
    assert "MKL not found" in done.stderr
    assert "pip install" in done.stderr
    assert 1 == len(done.stderr.splitlines()), done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_ctrl_c_leaves_a_valid_file_and_prints_how_to_resume(deepbench, tmp_path):
    cases = [f"gemm m={m} n=4 k=4 null" for m in range(1, 7)]
    process = subprocess.Popen(
        [sys.executable, "-m", "deepbench", "run", *cases, "--quick", "-o", "out.jsonl"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell makes its background processes ignore Ctrl-C, and their children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    path = tmp_path / "out.jsonl"
    _wait_for(lambda: path.exists() and len(path.read_bytes().splitlines()) > 2)
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=4)
    except subprocess.TimeoutExpired:  # Python loses an interrupt that arrives while it destroys an object
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)

    assert 130 == process.returncode
    assert "Traceback" not in err
    assert "deepbench run --resume -o out.jsonl" in out
    before = records_of(path)
    assert "interrupted" == before[-1]["status"]

    done = deepbench("run", "--resume", "-o", "out.jsonl")
    assert 0 == done.returncode, done.stderr
    records = [r for r in records_of(path) if r["status"] != "interrupted"]
    assert len(records) == len({(r["case"], r["round"]) for r in records})
    assert len(cases) == len({r["case"] for r in records})


def test_resuming_a_complete_file_measures_nothing(deepbench, null_file):
    before = null_file.read_bytes()
    done = deepbench("run", "--resume", "-o", "out.jsonl")

    assert 0 == done.returncode, done.stderr
    assert before == null_file.read_bytes()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda h: h["machine"].update(cpu="Another CPU"), "cpu was 'Another CPU' and is"),
        (lambda h: h["machine"].update(memory_bytes=1), "memory bytes was 1 and is"),
        (
            lambda h: h["libraries"].update(openblas={"library": {"name": "OpenBLAS", "version": "0.1", "path": "/x"}}),
            "library openblas was 0.1 at /x",
        ),
    ],
)
def test_resume_refuses_another_machine_or_library_and_names_the_difference(deepbench, null_file, change, expected):
    header, *rest = lines_of(null_file)
    change(header)
    samples.write(null_file, rest, header)

    done = deepbench("run", "--resume", "-o", "out.jsonl")

    assert 64 == done.returncode
    assert expected in done.stderr


def test_a_closed_pipe_is_no_error(tmp_path):
    done = subprocess.run(
        f"{sys.executable} -m deepbench list deepbench/train | head -1",
        shell=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert 1 == len(done.stdout.splitlines())
    assert "" == done.stderr


def test_without_arguments_the_command_prints_its_help(deepbench):
    done = deepbench()

    assert 0 == done.returncode
    assert "deepbench show FILE" in done.stdout


def test_characters_that_the_terminal_lacks_are_replaced(deepbench):
    done = deepbench(*RUN, "--quick", PYTHONIOENCODING="ascii")

    assert 0 == done.returncode, done.stderr
    assert "3 ? 4 ? 5 NN" in done.stdout


def test_files_of_the_user_do_not_shadow_modules(deepbench, tmp_path):
    (tmp_path / "random.py").write_text("raise SystemExit(3)")
    (tmp_path / "selectors.py").write_text("raise SystemExit(3)")
    done = deepbench(*RUN, "--quick", PYTHONSAFEPATH="1")

    assert 0 == done.returncode, done.stderr
    assert {"unchecked"} == {r["status"] for r in records_of(tmp_path / "out.jsonl")}


def _wait_for(condition, most_s=30):
    end = time.monotonic() + most_s
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


@pytest.mark.parametrize("columns", [60, 80])
def test_a_terminal_shows_a_progress_bar_with_the_case_and_the_remaining_time(tmp_path, columns):
    text = output_of(tmp_path, columns, *RUN, "--rounds", "2", NO_COLOR="1")
    drawn = [frame for line in text.splitlines() for frame in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line).split("\r")]
    bars = [frame for frame in drawn if re.search(r" left +━* *[0-9]+/[0-9]+ round", frame)]

    assert any(re.search(r"━.* [1-9]/[0-9] round 2  gemm m=", frame) for frame in bars), drawn
    assert max(map(len, bars)) <= columns


@pytest.mark.long
def test_run_show_and_scale_for_collectives(deepbench, tmp_path):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed (extra mpi)")
    cases = [f"all_reduce n={n} ranks={r}" for n in (100, 400_000) for r in (2, 3)]
    done = deepbench("run", *cases, "--backend", "mpich", "--quick", "-o", "out.jsonl")
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "bus GB/s" in done.stdout
    assert "TFLOP/s" not in done.stdout
    assert {"ok"} == {r["status"] for r in records_of(tmp_path / "out.jsonl")}

    by_ranks = json.loads(deepbench("show", "out.jsonl", "--by", "ranks", "--json").stdout)
    assert 4 == len(by_ranks)
    assert {"MPICH"} == {row["fastest"] for row in by_ranks}
    scaled = deepbench("scale", "out.jsonl", "--ranks", "64")
    assert "predictions of a model, not measurements" in scaled.stdout
    assert "64 ranks" in scaled.stdout.splitlines()[0]


@pytest.mark.usefixtures("null_file")
def test_scale_names_the_missing_results(deepbench):
    done = deepbench("scale", "out.jsonl")

    assert (64, "") == (done.returncode, done.stdout)
    assert "gives no model: no all-reduce has a time" in done.stderr


@pytest.mark.parametrize(
    ("content", "words", "expected"),
    [
        ("h0\n", ["gemm m=4 n=4 k=4"], "--hostfile is for operations in which several processes take part"),
        ("# nobody\n", ["all_reduce n=4 ranks=2"], "names no host"),
        ("-x; rm\n", ["all_reduce n=4 ranks=2"], "wanted one host per line, found '-x;'"),
        (None, ["all_reduce n=4 ranks=2"], "hosts does not exist; expected one host per line"),
    ],
)
def test_a_bad_hostfile_is_refused_in_one_sentence(deepbench, tmp_path, content, words, expected):
    if content is not None:
        (tmp_path / "hosts").write_text(content)
    done = deepbench("run", *words, "--hostfile", "hosts", "-o", "out.jsonl")

    assert 64 == done.returncode
    assert expected in done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_a_compiler_is_advised_only_where_it_helps(deepbench, tmp_path):
    """`reference`, like our ring, is a function of Python: no compiler makes its calls faster."""
    cases = ("gemm m=3 n=4 k=5 i8 null", "gemm m=3 n=4 k=5 i8 reference")
    deepbench("run", *cases, "--quick", "-o", "out.jsonl", DEEPBENCH_NO_NATIVE_LOOP="1", **NO_LIBRARIES)
    records = records_of(tmp_path / "out.jsonl")
    codes = {r["backend"]: [w["code"] for w in r["warnings"]] for r in records}
    table = deepbench("show", "out.jsonl", "--full").stdout

    assert {"null": ["loop_not_compiled"], "reference": []} == codes
    assert "Python loop: calls are made from Python, which adds 0.5 µs per call.\n" in table


def test_a_file_that_ends_too_early_is_no_interrupt(monkeypatch, capsys):
    def read(_):
        raise EOFError("Compressed file ended")

    monkeypatch.setattr(root.cli, "invoke", read)
    monkeypatch.setattr(sys, "argv", ["deepbench", "list"])

    assert 64 == root._run()
    assert "a file ends too early: Compressed file ended" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("show",), ("show", "--full"), ("published", "list"), ("compare", "--all")])
def test_what_less_shows_fits_80_columns_or_those_that_are_wanted(deepbench, tmp_path, words):
    samples.write(tmp_path / "a.jsonl", samples.ocr("i8", 1e-3))
    file = [] if words[0] == "published" else ["a.jsonl"]
    narrow, wide = (deepbench(*words, *file, COLUMNS=columns).stdout for columns in ("", "300"))

    assert 80 >= max(map(len, narrow.splitlines()))
    assert 80 < max(map(len, wide.splitlines())) <= 300
    assert "\x1b" not in narrow + wide


def test_without_limits_the_header_says_so(deepbench, tmp_path):
    done = deepbench(*RUN, "--quick", "--no-limits")

    assert 0 == done.returncode, done.stderr
    assert lines_of(tmp_path / "out.jsonl")[0]["plan"]["no_limits"] is True
