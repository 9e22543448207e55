"""Records that contradict themselves or the limits of their file are shown, and none of their numbers is used."""

import io
import json

import pytest
from rich.console import Console

from deepbench.core.backend import all_backends
from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput
from deepbench.core.op import all_ops
from deepbench.fleets import asking
from deepbench.fleets import file as fleet
from deepbench.fleets import session as measuring
from deepbench.judge import compare, gate, limits
from deepbench.measuring.carriers import Carrier
from deepbench.reporting import cases, export, views
from deepbench.reporting.page import content
from deepbench.reporting.sections import sections
from deepbench.results.consistency import Consistency
from deepbench.results.file import read_results
from deepbench.results.record import make_record
from deepbench.results.summary import summarize
from tests.conftest import ROOT
from tests.help import samples

GEMM = "gemm m={} n=3 k=4 a_t=0 b_t=0 forward f32 {} threads=1"


def reason_of(record, *lines):
    """Why this record, in a file with these limits, is inconsistent; None if it is not."""
    (marked,) = Consistency().marked([record], lines)
    assert ("inconsistent" == marked["status"]) == (marked is not record)
    return None if marked is record else marked["reason"]


def with_check(name, **changes):
    record = samples.measured()
    record["check"][name] |= changes
    return record


def with_measurement(**changes):
    record = samples.measured()
    record["measurement"] |= changes
    return record


def test_a_record_of_an_honest_worker_is_consistent():
    assert reason_of(samples.measured()) is None
    assert reason_of(samples.measured(), samples.peak(1e9)) is None


def test_a_first_call_that_is_the_only_sample_is_checked_once():
    record = with_measurement(stopped="first_call")
    record["check"]["after"] = None

    assert reason_of(record) is None


@pytest.mark.parametrize(
    ("own", "allowed", "text", "expected"),
    [
        ([0, 1], [0, 1], "threads=1", None),
        ([0], [0, 1, 2, 5], "threads=1", "its process could use the CPUs 0, and those of this file can use 0-2,5"),
        ([0, 1], [0], "threads=1", "its process could use the CPUs 0-1, and those of this file can use 0"),
        ([0], [0, 1], "threads=1 pin=cores", None),
        ([2], [0, 1], "threads=1 pin=cores", "its process could use the CPUs 2, and those of this file can use 0-1"),
        (None, [0, 1], "threads=1", None),
        ([0], None, "threads=1", None),
        ([{}], [0, 1], "threads=1", None),
        ([0], "0-1", "threads=1", None),
    ],
)
def test_a_process_with_other_cpus_does_not_belong_to_the_file(tmp_path, own, allowed, text, expected):
    record = samples.measured(text=samples.TEXT.replace("threads=1", text))
    record["process"]["cpus_allowed"] = own
    header = samples.header([record["case"]])
    header["machine"] |= {"cpus_allowed": allowed}
    path = tmp_path / "x.jsonl"
    samples.write(path, [record], header)
    (found,) = read_results(path).records

    assert expected == (found["reason"] if found["status"] == "inconsistent" else None)


def test_an_imported_record_is_consistent_without_a_check():
    record = samples.measured(status="unchecked")
    record["notes"]["imported_from"] = "nvbench"

    assert {"before": None, "after": None} == record["check"]
    assert reason_of(record) is None


