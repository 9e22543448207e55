"""`deepbench whatif`: a question of a designer, and its answer."""

import csv
import io
import json
import re

import pytest

from deepbench.core.case import parse_case
from deepbench.networks.traces.trace import Trace, TracedCall, suite_text
from deepbench.networks.what_if.hardware import Hardware
from deepbench.networks.what_if.time_model import Constants, demand_of, parts_of
from tests.help import samples
from tests.help.terminal import output_of
from tests.networks.test_hardware import CACHES, LINES, MEASURED


def limits():
    """Those of another test, with one thread."""
    return [{"limit": {**line, "threads": 1, "case": line["case"].replace("threads=2", "threads=1")}} for line in LINES]


def kernels(**options):
    """The kernels of a step; each takes twice as long as the limits of the machine allow."""
    found = []
    for r in samples.kernels_of_steps(1, **options):
        case = parse_case(r["case"])
        seconds = parts_of(demand_of(case, MEASURED.capacities), MEASURED, Constants(1e-6, 0.5, 0.5, 1.0), None).seconds
        timed = samples.measured(text=r["case"], seconds=seconds * (1 + 0.01 * r["round"]), round_number=r["round"])
        found.append({**timed, "sources": r["sources"]})
    return found


def first():
    header = samples.header()
    return {**header, "machine": {**header["machine"], **CACHES}}


@pytest.fixture
def file(tmp_path):
    """`speech.jsonl`: the kernels of one step in f32 and bf16, three rounds each, and the limits of the machine."""
    records = [*kernels(), *kernels(precision="bf16")]
    return samples.write(tmp_path / "speech.jsonl", [*limits(), *records], first())


@pytest.mark.usefixtures("file")
def test_which_of_two_changes_helps_more(deepbench):
    words = ("whatif", "speech.jsonl", "--precision", "bf16", "--set", "memory.bytes_per_s*2", "--set", "peak.bf16*2")
    done = deepbench(*words)

    assert 0 == done.returncode, done.stderr
    heading, verdict, *_ = done.stdout.splitlines()
    assert "bf16: " in heading
    assert "Limited by " in heading
    assert re.search(r"helps most: [0-9.]+× faster \([0-9.]+ to [0-9.]+\)\.", verdict)
    assert "wice the bandwidth of main memory" in verdict
    assert "wice the bf16 peak" in verdict
    assert "memory.bytes_per_s*2, peak.bf16*2" in done.stdout
    assert "Cross-validated error per kernel" in done.stdout


@pytest.mark.usefixtures("file")
def test_programs_get_every_value(deepbench):
    words = ("whatif", "speech.jsonl", "--set", "memory.bytes_per_s*2", "--set", "peak*2")
    found = json.loads(deepbench(*words, "--json").stdout)
    rows = list(csv.DictReader(io.StringIO(deepbench(*words, "--csv").stdout)))

    assert 2 == len(found["applications"])
    for application, row in zip(found["applications"], rows, strict=False):
        changes = application["changes"]
        assert ["memory.bytes_per_s*2", "peak*2", "memory.bytes_per_s*2, peak*2"] == [c["change"] for c in changes]
        assert application["time_s"] == pytest.approx(sum(k["count"] * k["before_s"] for k in changes[0]["kernels"]))
        for change, letter in zip(changes, ("A", "B", "together"), strict=True):
            speed_up = change["speed_up"]
            assert 1 <= speed_up["low"] <= speed_up["value"] <= speed_up["high"] <= 2 + 1e-9
            assert change["time_s"] * speed_up["value"] == pytest.approx(application["time_s"])
            assert speed_up["value"] == pytest.approx(float(row[letter]))
    assert found["fits"]
    assert 2e12 == found["hardware"]["peak"]["bf16"]


