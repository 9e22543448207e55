"""Words, suites and filters → cases; which round comes next."""

import re
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepbench.api.filters import plan_cases
from deepbench.core.backend import all_backends
from deepbench.core.errors import BadInput
from deepbench.plan import cases, suites
from deepbench.plan.cases import Choices, expand, why_none
from deepbench.plan.modes import Rounds
from deepbench.plan.rounds import next_round, queue
from deepbench.plan.suites import read_suite, read_words


def planned(words, default_threads=2, **choices):
    return expand(read_words(words), Choices(**choices), default_threads)


@pytest.mark.parametrize(
    ("suite", "rows"), [("deepbench/train", 160), ("deepbench/server", 75), ("deepbench/device", 13)]
)
def test_the_original_suites_are_whole(suite, rows):
    found = planned([suite], backends=("mkl",), precisions=("f32",), ops=("gemm",))

    assert rows == sum(len(p.sources) for p in found)
    assert all(s["application"] and s["suite"] == suite for p in found for s in p.sources)


@pytest.mark.parametrize(
    ("op", "train", "server", "device"),
    [
        ("gemm", 160, 75, 13),
        ("conv", 94, 107, 17),
        ("recurrent", 53, 69, 3),
        ("sparse_gemm", 0, 24, 8),
        ("all_reduce", 35, 0, 0),
    ],
)
def test_every_row_of_every_op_is_there(op, train, server, device):
    for suite, rows in (("train", train), ("server", server), ("device", device)):
        entries = [e for e in read_suite(f"deepbench/{suite}") if e.pattern.op == op]
        assert set(range(1, rows + 1)) == {e.source["row"] for e in entries}
        stated = [e for e in entries if op != "all_reduce" or e.pattern.problem.n != 38360000]  # the header says none
        assert all(e.source["application"] for e in stated)


def test_training_has_every_direction_and_says_which_gradients_it_does_not_need():
    found = planned(["deepbench/train"], backends=("onednn",), ops=("conv", "recurrent"))
    conv = [p for p in found if p.case.op == "conv"]

    assert {"forward", "backward_data", "backward_weights"} == {p.case.direction for p in conv}
    assert 90 == len({p.case.problem for p in conv})  # of 94 rows four are listed twice
    assert 3 * 90 == len(conv)
    not_needed = [p for p in conv if not any(s["needed"] for s in p.sources)]
    assert not_needed
    for p in not_needed:
        assert "backward_data" == p.case.direction
        assert p.case.problem.c in (1, 3)  # a spectrogram or a picture
        assert "first layer" in p.sources[0]["note"]
    recurrent = [p for p in found if p.case.op == "recurrent"]
    assert {"forward", "backward"} == {p.case.direction for p in recurrent}
    forward = [p for p in recurrent if p.case.direction == "forward"]
    assert {"training"} == {p.case.settings["mode"] for p in forward}  # a backward pass is of training in any case


def default_libraries():
    """The libraries for CPUs that a run uses if it names none."""
    return [b for b in all_backends().values() if b.is_default_on("cpu")]


def test_a_sparse_product_brings_the_dense_ones_it_is_compared_with():
    text = "sparse_gemm m=64 n=3 k=32 sparsity=90"
    found = planned([text], ops=("sparse_gemm",))

    dense = [p for p in found if p.case.op == "gemm"]
    libraries = {p.case.backend for p in dense}
    assert {b.name for b in default_libraries() if b.supports("gemm", "f32", "forward")} == libraries
    assert {"onednn", "openblas"} <= libraries
    assert {(64, 3, 32)} == {(p.case.problem.m, p.case.problem.n, p.case.problem.k) for p in dense}
    assert all(not p.sources for p in dense)
    assert {"mkl"} == {p.case.backend for p in planned([text], backends=("mkl",))}
    assert {"0"} == {p.case.settings["beta"] for p in planned([f"{text} beta=0"])}


