"""Suites of models: their kernels, counts, FLOP, parameters, and what can be chosen."""

import csv
import math
import time
from pathlib import Path

import pytest

from deepbench.core.errors import BadInput
from deepbench.core.op import all_ops
from deepbench.ops.recurrent.problem import GATES
from deepbench.plan import models, suites
from deepbench.plan.cases import Choices, expand, read_chosen
from deepbench.plan.suites import left_out, parameters_of, phases_of, read_suite, suite_files

DATA = Path(__file__).parents[1] / "data"
PUBLISHED = {row["suite"]: row for row in csv.DictReader((DATA / "models.csv").read_text().splitlines())}
MODELS = [name for name in suite_files() if phases_of(name)]

# Phases that together use every parameter once, where that is not the first phase.
WHOLE = {"mlperf/whisper_large_v3": ("encode", "decode"), "mlperf/deepseek_v3_r1": ("prefill",)}
# The others have statistics of batches only in training.
WHOLE |= {name: ("train",) for name in MODELS if name.startswith("vision/")}


def model_of(name):
    return suites._model(suite_files()[name][0])


def rows_of(name, phase, **parameters):
    model = model_of(name)
    return model.rows(phase, {**model.parameters(phase), **parameters})


def forward_flop(row):
    """By the textbook, whether or not an operation exists; attention without its mask."""
    v = {"groups": 1, "t": 1, "d": 1, "input_size": 0, "layers": 1, "bidirectional": 0, **row.values}
    if row.op == "gemm":
        return 2 * v["m"] * v["n"] * v["k"]
    if row.op == "batched_gemm":
        return 2 * v["batch"] * v["m"] * v["n"] * v["k"]
    if row.op == "grouped_gemm":
        return 2 * v["tokens"] * v["m"] * v["k"]
    if row.op == "attention":
        widths = v["head_size"] + v.get("value_size", v["head_size"])
        return 2 * v["batch"] * v["heads"] * v["queries"] * v["keys"] * widths
    if row.op == "recurrent":
        ways = 1 + v["bidirectional"]
        widths = v["hidden"] + v["input_size"] + (v["layers"] - 1) * (v["hidden"] + ways * v["hidden"])
        return 2 * GATES[v["cell"]] * ways * v["hidden"] * widths * v["batch"] * v["timesteps"]
    if row.op == "conv":
        sides = (("h", "r"), ("w", "s"), ("d", "t"))
        outputs = [
            (v[a] + 2 * v.get(f"pad_{a}", 0) - v[filter_size]) // v.get(f"stride_{a}", 1) + 1
            for a, filter_size in sides
        ]
        filters = v["c"] // v["groups"] * v["r"] * v["s"] * v["t"]
        return 2 * v["n"] * v["k"] * filters * math.prod(outputs)
    return 0


def weights_of(row):
    """The parameters of the model that belong to a kernel, over all its calls; biases are not counted."""
    if row.weights is not None or row.is_gradient:
        return row.weights or 0
    v = {"groups": 1, "t": 1, "input_size": 1, "layers": 1, "bidirectional": 0, **row.values}
    per_call = {
        "gemm": lambda: v["m"] * v["k"],
        "grouped_gemm": lambda: v["groups"] * v["m"] * v["k"],
        "conv": lambda: v["k"] * v["c"] // v["groups"] * v["t"] * v["r"] * v["s"],
        "embedding_bag": lambda: v["rows"] * v["dim"],
        "rms_norm": lambda: v["columns"],
        "layer_norm": lambda: 2 * v["columns"],
        "batch_norm": lambda: 2 * v["c"],
        "group_norm": lambda: 2 * v["c"],
        "recurrent": lambda: recurrent_weights(v),
    }
    return row.count * per_call[row.op]() if row.op in per_call else 0


def recurrent_weights(v):
    """The weights of all layers. An input of width 1 stands for none: its products belong to another kernel."""
    output_size = (1 + v["bidirectional"]) * v["hidden"]
    widths = [0 if v["input_size"] == 1 else v["input_size"]] + [output_size] * (v["layers"] - 1)
    return GATES[v["cell"]] * output_size * sum(v["hidden"] + width for width in widths)


@pytest.mark.parametrize("name", [name for name, row in PUBLISHED.items() if row["gflop_forward_per_unit"]])
def test_the_flop_of_a_forward_pass_equal_the_published_ones(name):
    model = model_of(name)
    phase = "inference" if name.startswith("vision/") else model.default_phase
    rows = rows_of(name, phase)

    flop = sum(row.count * forward_flop(row) for row in rows if not row.is_gradient)

    published = float(PUBLISHED[name]["gflop_forward_per_unit"])
    assert published == pytest.approx(flop / model.units(phase, model.parameters(phase)) / 1e9, rel=0.006)


