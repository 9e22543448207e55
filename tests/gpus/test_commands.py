"""The commands of published kernel times, from words to tables, and every wrong word."""

import builtins
import csv
import io
import json
import shutil
import sys

import pytest

from deepbench.cli.root import EXIT_BAD_INPUT
from tests.cli import test_whatif
from tests.conftest import ROOT
from tests.gpus import small_tables
from tests.gpus.small_tables import forget, write, write_sheet
from tests.help import samples
from tests.help.command import run_here

STORED = ROOT / "tests" / "data" / "quick-epyc-2cores.jsonl"
MODEL = "llm/llama32_1b"


@pytest.fixture
def here(gpus, monkeypatch, tmp_path):
    """A command in this process, 80 columns wide, that must succeed."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def run(*words):
        done = run_here(words)
        assert (0, "") == (done.code, done.errors), words
        assert max(map(len, done.output.splitlines()), default=0) <= 80 or "--csv" in words or "--json" in words
        return done.output

    return run


def refused(*words):
    """The one sentence of a command that must not succeed."""
    done = run_here(words)
    assert (EXIT_BAD_INPUT, "") == (done.code, done.output), words
    assert "Traceback" not in done.errors
    (line,) = done.errors.splitlines()
    assert line.startswith("deepbench: ")
    assert all(character.isprintable() for character in line)
    return line.removeprefix("deepbench: ")


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


# ---- published


def test_gpus_are_listed_before_the_machines_of_the_original(here):
    found = rows(here("published", "list", "--csv"))
    total = 1400 + 432 + 864 + 560 + 240 + 120 + 144 + 216 + 224 + 144 + 3
    assert [("h100_sxm", str(total)), ("l40s", str(total))] == [(row["machine"], row["results"]) for row in found[:2]]
    assert "NVIDIA Tesla V100" == found[2]["machine"]


def test_the_list_of_gpus_fits_into_80_columns(here):
    assert "h100_sxm" in here("published", "list")


def test_a_gpu_shows_what_it_has(here):
    text = here("published", "show", "h100_sxm")
    assert "NVIDIA H100 SXM 80GB: bf16 989 TFLOP/s" in text
    assert "mhc_module (3)" in text
    found = json.loads(here("published", "show", "H100_SXM", "--json"))
    assert 1400 == found["families"]["linear"]


def test_kernels_are_filtered(here):
    words = ("published", "show", "l40s", "--op", "gemm", "--precision", "bf16", "--where", "n=4096,k=2048")
    found = rows(here(*words, "--framework", "vllm", "--csv"))
    assert [str(m) for m in small_tables.POWERS] == [row["m"] for row in found]
    assert {("4096", "2048", "bfloat16", "vllm 0.24.0")} == {
        (row["n"], row["k"], row["type"], row["source"]) for row in found
    }
    flop, size = 2 * 64 * 4096 * 2048, 2 * (4096 * 2048 + 64 * 2048 + 64 * 4096)
    row = next(row for row in found if row["m"] == "64")
    assert 1e-3 * small_tables.time_ms("l40s", flop, size, 1.1) == pytest.approx(float(row["time_s"]))
    assert flop / float(row["time_s"]) / 362e12 == pytest.approx(float(row["of_peak"]))
    assert size / float(row["time_s"]) == pytest.approx(float(row["bytes_per_s"]))
    assert "linear m=4096 n=64 k=2048 bf16 bias=no" == row["case"]
    assert 3 == len(rows(here(*words, "--rows", "3", "--csv")))
    assert "28 of 1400 rows of fully connected layers (linear); the first 5 are shown" in here(*words, "--rows", "5")


def test_every_version_is_shown_if_wanted(folder):
    write_sheet(folder, "h100_sxm")
    for version, count in (("0.9.0", 2), ("0.24.0", 1)):
        kernels = [{"gemm_dtype": "fp8", "m": 1, "n": 2, "k": k + 1, "latency": 1.0} for k in range(count)]
        write(folder, "h100_sxm", f"gemm/vllm/{version}/gemm", kernels)
    words = ("published", "show", "h100_sxm", "--op", "linear", "--csv")
    assert 2 == len(rows(run_here(words).output))
    assert 3 == len(rows(run_here((*words, "--every-version")).output))


def test_untrusted_rows_say_why(folder, monkeypatch):
    write_sheet(folder, "h100_sxm")
    shapes = [{"gemm_dtype": "bfloat16", "m": 8192, "n": 8192, "k": 8192, "latency": 0.5}]
    shapes += [{"gemm_dtype": "bfloat16", "m": m, "n": 8, "k": 8, "latency": 0.002} for m in range(1, 20)]
    write(folder, "h100_sxm", "gemm/vllm/1/gemm", shapes)
    monkeypatch.setenv("COLUMNS", "200")
    found = run_here(("published", "show", "h100_sxm", "--op", "linear"))
    (line,) = [line for line in found.output.splitlines() if "above the peak of the data sheet" in line]
    assert line.split()[:3] == ["8192", "8192", "8192"]
    assert "1 row of them not trusted" in found.output


# ---- ranks


def test_gpus_are_ranked_by_time(here):
    text = here("rank", MODEL, "l40s", "h100_sxm", "--phase", "decode", "--set", "batch=32", "--set", "context=4096")
    assert "Llama 3.2 1B, one step of decode: batch=32 context=4096" in text
    assert "NVIDIA H100 SXM 80GB ×1 is the fastest" in text
    found = json.loads(here("rank", MODEL, "l40s", "h100_sxm", "--phase", "decode", "--set", "batch=32", "--json"))
    assert ["h100_sxm", "l40s"] == [gpu["gpu"] for gpu in found["gpus"]]
    for gpu in found["gpus"]:
        assert {"trtllm", "vllm"} == set(gpu["by_framework"])
        assert gpu["time_s"] == pytest.approx(sum(gpu["by_framework"].values()) / 2)
        assert gpu["low_s"] < gpu["time_s"] < gpu["high_s"]
        assert 1 == pytest.approx(gpu["measured"] + gpu["interpolated"] + gpu["modelled"])
    # By memory bandwidth, the L40S is 3.9 times slower.
    assert 2.5 < found["gpus"][1]["over_best"] < 4


def test_prices_rank_by_cost(here):
    words = ("rank", MODEL, "l40s", "h100_sxm", "--phase", "decode", "--price", "h100_sxm=30/h", "--price", "l40s=1/h")
    assert "NVIDIA L40S 48GB ×1 costs least per million tokens" in here(*words)
    found = rows(here(*words, "--csv"))
    assert ["l40s", "h100_sxm"] == [row["gpu"] for row in found]
    assert 1e6 / 3600 / float(found[0]["units_per_s"]) == pytest.approx(float(found[0]["cost"]))


def test_one_framework_and_a_division(here):
    words = ("rank", MODEL, "h100_sxm", "--set", "tensor=4", "--framework", "vllm", "--precision", "fp8", "--json")
    (found,) = json.loads(here(*words))["gpus"]
    assert (4, {"vllm"}) == (found["devices"], set(found["by_framework"]))


def test_the_fewest_gpus_that_hold_the_model_are_taken(here):
    words = ("rank", "llm/llama31_70b", "h100_sxm", "l40s", "--phase", "decode", "--json")
    found = {gpu["gpu"]: gpu["devices"] for gpu in json.loads(here(*words))["gpus"]}
    assert {"h100_sxm": 2, "l40s": 4} == found
    (eight,) = json.loads(here("rank", "llm/llama31_70b", "l40s", "--devices", "8", "--json"))["gpus"]
    assert 8 == eight["devices"]


# ---- servers


def test_a_server_is_predicted_for_each_framework(here):
    text = here("predict", MODEL, "--on", "h100_sxm")
    assert "gives the most tokens per second and GPU" in text
    found = json.loads(here("predict", MODEL, "--on", "h100_sxm", "--devices", "1", "--json"))
    assert {"trtllm", "vllm"} == {server["framework"] for server in found}
    for server in found:
        whole = server["first_s"] + 920 * server["token_s"]
        assert 32 * 921 / whole == pytest.approx(server["tokens_per_s"], rel=1e-3)
        assert server["token_low_s"] < server["token_s"] < server["token_high_s"]
        assert server["fits"]


def test_servers_of_several_gpus_with_experts(here):
    words = ("predict", "llm/qwen3_30b_a3b", "--on", "h100_sxm", "--on", "l40s", "--devices", "8", "--expert", "8")
    words += ("--data", "2", "--batch", "16", "--prompt", "2048", "--output", "256", "--equal-lengths")
    found = rows(here(*words, "--price", "h100_sxm=3/h", "--price", "l40s=1/h", "--csv"))
    assert {"h100_sxm", "l40s"} == {row["gpu"] for row in found}
    for row in found:
        price = {"h100_sxm": 3, "l40s": 1}[row["gpu"]]
        assert price / 3600 * 1e6 / float(row["tokens_per_s"]) == pytest.approx(float(row["cost"]))
    here(*words)


# ---- results next to them


def test_results_are_compared_with_a_gpu(here, tmp_path):
    shutil.copy(STORED, tmp_path / "mine.jsonl")
    text = here("compare", "mine.jsonl", "h100_sxm")
    assert ") and NVIDIA H100 SXM 80GB: 2 kernels in common" in text
    found = json.loads(here("compare", "mine.jsonl", "h100_sxm", "--json"))
    assert {"trtllm", "vllm"} == set(found["cases"][0]["by_framework"])


def test_results_without_a_published_kernel_end_in_a_sentence(here, tmp_path):
    softmax = "softmax rows=4 columns=4 forward bf16 {backend} threads=1"
    samples.write(tmp_path / "mine.jsonl", [samples.measured("reference", text=softmax)])
    said = refused("compare", "mine.jsonl", "l40s")
    assert "mine.jsonl has no kernel that l40s has published times of" in said


def test_an_unusual_result_stands_out(here, tmp_path):
    records = []
    for n in (1, 2, 3, 4, 5):
        kernel = f"linear m=4096 n={2**n} k=2048 forward bf16 {{backend}} threads=1"
        seconds = 1e-3 * small_tables.time_ms("h100_sxm", 0, 2 * (4096 * 2048 + 2**n * 6144))
        for number in (1, 2, 3):
            records.append(samples.measured("reference", (9 if n == 3 else 2) * seconds, number, text=kernel))
    samples.write(tmp_path / "mine.jsonl", records)
    found = json.loads(here("compare", "mine.jsonl", "h100_sxm", "--json"))
    assert [False, False, True, False, False] == [case["unusual"] for case in found["cases"]]
    assert 2 / 1.05 == pytest.approx(found["cases"][0]["ours_over_published"], rel=0.02)


def test_what_if_knows_the_data_sheet(gpus):
    from deepbench.networks import api

    found = api._hardware("L40S")
    assert ("NVIDIA L40S 48GB", "datasheet", 142) == (found.name, found.origin, found.units)
    assert (362e12, 362e12, 733e12) == tuple(found.peak[name] for name in ("bf16", "f16", "f8e4m3"))
    assert [("L2", 96e6, None), ("HBM", 48 * 2**30, 864e9)] == [
        (level.name, level.bytes, level.bytes_per_s) for level in found.memory
    ]
    assert found.toml() == type(found).parse(found.toml()).toml()


@pytest.fixture(scope="session")
def speech(tmp_path_factory):
    """A file with the kernels of a step, and with limits, so that other hardware can be asked about."""
    path = tmp_path_factory.mktemp("speech") / "speech.jsonl"
    samples.write(path, [*test_whatif.limits(), *test_whatif.kernels()], test_whatif.first())
    return str(path)


def test_a_server_that_does_not_hold_its_model_has_no_times(here):
    words = ("predict", "llm/llama31_70b", "--precision", "bf16", "--on", "h100_sxm", "--framework", "vllm")
    (found,) = json.loads(here(*words, "--devices", "1", "--price", "h100_sxm=2/h", "--json"))
    assert not found["fits"]
    assert "does not fit into the memory" == found["note"]
    assert {"token_s", "first_s", "tokens_per_s", "cost"}.isdisjoint(found)
    (found,) = json.loads(here(*words, "--devices", "4", "--price", "h100_sxm=2/h", "--json"))
    assert found["cost_low"] < found["cost"] < found["cost_high"]


def test_a_server_has_the_cache_that_its_framework_has(here):
    formats = {
        found["framework"]: found["format"].rpartition(" ")[2]
        for found in json.loads(here("predict", MODEL, "--on", "h100_sxm", "--precision", "fp8", "--json"))
    }
    assert {"trtllm": "fp8", "vllm": "bfloat16"} == formats


def test_a_gpu_without_a_measured_deployment_is_named(here):
    assert "No deployment on l40s was measured" in here("predict", MODEL, "--on", "l40s", "--on", "h100_sxm")
    assert "was measured" not in here("predict", MODEL, "--on", "h100_sxm")


def test_more_gpus_than_a_node_has_are_said(here):
    said = "A node has 8 h100_sxm: exchanges between nodes are slower"
    assert said in here("predict", "llm/llama31_70b", "--on", "h100_sxm", "--devices", "16")
    assert said in here("rank", "llm/llama31_70b", "h100_sxm", "--devices", "16")
    assert said not in here("rank", "llm/llama31_70b", "h100_sxm", "--devices", "8")


def test_unequal_numbers_of_gpus_are_said(here):
    words = ("rank", "llm/llama31_70b", "h100_sxm", "l40s")
    assert "The numbers of GPUs differ" in here(*words)
    assert "The numbers of GPUs differ" not in here(*words, "--devices", "8")


def test_what_if_predicts_the_times_on_a_gpu(here, speech):
    words = ("whatif", speech, "--on")
    assert "NVIDIA H100 SXM 80GB" in here(*words, "h100_sxm")
    assert "NVIDIA L40S 48GB" in here(*words, "L40S")
    assert "h999 does not exist; expected a file of hardware" in refused(*words, "h999")


def test_what_if_without_the_package_says_how_to_get_it(without_package, speech):
    said = refused("whatif", speech, "--on", "h100_sxm")
    assert "expected a file of hardware (docs/what-if.md); data sheets of GPUs are in a package: pip install" in said


# ---- wrong words

WRONG = [
    (("published", "show", "h999_sxm"), "'h999_sxm' is not a published machine"),
    (("published", "show", "h100_sxm", "--op", "lineaar"), "did you mean linear?"),
    (("published", "show", "h100_sxm", "--op", "attention_encoder"), "h100_sxm has no table of attention of encoders"),
    (("published", "show", "h100_sxm", "--op", "linear", "--where", "q=3"), "have no size 'q'; they have m, n, k"),
    (("published", "show", "h100_sxm", "--op", "linear", "--where", "m=-3"), "m must be a whole number, found '-3'"),
    (("published", "show", "h100_sxm", "--op", "linear", "--where", "m=3"), "no such row with m=3; m is, for example"),
    (("published", "show", "h100_sxm", "--op", "linear", "--where", "m"), "--where wants NAME=VALUE, found 'm'"),
    (("published", "show", "h100_sxm", "--op", "linear", "--precision", "x"), "no fully connected layers in 'x'"),
    (("published", "show", "h100_sxm", "--op", "linear", "--framework", "x"), "no fully connected layers of 'x'"),
    (("published", "show", "h100_sxm", "--precision", "fp8"), "name an operation with --op"),
    (("published", "show", "h100_sxm", "--rows", "0"), "--rows must be from 1 to 1000000, found 0"),
    (("published", "show", "V100", "--framework", "vllm"), "are for GPUs with tables, and 'V100' is none"),
    (("rank", MODEL), "name GPUs to rank by llm/llama32_1b, such as h100_sxm l40s"),
    (("rank", MODEL, "h999"), "'h999' is no GPU of the published tables; there are h100_sxm, l40s"),
    (("rank", MODEL, "h999\x1b[31m"), "is no GPU of the published tables"),
    (("rank", MODEL, "h100_sxm", "h100_sxm"), "a GPU is named twice: h100_sxm"),
    (("rank", MODEL, "h100_sxm", "--phase", "train"), "has the phases prefill, decode to rank GPUs by, found 'train'"),
    (("rank", MODEL, "h100_sxm", "--phase", "x"), "has the phases prefill, decode to rank GPUs by, found 'x'"),
    (("rank", MODEL, "h100_sxm", "--set", "x=3"), "has no parameter 'x' in the phase decode"),
    (("rank", MODEL, "h100_sxm", "--set", "tensor=x"), "tensor must be a whole number"),
    (("rank", MODEL, "h100_sxm", "--set", "tensor=3"), "tensor must divide heads; found heads=32, tensor=3"),
    (("rank", MODEL, "h100_sxm", "--devices", "3"), "tensor must divide heads; found heads=32, tensor=3"),
    (("rank", MODEL, "h100_sxm", "--devices", "8", "--set", "tensor=2"), "8 devices are wanted, and the sizes"),
    (("rank", MODEL, "h100_sxm", "--price", "l40s=1/h"), "--price names l40s, which is not among the GPUs: h100_sxm"),
    (("rank", MODEL, "h100_sxm", "--price", "x=1/h"), "'x' is no GPU of the published tables"),
    (("rank", MODEL, "h100_sxm", "--price", "h100_sxm=0"), "--price wants a machine and the price of an hour"),
    (("rank", MODEL, "h100_sxm", "--precision", "x"), "unknown format 'x' of a served model"),
    (("rank", MODEL, "h100_sxm", "--precision", "nvfp4"), "no published times of its kernels in this precision"),
    (("rank", MODEL, "h100_sxm", "--precision", "fp8,bf16"), "several precisions are for files, not for a model"),
    (("rank", MODEL, "h100_sxm", "--framework", "x"), "no times of x; there are trtllm, vllm"),
    (("rank", "vision/resnet18", "h100_sxm"), "has no phase decode or prefill"),
    (("rank", "a.jsonl", "b.jsonl", "--phase", "decode"), "are for a model, which comes first"),
    (("predict", MODEL, "--on", "h999"), "'h999' is no GPU of the published tables"),
    (("predict", MODEL, "--on", "h100_sxm", "--on", "h100_sxm"), "a GPU is named twice: h100_sxm"),
    (("predict", MODEL, "--on", "h100_sxm", "--price", "l40s=1/h"), "--price names l40s, which is not among the GPUs"),
    (("predict", MODEL, "--on", "h100_sxm", "--precision", "x"), "unknown format 'x' of a served model"),
    (("predict", MODEL, "--on", "h100_sxm", "--precision", "nvfp4"), "choose another --precision"),
    (("predict", MODEL, "--on", "h100_sxm", "--framework", "x"), "h100_sxm has no times of 'x'"),
    (("predict", MODEL, "--on", "h100_sxm", "--devices", "3"), "tensor must divide heads"),
    (("predict", MODEL, "--on", "h100_sxm", "--expert", "8", "--devices", "8"), "has no experts; leave out expert=8"),
    (("predict", MODEL, "--on", "h100_sxm", "--data", "3"), "3 groups divide none of 1, 2, 4 and 8 GPUs"),
    (("predict", MODEL, "--on", "h100_sxm", "--batch", "0"), "--batch must be from 1 to"),
    (("predict", MODEL, "--on", "h100_sxm", "--set", "batch=3"), "--set is for a step of a network"),
    (("predict", MODEL, "--on", "h100_sxm", "--by", "layer"), "--by and --all list the kernels of a network"),
    (("predict", MODEL, "--batch", "3"), "--batch is for a server: name a GPU with --on"),
    (("predict", "vision/resnet18", "--on", "h100_sxm"), "has no phases prefill and decode"),
    (("predict", "no/such", "--on", "h100_sxm"), "unknown suite, operation or file 'no/such'"),
    (("compare", str(STORED), "h999_sxm"), "h999_sxm"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=lambda value: "-".join(value) if type(value) is tuple else "")
def test_a_wrong_word_ends_in_a_sentence(gpus, words, said):
    found = refused(*words)
    assert said in found
    assert "no modelunknown" not in found


USES = [
    ("published", "show", "h100_sxm"),
    ("compare", str(STORED), "h100_sxm"),
    ("rank", MODEL, "h100_sxm"),
    ("predict", MODEL, "--on", "h100_sxm"),
]


@pytest.fixture
def without_package(monkeypatch):
    """As where it is not installed, whether or not it is."""
    monkeypatch.delenv("DEEPBENCH_GPU_TABLES", raising=False)
    from deepbench.gpus import package

    monkeypatch.setattr(package, "PACKAGE", "no_such_package_of_tables")
    forget()
    yield
    forget()


@pytest.mark.parametrize("words", USES, ids=lambda words: words[0])
def test_without_the_package_a_sentence_says_how_to_get_it(without_package, words):
    assert 'pip install "aiconfigurator-core<0.13"' in refused(*words)


def test_without_the_package_the_list_has_the_machines_of_the_original(without_package):
    done = run_here(("published", "list"))
    assert 0 == done.code
    assert "V100" in done.output
    assert 'pip install "aiconfigurator-core<0.13"' in " ".join(done.output.split())


@pytest.mark.parametrize("missing", ["pyarrow", "lightgbm", "yaml"])
def test_without_a_library_a_sentence_says_how_to_get_it(gpus, monkeypatch, tmp_path, missing):
    monkeypatch.setenv("DEEPBENCH_STATE", str(tmp_path))  # nothing is remembered
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def importing(name, *arguments, **options):
        if name.partition(".")[0] == missing:
            raise ImportError(f"No module named {missing}")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", importing)
    said = refused("rank", MODEL, "h100_sxm")
    assert {"pyarrow": "PyArrow", "lightgbm": "LightGBM", "yaml": "PyYAML"}[missing] in said
    assert 'pip install "aiconfigurator-core<0.13"' in said


def test_the_command_as_a_process(gpus, deepbench):
    done = deepbench("rank", MODEL, "h100_sxm", "l40s", "--phase", "decode", COLUMNS="80")
    assert (0, "") == (done.returncode, done.stderr)
    assert "NVIDIA H100 SXM 80GB ×1 is the fastest" in done.stdout
    done = deepbench("predict", MODEL, "--on", "h999")
    assert (EXIT_BAD_INPUT, "") == (done.returncode, done.stdout)
    assert 1 == len(done.stderr.splitlines())