def test_what_sparse_is_compared_with_runs_the_same_way():
    text = "sparse_gemm m=64 n=3 k=32 sparsity=90"
    found = planned([text], settings={"cache": ("cold",), "pin": ("cores",)}, threads=(1,))

    assert {("cold", "cores", 1)} == {(p.case.settings["cache"], p.case.settings["pin"], p.case.threads) for p in found}
    assert {"plain", "packed"} == {p.case.settings["weights"] for p in found if p.case.op == "gemm"}


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("recurrent cell=lstm hidden=4 batch=1 timesteps=2 f32 onednn", {"gru_reset": ("after", "before")}),
        ("recurrent cell=gru hidden=4 batch=1 timesteps=2 backward f32 onednn", {"mode": ("inference", "training")}),
        ("conv n=1 c=1 h=3 w=3 k=1 r=1 s=1 backward_data f32 onednn", {"bias": ("no", "yes")}),
        ("gemm m=2 n=2 k=2 f32 onednn", {"result": ("wide", "narrow")}),
    ],
)
def test_settings_that_change_nothing_make_no_second_case(text, chosen):
    assert 1 == len(planned([text], settings=chosen))


def test_a_file_may_name_directions_and_settings(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("n,c,h,w,k,r,s,directions,bias,needed\n1,2,5,5,3,3,3,forward backward_weights,yes,no\n")

    found = planned([str(path)], backends=("onednn",))

    assert ["forward", "backward_weights"] == [p.case.direction for p in found]
    assert {"yes"} == {p.case.settings["bias"] for p in found}
    assert {False} == {p.sources[0]["needed"] for p in found}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1,2,5,5,3,3,3,sideways,yes", "conv has no direction 'sideways'; it has forward, backward_data"),
        ("1,2,5,5,3,3,3,forward,maybe", "bias must be one of no, yes, found 'maybe'"),
        ("1,2,5,5,3,9,3,forward,no", "the filter is larger than the padded image"),
    ],
)
def test_a_bad_line_is_one_sentence_with_its_place(tmp_path, row, message):
    path = tmp_path / "mine.csv"
    path.write_text(f"n,c,h,w,k,r,s,directions,bias\n{row}\n")

    with pytest.raises(BadInput) as error:
        planned([str(path)])

    assert f"{path}, line 2: " in str(error.value)
    assert message in str(error.value)


def test_k_is_1536_where_the_original_workbook_says_1530():
    found = planned(["deepbench/train"], backends=("mkl",))
    noted = [p for p in found if any("k=1530" in (s["note"] or "") for s in p.sources)]

    assert noted
    assert {1536} == {p.case.problem.k for p in noted}


def test_quick_is_some_thirty_cases_of_every_op_direction_and_library():
    found = planned(["quick"])

    assert 25 <= len(found) <= 40
    assert {"f32", "bf16", "i8u8"} == {p.case.precision.name for p in found}
    work = {(p.case.op, p.case.precision.name, p.case.direction) for p in found}
    libraries = {p.case.backend for p in found}
    assert {b.name for b in default_libraries() if any(b.supports(*w) for w in work)} == libraries
    assert {"onednn", "openblas", "scipy", "mpich", "ring"} <= libraries
    assert {"all_reduce", "conv", "gemm", "recurrent", "sparse_gemm"} == {p.case.op for p in found}
    assert {"forward", "backward", "backward_data", "backward_weights"} == {p.case.direction for p in found}


def test_a_typed_case_may_be_one_word_or_many():
    words = ["gemm", "m=3", "n=4", "k=5", "f32", "onednn"]

    assert planned(words) == planned([" ".join(words)])
    assert 2 == len(planned([*words, "gemm m=3 n=4 k=6 onednn"]))