@pytest.mark.parametrize("name", [name for name, row in PUBLISHED.items() if row["parameters"]])
def test_the_parameters_of_the_kernels_add_up_to_the_published_number(name):
    model = model_of(name)
    phases = WHOLE.get(name, (model.default_phase,))

    weights = sum(weights_of(row) for phase in phases for row in rows_of(name, phase))
    names = models._Names({**model.sizes, **model.phases[phases[0]]})
    others = names.value_of("other_weights") if "other_weights" in model.sizes else 0

    assert int(PUBLISHED[name]["parameters"]) == weights + others
    assert int(PUBLISHED[name]["parameters"]) == names.value_of("parameters")
    assert 0 <= others <= 0.005 * weights or name in ("llm/gpt2", "vision/deit_s_16")  # biases and positions


def test_there_are_forty_models_with_three_thousand_distinct_problems():
    found = set()
    for name in MODELS:
        for phase in phases_of(name):
            for batch in (1, 8, 64):
                found |= {(e.pattern.op, e.pattern.problem) for e in read_suite(f"{name}:phase={phase},batch={batch}")}

    assert len(MODELS) >= 40
    assert len({name for name in MODELS if name.startswith("mlperf/")}) >= 31
    assert len(found) >= 3000


def test_every_kernel_of_every_model_is_measured_or_says_why_not():
    reasons = set()
    for name in MODELS:
        model = model_of(name)
        for phase in phases_of(name):
            rows = model.rows(phase, model.parameters(phase))
            entries = read_suite(f"{name}:phase={phase}")
            measured = {e.source["row"] for e in entries}
            out = left_out(f"{name}:phase={phase}")
            assert len(rows) == len(measured) + len(out)
            reasons |= {o.reason for o in out}
            for e in entries:
                assert rows[e.source["row"] - 1].count == e.source["count"]
                assert e.pattern.direction in all_ops()[e.pattern.op].directions
    texts = ("there is no operation", "kind must be one of")
    assert not [reason for reason in reasons if not reason.startswith(texts)]


def test_phase_batch_and_context_choose_the_sizes():
    name = "mlperf/llama31_8b:phase=decode,batch=8,context=4096"
    entries = read_suite(name)
    by_label = {e.source["label"]: e for e in entries}

    assert "m=6144 n=8 k=4096 a_t=0 b_t=0" == by_label["queries, keys, values"].pattern.problem.text
    assert "batch=8 heads=32 kv_heads=8 queries=1 keys=4096 head_size=128 mask=causal" == next(
        e.pattern.problem.text for e in entries if e.pattern.op == "attention"
    )
    assert {name} == {e.source["suite"] for e in entries}
    assert {"Llama 3.1 8B, decode, batch 8, context 4096"} == {e.source["application"] for e in entries}
    assert 32 == by_label["queries, keys, values"].source["count"]
    assert {"forward"} == {e.pattern.direction for e in entries}


def test_training_has_gradients_as_products_of_their_own():
    entries = [e for e in read_suite("mlperf/llama31_8b") if e.pattern.op == "gemm"][:3]

    texts = ["m=6144 n=8192 k=4096 a_t=0 b_t=0", "m=4096 n=8192 k=6144 a_t=1 b_t=0", "m=6144 n=4096 k=8192 a_t=0 b_t=1"]
    assert texts == [e.pattern.problem.text for e in entries]
    assert 3 == len({e.source["row"] for e in entries})


def test_the_name_of_a_suite_with_its_parameters_gives_the_same_rows_again():
    entries = read_suite("mlperf/llama31_405b:phase=decode,batch=8,context=2048,fit=1GiB")

    assert entries == read_suite(entries[0].source["suite"])


def test_set_gives_parameters_to_models_and_the_rest_to_cases():
    settings = {"phase": ("decode",), "batch": ("1", "8"), "cache": ("cold",)}
    entries, choices = read_chosen(["mlperf/llama31_8b", "mlperf/resnet50_v15:phase=inference"], _choices(settings))

    assert {"cache": ("cold",)} == choices.settings
    llama = {e.source["suite"] for e in entries if "llama" in e.source["suite"]}
    assert {"mlperf/llama31_8b:phase=decode", "mlperf/llama31_8b:phase=decode,batch=8"} == llama
    assert {1, 8} == {e.pattern.problem.n for e in entries if e.pattern.op == "conv"}  # its name says the phase


def _choices(settings, **more):
    return Choices(settings=settings, **more)


