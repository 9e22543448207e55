"""`deepbench conform` on a device that is right, wrong, refuses, crashes and hangs, and its report of any file."""

import json
import re
import shutil
from html.parser import HTMLParser

import pytest

from tests.conftest import NO_LIBRARIES, records_of, run_command
from tests.help import samples
from tests.help.terminal import output_of

# Each operation ends in another way. The clock is that for devices without events.
BACKEND = """
import os, time
from deepbench.core.backend import DeviceBackend, FoundDevice, kernel
from deepbench.core.errors import ClockFault, OutOfMemory, Unsupported
from deepbench.core.kernel import Kernel

HOSTILE = "\\x1b[31m<script>alert(1)</script>\\u202e" + "x" * 10_000


class Chip(DeviceBackend):
    name, title, device, default = "chip", "Chip", "chip:one", False
    reaches_shared = ()

    def open(self):
        return {"name": self.title, "version": HOSTILE[:300], "path": "/lib/chip.so", "device": "<b>Chip 7"}

    def candidates(self):
        return ["chip"]

    def probe(self, candidate):
        return [FoundDevice("chip:one", "Chip", "driver")]

    @kernel("softmax", precisions=("f32",))
    def right(self, case, arrays):
        def run():
            for name, values in case.operation.reference(case, arrays).items():
                arrays[name][...] = values
        return Kernel(run=run, notes={"implementation": "reference<i>"})

    @kernel("layer_norm", precisions=("f32",))
    def wrong(self, case, arrays):
        right = self.right(case, arrays)
        def run():
            right.run()
            arrays[case.operation.outputs[0]][...] += 1
        return Kernel(run=run)

    @kernel("rms_norm", precisions=("f32",))
    def refuses(self, case, arrays):
        raise Unsupported(HOSTILE)

    @kernel("group_norm", precisions=("f32",))
    def crashes(self, case, arrays):
        os.write(2, HOSTILE.encode())
        os.abort()

    @kernel("dropout", precisions=("f32",))
    def hangs(self, case, arrays):
        return Kernel(run=lambda: time.sleep(1000))

    @kernel("rope", precisions=("f32",))
    def has_a_bad_clock(self, case, arrays):
        kernel = self.right(case, arrays)
        kernel.repeats = False
        class Device:
            on_host = True
            def timer(self, enqueue, calls):
                def timer(repeats):
                    kernel.run()
                    return 1000 * repeats
                def facts(sets, energy_s=None):
                    raise ClockFault("calls overlap " + HOSTILE)
                timer.facts = facts
                return timer
            def conditions(self):
                return None
        return Kernel(run=kernel.run, device=Device(), notes=kernel.notes)

    @kernel("upsample", precisions=("f32",))
    def is_too_small(self, case, arrays):
        raise OutOfMemory("needs 2 TiB")


BACKEND = Chip()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("conform")
    (folder / "plugins" / "backends").mkdir(parents=True)
    (folder / "plugins" / "backends" / "chip.py").write_text(BACKEND)
    return folder


def conform(folder, *words, **environment):
    environment = {"COLUMNS": "80", "DEEPBENCH_PLUGINS": str(folder / "plugins"), **NO_LIBRARIES, **environment}
    return run_command(folder, "conform", *words, **environment)


@pytest.fixture(scope="module")
def measured(folder):
    """The report of everything that the chip offers forward, with its page."""
    words = ("--device", "chip:one", "--direction", "forward", "--timeout", "1", "-o", "chip.jsonl", "--page", "c.html")
    return conform(folder, *words)


@pytest.fixture
def shown(measured, folder):
    """The report of the file, as values."""
    done = conform(folder, "chip.jsonl", "--json")
    return done, json.loads(done.stdout)


ENDINGS = {
    "softmax": "right",
    "layer_norm": "wrong",
    "rms_norm": "refused",
    "group_norm": "crashed",
    "dropout": "timeout",
    "rope": "untimed",
    "upsample": "out_of_memory",
}


def test_every_operation_ends_in_its_way_and_the_run_goes_on(measured, shown):
    done, values = shown

    assert 1 == measured.returncode == done.returncode, measured.stderr
    assert ENDINGS == {case["op"]: case["ending"] for case in values["cases"] if "other" not in case["case"]}
    assert len(values["cases"]) == values["planned"] == sum(values["counts"].values())
    assert values["broken"]


def test_the_first_sentence_counts_the_cases(measured, shown):
    _, values = shown
    counts = values["counts"]

    assert f"Of {values['planned']} cases, {counts['right']} are right" in " ".join(measured.stdout.split())
    assert f"{counts['wrong']} are wrong" in values["conclusion"]
    assert "layer_norm f32" in values["conclusion"]


def test_how_wrong_a_result_is_stands_in_the_table(measured):
    assert "tolerances)" in " ".join(measured.stdout.split())
    assert "time not trusted" in measured.stdout
    assert "wrote c.html" in measured.stdout


def test_hostile_texts_are_printable_and_short(measured, folder):
    outputs = [measured.stdout, *(conform(folder, "chip.jsonl", form).stdout for form in ("--markdown", "--csv"))]
    for text in outputs:
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "x" * 1000 not in text.replace("\n", "")
    assert "<script>" not in outputs[1]  # Markdown is HTML in disguise


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.addresses = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href") and not value.startswith("#")]


def test_the_page_is_escaped_and_loads_nothing(measured, folder):
    page, tags = (folder / "c.html").read_text(), Tags()
    tags.feed(page)

    assert {"data:,"} == {*tags.addresses}
    assert 1 == tags.tags.count("script")  # the data
    assert not {"b", "i", "img"} & {*tags.tags}
    assert "Content-Security-Policy" in page
    assert "&lt;b&gt;Chip 7" in page
    assert "\x1b" not in page
    data = json.loads(page.partition('id="content">')[2].partition("</script>")[0])
    assert data["broken"]


@pytest.mark.programs
@pytest.mark.parametrize("columns", [80, 120])
def test_no_line_is_wider_than_the_terminal(folder, tmp_path, columns):
    text = "gemm m=64 n=32 k=16 a_t=0 b_t=0 forward f32 mkl threads=1"
    samples.write(tmp_path / "r.jsonl", [samples.measured(text=text)], samples.header([text]))
    output = re.sub("\x1b\\[[0-9;]*m", "", output_of(tmp_path, columns, "conform", "r.jsonl"))

    assert "Of 1 case, 1 is right." in output
    assert max(map(len, output.splitlines())) <= columns


def test_a_device_without_failures_ends_with_0_and_a_file_is_resumed(folder, tmp_path):
    shutil.copytree(folder / "plugins", tmp_path / "plugins")
    done = conform(tmp_path, "--device", "chip:one", "--op", "softmax", "--direction", "forward", "-o", "s.jsonl")
    assert 0 == done.returncode, done.stderr
    lines = (tmp_path / "s.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "s.jsonl").write_text("".join(lines[:-1]))  # as if it had been interrupted

    left = conform(tmp_path, "s.jsonl")
    again = conform(tmp_path, "--resume", "-o", "s.jsonl", "--json")

    assert "1 case is not measured yet" in left.stdout
    assert 0 == again.returncode, again.stderr
    assert json.loads(again.stdout)["counts"]["right"] == len(records_of(tmp_path / "s.jsonl")) == len(lines) - 1


def test_a_budget_measures_every_case_once_and_leaves_the_rest(folder, tmp_path):
    shutil.copytree(folder / "plugins", tmp_path / "plugins")
    words = ("--device", "chip:one", "--op", "softmax", "--direction", "forward", "--budget", "100s", "-o", "s.jsonl")
    done = conform(tmp_path, *words)

    assert 0 == done.returncode, done.stderr
    assert [1, 1] == [record["round"] for record in records_of(tmp_path / "s.jsonl")]


def test_a_device_is_measured_from_python_too(monkeypatch):
    import deepbench

    for name, value in NO_LIBRARIES.items():
        monkeypatch.setenv(name, value)
    results = deepbench.conform("cpu", backends="reference", ops="softmax", precisions="f32", directions="forward")
    found = deepbench.conformance(results, peaks={"f32": 1e12})

    assert 2 == len(found.of("right")) == len(found.cases)
    with pytest.raises(deepbench.BadInput, match="peaks are rates by precision"):
        deepbench.conformance(results, peaks={"f33": 1e12})


def test_a_file_of_run_has_a_report_too_and_o_may_be_its_page(deepbench, null_file, tmp_path):
    done = deepbench("conform", "out.jsonl", "-o", "report.html")

    assert 1 == done.returncode  # `null` computes nothing, so nothing is right
    assert "Of 2 cases, 2 are unchecked." in done.stdout
    assert "<title>Conformance" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "name a device"),
        (["--device", "chip:two words"], "a device is a name"),
        (["--device", "cpu", "--backend", "cublas"], "cublas is a library for cuda, and --device says cpu"),
        (["out.jsonl", "--device", "cpu"], "FILE is shown, not measured"),
        (["out.jsonl", "--budget", "1min"], "FILE is shown, not measured"),
        (["out.jsonl", "--resume"], "FILE is shown, not measured"),
        (["--resume"], "--resume takes everything from the file"),
        (["out.jsonl", "--page", "report.txt"], "ends in .html"),
        (["out.jsonl", "-o", "a.html", "--page", "b.html"], "name two pages"),
        (["out.jsonl", "--peak", "bf16"], "--peak wants a precision and its rate"),
        (["out.jsonl", "--peak", "bf61=1T"], "--peak wants a precision and its rate"),
        (["out.jsonl", "--peak", "bf16=0T"], "wants a rate such as bf16=989T"),
        (["out.jsonl", "--peak", "bf16=-1T"], "wants a rate such as bf16=989T"),
        (["out.jsonl", "--peak", "bf16=1e400"], "wants a rate such as bf16=989T"),
        (["out.jsonl", "--peak", "bf16=4TB/s"], "wants a rate such as bf16=989T"),
        (["out.jsonl", "--peak", "bf16=1T", "--peak", "bf16=2T"], "names bf16 twice"),
        (["out.jsonl", "--bandwidth", "4.8TFLOP/s"], "--bandwidth wants a rate such as 4.8TB/s"),
        (["--device", "cpu", "--op", "softmax", "-o", "out.jsonl"], "out.jsonl exists"),
        (["--device", "cpu", "--op", "all_reduce"], "no case is left for cpu"),
    ],
)
def test_bad_words_are_one_sentence(deepbench, null_file, words, sentence):
    done = deepbench("conform", *words)

    assert 64 == done.returncode, done.stdout
    assert sentence in done.stderr
    assert 1 == done.stderr.count("\n")


def test_peaks_are_read_with_their_units():
    from deepbench.api.conformance import peaks_of

    assert {"bf16": 989e12, "f32": 67e12, "i8": 1.9e15, "memory": 4.8e12} == peaks_of(
        ["bf16=989T", "f32=67 TFLOP/s", "i8=1.9POP/s"], "4.8TB/s"
    )