@pytest.mark.parametrize("status", ["unsupported", "crashed", "timeout"])
def test_a_record_without_a_time_needs_no_proof(status):
    assert reason_of(samples.failed(status, "why")) is None


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (samples.measured() | {"check": {"before": None, "after": samples.check()}}, "not checked before timing"),
        (samples.measured() | {"check": {"before": samples.check(), "after": None}}, "not checked after timing"),
        (with_check("before", passed=False), "its check before timing failed"),
        (with_check("after", passed=False), "its check after timing failed"),
        (with_check("after", error=7.0), "passed with an error of 7 tolerances"),
        (with_check("after", error=None), "passed with an error of none that is finite"),
        (with_check("after", covers=0), "covers 0 of 6 elements"),
        (with_check("after", covers=7), "covers 7 of 6 elements"),
        (samples.measured() | {"measurement": None}, "status ok but no measurement"),
        (samples.measured() | {"process": None}, "status ok but no process"),
        (with_measurement(cpu_s=[1.0]), "lists of samples differ in length"),
        (with_measurement(samples_s=[1e-12] * 10), "less than a cycle of any clock"),
        (samples.measured() | {"case": GEMM.format(5, "mkl")}, "text has m=5, but its field m is 2"),
        (samples.measured() | {"case": GEMM.format(2, "onednn")}, "does not have the words forward f32 mkl"),
        (samples.measured() | {"case": "conv" + samples.TEXT.format(backend="mkl")[4:]}, "text begins with 'conv'"),
        (samples.measured() | {"case": samples.TEXT.format(backend="mkl") + " beta=0"}, "has beta=0, but its field"),
        (samples.measured() | {"case": ""}, "text begins with ''"),
        (samples.measured() | {"threads": 2}, "text has threads=1, but its field threads is 2"),
        (samples.measured() | {"direction": "backward"}, "gemm has no direction backward"),
        (samples.measured() | {"precision": "f99"}, "its fields describe no case"),
        (samples.measured() | {"problem": {"m": 2, "n": 3}}, "gemm needs k"),
        (samples.measured() | {"flop": 49}, "flop is 49, but this case has 48"),
        (samples.measured() | {"least_flop": 1.0}, "least_flop is 1.0, but this case has 48.0"),
        (samples.measured() | {"least_flop": None}, "least_flop is None"),
        (samples.measured() | {"traffic_bytes": 1}, "traffic_bytes is 1"),
        (samples.measured() | {"is_group": True}, "is_group is True"),
        (samples.measured() | {"device": "cuda"}, "its device is cuda, but"),
    ],
)
def test_a_record_that_contradicts_itself_is_inconsistent(record, expected):
    assert expected in reason_of(record)


def test_settings_that_only_the_fields_have_are_found():
    record = samples.measured()
    record["settings"] = {**record["settings"], "beta": "0"}

    assert "its text differs from its fields, which describe" in reason_of(record)


def test_another_count_of_the_operation_is_found():
    record = samples.measured(text="sparse_gemm m=8 n=3 k=4 sparsity=95 forward f32 mkl threads=2")
    record["other_flop"] = record["other_flop"] | {"dense": 1}

    assert "other_flop.dense is 1, but this case has" in reason_of(record)


def test_other_rounds_of_a_case_are_compared_as_closely_as_the_first():
    first, second = samples.measured(), samples.measured(round_number=2) | {"flop": 1}

    assert ["ok", "inconsistent"] == [r["status"] for r in Consistency().marked([first, second], [])]


def test_an_operation_and_a_library_that_are_unknown_here_are_compared_with_the_text_only():
    unknown = samples.measured() | {
        "case": "twice n=4 forward f32 turbo threads=1 way=add",
        "op": "twice",
        "problem": {"n": 4},
        "backend": "turbo",
        "settings": {"way": "add", "order": "up"},
        "device": "cuda",
        "flop": 99,
    }

    assert reason_of(unknown) is None
    assert reason_of(samples.measured() | {"case": GEMM.format(2, "turbo"), "backend": "turbo"}) is None
    assert "text has n=4, but its field n is 5" in reason_of({**unknown, "problem": {"n": 5}})


def test_sizes_and_settings_of_later_versions_do_not_matter():
    record = samples.measured()
    record["problem"], record["settings"] = record["problem"] | {"new": 1}, record["settings"] | {"new": "none"}

    assert reason_of(record) is None


@pytest.mark.parametrize("name", all_ops())
def test_a_new_record_of_every_operation_is_consistent(name):
    op = all_ops()[name]
    for problem in op.smoke:
        for direction in op.directions:
            text = f"{name} {problem.text} {direction} f32 reference threads=1"
            assert reason_of(make_record(parse_case(text), 1, "unsupported", "no")) is None
    for backend in all_backends():
        text = f"{name} {op.smoke[0].text} {op.directions[0]} f32 {backend} threads=2 pin=cores"
        assert reason_of(make_record(parse_case(text), 1, "unsupported", "no")) is None


def test_a_rate_above_the_peak_of_the_file_is_inconsistent():
    fast = samples.measured(seconds=48 / 3e9)

    assert "0.00300 TFLOP/s is above the measured peak" in reason_of(fast, samples.peak(1e9))
    assert reason_of(fast, samples.peak(2.9e9)) is None
    assert reason_of(fast) is None