@pytest.mark.usefixtures("file")
def test_the_table_for_programs_of_one_application_has_every_change_and_kernel(deepbench):
    words = ("whatif", "speech.jsonl", "--precision", "f32", "--set", "memory.bytes_per_s*2", "--set", "peak*2")
    (application,) = json.loads(deepbench(*words, "--json").stdout)["applications"]
    rows = list(csv.DictReader(io.StringIO(deepbench(*words, "--csv").stdout)))

    for change in application["changes"]:
        whole, *kernels = [row for row in rows if row["change"] == change["change"]]
        assert len(change["kernels"]) == len(kernels)
        assert ("", change["speed_up"]["value"]) == (whole["kernel"], pytest.approx(float(whole["speed_up"])))
        each = sum(int(row["calls"]) * float(row["after"]) for row in kernels)
        assert change["time_s"] == pytest.approx(float(whole["after"])) == pytest.approx(each)


@pytest.mark.usefixtures("file")
def test_a_change_without_an_effect_is_said(deepbench):
    done = deepbench("whatif", "speech.jsonl", "--precision", "f32", "--set", "peak.bf16*2")

    assert "Twice the bf16 peak changes nothing: no kernel here depends on it." in done.stdout


@pytest.mark.usefixtures("file")
def test_without_a_change_it_says_how_much_each_knob_matters(deepbench):
    done = deepbench("whatif", "speech.jsonl", "--precision", "bf16")

    assert 0 == done.returncode, done.stderr
    assert {"knob", "elasticity"} <= set(done.stdout.split())
    assert re.search(r"^memory.main.bytes_per_s +−[0-9.]+ +×2 ", done.stdout, re.MULTILINE)
    assert "memory.main.bytes " not in done.stdout
    rows = list(csv.DictReader(io.StringIO(deepbench("whatif", "speech.jsonl", "--precision", "bf16", "--csv").stdout)))
    helped = [float(row["speed-up"]) for row in rows]
    assert helped == sorted(helped, reverse=True)


@pytest.mark.usefixtures("file")
def test_the_hardware_is_written_edited_and_used(deepbench, tmp_path):
    assert 0 == deepbench("whatif", "speech.jsonl", "--write-hardware", "mine.toml").returncode
    written = Hardware.load(tmp_path / "mine.toml")
    assert (1, "measured", 3e11) == (written.threads, written.origin, written.peak["f32"])

    same = deepbench("whatif", "speech.jsonl", "--set", "peak*2", "--hardware", "mine.toml", "--json")
    plain = deepbench("whatif", "speech.jsonl", "--set", "peak*2", "--json")
    one, other = (json.loads(done.stdout)["applications"] for done in (same, plain))
    assert one == other

    done = deepbench("whatif", "speech.jsonl", "--on", "mine.toml")
    assert 0 == done.returncode, done.stderr
    assert "the model alone" in done.stdout
    assert "a factor of 1.8" in done.stdout
    assert "states no peak" not in done.stdout

    text = (tmp_path / "mine.toml").read_text()
    (tmp_path / "less.toml").write_text("".join(line for line in text.splitlines(True) if "bf16" not in line))
    assert (
        "states no peak of bf16; that of f32 counts." in deepbench("whatif", "speech.jsonl", "--on", "less.toml").stdout
    )


def test_disturbed_times_are_left_out_and_said(tmp_path, deepbench):
    records = kernels()
    for record in records[:3]:
        record["measurement"]["steal_s"] = samples.disturbed()["measurement"]["steal_s"]
    samples.write(tmp_path / "busy.jsonl", [*limits(), *records], first())
    done = deepbench("whatif", "busy.jsonl", "--set", "peak*2")

    assert 0 == done.returncode, done.stderr
    assert "Of 16 kernels: 1 left out because other programs disturbed their times" in done.stdout


def test_problems_without_an_application_are_one(tmp_path, deepbench):
    texts = [f"gemm m={m} n={n} k=256 a_t=0 b_t=0 forward f32 mkl threads=1" for m in (64, 512) for n in (1, 64, 512)]
    records = [samples.measured(text=text, seconds=1e-4 * (i + 1)) for i, text in enumerate(texts)]
    samples.write(tmp_path / "plain.jsonl", [*limits(), *records], first())
    done = deepbench("whatif", "plain.jsonl", "--set", "peak*2")

    assert 0 == done.returncode, done.stderr
    assert "all problems of the file" in done.stdout
    assert "6 different kernels" in done.stdout
    assert "the roofline, because no operation has times of 8 problems" in done.stdout
    assert "Some times have no interval of their own" not in done.stdout  # ten samples give one