def test_a_typed_case_may_name_several_libraries_and_precisions():
    found = planned(["gemm", "m=64", "n=64", "k=64", "f32,bf16", "onednn,mkl"])

    assert [("f32", "onednn"), ("f32", "mkl"), ("bf16", "onednn"), ("bf16", "mkl")] == [
        (p.case.precision.name, p.case.backend) for p in found
    ]
    assert found == planned(["gemm m=64 n=64 k=64 f32,bf16 onednn,mkl"])
    # Libraries that do not serve a precision are left out, as with --backend.
    assert ["onednn"] == [p.case.backend for p in planned(["gemm m=64 n=64 k=64 i8 mkl,onednn"])]


def test_a_line_of_a_file_may_name_several_libraries_too(tmp_path):
    (tmp_path / "mine.txt").write_text("gemm m=2 n=2 k=2\ngemm m=1 n=1 k=1 f32 mkl,onednn\n")
    found = planned([str(tmp_path / "mine.txt")], backends=("mkl", "onednn"))

    assert [1, 1, 2, 2] == [p.sources[0]["row"] for p in found]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["matmul", "m=64"], "unknown suite, operation or file 'matmul'; operations are all_gather"),
        (["matmul"], "; did you mean gemm?"),
        (["quik"], "unknown suite, operation or file 'quik'; suites are"),
        (["quik"], "; did you mean quick?"),
        (["deepbench/trian"], "; did you mean deepbench/train?"),
        (["fp32"], "precisions are f32, bf16"),
        (["gemm", "m=1", "n=1", "k=1", "fp32"], "'fp32' is not a direction, precision or backend; a precision is"),
        (["gemm", "m=1", "n=1", "k=1", "fp32", "dnnl"], "; did you mean f32?"),
        (["gemm", "m=1", "n=1", "k=1", "f32", "dnnl,mkl"], "; did you mean onednn?"),
        (["gemm", "m=1", "n=1", "k=1", "f32", "quik"], "; did you mean quick?"),
        (["quick", "onednn"], "onednn is a backend, which follows a case, such as gemm m=1760 n=128 k=1760 onednn"),
        (["bf16"], "for suites and files use --precision bf16"),
    ],
)
def test_an_unknown_word_gets_what_is_known_and_what_may_be_meant(words, expected):
    with pytest.raises(BadInput) as error:
        read_words(words)

    assert expected in str(error.value)


def test_a_file_after_a_case_is_no_misspelt_word_of_it(tmp_path):
    path = tmp_path / "onedn.csv"
    path.write_text("m,n,k\n1,2,3\n")

    assert 2 == len(read_words(["gemm m=1 n=1 k=1 f32", str(path)]))


