"""The table of limits in docs/security.md has the limits of the program."""

import re

from deepbench import formats
from deepbench.api import submitting
from deepbench.core import toml
from deepbench.fleets import reference
from deepbench.networks.traces import from_log, from_onnx, onnx_file, trace
from deepbench.networks.what_if import hardware
from deepbench.ops import attention, grouped_gemm
from deepbench.plan import models, results_rounds, suites
from deepbench.results import file
from deepbench.workloads import flashinfer_trace
from tests.conftest import ROOT

MIB = 2**20

# A word of the row, its bytes, and numbers in it.
ROWS = [
    ("list of problems", suites.MOST_LIST_BYTES, (suites.MOST_LINES,)),
    (
        "model (",
        models.MOST_MODEL_BYTES,
        (models.MOST_LINES, models.MOST_WORDS, models.MOST_NAMES, models.MOST_PHASES, models.MOST_MEMBERS),
    ),
    (
        "suite of a trace",
        models.MOST_TRACE_BYTES,
        (models.MOST_LINES, trace.MOST_CALLS, trace.MOST_BUFFERS, trace.MOST_USES),
    ),
    ("hardware", hardware.MOST_BYTES, (hardware.MOST_LEVELS, hardware.MOST_TILES)),
    ("every TOML file", None, (toml.MOST_PARTS, toml.MOST_DOTS, toml.LARGEST.bit_length())),
    ("log of a library", from_log.LARGEST_BYTES, (from_log.MOST_DIFFERENT,)),
    (
        "ONNX",
        onnx_file.MOST_BYTES + 1,
        (
            *(onnx_file.MOST_REST_BYTES // MIB, onnx_file.MOST_PARTS),
            *(from_onnx.MOST["operators"], from_onnx.MOST_COMPUTED),
        ),
    ),
    (
        "definitions",
        flashinfer_trace.MOST_FILE_BYTES,
        (flashinfer_trace.MOST_BYTES // MIB, flashinfer_trace.MOST_WORKLOADS, flashinfer_trace.MOST_REFERENCES),
    ),
    ("round of results", results_rounds.MOST_BYTES, (results_rounds.MOST_SUITES,)),
    ("data of a submitted folder", submitting.LARGEST_DATA_BYTES, (submitting.MOST_FORM_BYTES // MIB,)),
    (
        "reference of hosts",
        reference.LARGEST_BYTES,
        (reference.MOST_KERNELS, reference.MOST_HOSTS, reference.MOST_RUNS),
    ),
    ("file to import", formats.LARGEST_BYTES, (formats.MOST_CASES, formats.MOST_TIMES)),
    (
        "result file",
        file.LARGEST_FILE_BYTES,
        (
            *(file.LONGEST_LINE_BYTES // MIB, file.MOST_DAMAGED),
            *(file.LARGEST_GROWN_BYTES // MIB, file.MOST_GROWTH),
        ),
    ),
]


def size_text(size):
    if size is None:
        return ""
    name, unit = next((n, u) for n, u in (("GiB", 2**30), ("MiB", MIB), ("KiB", 1024)) if size >= u)
    return f"{size // unit} {name}"


def test_the_table_of_limits_is_that_of_the_program():
    text = (ROOT / "docs" / "security.md").read_text().partition("## Limits")[2].partition("## Secrets")[0]
    table = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")][2:]

    assert len(ROWS) == len(table)
    for (name, size, numbers), (first, second, third) in zip(ROWS, table, strict=True):
        assert first.strip().startswith(name)
        assert second.strip().startswith(size_text(size))
        found = re.findall("[0-9][0-9,]*", second.partition("each")[2] + third)
        assert [f"{n:,}" for n in numbers] == [n.strip(",") for n in found]
    after = re.findall("[0-9][0-9,]*[0-9]", " ".join(text.split()).rpartition("are those of libraries")[2])
    assert ["31", f"{attention.MOST_SPREAD:,}", f"{grouped_gemm.MOST_GROUPS:,}"] == after
