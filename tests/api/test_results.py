"""Kinds of files: each opens as its class, and says in one sentence what it does not have."""

import json

import pytest

import deepbench
from deepbench.api.results import FileResults, Results, kind_of
from deepbench.core.errors import BadInput
from deepbench.core.kinds import FLEET, KINDS, kind_of_header
from tests.help import samples
from tests.help.trained import seeds, write


def plan(mode, **more):
    return {"schema": "deepbench/1", "plan": {"mode": mode, "cases": [], **more}}


@pytest.mark.parametrize(
    ("header", "name"),
    [
        (plan("quick"), "kernels"),
        (plan("imported"), "kernels"),
        (plan("steps"), "prediction"),
        (plan("training", training=[{}]), "training"),
        (plan("serving", training=[{}]), "serving"),
        ({"schema": "deepbench-fleet/1"}, "fleet"),
        ({}, "kernels"),
        ({"plan": None}, "kernels"),
        ({"plan": {"mode": ["training"]}}, "kernels"),
    ],
)
def test_a_header_says_the_kind(header, name):
    assert name == kind_of_header(header).name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_has_a_class_that_knows_it(kind):
    found = kind.results_class()

    assert issubclass(found, FileResults)
    assert found.kind is kind
    for name in ("read", "report", "table", "heading"):
        assert callable(getattr(found, name))


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"[1]\n", b"[" * 5000, b'{"plan":' * 5000, b"1e999\n"])
def test_what_cannot_be_read_counts_as_kernels_whose_reader_says_why(tmp_path, content):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)

    assert "kernels" == kind_of(path).name
    with pytest.raises(BadInput, match=r"a\.jsonl"):
        deepbench.load(path)


def test_a_file_opens_as_the_class_of_its_kind(tmp_path):
    write(tmp_path / "trained.jsonl", seeds(2))
    samples.write(tmp_path / "kernels.jsonl", [samples.measured()])

    assert "training" == deepbench.load(tmp_path / "trained.jsonl").kind.name
    assert isinstance(deepbench.load(tmp_path / "kernels.jsonl"), Results)


@pytest.mark.parametrize(
    "ask",
    [
        lambda r, out: r.by("application"),
        lambda r, out: r.save_as("parquet", out),
        lambda r, out: r.roofline(80),
        lambda r, out: r.plot(out.with_suffix(".svg")),
        lambda r, out: r.lacks(),
        lambda r, out: r.host("a"),
    ],
)
def test_what_trained_applications_do_not_have_is_one_sentence(tmp_path, ask):
    write(tmp_path / "a.jsonl", seeds(2))
    with pytest.raises(BadInput, match=r"a\.jsonl has trained applications; \S") as caught:
        ask(deepbench.load(tmp_path / "a.jsonl"), tmp_path / "out")

    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", [deepbench.compare, deepbench.gate])
def test_files_of_two_kinds_are_not_compared(tmp_path, verb):
    write(tmp_path / "a.jsonl", seeds(2))
    samples.write(tmp_path / "b.jsonl", [samples.measured()])
    with pytest.raises(BadInput, match=r"a\.jsonl has trained applications and .*b\.jsonl has kernels; compare two"):
        verb(tmp_path / "a.jsonl", tmp_path / "b.jsonl")


def test_a_report_has_the_same_numbers_in_every_form(tmp_path):
    samples.write(tmp_path / "a.jsonl", [samples.measured(seconds=1e-3)])
    report = deepbench.load(tmp_path / "a.jsonl").report()

    (case,) = json.loads(report.text("json"))["cases"]
    assert case["time_s"] == pytest.approx(1e-3, rel=0.01)
    assert str(case["time_s"]) in report.text("csv")
    assert "1.00 ms" in report.text("markdown")


def test_a_fleet_file_is_of_its_kind_by_its_schema():
    assert kind_of_header({"schema": "deepbench-fleet/1", "plan": {"mode": "training"}}) is FLEET