@pytest.mark.parametrize(
    ("words", "choices", "expected"),
    [
        (
            "gemm m=3 n=4 k=5 tf32",
            {},
            "no default library for cpu serves gemm forward in tf32; "
            "on other devices cublas (--device cuda), cublaslt (--device cuda), hipblas (--device hip) and hipblaslt "
            "(--device hip) do; the float64 reference does: "
            "deepbench run gemm m=3 n=4 k=5 a_t=0 b_t=0 forward tf32 reference threads=2",
        ),
        (
            "gemm m=3 n=4 k=5 i8u8",
            {"backends": ("openblas",)},
            "openblas does not serve gemm forward in i8u8; aocl, mkl",
        ),
        ("gemm m=3 n=4 k=5 i8u8", {"backends": ("openblas",)}, "use --backend aocl,mkl,onednn"),
        ("gemm m=3 n=4 k=5 i8u8 openblas", {}, "type aocl instead"),
        ("gemm m=3 n=4 k=5", {"directions": ("backward",)}, "gemm has no direction backward; it has forward"),
        ("gemm m=3 n=4 k=5", {"ops": ("conv",)}, "nothing that was asked for passes --op conv; leave it out"),
        ("gemm m=3 n=4 k=5 mkl", {"backends": ("onednn",)}, "nothing that was asked for passes --backend onednn"),
        ("gemm m=3 n=4 k=5 threads=1", {"threads": (2,)}, "nothing that was asked for passes --threads 2"),
        ("gemm m=3 n=4 k=5", {"applications": ("Speech",)}, "only problems of suites have one"),
        ("deepbench/server", {"applications": ("Speech Recog",)}, "; did you mean Speech Recognition?"),
        ("conv n=1 c=1 h=3 w=3 k=1 r=1 s=1 f8e4m3", {}, "see deepbench info --matrix"),
    ],
)
def test_where_no_case_is_left_the_sentence_says_why_and_what_to_do(words, choices, expected):
    assert [] == planned([words], **choices)

    sentence = why_none(read_words([words]), Choices(**choices), 2)

    assert sentence.startswith("no case is left: ")
    assert expected in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        (
            "dance steps=4",
            "no case is left: the only kernel cannot be measured; dance steps=4: there is no operation dance",
        ),
        (
            "gemm m=0 n=1 k=1\ndance",
            "no case is left: none of the 2 kernels can be measured; the first, gemm m=0 n=1 k=1: m must be",
        ),
        ("gemm m=batch-9 n=1 k=1", "the only kernel cannot be measured; gemm m=-7 n=1 k=1: m must be"),
        ("gemm m=1 n=1 k=1 count=0", "no case is left: no kernel is called in what was asked for"),
        ("gemm m=1 n=1 k=1 count=batch-9", "no case is left: no kernel is called in what was asked for"),
    ],
)
def test_a_model_whose_kernels_cannot_be_measured_says_why(tmp_path, kernels, expected):
    path = tmp_path / "mine.toml"
    path.write_text(f'title = "Mine"\n[phases.inference]\nbatch = 2\n[kernels]\nall = """\n{kernels}\n"""')
    assert [] == planned([str(path)])

    with pytest.raises(BadInput) as found:
        plan_cases(str(path), Choices())
    assert expected in str(found.value)
    with pytest.raises(BadInput) as found:
        plan_cases(str(path), Choices(settings={"batch": ("2",)}))
    assert expected in str(found.value)


def test_the_command_with_the_reference_is_one_that_can_be_typed():
    sentence = why_none(read_words(["gemm m=3 n=4 k=5 tf32"]), Choices(), 2)
    _, _, words = sentence.partition("deepbench run ")

    assert ["reference"] == [p.case.backend for p in planned(words.split())]


def test_every_listed_line_measures_itself_again():
    for p in planned(["quick"]):
        assert [p.case] == [q.case for q in planned(p.case.text.split(), default_threads=7)]


def test_a_problem_listed_twice_is_one_case_with_two_sources(tmp_path):
    path = tmp_path / "twice.csv"
    path.write_text("m,n,k\n1,2,3\n1,2,3\n")

    (only,) = planned([str(path)], backends=("mkl",))

    assert [1, 2] == [s["row"] for s in only.sources]


def test_filters_choose_and_multiply():
    found = planned(
        ["gemm m=1 n=1 k=1"],
        backends=("mkl", "onednn"),
        precisions=("f32", "i8"),
        threads=(1, 2),
        settings={"beta": ("0", "1")},
    )

    # MKL has no s8·s8, so i8 is oneDNN's alone.
    assert 3 * 2 * 2 == len(found)
    assert len({p.case.text for p in found}) == len(found)


def test_what_a_line_says_stays_and_a_filter_can_only_drop_it():
    assert [] == planned(["gemm m=1 n=1 k=1 f32 mkl"], precisions=("bf16",))


def test_a_default_that_a_line_says_stays_too():
    found = planned(["gemm m=1 n=1 k=1 beta=1 mkl"], settings={"beta": ("0",), "weights": ("packed",)})

    assert ["weights=packed"] == [p.case.text.split()[-1] for p in found]


def test_a_choice_said_twice_counts_once():
    found = planned(
        ["deepbench/device"], ops=("gemm",), backends=("mkl",), settings={"beta": ("0", "0")}, threads=(1, 1)
    )

    assert {1} == {len(p.sources) for p in found}