@pytest.mark.parametrize(
    ("words", "settings", "sentence"),
    [
        (["mlperf/llama31_8b"], {"phase": ("decod",)}, "has no phase 'decod'; it has train, prefill, decode; did you"),
        (
            ["mlperf/llama31_8b"],
            {"batc": ("8",)},
            "unknown parameter or setting 'batc'; parameters of these suites are",
        ),
        (["mlperf/llama31_8b"], {"batch": ("0",)}, "batch must be a whole number from 1 to 2147483647, found '0'"),
        (["mlperf/llama31_8b"], {"batch": ("x",)}, "batch must be a whole number"),
        (
            ["mlperf/llama31_8b"],
            {"phase": ("decode",), "ranks": ("2",)},
            "has no parameter 'ranks' in the phase decode",
        ),
        (["mlperf/llama31_8b:batch=2,batch=3"], {}, "wanted parameters such as"),
        (["mlperf/llama31_8b:batch"], {}, "unknown suite, operation or file"),
        (["llm/decode:hidden=2"], {}, "llm/decode has no parameter 'hidden'; it has fit, phase"),
        (["deepbench/train:batch=2"], {}, "deepbench/train has no parameter 'batch'; it has fit"),
    ],
)
def test_wrong_parameters_are_named_with_the_known_ones(words, settings, sentence):
    with pytest.raises(BadInput) as raised:
        read_chosen(words, _choices(settings))

    assert sentence in str(raised.value)


def test_suites_of_chosen_models_pass_parameters_on():
    entries, _ = read_chosen(["llm/decode"], _choices({"batch": ("2",)}))

    assert {2} == {e.pattern.problem.n for e in entries if e.pattern.op == "gemm"}
    assert len({e.source["application"] for e in entries}) >= 5
    assert "context" in parameters_of("llm/prefill")


@pytest.mark.parametrize("word", ["speech", "speech/", "deepbench", "vision"])
def test_the_name_of_a_folder_stands_for_all_suites_in_it(word):
    names = [name for name in suite_files() if name.startswith(f"{word.rstrip('/')}/")]

    entries, _ = read_chosen([word], _choices({}))

    assert [e for name in names for e in read_suite(name)] == entries


def test_the_suites_in_a_folder_have_the_parameters_of_a_phase():
    entries, choices = read_chosen(["mlperf"], _choices({"phase": ("decode",), "batch": ("3",)}))
    named, _ = read_chosen(["mlperf:phase=decode,batch=3"], _choices({}))
    decoding = [name for name in suite_files() if name.startswith("mlperf/") and "decode" in phases_of(name)]

    assert [] == list(choices.settings)  # all are parameters
    assert entries == named == [e for name in decoding for e in read_suite(f"{name}:phase=decode,batch=3")]
    assert len(decoding) > 5
    # Lists of chosen models say their phase themselves, and stay where none is chosen.
    language, _ = read_chosen(["llm"], _choices({"batch": ("2",)}))
    assert all(e in language for e in read_suite("llm/decode:batch=2"))
    assert "train" not in {name.partition("phase=")[2][:5] for name in {e.source["suite"] for e in entries}}


@pytest.mark.parametrize(
    ("words", "settings", "sentence"),
    [
        (["mlperf"], {"phase": ("decod",)}, "no suite in mlperf has the phase 'decod'; they have train, inference"),
        (["vision:batsh=2"], {}, "no suite in vision has the parameter 'batsh'; they have fit, phase, batch"),
        (["vision"], {"batch": ("x",)}, "batch must be a whole number"),
        (["visoin"], {}, "did you mean vision?"),
        (["architectures"], {}, "unknown suite, operation or file 'architectures'"),
        (["other"], {}, "unknown suite, operation or file 'other'"),
    ],
)
def test_wrong_words_about_a_folder_of_suites_are_named(words, settings, sentence):
    with pytest.raises(BadInput) as raised:
        read_chosen(words, _choices(settings))

    assert sentence in str(raised.value)


