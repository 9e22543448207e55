"""Any command line ends with a documented exit code and without a traceback. Nothing here measures."""

import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepbench.cli.root import EXIT_BAD_INPUT, cli
from tests.conftest import ROOT
from tests.help.command import run_here

STORED = ROOT / "tests" / "data" / "quick-epyc-2cores.jsonl"

# What a person may type where a word is expected.
words = st.sampled_from(
    (
        *("gemm", "conv", "recurrent", "sparse_gemm", "all_reduce", "memory", "quick", "deepbench/server", "fleet"),
        *("m=1", "n=4", "k=0", "m=-1", "k=1e3", "m=", "=3", "n=99999999999999999999999", "ranks=2", "threads=0"),
        *("f32", "fp32", "i8u8", "f64", "forward", "backward", "mkl", "onednn,openblas", "beta=0", "beta=2"),
        *("stored.jsonl", "copy.jsonl", "missing.jsonl", "empty.jsonl", "binary.jsonl", "folder", "/dev/null", "V100"),
        *("", " ", "-", "--", "\x1b[31m", "é", "\udcff", "*", "$(true)", "a" * 5000, "../../etc/passwd", "10min", "2%"),
    )
)
options = st.sampled_from(
    (
        *("--op", "--backend", "--precision", "--direction", "--application", "--threads", "--ranks", "--set"),
        *("--device", "--json", "--csv", "--markdown", "--full", "--by", "--against", "--price", "--plot", "--host"),
        *(
            "--all",
            "--margin",
            "--unchecked",
            "--suites",
            "--coverage",
            "--title",
            "--no-published",
            "--to",
            "--quick",
            "--help",
        ),
        *("--op=gemm", "--by=application", "--price=2/h", "--margin=nan", "--threads=1,,2", "--set=beta=0", "--no"),
    )
)
# Commands that only read. Those that measure or start processes have tests of their own.
READING = (
    "list",
    "show",
    "compare",
    "rank",
    "gate",
    "published list",
    "published show",
    "scale",
    "--version",
    "--help",
    "",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a result file, a copy, and files that are none."""
    folder = tmp_path_factory.mktemp("words")
    for name in ("stored", "copy"):
        shutil.copy(STORED, folder / f"{name}.jsonl")
    (folder / "empty.jsonl").touch()
    (folder / "binary.jsonl").write_bytes(bytes(range(256)) * 20)
    (folder / "folder").mkdir()
    return folder


def check(folder, arguments):
    before = os.getcwd()
    os.chdir(folder)
    try:
        done = run_here(arguments)
    finally:
        os.chdir(before)

    assert done.code in (0, 1, 2, EXIT_BAD_INPUT), done
    assert "Traceback" not in done.errors
    if done.code == EXIT_BAD_INPUT:
        assert done.errors.startswith("deepbench: ")
        assert 1 == done.errors.count("\n"), done.errors  # one sentence
        assert done.errors.strip().isprintable(), done.errors


command_lines = st.tuples(st.sampled_from(READING), st.lists(st.one_of(words, options), max_size=6))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(command_lines)
def test_words_that_nobody_expects_end_in_one_sentence(folder, line):
    command, rest = line
    check(folder, [*command.split(), *rest])


@pytest.mark.long
@settings(max_examples=10_000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(command_lines)
def test_ten_thousand_command_lines(folder, line):
    command, rest = line
    check(folder, [*command.split(), *rest])


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(READING), st.lists(st.text(max_size=20).filter(lambda t: "\0" not in t), max_size=4))
def test_any_text_ends_in_one_sentence(folder, command, texts):
    check(folder, [*command.split(), *texts])


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_each_command_refuses_an_unknown_option(folder, command):
    done = run_here([command, "--no-such-option"])

    assert EXIT_BAD_INPUT == done.code
    assert "--no-such-option" in done.errors
