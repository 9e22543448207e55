"""No file can make a terminal do anything: whatever text is in it, what is printed has no control characters.

They could change colours and the title of the window, move the cursor and hide text, or turn around what is read.
"""

import json
import re

import pytest

from deepbench.api.text import printable_lines
from deepbench.cli.console import make_console
from deepbench.core.errors import BadInput
from deepbench.networks.traces.trace import Trace, TracedCall, suite_text
from deepbench.reporting.progress import Bar
from deepbench.reporting.table import Column, Table, print_lines
from deepbench.results.file import read_results
from tests.conftest import ROOT
from tests.help import samples
from tests.help.command import run_here
from tests.help.predicted import GEMM
from tests.help.terminal import output_of
from tests.networks.test_hardware import TEXT as HARDWARE
from tests.promises.test_hostile import GOOD, changed, places
from tests.workloads.test_flashinfer_trace import gemm, workload

# Escape codes of colours and of the title, a bell, the start of the line, the other direction, nothing at all, an
# escape code of one character.
HOSTILE = "a\x1b[31mb\x1b]0;title\x07c\rd\u202ee\u200bf\x9b2Jg"

# The same as JSON and TOML write it.
ESCAPED = json.dumps(HOSTILE)[1:-1]


def require_printable(text):
    """What a command printed, of which a terminal would obey nothing."""
    assert printable_lines(text) == text, [c for c in text if not c.isprintable() and c != "\n"][:5]
    assert "\ufffd" in text or "\\x1b" in text, text  # the texts of the file were printed


def run(folder, monkeypatch, *words):
    monkeypatch.chdir(folder)
    done = run_here(words)
    assert "Traceback" not in done.errors
    return done.output + done.errors


def trace_of_a_stranger():
    calls = [
        TracedCall("OPERATOR", GEMM, "PLACE", (0,), (1,), 300),
        TracedCall("OPERATOR other", None, "PLACE", (1,), (0,), 30),
    ]
    text = suite_text(Trace("TITLE", "SOURCE", False, tuple(calls), (100, 200), 0, None))
    for word in ("TITLE", "SOURCE", "OPERATOR", '"PLACE'):
        text = text.replace(word, word + ESCAPED)
    return text


def model_of_a_stranger(kernel="gemm m=batch n=4 k=4"):
    return (
        f'title = "{ESCAPED}"\nsource = "{ESCAPED}"\ntask = "{ESCAPED}"\nunit = "{ESCAPED}"\n'
        f'[phases.inference]\nbatch = 1\n[kernels]\nall = "{kernel} # {ESCAPED}"\n'
    )