def disturbed_peak(flop_per_s, **place):
    return samples.peak(flop_per_s, **place) | {"disturbed": True}


def test_a_peak_that_is_always_disturbed_refutes_only_what_is_far_above_it():
    fast = samples.measured(seconds=48 / 3e9)

    assert reason_of(fast, disturbed_peak(1e9)) is None
    assert "above the measured peak" in reason_of(fast, disturbed_peak(0.7e9))


@pytest.mark.parametrize("undisturbed", [2e9, 0.9e9])
def test_one_undisturbed_probe_makes_the_peak_count(undisturbed):
    """Also where a disturbed probe was the faster one."""
    fast, peak = samples.measured(seconds=48 / 3e9), samples.peak(undisturbed)

    assert "above the measured peak" in reason_of(fast, disturbed_peak(1e9), peak)
    assert "above the measured peak" in reason_of(fast, peak, disturbed_peak(1e9))


def test_an_undisturbed_probe_of_another_precision_says_nothing_about_a_disturbed_one():
    half = samples.measured(seconds=48 / 3e9, text=GEMM.format(2, "mkl").replace("f32", "bf16"))

    assert reason_of(half, disturbed_peak(1e9, precision="bf16"), samples.peak(0.5e9)) is None
    assert "above the measured peak" in reason_of(half, samples.peak(0.5e9))


def test_a_rate_above_the_peak_of_the_card_is_inconsistent():
    record = samples.measured("cublas", seconds=48 / 3e9)
    record["library"]["card"] = {"peak_f32_flop_per_s": 1e9}

    assert "above the card's f32 peak" in reason_of(record)


@pytest.mark.parametrize(
    "path",
    sorted([*(ROOT / "results").glob("*.jsonl*"), *(ROOT / "tests" / "data").glob("*.jsonl")]),
    ids=lambda p: p.name,
)
def test_every_record_that_was_measured_is_consistent(path):
    assert [] == [r["reason"] for r in read_results(path).records if r["status"] == "inconsistent"]


# ---- what readers do with them


@pytest.fixture
def forged(tmp_path):
    """A file whose second library claims a picosecond, and whose limits know better."""
    texts = [GEMM.format(2, b) for b in ("mkl", "onednn")]
    honest = samples.measured("mkl", 1e-6, text=texts[0])
    fast = samples.measured("onednn", 1e-9, text=texts[1])
    source = {"suite": "s", "row": 1, "application": "Speech", "label": None, "note": None}
    lines = [{**honest, "sources": [source]}, {**fast, "sources": [source]}, {"limit": samples.peak(1e9)}]
    return read_results(samples.write(tmp_path / "forged.jsonl", lines, samples.header(texts)))


def test_an_inconsistent_row_is_shown_with_its_reason_and_never_ranked(forged):
    summaries = summarize(forged.records, forged.order)
    known = limits.of_file(forged, summaries)
    printed = io.StringIO()
    found = sections(summaries, known)
    found.print(Console(file=printed, width=300))
    (row,) = found.rows

    assert ("MKL 1.0", None, "X") == (row["best"], row["next best"], row["flags"])
    assert "oneDNN inconsistent: 0.0480 TFLOP/s is above the measured peak" in printed.getvalue()
    assert 1e9 == known.peak("f32", "cpu", 1)
    (total,) = views.by_application(summaries).rows
    assert 1e-6 == pytest.approx(total["time"], rel=1e-2)


def test_exports_and_pages_have_no_number_of_an_inconsistent_row(forged):
    summaries = summarize(forged.records, forged.order)
    row = export.rows(summaries, limits.of_file(forged, summaries))[1]
    columns = content.of_file(forged, "forged")["columns"]

    assert ("inconsistent", None, None) == (row["status"], row["time_s"], row["flop_per_s"])
    assert ["ok", "inconsistent"] == columns["status"]
    assert (None, None) == (columns["time_s"][1], columns["position"][1])
    assert "above the measured peak" in columns["reason"][1]
    assert "1 inconsistent" in content.of_file(forged, "forged")["sentences"][-1]