def test_a_problem_that_two_models_share_is_measured_once_for_both():
    entries, choices = read_chosen(["llm/llama2_7b", "llm/llama31_70b"], _choices({}, backends=("null",)))
    twice, _ = read_chosen(["llm/qwen3_8b", "llm/qwen3_8b:phase=prefill,context=2048"], _choices({}))

    assert len(expand(twice, choices, 1)) == len(expand(twice[: len(twice) // 2], choices, 1))
    assert entries


MINE = """
title = "Mine"
[sizes]
hidden = 64
[phases.inference]
batch = 2
tokens = "batch*16"
[kernels]
all = '''
gemm m=4*hidden n=tokens k=hidden count=3 # up
gemm m=hidden n=tokens k=hidden count=0
dance steps=4
'''
"""


def test_a_model_may_be_a_file_of_the_user(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE)

    (entry,) = read_suite(f"{path}:batch=4")

    assert "m=256 n=64 k=64 a_t=0 b_t=0" == entry.pattern.problem.text
    assert ("up", 3) == (entry.source["label"], entry.source["count"])
    assert ["there is no operation dance"] == [o.reason for o in left_out(str(path))]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("title", "titel", "mine.toml has an unknown key 'titel'"),
        ('title = "Mine"', "", "mine.toml has no title"),
        ("[sizes]", "[sizes", "mine.toml is not valid TOML"),
        ("hidden = 64", "hidden = 1.5", "hidden must be a whole number"),
        ("n=tokens k=hidden count=3", "n=tokens k=width count=3", "k must be a whole number from 1 to 2147483647"),
        ('"batch*16"', '"batch*length"', "'length' is neither a size nor a parameter"),
        ('"batch*16"', '"2*tokens"', "'tokens' depends on itself"),
        ("# up", "twice # up", "wanted NAME=EXPRESSION, a direction or a precision, found 'twice'"),
        ("[phases.inference]\nbatch = 2", "[phases]\ninference = 3", "mine.toml: the phase inference must be a table"),
        ("count=3", "count=3/0", "divides by 0"),
        ("count=3", "count=2000000000", "count must be at most 1000000000"),
        ("[phases.inference]", '[phases."a,b"]', "wants phases with plain names"),
        ('"batch*16"', '"a0"\n' + "\n".join(f"a{i} = 'a{i + 1}*1'" for i in range(500)), "a chain of more than 20"),
        ('title = "Mine"', 'title = "Mine"\narchitecture = "../quick"', "unknown architecture '../quick'; there are"),
        ('title = "Mine"', 'title = "Mine"\nsuites = ["mine"]', "which is no model of this version"),
        ("[kernels]", "[requires]\n'batch must be 1' = 'batch-1'\n[kernels]", "Mine: batch must be 1; found batch=2"),
        ("[kernels]", "[requires]\n'batch must be 1' = 'x-1'\n[kernels]", "'x' is neither a size nor a parameter"),
        ("[kernels]", "[requires]\n'batch must be 1' = 1\n[kernels]", "mine.toml: batch must be 1 must be a text"),
        ('title = "Mine"', 'title = "Mine"\nrequires = 1', "mine.toml: requires must be a table"),
    ],
)
def test_a_wrong_model_file_is_refused_in_a_sentence(tmp_path, old, new, sentence):
    path = tmp_path / "mine.toml"
    path.write_text(MINE.replace(old, new, 1))

    with pytest.raises(BadInput) as raised:
        entries = read_suite(str(path))
        raise BadInput(left_out(str(path))[0].reason if not entries else "nothing is wrong")

    assert sentence in str(raised.value)


def texts_of(name):
    return {e.pattern.op: e.pattern.problem.text for e in reversed(read_suite(name))}


def test_devices_divide_the_batch_and_are_the_ranks():
    four = read_suite("mlperf/resnet50_v15:phase=train,devices=4")
    of_16 = read_suite("mlperf/resnet50_v15:phase=train,batch=16,ranks=4")

    assert [(e.pattern, e.source["count"]) for e in of_16] == [(e.pattern, e.source["count"]) for e in four]
    assert {"mlperf/resnet50_v15:phase=train,batch=64,devices=4"} == {e.source["suite"] for e in four}
    assert {"ResNet-50 v1.5, train, batch 64, on one of 4 devices"} == {e.source["application"] for e in four}
    assert texts_of("mlperf/resnet50_v15:phase=train")["optimizer"] == texts_of(four[0].source["suite"])["optimizer"]


def test_one_device_has_the_whole_batch_and_no_all_reduce():
    one = [e.pattern for e in read_suite("mlperf/resnet50_v15:phase=train,devices=1")]
    listed = [e.pattern for e in read_suite("mlperf/resnet50_v15:phase=train")]

    assert [p for p in listed if p.op != "all_reduce"] == one
    assert len(one) < len(listed)


def test_the_units_of_a_step_are_those_of_all_devices():
    model = model_of("mlperf/resnet50_v15")

    assert 64 == model.units(*model.chosen({"phase": "train", "devices": "8"}))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "mlperf/resnet50_v15:phase=train,devices=3",
            "must divide the batch of 64; 1, 2, 4, 8, 16, 32, 64 do, found 3",
        ),
        ("mlperf/resnet50_v15:phase=train,devices=2,ranks=2", "leave out ranks=2"),
        ("mlperf/resnet50_v15:phase=train,devices=0", "devices must be a whole number from 1"),
        ("mlperf/resnet50_v15:phase=inference,devices=2", "no parameter 'devices' in the phase inference"),
        ("mlperf/dlrm_dcnv2:phase=train,devices=2", "it has all_to_all and all_reduce (DLRM-DCNv2)"),
        ("mlperf/rgat:phase=train,devices=2", "it has none (R-GAT)"),
    ],
)
def test_devices_that_make_no_sense_are_refused(name, sentence):
    with pytest.raises(BadInput) as found:
        read_suite(name)

    assert sentence in str(found.value)


