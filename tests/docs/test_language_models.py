"""The page on language models: its sums, what it withholds, and the commands that it names."""

import importlib.util
import shlex
import sys

import pytest

from deepbench.api.results import load
from deepbench.plan.suites import read_suite
from tests.conftest import ROOT
from tests.help import samples

DECODE = "llm/llama32_1b:phase=decode"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("make_language_models", ROOT / "docs" / "make_language_models.py")
    module = sys.modules["make_language_models"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cases_of(suite, precision, seconds, without=(), backend="onednn"):
    """A record for every kernel of a suite."""
    made = []
    for e in read_suite(suite):
        if e.pattern.op not in without:
            words = [e.pattern.op, e.pattern.problem.text, e.pattern.direction or "forward", precision, backend]
            text = " ".join([*words, "threads=1", *(f"{name}={value}" for name, value in e.stated.items())])
            made.append({**samples.measured(text=text, seconds=seconds), "sources": [e.source]})
    return made


def data_of(script, tmp_path, *records):
    paths = [samples.write(tmp_path / f"{i}.jsonl", some) for i, some in enumerate(records)]
    return [load(path) for path in paths]


def calls(suite, op=None):
    return sum(e.source["count"] for e in read_suite(suite) if op in (None, e.pattern.op))


def test_tokens_per_second_are_those_of_all_calls_one_after_the_other(script, tmp_path):
    suite = f"{DECODE},batch=8"
    (file,) = data_of(script, tmp_path, cases_of(suite, "f32", 1e-3))
    found = script.Data([file]).sum_of(suite, "f32")

    assert found.per_s == pytest.approx(8 / (calls(suite) * 1e-3), rel=0.01)
    assert found.share("products") == pytest.approx(calls(suite, "gemm") / calls(suite))
    assert found.half_width is not None


def test_a_kernel_without_a_library_counts_in_f32_and_the_page_says_so(script, tmp_path):
    records = [*cases_of(DECODE, "f32", 2e-3), *cases_of(DECODE, "bf16", 1e-3, without=["embedding_bag"])]
    files = data_of(script, tmp_path, records)
    data = script.Data(files)

    assert data.sum_of(DECODE, "bf16").time_s == pytest.approx((calls(DECODE) + 1) * 1e-3, rel=0.01)
    assert data.sum_of(DECODE, "f32").time_s == pytest.approx(2e-3 * calls(DECODE), rel=0.01)
    text, pictures = script.page(files)
    text = " ".join(text.split())
    assert "No library of these files has embedding in bf16, so that counts in f32." in text
    assert ["language-models-decode.svg"] == list(pictures)
    assert "bf16 1.9" in text  # times as many tokens as f32


def test_a_missing_kernel_withholds_the_sum(script, tmp_path):
    (file,) = data_of(script, tmp_path, cases_of(DECODE, "f32", 1e-3, without=["rms_norm"]))
    data = script.Data([file])

    assert data.sum_of(DECODE, "f32") is None
    assert "–" == script.per_second(None)


def test_products_with_weights_of_4_bits_take_the_place_of_others(script, tmp_path):
    weights = cases_of("weight_only:phase=decode", "bf16", 0.5e-3, backend="loops")
    files = data_of(script, tmp_path, cases_of(DECODE, "bf16", 1e-3), weights)
    data = script.Data(files)
    four = data.sum_of(DECODE, "int4 weights")

    products = calls(DECODE, "gemm")
    assert four.time_s == pytest.approx((calls(DECODE) - products / 2) * 1e-3, rel=0.01)
    assert data.sum_of(DECODE, "int8 weights") is None
    assert "| int4 weights |" in script.page(files)[0]


def test_the_bandwidth_of_memory_bounds_the_tokens(script, tmp_path):
    size = 2**29
    case = f"memory kind=read n={size // 4} passes=1 forward f32 loops threads=1"
    limit = {"what": "memory", "device": "cpu", "kind": "read", "bytes": size, "bytes_per_s": 1e10, "case": case}
    limit |= {"threads": 1, "seconds": size / 1e10, "at": "2026-11-21T00:00:00+00:00", "disturbed": False}
    records = cases_of(DECODE, "f32", 1e-3)
    files = data_of(script, tmp_path, [{"limit": limit}, *records])
    moved = sum(r["traffic_bytes"] * r["sources"][0]["count"] for r in records)

    data = script.Data(files)
    (sentence,) = script.memory_sentence(data, DECODE)
    assert [None, None] == [data.sum_of(DECODE, "bf16"), data.sum_of(DECODE, "int8")]  # products decide the type
    assert float(sentence.rstrip(".").rpartition(" f32 ")[2]) == pytest.approx(1e10 / moved, rel=0.01)


def test_a_disturbed_time_is_marked_and_makes_no_sentence(script, tmp_path):
    first, *others = [*cases_of(DECODE, "f32", 2e-3), *cases_of(DECODE, "bf16", 1e-3)]
    noisy = {**samples.disturbed(text=first["case"]), "sources": first["sources"]}
    files = data_of(script, tmp_path, [noisy, *others])
    text, _ = script.page(files)

    assert f"1 of {1 + len(others)} times were disturbed by other programs." in text
    assert script.per_second(script.Data(files).sum_of(DECODE, "f32")).endswith(script.DISTURBED)
    assert "Tokens per second over those of f32" not in text


def test_the_page_is_short_and_its_lines_fit(script, tmp_path):
    decode = [f"{DECODE}{more}" for more in ("", ",context=512", ",context=8192", ",batch=8")]
    prefill = [f"llm/llama32_1b:phase=prefill,context={n}" for n in (512, 1024)]
    experts = [f"llm/qwen3_30b_a3b:phase=decode,batch={n}" for n in (8, 64)]
    kinds = ("f32", "bf16", "i8")
    records = [r for suite in [*decode, *prefill, *experts] for p in kinds for r in cases_of(suite, p, 1e-3)]
    merged = {}
    for r in records:
        merged.setdefault(r["case"], {**r, "sources": []})["sources"] += r["sources"]
    weights = [cases_of(f"weight_only:phase=decode,bits={b}", "bf16", 1e-3, backend="loops") for b in (4, 8)]
    moe = cases_of("moe:phase=decode", "bf16", 1e-3)
    text, pictures = script.page(data_of(script, tmp_path, list(merged.values()), *weights, moe))
    lines = text.splitlines()

    assert len(lines) <= 150
    assert max(map(len, lines)) <= 120
    assert 1 == len(pictures)
    assert all(part in text for part in ("## A token", "## A prompt", "## Mixture of experts", "GPT-OSS 20B, up"))
    assert all(svg.startswith("<svg ") and svg.endswith("</svg>\n") for svg in pictures.values())


def test_the_commands_of_the_page_have_cases(script, deepbench):
    text = "\n".join(script.commands()).replace("\\\n", " ")
    runs = [shlex.split(line) for line in text.splitlines() if line.startswith("deepbench run ")]

    assert len(runs) >= 5
    for _, _, *words in runs:
        for option in ("--budget", "-o"):
            if option in words:
                del words[words.index(option) : words.index(option) + 2]
        done = deepbench("list", *(word for word in words if word != "--quick"))
        assert done.stdout, done.stderr


def test_the_stored_page_names_the_commands_of_the_script(script):
    page = ROOT / "docs" / script.PAGE
    if not page.exists():
        pytest.skip(f"{page.name} has not been written: it wants results of a quiet machine")

    assert "\n".join(script.commands()) in page.read_text()