def test_a_setting_may_have_other_values_in_other_operations():
    attention = "attention batch=1 heads=1 kv_heads=1 queries=4 keys=4 head_size=8"
    found = planned([attention], backends=("onednn",), settings={"algorithm": ("default", "graph", "ring")})

    assert ["default", "graph"] == [p.case.settings["algorithm"] for p in found]


def test_applications_filter_by_name():
    found = planned(["deepbench/server"], backends=("mkl",), applications=("language modelling",))

    assert found
    assert {"Language Modelling"} == {s["application"] for p in found for s in p.sources}


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({"ops": ("matmul",)}, r"unknown operation 'matmul'; choose one of .*; did you mean gemm\?"),
        ({"backends": ("dnnl",)}, r"unknown backend 'dnnl'; choose one of .*; did you mean onednn\?"),
        ({"precisions": ("fp32",)}, r"unknown precision 'fp32'; choose one of .*; did you mean f32\?"),
        ({"directions": ("fwd",)}, r"unknown direction 'fwd'; there are .*; did you mean forward\?"),
        ({"ops": ("conv9",)}, "unknown operation 'conv9'"),
        ({"backends": ("cudnn9",)}, "unknown backend 'cudnn9'"),
        ({"precisions": ("f33",)}, "unknown precision 'f33'"),
        ({"directions": ("sideways",)}, "unknown direction 'sideways'"),
        ({"settings": {"x": ("1",)}}, "unknown setting 'x'"),
        ({"settings": {"beta": ("2",)}}, "beta must be one of 1, 0"),
    ],
)
def test_a_filter_that_names_nothing_is_refused(choices, expected):
    with pytest.raises(BadInput, match=expected):
        planned(["quick"], **choices)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "the first line names no column"),
        (b"m,n,k\n", "no problem in it"),
        (b"m,n\n1,2\n", "for the nearest one, gemm, it lacks k"),
        (b"m,n,k,colour\n1,2,3,red\n", "it has colour, which is unknown there"),
        (b"op,m,n,k,colour\ngemm,1,2,3,red\n", "no operation has the column 'colour'"),
        (b"op,m,n,k,kind\ngemm,1,2,3,relu\n", "gemm has no kind; leave this cell empty"),
        (b"op,m,n,k\ngem,1,2,3\n", "did you mean gemm"),
        (b"op,m,n,k,precision\ngemm,1,2,3,f33\n", "f33"),
        (b"op,m,n,k,count\ngemm,1,2,3,0\n", "count must be a whole number from 1"),
        (b"m,n,k,k\n1,2,3,4\n", "'k' twice"),
        (b"m,n,k\n1,2\n", "line 2: 2 cells, the header has 3"),
        (b"m,n,k\n1,two,3\n", "line 2: n must be a whole number, found 'two'"),
        (b"m,n,k\n1,,3\n", "line 2: n must be a whole number, found nothing"),
        (b"m,n,k\n1,2,3\n4,-5,6\n", "line 3: n must be"),
        (b"m,n,k\n1,2\x00,3\n", "NUL byte"),
        (b"m,n,k\n1,2,\xff\n", "not text in UTF-8"),
        (b'm,n,k\n"1,2,3\n', "line"),
    ],
)
def test_a_bad_csv_gets_one_sentence_with_the_line(tmp_path, content, expected):
    path = tmp_path / "list.csv"
    path.write_bytes(content)

    with pytest.raises(BadInput) as error:
        planned([str(path)])

    assert expected in str(error.value)