# ---- models that are divided over devices


def products_of(name, **parameters):
    """FLOP of the products and of attention on one device, by whether experts compute them.

    The router and the compression of latent attention are left out: every device has them.
    """
    found = {True: 0, False: 0}
    for row in rows_of(name, "decode", **parameters):
        if row.where != "router" and not row.where.startswith("compressed "):
            found["experts" in row.where and "shared" not in row.where] += row.count * forward_flop(row)
    return found


@pytest.mark.parametrize("name", ["llm/llama31_70b", "llm/qwen3_30b_a3b", "mlperf/deepseek_v3_r1"])
def test_devices_of_a_group_share_the_work(name):
    whole = products_of(name, batch=8)
    of_experts = {"expert": 2, "expert_tensor": 2} if whole[True] else {}

    device = products_of(name, batch=8, tensor=4, **of_experts)

    assert whole == {experts: 4 * flop for experts, flop in device.items()}
    assert whole[False] > 0


@pytest.mark.parametrize("name", ["llm/qwen3_30b_a3b", "llm/deepseek_v2_lite"])
@pytest.mark.parametrize("divided", [{"expert": 4}, {"expert_tensor": 4}, {"expert": 2, "expert_tensor": 2}])
def test_groups_have_their_own_batch_and_share_the_experts(name, divided):
    alone = products_of(name, batch=16)

    device = products_of(name, batch=16, data=4, **divided)

    assert alone == device  # four times the tokens, on four devices
    model = model_of(name)
    assert 64 == model.units(*model.chosen({"phase": "decode", "batch": "16", "data": "4", "expert": "4"}))


def collectives_of(name, **parameters):
    rows = [row for row in rows_of(name, "decode", **parameters) if "ranks" in row.values]
    return [(row.op, row.values["n"], row.values["ranks"], row.count, row.where) for row in rows]


def test_devices_exchange_what_they_have_computed_in_parts():
    experts = {"batch": 2, "tensor": 2, "data": 4, "expert": 8}

    assert [] == collectives_of("llm/llama31_70b", data=4)
    assert [
        ("all_reduce", 8 * 8192, 4, 1, "embedding"),
        ("all_reduce", 8 * 8192, 4, 80, "attention output"),
        ("all_reduce", 8 * 8192, 4, 80, "feed-forward"),
        ("all_gather", 8 * 128256, 4, 1, "logits"),
    ] == collectives_of("llm/llama31_70b", batch=8, tensor=4)
    assert [
        ("all_reduce", 2 * 7168, 2, 1, "embedding"),
        ("all_reduce", 2 * 7168, 2, 61, "attention output"),
        ("all_gather", 4 * 2 * 7168, 4, 58, "tokens of all groups"),
        ("reduce_scatter", 4 * 2 * 7168, 4, 58, "results of the experts"),
        ("all_reduce", 2 * 7168, 2, 61, "feed-forward"),
        ("all_gather", 2 * 129280, 2, 1, "logits"),
    ] == collectives_of("mlperf/deepseek_v3_r1", **experts)
    assert [row.op for row in rows_of("mlperf/gpt_oss_120b", "decode", **experts)].count("all_gather") == 2


def test_devices_have_copies_of_few_heads_of_keys_and_at_least_one_row_for_their_experts():
    texts = {e.pattern.op: e.pattern.problem for e in read_suite("llm/qwen3_30b_a3b:phase=decode,tensor=16,expert=16")}

    assert (2, 1) == (texts["attention"].heads, texts["attention"].kv_heads)
    assert (8, 1) == (texts["grouped_gemm"].groups, texts["grouped_gemm"].tokens)
    assert not left_out("llm/qwen3_30b_a3b:phase=decode,tensor=16,expert=16")


@pytest.mark.parametrize("name", ["glm5", "kimi_k25", "minimax_m25", "qwen3_235b_a22b", "qwen35_397b_a17b"])
def test_every_listed_kernel_of_one_of_eight_devices_is_measured(name):
    for phase in ("prefill", "decode"):
        assert not left_out(f"llm/{name}:phase={phase},batch=4,tensor=2,data=4,expert=4,expert_tensor=2")