def test_lists_of_unequal_length_do_not_stop_a_view(tmp_path):
    overlap = "all_reduce n=8 ranks=2 forward f32 mpich threads=1 overlap=gemm"
    record = samples.measured("mpich", text=overlap)
    record["measurement"]["steal_s"] = [0.0]
    record["notes"] |= {"all_reduce_alone_s": 1e-3, "gemm_alone_s": 1e-3}
    file = read_results(samples.write(tmp_path / "r.jsonl", [record], samples.header([overlap])))
    summaries = summarize(file.records, file.order)

    assert "lists of samples differ" in export.to_csv(file, summaries)
    cases.library_table(summaries, limits.of_file(file, summaries))
    json.dumps(content.of_file(file, "mine"))


def sides(tmp_path, a, b):
    """Two files of one case and five rounds; True marks a side whose last round is inconsistent."""
    for name, is_forged in (("a", a), ("b", b)):
        records = [samples.measured(seconds=1e-3 + i * 1e-6, round_number=i) for i in range(1, 6)]
        records[-1] |= {"flop": 1} if is_forged else {}
        samples.write(tmp_path / name, records, samples.header([records[0]["case"]]))
    return read_results(tmp_path / "a"), read_results(tmp_path / "b")


@pytest.mark.parametrize(("a", "b"), [(True, False), (False, True), (True, True)])
def test_a_case_that_is_inconsistent_on_either_side_is_not_compared(tmp_path, a, b):
    comparison = compare.compare_files(*sides(tmp_path, a, b))

    (left_out,) = comparison.left_out
    assert "inconsistent, flop is 1, but this case has 48 in " in left_out
    assert [] == comparison.cases
    assert "passed" not in [c.verdict for c in gate.judge(comparison).cases]


def test_a_case_that_is_inconsistent_now_and_had_a_time_is_a_regression(tmp_path):
    outcome = gate.judge(compare.compare_files(*sides(tmp_path, False, True)))

    assert "regression" == outcome.verdict
    assert "inconsistent, flop is 1" in outcome.cases[0].reason
    assert "passed" == gate.judge(compare.compare_files(*sides(tmp_path, False, False))).verdict


def test_a_file_that_says_inconsistent_itself_is_refused(tmp_path):
    path = samples.write(tmp_path / "r.jsonl", [samples.measured() | {"status": "inconsistent"}])

    with pytest.raises(BadInput, match=r"line 2: data\.status must be one of"):
        read_results(path)


def test_an_inconsistent_record_of_a_host_does_not_count_in_its_fleet(tmp_path):
    lines = [samples.header(), samples.measured("onednn", 48 / 3e9), {"limit": samples.peak(1e9)}]
    run = {"host": "a", "run": 1, "status": "ok", "reason": None, "lines": lines}
    link = {"link": ["a", "b"], "record": samples.measured() | {"flop": 1}}
    header = {"schema": fleet.SCHEMA, "expected": ["a"]}
    path = tmp_path / "fleet.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, run, link)))

    file = fleet.read_fleet(path)

    assert ["inconsistent"] == [r["status"] for r in file.results_of("a").records]
    assert ["inconsistent"] == [record["status"] for _, record in file.links]
    assert samples.header() == file.runs[0].lines[0]


def test_a_fleet_file_keeps_what_a_host_returned(tmp_path, monkeypatch):
    """Its verdict does not use an inconsistent record, but the file has the record as it came."""

    record = samples.measured() | {"flop": 1}
    path = samples.write(tmp_path / "of-host.jsonl", [record])
    file = tmp_path / "fleet.jsonl"
    answer = {"lines": path.read_text(), "exit_code": 0, "last_output": ""}
    monkeypatch.setattr(measuring, "run_once", lambda *_: [asking._host_run("a", 1, answer)])
    reach = asking.Reach(Carrier("own", ("sh", "{host}")))
    session = measuring.FleetSession(file, {"a": "a", "b": "b"}, [], reach, links="none")
    list(session.measure(1))
    session.close()

    assert ["inconsistent"] == [r["status"] for r in session.file.runs[0].records]
    assert [samples.header(), record] == json.loads(file.read_text().splitlines()[1])["lines"]
    assert session.file.runs == fleet.read_fleet(file).runs