# A log has one call in a line.
ONE_LINE = HOSTILE.replace("\r", "")
LOG = (
    "onednn_verbose,v1,primitive,exec,cpu,matmul,brg,undef,src_f32::blocked:ab::f0 wei_f32::blocked:ab::f0 "
    f"dst_f32::blocked:ab::f0,,,64x64:64x64,0.01\nonednn_verbose,v1,primitive,exec,cpu,reorder{ONE_LINE},"
    "jit,undef,src_f32::blocked:ab::f0 dst_f32::blocked:ba::f0,,,64x64,0.01\n"
    f"rocblas-bench -f {ONE_LINE}\n"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of each kind, with hostile texts wherever it has texts."""
    tmp_path = tmp_path_factory.mktemp("strangers")
    (tmp_path / "net.suite").write_text(trace_of_a_stranger())
    (tmp_path / "wrong.suite").write_text(trace_of_a_stranger().replace("views = 0", f'views = "{ESCAPED}"'))
    (tmp_path / "model.toml").write_text(model_of_a_stranger())
    (tmp_path / "unknown.toml").write_text(model_of_a_stranger(f"no{ESCAPED} m=1"))
    (tmp_path / "key.toml").write_text(f'"{ESCAPED}" = 1')
    (tmp_path / "list.toml").write_text(f'suites = ["{ESCAPED}"]')
    (tmp_path / "net.log").write_text(LOG, newline="")
    (tmp_path / "wrong.log").write_text(f"rocblas-bench -f {HOSTILE} -m 1\n", newline="")
    row = f'1,2,3,0,0,"{HOSTILE}","{HOSTILE}","{HOSTILE}"'
    (tmp_path / "gemm.csv").write_text(f"m,n,k,a_t,b_t,application,label,note\n{row}\n", newline="")
    (tmp_path / "wrong.csv").write_text(f"m,n,{HOSTILE}\n1,2,3\n", newline="")
    (tmp_path / "wrong.txt").write_text(f"gemm m=1 n=2 {HOSTILE}\n", newline="")
    (tmp_path / "hardware.toml").write_text(HARDWARE.replace("an accelerator", ESCAPED))
    (tmp_path / "wrong_hardware.toml").write_text(HARDWARE.replace('"L2"', f'"{ESCAPED}"'))
    (tmp_path / "workloads").mkdir()
    text = json.dumps(gemm()).replace("gemm_n96", f"{ESCAPED}n96")
    (tmp_path / "workloads" / "definition.json").write_text(text)
    (tmp_path / "workloads" / "workload.jsonl").write_text(json.dumps(workload({"M": 3})))
    foreign = (ROOT / "tests" / "data" / "imports" / "pyperf.json").read_text()
    foreign = re.sub(r'("(?:hostname|cpu_model_name)": *")', lambda found: found[0] + ESCAPED, foreign)
    foreign = re.sub(r'("version": *"1.0")', lambda found: f'{found[0]}, "x": "{ESCAPED}"', foreign)
    (tmp_path / "pyperf.json").write_text(foreign)
    result_file_of_a_stranger(tmp_path)
    return tmp_path


def result_file_of_a_stranger(folder):
    """Every text of a result file that may be any text, one after the other."""
    source = {"suite": "s", "row": 1, "application": "an application", "label": "l", "note": None, "needed": True}
    lines = [line if "case" not in line else {**line, "sources": [source]} for line in GOOD]
    path = folder / "results.jsonl"
    count = 0
    for number, place in [(number, place) for number, line in enumerate(lines) for place in places(line) if place]:
        value = lines[number]
        for step in place:
            value = value[step]
        if not isinstance(value, str):
            continue
        tried = [*lines]
        tried[number] = changed(lines[number], place, value + HOSTILE)
        samples.write(path, tried[1:], tried[0])
        try:
            read = read_results(path)
        except BadInput:  # here it cannot be any text
            continue
        if not any(r["status"] == "inconsistent" for r in read.records):
            lines, count = tried, count + 1
    assert count > 10
    samples.write(path, lines[1:], lines[0])


COMMANDS = [
    ("trace", "net.suite"),
    ("trace", "net.suite", "--all"),
    ("trace", "net.suite", "--csv"),
    ("trace", "net.suite", "--json"),
    ("trace", "net.suite", "--markdown"),
    ("trace", "wrong.suite"),
    ("trace", "net.log"),
    ("trace", "net.log", "--csv"),
    ("trace", "net.log", "--json"),
    ("trace", "net.log", "--markdown"),
    ("trace", "wrong.log"),
    ("trace", "model.toml"),
    ("trace", "model.toml", "--json"),
    ("predict", "net.suite", "--with", "results.jsonl"),
    ("predict", "net.suite", "--with", "results.jsonl", "--by", "layer"),
    ("predict", "net.suite", "--with", "results.jsonl", "--json"),
    ("whatif", "net.suite", "--with", "results.jsonl", "--hardware", "hardware.toml"),
    ("whatif", "results.jsonl", "--hardware", "hardware.toml", "--set", "peak*2", "--json"),
    ("list", "model.toml", "--json"),
    ("list", "unknown.toml"),
    ("list", "key.toml"),
    ("list", "list.toml"),
    ("list", "gemm.csv", "--json"),
    ("list", "gemm.csv", "--application", "none"),
    ("list", "wrong.csv"),
    ("list", "wrong.txt"),
    ("list", "workloads", "--coverage"),
    ("whatif", "results.jsonl", "--hardware", "wrong_hardware.toml", "--set", "peak*2"),
    ("show", "results.jsonl"),
    ("show", "results.jsonl", "--full"),
    ("show", "results.jsonl", "--by", "application"),
    ("show", "results.jsonl", "--by", "backend"),
    ("show", "results.jsonl", "--json"),
    ("show", "results.jsonl", "--csv"),
    ("show", "results.jsonl", "--markdown"),
    ("show", HOSTILE),
    ("list", HOSTILE),
    (HOSTILE,),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words).encode("unicode_escape").decode())
def test_what_a_command_prints_is_printable(files, monkeypatch, words):
    require_printable(run(files, monkeypatch, *words))


def test_what_is_imported_is_printable(files, monkeypatch):
    words = ("import", "pyperf.json", "-o", "imported.jsonl", "--case", "gemm m=1 n=2 k=3 f32 onednn")
    printed = run(files, monkeypatch, *words)

    assert printable_lines(printed) == printed
    require_printable(run(files, monkeypatch, "show", "imported.jsonl"))


@pytest.mark.parametrize(
    "words", [("trace", "net.suite"), ("trace", "net.log"), ("show", "results.jsonl")], ids=" ".join
)
def test_a_terminal_gets_no_codes_but_those_of_our_colours(files, words):
    text = re.sub(r"\x1b\[[0-9;]*m", "", output_of(files, 100, *words))

    assert "31m" not in text.replace("\ufffd[31m", "")
    require_printable(text)


def test_a_table_has_no_control_characters_in_any_form():
    table = Table(
        [Column(f"a{HOSTILE}"), Column("b", title=HOSTILE)], [{f"a{HOSTILE}": HOSTILE, "b": HOSTILE}], [HOSTILE]
    )

    for text in (str(table), table.csv(), table.json(), table.markdown()):
        require_printable(text)


def test_sentences_and_progress_have_none(capsys):
    from rich.console import Console

    from deepbench.core.progress import Activity

    print_lines([HOSTILE], Console())
    bar = Bar(Console())
    bar.LINE_EVERY_S = -1.0
    bar(Activity(HOSTILE, 1, 2))

    printed = capsys.readouterr().out
    require_printable(printed)
    assert 2 == printed.count("\ufffd]0;title\ufffdc")


def test_the_name_of_a_trace_is_printable():
    calls = (TracedCall("x", None, "", (), (), 1),)
    require_printable(repr(Trace(HOSTILE, "", False, calls, (), 0, None)))


def test_the_console_replaces_them_in_whatever_it_prints(capsys):
    from rich.text import Text

    make_console().print(Text(HOSTILE))
    make_console().print(HOSTILE, markup=False)

    require_printable(capsys.readouterr().out)