def test_a_query_sees_no_more_keys_than_its_indexer_chooses():
    def keys(context):
        return texts_of(f"llm/glm5:phase=decode,context={context}")["attention"].split()[4]

    assert ["keys=1", "keys=2047", "keys=2048", "keys=2048", "keys=2048"] == [*map(keys, (1, 2047, 2048, 2049, 10**6))]
    assert "window=2048" in texts_of("llm/glm5:phase=prefill,context=4096")["attention"]
    assert "window" not in texts_of("llm/glm5:phase=prefill,context=2048")["attention"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "llm/qwen35_397b_a17b:phase=decode,tensor=32,expert=32",
            "tensor must divide linear_keys; found linear_keys=16",
        ),
        ("llm/llama31_70b:phase=decode,tensor=3", "Llama 3.1 70B: tensor must divide heads; found heads=64, tensor=3"),
        ("llm/qwen3_30b_a3b:phase=decode,tensor=8", "expert*expert_tensor must equal tensor*data"),
        ("llm/qwen3_30b_a3b:phase=decode,expert=3,data=3", "expert must divide experts; found expert=3, experts=128"),
        ("mlperf/deepseek_v3_r1:phase=decode,expert_tensor=3,data=3", "expert_tensor must divide expert_ffn"),
        ("llm/llama31_70b:phase=prefill,expert=2", "expert and expert_tensor must be 1 without experts"),
        ("llm/llama31_70b:phase=train,tensor=2", "has no parameter 'tensor' in the phase train"),
    ],
)
def test_devices_that_cannot_share_a_model_are_refused(name, sentence):
    with pytest.raises(BadInput) as found:
        read_suite(name)

    assert sentence in str(found.value)


# ---- files that do more harm than they are long


def listed(folder, depth):
    """A list of lists of lists …, each with ten references; the path of the outermost."""
    path = folder / "l0.toml"
    path.write_text(f"suites = {['quick'] * 10}")
    for level in range(1, depth):
        before, path = path, folder / f"l{level}.toml"
        path.write_text(f"suites = {[str(before)] * 10}")
    return path


def test_a_list_of_lists_is_refused_without_reading_all_of_them(tmp_path):
    path = listed(tmp_path, 8)  # ten million references
    begin = time.process_time()
    for ask in (parameters_of, read_suite, left_out):
        with pytest.raises(BadInput, match=r"l7\.toml lists '.*', which is no model of this version"):
            ask(str(path))

    assert time.process_time() - begin < 2


def test_lists_that_name_each_other_are_refused(tmp_path):
    for name, other in ("ab", "ba"):
        (tmp_path / f"{name}.toml").write_text(f'suites = ["{tmp_path / other}.toml"]')

    with pytest.raises(BadInput, match=r"a\.toml lists '.*', which is no model of this version"):
        parameters_of(str(tmp_path / "a.toml"))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("[phases.inference]\nbatch = 2\n", "", "mine.toml has no phases; a model wants a title, phases and kernels"),
        ("hidden = 64", "hidden = 0x" + "f" * 4000, "mine.toml has a whole number of 16000 bits"),
        ("batch = 2", "batch = " + "9" * 5000, "mine.toml is not valid TOML: a number has thousands of digits"),
        ("hidden = 64", "\n".join(f"a{i} = 1" for i in range(1001)), "mine.toml has 1001 sizes in one table"),
        ("[kernels]", "".join(f"[phases.p{i}]\n" for i in range(101)) + "[kernels]", "mine.toml has 102 phases"),
        ("gemm m=4", "gemm m=1\n" * 2000 + "gemm m=4", "mine.toml has 2003 kernels; a model has at most 2000"),
        ("count=3", "a=1 " * 101, "a kernel has at most 100 words, found more after gemm"),
        ('"Mine"', f'"{"M" * 1001}"', "has 1001 characters; a name has at most 1000"),
        ("all = '''", "train = 3\nall = '''", "mine.toml: train must be a text"),
        ('title = "Mine"', f"suites = {['quick'] * 201}", "mine.toml lists 201 suites; at most 200 are read"),
    ],
)
def test_a_model_file_of_absurd_parts_is_refused_at_once(tmp_path, old, new, sentence):
    path = tmp_path / "mine.toml"
    path.write_text(MINE.replace(old, new, 1))
    begin = time.process_time()
    with pytest.raises(BadInput) as raised:
        read_suite(str(path))

    assert sentence in str(raised.value)
    assert len(str(raised.value)) < 300
    assert time.process_time() - begin < 2