def test_a_traced_network_is_asked_about_with_the_kernels_of_a_file(tmp_path, deepbench):
    kernels = [f"gemm m=256 n={n} k=256 a_t=0 b_t=0 forward f32 beta=0" for n in (32, 64)]
    calls = [TracedCall("aten.mm", kernels[i % 2], "layer", (0,), (1,), 10) for i in range(4)]
    (tmp_path / "mine.suite").write_text(suite_text(Trace("my network", "", False, tuple(calls), (10, 10), 0, None)))
    records = [
        samples.measured(text=kernel.replace(" beta=0", " mkl threads=1 beta=0"), seconds=2e-4) for kernel in kernels
    ]
    samples.write(tmp_path / "kernels.jsonl", [*limits(), *records], first())
    words = ("whatif", "mine.suite", "--with", "kernels.jsonl", "--backend", "mkl", "--set", "peak*2")
    done = deepbench(*words)

    assert 0 == done.returncode, done.stderr
    assert re.match(r"my network: 8[0-9]{2} µs for 2 different kernels, 4 calls\. Limited by ", done.stdout)
    assert "Twice every peak makes it " in done.stdout
    other = deepbench(*words[:4], "--set", "peak*2")
    assert (64, "") == (other.returncode, other.stdout)
    assert "has no kernel of my network on torch with 1 thread; measure them: deepbench predict" in other.stderr


@pytest.mark.parametrize("more", [[], ["--set", "memory.bytes_per_s*2", "--set", "peak.bf16*2"]])
@pytest.mark.parametrize("chosen", [[], ["--precision", "bf16"]])
def test_it_fits_80_columns(tmp_path, file, more, chosen):
    text = output_of(tmp_path, 80, "whatif", str(file), *chosen, *more, NO_COLOR="1")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()

    assert max(map(len, lines)) <= 80
    assert len(lines) > 8


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["speech.jsonl", "--set", "memory.L7.bytes*2"], "has no value 'memory.L7.bytes'"),
        (["speech.jsonl", "--set", "faster"], "wanted a knob such as"),
        (
            ["speech.jsonl", "--application", "resnet", "--set", "peak*2"],
            "the file has no application 'resnet'; it has ",
        ),
        (["speech.jsonl", "--precision", "i8", "--set", "peak*2"], "has no times in i8; it has f32, bf16"),
        (["speech.jsonl", "--precision", "fp16"], "unknown precision 'fp16'"),
        (["speech.jsonl", *["--set", "peak*2"] * 13], "--set is given 13 times; at most 12 changes are compared"),
        (["speech.jsonl", "--threads", "7"], "has no times with 7 threads; it has 1"),
        (["speech.jsonl", "--on", "x.toml", "--set", "peak*2"], "leave out --set"),
        (["speech.jsonl", "--on", "none.toml"], "none.toml does not exist; expected a file of hardware"),
        (["speech.jsonl", "--write-hardware", "mine.jsonl"], "--write-hardware wants a name that ends in .toml"),
        (["speech.suite"], "name the result file with its kernels: --with FILE"),
        (["speech.jsonl", "--with", "speech.jsonl"], "--with and --backend are for a suite"),
        (["speech.suite", "--with", "speech.jsonl"], "speech.suite does not exist"),
        (["null.jsonl"], "has no peak rate of cpu with 1 thread"),
    ],
)
def test_bad_words_are_refused_in_one_sentence(deepbench, tmp_path, words, sentence):
    samples.write(tmp_path / "null.jsonl", [samples.measured()])
    done = deepbench("whatif", *words)

    assert (64, "") == (done.returncode, done.stdout)
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
