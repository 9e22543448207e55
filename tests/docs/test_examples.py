"""The examples in docs/ run: correct kernels are `ok`, and deliberately wrong ones are `wrong`."""

import os
import re
import subprocess
import sys
import textwrap

import pytest

from tests.conftest import NO_LIBRARIES, ROOT, records_of

pytestmark = pytest.mark.programs

DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"
PLUGINS = f"{EXAMPLES}{os.pathsep}{EXAMPLES / 'wrong'}"


@pytest.fixture(scope="module")
def libraries():
    """Which of the libraries of the examples are installed: facts, or why not."""
    from deepbench.measuring.session import open_libraries

    return open_libraries(["mkl", "onednn"])


def needs(libraries, name):
    if "unavailable" in libraries[name]:
        pytest.skip(libraries[name]["unavailable"]["reason"])


@pytest.fixture
def records(deepbench, tmp_path):
    """Run a case on the example libraries; returns the records by backend."""

    def run(case, backends, **environment):
        words = ["run", case, "--backend", ",".join(backends), "--quick", "-o", "out.jsonl"]
        done = deepbench(*words, **{**NO_LIBRARIES, "DEEPBENCH_PLUGINS": PLUGINS, **environment})
        assert 1 == done.returncode, done.stderr  # one of them is wrong
        return {record["backend"]: record for record in records_of(tmp_path / "out.jsonl")}

    return run


@pytest.mark.process  # a plug-in adds to a library of the package, whose kernels a copy knows already
def test_the_example_operation_accepts_right_kernels_and_rejects_the_wrong_one(records, libraries):
    onednn = libraries["onednn"].get("library", {}).get("path")
    backends = ["reference", "numpy32", "numpy32_wrong", *(["onednn_layers"] if onednn else [])]

    found = records("standardize rows=64 columns=1000 f32", backends, DEEPBENCH_ONEDNN_PATH=onednn or "/no/such")

    wrong = found.pop("numpy32_wrong")
    assert len(backends) - 1 == len(found)
    for record in found.values():
        assert "ok" == record["status"], record["reason"]
        assert 5 * 64 * 1000 == record["flop"]
        assert 4 * 2 * 64 * 1000 == record["traffic_bytes"]
        assert record["notes"]["implementation"]
    assert 0 < found["numpy32"]["check"]["after"]["error"] < 0.2  # as the page says
    assert "wrong" == wrong["status"]
    assert 337 == pytest.approx(wrong["check"]["before"]["error"], rel=0.01)


@pytest.mark.parametrize(("precision", "columns"), [("bf16", 64), ("f16", 64), ("f32", 1)])
def test_the_example_operation_accepts_rounded_results_and_single_columns(precision, columns):
    code = """
import sys
from deepbench.core.case import parse_case
from deepbench.measuring.check import check

case = parse_case(sys.argv[1])
op, backend = case.operation, case.library
backend.open()
arrays = op.operands(case)
backend.prepare(case, arrays).run()
print(check(op, case, arrays).passed)
"""
    case = f"standardize rows=8 columns={columns} forward {precision} reference threads=1"

    assert "True" == python(code, case).stdout.strip()


def python(code, *words, **environment):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "DEEPBENCH_PLUGINS": PLUGINS, **environment}
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120, env=env)
    assert 0 == done.returncode, done.stderr
    return done


def test_the_example_library_is_right_and_its_wrong_variant_is_found(records, libraries):
    """BLIS is rarely installed; MKL's library has the same Fortran names."""
    needs(libraries, "mkl")
    path = libraries["mkl"]["library"]["path"]

    found = records("gemm m=64 n=32 k=100 f32", ["blis", "blis_wrong"], DEEPBENCH_BLIS_PATH=path)

    assert "ok" == found["blis"]["status"], found["blis"]["reason"]
    assert path == found["blis"]["library"]["path"]
    assert "wrong" == found["blis_wrong"]["status"]
    assert found["blis_wrong"]["check"]["before"]["error"] > 1000


def blocks(page):
    """The Python code on a page."""
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def test_the_program_that_tries_a_onednn_kernel_runs(libraries):
    needs(libraries, "onednn")
    program = blocks("onednn-kernels.md")[-1]

    done = python(program, ONEDNN_VERBOSE="1")

    assert "passed=True" in done.stdout
    assert "layer_normalization" in done.stdout


def test_the_example_device_is_found_right_and_timed_by_the_clock_without_events(deepbench, tmp_path):
    words = ["run", "gemm m=96 n=64 k=100 f32", "--set", "beta=0", "--quick", "-o", "out.jsonl"]
    done = deepbench(*words, "--device", "thread_device:thread", **NO_LIBRARIES, DEEPBENCH_PLUGINS=str(EXAMPLES))
    (record,) = records_of(tmp_path / "out.jsonl")

    if record["status"] == "wrong":  # other programs may disturb a device that is made of this machine
        assert record["check"]["before"]["passed"]
        assert record["measurement"] is None
        return
    assert 0 == done.returncode, done.stderr
    assert ("ok", "thread_device:thread") == (record["status"], record["device"])
    assert record["measurement"]["device"]["clock"] in ("slope", "awaited")
    assert "a thread of Python" == record["library"]["device"]


def test_the_example_device_is_among_those_that_are_found():
    code = """
from deepbench.measuring.devices import find_devices
print([row.device for row in find_devices(["thread_device"]).reached])
"""
    assert "['thread_device:thread']" == python(code).stdout.strip()


def stripped(text):
    return "\n".join(line.strip() for line in text.strip().splitlines())


@pytest.mark.parametrize(
    "page", ["adding-a-device.md", "adding-a-library.md", "adding-an-operation.md", "onednn-kernels.md"]
)
def test_the_code_on_a_page_is_code_that_is_tested(page):
    folders = [ROOT / "deepbench" / "backends" / "onednn", ROOT / "deepbench" / "native" / "stablehlo"]
    files = [*EXAMPLES.rglob("*.py"), *(path for folder in folders for path in folder.glob("*.py"))]
    tested = [stripped(path.read_text()) for path in files]

    for block in blocks(page):
        if "callloop.timer" in block:  # the program above
            continue
        assert any(stripped(textwrap.dedent(block)) in text for text in tested), block


def test_every_example_is_on_a_page():
    pages = "".join(path.read_text() for path in DOCS.glob("*.md"))

    for path in EXAMPLES.rglob("*.py"):
        assert str(path.relative_to(DOCS)) in pages, path