def test_a_model_without_phases_is_refused_also_with_an_architecture(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('title = "Mine"\narchitecture = "decoder"\n')

    with pytest.raises(BadInput, match="wants phases with plain names"):
        read_suite(str(path))


@pytest.mark.parametrize("op", ["gemm", "batched_gemm", "grouped_gemm"])
def test_a_product_that_lacks_a_size_is_left_out_with_its_gradients(tmp_path, op):
    path = tmp_path / "mine.toml"
    kernel = f"{op} n=3 forward backward_data backward_weights"
    path.write_text(f'title = "Mine"\n[phases.train]\nbatch = 1\n[kernels]\nall = "{kernel}"')

    assert [] == read_suite(str(path))
    (only,) = left_out(str(path))
    assert f"{op} needs " in only.reason or "has no field" in only.reason


def test_a_model_larger_than_any_is_refused(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("#" * (models.MOST_MODEL_BYTES + 1))

    with pytest.raises(BadInput, match="has 1048577 bytes, and at most 1048576 are read; expected a model"):
        read_suite(str(path))


def test_sizes_in_capitals_are_names(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE.replace("hidden", "H").replace("tokens", "T_max"))

    (entry,) = read_suite(f"{path}:batch=4")
    assert "m=256 n=64 k=64 a_t=0 b_t=0" == entry.pattern.problem.text


# Of these models a step changes or exchanges other numbers than all parameters: dense layers only, adapters only.
OTHER_PARAMETERS = {"mlperf/dlrm_dcnv2": 16044545, "mlperf/llama2_70b_lora": 44564480}


@pytest.mark.parametrize("name", [name for name in MODELS if "train" in phases_of(name) and name != "mlperf/rgat"])
def test_a_training_step_changes_and_exchanges_every_parameter(name):
    """An optimizer that changes those of another network would be found here, and a step without one."""
    model = model_of(name)
    phase, values = model.chosen({"phase": "train"})
    rows = model.rows(phase, values)
    numbers = {
        op: sum(row.count * row.values["n"] for row in rows if row.op in ops)
        for op, ops in {"optimizer": ("optimizer",), "exchange": ("all_reduce", "reduce_scatter")}.items()
    }
    parameters = OTHER_PARAMETERS.get(name, model.weights(phase, values))
    is_divided = name == "mlperf/deepseek_v3_r1"  # each device has its own experts
    experts = 58 * 256 * 3 * 7168 * 2048 * is_divided

    assert numbers == pytest.approx({"optimizer": parameters, "exchange": parameters - experts}, rel=1e-6)


# What has the size of the network, whatever the batch.
OF_THE_NETWORK = ("optimizer", "all_reduce", "all_gather", "reduce_scatter")


def test_every_size_but_those_of_the_network_grows_with_the_batch():
    for name in MODELS:
        model = model_of(name)
        for phase in model.phases:
            own = model.parameters(phase)
            once, twice = (model.rows(phase, {**own, "batch": factor * own["batch"]}) for factor in (1, 2))
            fixed = [a.op for a, b in zip(once, twice, strict=True) if a.values == b.values]
            assert not set(fixed) - set(OF_THE_NETWORK), f"{name}, {phase}"


def calls_of(name, op):
    """(size, count) of each row of a collective."""
    return [(e.pattern.problem.n, e.source["count"]) for e in read_suite(name) if e.pattern.op == op]


def test_tokens_and_rows_go_to_other_devices_and_back_in_both_directions():
    of_deepseek = calls_of("mlperf/deepseek_v3_r1:phase=train", "all_to_all")
    of_dlrm = calls_of("mlperf/dlrm_dcnv2:phase=train,batch=16384", "all_to_all")

    assert [(4096 * 8 * 7168, 4 * 58)] == of_deepseek
    assert [(16384 * 26 * 128, 2), (16384 * 214, 1)] == of_dlrm
    for ranks in (3, 7):  # parts are equal
        assert [4 * 24] == [count for _, count in calls_of(f"mlperf/gpt_oss_20b:ranks={ranks}", "all_to_all")]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("mlperf/llama31_405b:phase=train", 402699272192),
        ("mlperf/llama31_405b:phase=prefill", 405853388800),
        ("mlperf/llama31_405b:phase=decode", 405853388800),
        ("mlperf/deepseek_v3_r1:phase=train", 671026419200 - 2 * 1024 * 7168),
        ("mlperf/deepseek_v3_r1:phase=decode", 671026419200),
    ],
)
def test_a_network_with_another_vocabulary_in_training_has_other_parameters(name, parameters):
    assert parameters == suites.pass_of(name).weights