def test_rows_may_name_their_operation_precision_count_and_name(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("op,m,n,k,kind,precision,count,name\ngemm,8,9,7,,bf16,3,up\nelementwise,,64,,relu,f32,,act\n")
    found = planned([str(path)], backends=("reference",))

    assert ["gemm m=8 n=9 k=7 a_t=0 b_t=0 forward bf16", "elementwise kind=relu n=64 forward f32"] == [
        p.case.text.partition(" reference")[0] for p in found
    ]
    assert [(3, "up"), (None, "act")] == [(p.sources[0].get("count"), p.sources[0]["label"]) for p in found]


@pytest.mark.parametrize("content", [b"\xef\xbb\xbfm,n,k\r\n1,2,3\r\n", b"m, n ,k\n\n 1,2,3 \n\n"])
def test_byte_order_marks_crlf_spaces_and_empty_lines_are_read(tmp_path, content):
    path = tmp_path / "list.csv"
    path.write_bytes(content)

    (only,) = planned([str(path)], backends=("mkl",))

    assert "m=1 n=2 k=3 a_t=0 b_t=0" == only.case.problem.text


@settings(max_examples=200)
@given(content=st.binary(max_size=200))
def test_any_file_is_a_list_or_one_sentence(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "list.csv"
    path.write_bytes(b"m,n,k\n" + content)
    try:
        read_suite(str(path))
    except BadInput as error:
        assert len(str(error)) < 600


@pytest.mark.parametrize(
    "word", ["nosuch", "deepbench/nosuch", "no/such.csv", "a\0b.csv", "x" * 5000, "x" * 5000 + ".csv", "/dev/zero.csv"]
)
def test_an_unknown_suite_or_file_is_refused(word):
    with pytest.raises(BadInput):
        read_suite(word)


def record(case, status="ok", seconds=1e-3, duration=0.5):
    samples = [seconds] * 8
    measurement = {
        "samples_s": samples,
        "calls_per_sample": 1,
        "cpu_s": samples,
        "involuntary_switches": [0] * 8,
        "steal_s": [0.0] * 8,
    }
    return {
        "case": case.text,
        "status": status,
        "measurement": measurement if status == "ok" else None,
        "process": {"duration_s": duration},
    }


def test_rounds_go_on_until_the_interval_is_narrow():
    (p,) = planned(["gemm m=1 n=1 k=1 mkl"])
    rounds = Rounds(3, 5, 0.03, 100.0)

    assert 1 == next_round([], rounds)
    assert 3 == next_round([record(p.case)] * 2, rounds)
    assert next_round([record(p.case)] * 3, rounds) is None
    apart = [record(p.case, seconds=s) for s in (1e-3, 1.2e-3, 1.4e-3)]
    assert 4 == next_round(apart, rounds)
    assert next_round([record(p.case, seconds=s) for s in (1, 2, 3, 4, 5)], rounds) is None


def test_a_case_that_takes_long_gets_no_more_than_the_least_rounds():
    (p,) = planned(["gemm m=1 n=1 k=1 mkl"])
    apart = [record(p.case, seconds=s, duration=40.0) for s in (1.0, 1.2, 1.4)]

    assert next_round(apart, Rounds(3, 5, 0.03, 100.0)) is None


@pytest.mark.parametrize("status", ["unsupported", "wrong", "crashed", "timeout", "out_of_memory"])
def test_a_case_that_failed_is_finished(status):
    (p,) = planned(["gemm m=1 n=1 k=1 mkl"])

    assert next_round([record(p.case, status)], Rounds(3, 5, 0.03, 100.0)) is None


def test_the_queue_is_what_the_records_lack_and_interrupted_counts_as_lacking():
    found = planned(["quick"])
    rounds = Rounds(2, 2, 0.03, 100.0)
    whole = queue(found, [], rounds, 7)
    half = [record(case) for heat in whole[: len(whole) // 2] for case, _ in heat]
    half.append(record(whole[-1][0][0], "interrupted"))

    rest = queue(found, half, rounds, 7)

    assert sorted(map(texts, whole[len(whole) // 2 :])) == sorted(map(texts, rest))
    assert {1} == {number for heat in rest for _, number in heat}


def test_each_round_has_its_own_random_order():
    found = planned(["quick"])
    rounds = Rounds(2, 2, 0.03, 100.0)
    first = queue(found, [], rounds, 7)
    second = queue(found, [record(case) for heat in first for case, _ in heat], rounds, 7)

    assert sorted(map(texts, first)) == sorted(map(texts, second))
    assert [*map(texts, first)] != [*map(texts, second)]


def test_libraries_of_one_problem_meet_in_a_heat():
    found = planned(["gemm m=1 n=1 k=1 f32", "gemm m=2 n=1 k=1 f32"], backends=("mkl", "onednn"))
    heats = queue(found, [], Rounds(3, 5, 0.03, 100.0), 7)

    assert 2 == len(heats)
    assert all(["mkl", "onednn"] == sorted(case.backend for case, _ in heat) for heat in heats)


def test_rivals_stay_together_while_one_of_them_needs_another_round():
    found = planned(["gemm m=1 n=1 k=1 f32"], backends=("mkl", "onednn", "openblas"))
    sure, wide = (1.0, 1.001, 0.999), (1.0, 1.3, 0.8)
    times = {"mkl": sure, "onednn": wide}
    records = [
        record(p.case, seconds=seconds) for p in found if p.case.backend in times for seconds in times[p.case.backend]
    ]
    failed = next(p.case for p in found if p.case.backend == "openblas")
    records.append(record(failed, "crashed"))

    (heat,) = queue(found, records, Rounds(3, 5, 0.03, 100.0), 7)

    assert [("mkl", 4), ("onednn", 4)] == sorted((case.backend, number) for case, number in heat)


def texts(heat):
    return sorted(case.text for case, _ in heat)


def test_a_header_of_many_columns_is_refused_at_once(tmp_path):
    path = tmp_path / "gemm.csv"
    path.write_text(",".join(f"c{i}" for i in range(50_000)) + "\n1\n")
    begin = time.process_time()
    with pytest.raises(BadInput, match="the header has 50000 columns; a list of problems has at most 1000"):
        read_suite(str(path))

    assert time.process_time() - begin < 2


def test_a_text_of_too_many_lines_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(suites, "MOST_LINES", 3)
    path = tmp_path / "mine.txt"
    path.write_text("gemm m=1 n=1 k=1\n" * 3)
    assert 3 == len(read_suite(str(path)))
    path.write_text("gemm m=1 n=1 k=1\n" * 4)
    with pytest.raises(BadInput, match="has more than 3 lines"):
        read_suite(str(path))


@pytest.mark.parametrize("content", ["\n", "#", "gemm m=1 ", "gemm m=1 n=1 k=1 f32,bf16 "])
def test_a_list_with_more_bytes_than_any_is_refused(tmp_path, content):
    path = tmp_path / "mine.txt"
    path.write_text(content * (suites.MOST_LIST_BYTES // len(content) + 1))

    with pytest.raises(BadInput, match="and at most 2097152 are read; expected a list of problems"):
        read_suite(str(path))


def test_a_problem_that_a_list_has_many_times_is_one_case_with_all_its_rows():
    (entry,) = read_words(["gemm m=2 n=3 k=4 f32 null"])
    source = {"suite": "mine", "application": None, "label": None, "note": None, "needed": True}
    rows = [suites.Entry(entry.pattern, {**source, "row": row}) for row in range(1, 20_001)]
    begin = time.process_time()
    (case,) = expand([*rows, *rows[:100]], Choices(), 1)

    assert list(range(1, 20_001)) == [s["row"] for s in case.sources]
    assert time.process_time() - begin < 5


def test_parts_are_planned_after_each_case_that_has_some():
    words = ["recurrent cell=lstm input_size=8 hidden=8 batch=2 timesteps=3 f32 onednn"]
    found = [p.case.text.split(" threads")[0] for p in planned(words, with_parts=True, threads=(2,))]

    assert [
        "recurrent cell=lstm hidden=8 batch=2 timesteps=3 input_size=8 forward f32 onednn",
        "gemm m=32 n=6 k=8 a_t=0 b_t=0 forward f32 onednn",
        "recurrent cell=lstm hidden=8 batch=2 timesteps=3 forward f32 onednn",
    ] == found
    assert found[:1] == [p.case.text.split(" threads")[0] for p in planned(words, threads=(2,))]


def test_a_part_that_its_library_does_not_serve_is_not_planned():
    """cuDNN has no products of its own."""
    words = ["recurrent cell=lstm input_size=8 hidden=8 batch=2 timesteps=3 f32 cudnn"]

    assert ["recurrent", "recurrent"] == [p.case.op for p in planned(words, with_parts=True)]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("deepbench/train, Optical, f32", "line 1: deepbench/train has no application 'Optical'; there are "),
        ("deepbench/train, OCR, f33", "unknown precision 'f33'"),
        ("deepbench/train, OCR, f32, f16", "wanted a suite, an application and perhaps a precision, found 4 texts"),
    ],
)
def test_an_application_of_another_suite_that_does_not_exist_is_refused(tmp_path, line, sentence):
    (tmp_path / "mine.txt").write_text(line)
    with pytest.raises(BadInput, match=sentence):
        read_suite(str(tmp_path / "mine.txt"))


def test_an_application_of_another_suite_keeps_its_place_there(tmp_path):
    (tmp_path / "mine.txt").write_text("deepbench/server, OCR, i8u8\ngemm m=2 n=3 k=4")
    *ocr, own = read_suite(str(tmp_path / "mine.txt"))

    assert [e for e in read_suite("deepbench/server") if e.source["application"] == "OCR"] == [
        replace(e, precision=None) for e in ocr
    ]
    assert {"i8u8"} == {e.precision for e in ocr}
    assert str(tmp_path / "mine.txt") == own.source["suite"]


def test_a_device_that_the_library_of_a_case_does_not_run_on_is_refused():
    with pytest.raises(BadInput, match=r"--device cuda .* a case names openblas, which runs on cpu"):
        planned(["gemm m=2 n=3 k=4 f32 openblas"], device="cuda")


@pytest.mark.parametrize(("suite", "instead"), [("fleet", "fleet-gpu"), ("selftest", "gpu")])
@pytest.mark.parametrize("device", ["cuda", "hip"])
def test_a_suite_that_cannot_serve_a_device_names_one_that_can(suite, instead, device):
    sentence = f"the suite {suite} cannot serve --device {device}: it names openblas, which runs on cpu; the suite "
    with pytest.raises(BadInput, match=f"^{sentence}{instead} can serve {device}$"):
        planned([suite], device=device)

    on = planned([instead], device=device)
    assert {device} == {p.case.device for p in on}


def test_where_no_suite_can_serve_a_device_none_is_named(monkeypatch):
    monkeypatch.setattr(cases, "suite_files", lambda: {"fleet": []})
    with pytest.raises(BadInput, match="which runs on cpu; choose a suite that names no library"):
        planned(["fleet"], device="cuda")


def test_the_suite_of_fleets_of_gpus_has_the_kinds_of_that_of_cpus():
    kinds = [[entry.pattern.op for entry in read_suite(name)] for name in ("fleet", "fleet-gpu")]

    assert {"gemm", "conv", "memory"} == set(kinds[1])
    assert len(kinds[0]) == len(kinds[1])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("op;m;n;k\ngemm;8;8;8\n", "wanted columns that commas separate, found ';' in the header"),
        ("8,8,8\n4,4,4\n", "the first line names no column of a list of problems: 8, 8, 8"),
    ],
)
def test_a_list_of_problems_without_a_header_or_commas_is_named(tmp_path, text, reason):
    path = tmp_path / "mine.csv"
    path.write_text(text)

    with pytest.raises(BadInput, match=re.escape(reason)):
        planned([str(path)])