def kernels(name):
    """(operation, kind or nothing) → how often a pass calls it, forward."""
    found = {}
    for e in read_suite(name):
        if e.pattern.direction == "forward":
            key = (e.pattern.op, getattr(e.pattern.problem, "kind", None))
            found[key] = found.get(key, 0) + e.source["count"]
    return found


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("mlperf/transformer_big:phase=decode", {("attention", None): 12, ("layer_norm", None): 19}),
        ("mlperf/transformer_big:phase=decode", {("elementwise", "relu"): 6, ("embedding_bag", None): 1}),
        ("mlperf/whisper_large_v3:phase=decode", {("elementwise", "gelu"): 32}),
        ("mlperf/whisper_large_v3:phase=encode", {("elementwise", "gelu"): 34}),
        ("mlperf/deepseek_v3_r1:phase=decode", {("elementwise", "swiglu"): 119, ("rope", None): 61}),
        ("mlperf/flux1_schnell:phase=train", {("elementwise", "gelu_tanh"): 76, ("rope", None): 57}),
        ("mlperf/sdxl", {("elementwise", "geglu"): 70}),
        ("mlperf/stable_diffusion_v2:phase=train", {("elementwise", "geglu"): 16}),
        ("mlperf/wan22_a14b", {("elementwise", "gelu_tanh"): 40, ("rope", None): 40}),
        ("mlperf/gptj_6b:phase=decode", {("elementwise", "gelu_tanh"): 28, ("rope", None): 28}),
        ("mlperf/gpt3_175b:phase=train", {("elementwise", "gelu_tanh"): 96}),
        ("mlperf/bert_large:phase=train", {("elementwise", "gelu_tanh"): 24}),
        ("mlperf/bert_large:phase=inference", {("elementwise", "gelu"): 24}),
        ("mlperf/gnmt:phase=inference", {("embedding_bag", None): 51}),
        ("mlperf/rnnt:phase=inference", {("embedding_bag", None): 64}),
    ],
)
def test_a_pass_has_what_the_network_computes(name, wanted):
    assert wanted == {kernel: count for kernel, count in kernels(name).items() if kernel in wanted}


def test_the_positions_of_gptj_turn_a_quarter_of_each_head():
    (rope,) = [e for e in read_suite("mlperf/gptj_6b:phase=prefill") if e.pattern.op == "rope"]

    assert ("tokens=1919 heads=32 dim=64", {"pairs": "interleaved"}) == (rope.pattern.problem.text, rope.stated)


def test_frozen_weights_have_no_gradient():
    training = read_suite("mlperf/llama2_70b_lora:phase=train")

    assert ["forward"] == [e.pattern.direction for e in training if e.pattern.op == "embedding_bag"]


@pytest.mark.parametrize(
    ("name", "unit", "units"),
    [
        ("mlperf/minigo_19x19:phase=inference", "position 19x19", 1),
        ("mlperf/sdxl:phase=inference", "latent 128x128", 2),
        ("mlperf/whisper_large_v3:phase=encode", "30 s clip", 1),
        ("mlperf/whisper_large_v3:phase=decode", "token", 1),
    ],
)
def test_the_unit_is_what_the_pass_processes(name, unit, units):
    assert (unit, units) == (suites.pass_of(name).unit, suites.pass_of(name).units)


def settings_of(words, precision="bf16", **settings):
    """The settings of all products."""
    chosen = _choices(settings, ops=("gemm",), precisions=(precision,), backends=("reference",))
    entries, choices = read_chosen([words], chosen)
    return {p.case.overrides for p in expand(entries, choices, 1)}


def test_networks_overwrite_the_results_of_products_and_store_them_in_the_type_of_the_data():
    overwritten, narrow = ("beta", "0"), ("result", "narrow")

    assert {(overwritten, narrow)} == settings_of("llm/llama32_1b:phase=train")
    assert {(overwritten, narrow)} == settings_of("llm/decode")
    assert {(overwritten,)} == settings_of("llm/llama32_1b", "f32") == settings_of("sparse/mobilenet_v1", "f32")
    assert {(overwritten,)} == settings_of("llm/llama32_1b", result=("wide",))  # a choice goes before
    assert {(narrow,)} == settings_of("llm/llama32_1b", beta=("1",))
    assert {()} == settings_of("deepbench/train")


def test_a_line_says_how_its_product_runs_and_a_trace_says_all(tmp_path):
    path, trace = tmp_path / "mine.toml", tmp_path / "trace.toml"
    path.write_text(MINE.replace("k=hidden count=3", "k=hidden beta=1 count=3"))
    trace.write_text(f"{MINE}[trace]\nviews = 0\n")

    assert {(("result", "narrow"),)} == settings_of(str(path))
    assert {()} == settings_of(str(trace))
