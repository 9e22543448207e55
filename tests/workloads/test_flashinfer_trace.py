"""Workloads of others: what they are here, what is refused, and files that nobody should trust."""

import json
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepbench.core.case import Case
from deepbench.core.errors import BadInput
from deepbench.core.op import find_op
from deepbench.core.precision import find_precision
from deepbench.plan.cases import Choices, expand, read_chosen
from deepbench.plan.suites import coverage, read_suite
from deepbench.workloads import flashinfer_trace

F16, BF16, F32, S32 = "float16", "bfloat16", "float32", "int32"


# References of each kind, of two arrays at most.
REFERENCES = {
    "gemm": "return torch.matmul({0}, {1})",
    "grouped_gemm": "return torch.bmm({0}, {1})",
    "rmsnorm": "v = {0}.float().pow(2).mean(-1, keepdim=True)\n    return {0} * torch.rsqrt(v + 1e-6) * {1}",
    "layer_norm": "return F.layer_norm({0}, (256,), {1}, {2}, 1e-5)",
    "softmax": "return torch.softmax({0}, dim=-1)",
    "silu_and_mul": "return torch.nn.functional.silu({0}) * {1}",
    "gqa_paged": "return torch.softmax(torch.einsum('qhd,khd->qhk', q, k_cache) * sm_scale, dim=-1) @ v_cache",
    "gqa_ragged": "return torch.softmax(torch.einsum('qhd,khd->qhk', q, k) * sm_scale, dim=-1) @ v",
}


def reference(op_type, inputs):
    names = [*inputs, "_", "_"]
    return f"import torch\n\ndef run({', '.join(inputs)}):\n    {REFERENCES.get(op_type, 'return 0').format(*names)}\n"


def definition(name, op_type, axes, inputs, outputs, tags=("model:llama-3.1-8b",)):
    """A definition as FlashInfer-Trace writes it; an axis without a value varies, an axis of a text is computed."""
    kinds = {int: ("const", "value"), str: ("expr", "expression")}
    described = {
        axis: {"type": "var"}
        if value is None
        else dict(zip(("type", kinds[type(value)][1]), (kinds[type(value)][0], value), strict=True))
        for axis, value in axes.items()
    }
    tensors = [
        {
            n: {"shape": shape.split() if shape is not None else None, "dtype": dtype}
            for n, (shape, dtype) in group.items()
        }
        for group in (inputs, outputs)
    ]
    made = {"name": name, "tags": list(tags), "axes": described, "inputs": tensors[0], "outputs": tensors[1]}
    return {**made, **({"op_type": op_type} if op_type is not None else {}), "reference": reference(op_type, inputs)}


def gemm(dtype=F16, second="N K", result=None, name="gemm_n96_k64", **changes):
    inputs = {"A": ("M K", dtype), "B": (second, dtype)}
    axes = {"M": None, "N": 96, "K": 64}
    return {**definition(name, "gemm", axes, inputs, {"C": ("M N", result or dtype)}), **changes}


def norm(inputs=("weight",), dtype=BF16, op_type="rmsnorm", name="rmsnorm_h256", **changes):
    tensors = {"hidden_states": ("batch_size hidden_size", dtype)}
    tensors |= {n: ("batch_size hidden_size" if n == "residual" else "hidden_size", dtype) for n in inputs}
    axes = {"batch_size": None, "hidden_size": 256}
    return {**definition(name, op_type, axes, tensors, {"output": ("batch_size hidden_size", dtype)}), **changes}


def paged(decode=True, page=1, heads=32, kv_heads=8, **changes):
    name = f"gqa_paged_{'decode' if decode else 'prefill_causal'}_h{heads}_kv{kv_heads}_d128_ps{page}"
    tokens = "batch_size" if decode else "total_q"
    axes = {tokens: None, "heads": heads, "kv_heads": kv_heads, "size": 128, "page": page}
    axes |= {"num_pages": None, "len_indptr": None, "num_kv_indices": None}
    inputs = {"q": (f"{tokens} heads size", BF16)}
    inputs |= dict.fromkeys(("k_cache", "v_cache"), ("num_pages page kv_heads size", BF16))
    inputs |= dict.fromkeys(("kv_indptr",) if decode else ("qo_indptr", "kv_indptr"), ("len_indptr", S32))
    inputs |= {"kv_indices": ("num_kv_indices", S32), "sm_scale": (None, F32)}
    outputs = {"output": (f"{tokens} heads size", BF16), "lse": (f"{tokens} heads", F32)}
    tags = ("stage:decode" if decode else "stage:prefill", "model:llama-3.1-8b")
    return {**definition(name, "gqa_paged", axes, inputs, outputs, tags), **changes}


def ragged(size=128, values=128, **changes):
    axes = {"total_q": None, "total_kv": None, "len_indptr": None, "heads": 4, "kv_heads": 2, "size": size}
    axes["values"] = values
    inputs = {"q": ("total_q heads size", BF16), "k": ("total_kv kv_heads size", BF16)}
    inputs |= {"v": ("total_kv kv_heads values", BF16), "qo_indptr": ("len_indptr", S32)}
    inputs |= {"kv_indptr": ("len_indptr", S32), "sm_scale": (None, F32)}
    outputs = {"output": ("total_q heads values", BF16), "lse": ("total_q heads", F32)}
    return {**definition("gqa_ragged_prefill_causal_h4_kv2", "gqa_ragged", axes, inputs, outputs), **changes}


def workload(axes, name=None, scalars=None, kind="random"):
    inputs = {"q": {"type": kind}} | {n: {"type": "scalar", "value": v} for n, v in (scalars or {}).items()}
    made = {"uuid": "1", "axes": axes, "inputs": inputs}
    return made if name is None else {"definition": name, "workload": made, "solution": None, "evaluation": None}


def write(folder, table, *lines):
    """One definition and its workloads, as SOL-ExecBench has them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "definition.json").write_text(table if isinstance(table, str) else json.dumps(table))
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "workload.jsonl").write_text("\n".join(texts))
    return str(folder)


def the_kernel(folder, table, *lines):
    (kernel,) = coverage(write(folder, table, *lines))
    return kernel


def the_case(folder, table, axes, **rest):
    """The only workload as a case, and the note of its source."""
    (entry,) = read_suite(write(folder, table, workload(axes, **rest)))
    p = entry.pattern
    case = Case(p.op, p.problem, "forward", find_precision(entry.precision), "reference", 1, p.settings)
    return case, entry.source["note"]


def why(folder, table, axes, **rest):
    """The reason why the only workload is no case."""
    kernel = the_kernel(folder, table, workload(axes, **rest))
    assert not kernel.problems
    (reason,) = kernel.reasons
    return reason


# ---- matches


def test_a_folder_of_flashinfer_trace_is_a_suite_that_names_definition_model_and_stage(tmp_path):
    for kind, name, table, axes in (
        ("gemm", "gemm_n96_k64", gemm(tags=["model:deepseek-v3", "model:deepseek-r1"]), {"M": 7}),
        (
            "gqa_paged",
            paged()["name"],
            paged(),
            {"batch_size": 1, "num_pages": 99, "len_indptr": 2, "num_kv_indices": 73},
        ),
    ):
        for folder in ("definitions", "workloads"):
            (tmp_path / folder / kind).mkdir(parents=True)
        (tmp_path / "definitions" / kind / f"{name}.json").write_text(json.dumps(table))
        (tmp_path / "workloads" / kind / f"{name}.jsonl").write_text(json.dumps(workload(axes, name)) + "\n")

    product, again, attention = read_suite(str(tmp_path))

    assert "m=96 n=7 k=64 a_t=1 b_t=0" == product.pattern.problem.text
    assert ((("beta", "0"), ("result", "narrow")), "f16") == (product.pattern.settings, product.precision)
    assert ["deepseek-v3", "deepseek-r1", "llama-3.1-8b"] == [
        e.source["application"] for e in (product, again, attention)
    ]
    assert [(str(tmp_path), 1), (str(tmp_path), 1), (str(tmp_path), 2)] == [
        (e.source["suite"], e.source["row"]) for e in (product, again, attention)
    ]
    assert "gqa_paged_decode_h32_kv8_d128_ps1, decode" == attention.source["label"]
    assert (
        "batch=1 heads=32 kv_heads=8 queries=1 keys=73 head_size=128 mask=causal page=1"
        == attention.pattern.problem.text
    )
    assert "bf16" == attention.precision
    for file in ("definitions/gemm/gemm_n96_k64.json", "workloads/gemm/gemm_n96_k64.jsonl"):
        assert 2 == len(read_suite(str(tmp_path / file)))  # each finds the other


@pytest.mark.parametrize(("second", "transposed"), [("N K", True), ("K N", False)])
def test_a_product_multiplies_the_arrays_of_the_definition(tmp_path, second, transposed):
    case, note = the_case(tmp_path, gemm(F32, second), {"M": 5})
    arrays = find_op("gemm").operands(case)

    assert ((5, 64), (96, 64) if transposed else (64, 96)) == (arrays["b"].shape, arrays["a"].shape)  # A and B there
    product = arrays["b"].astype(float) @ (arrays["a"].astype(float).T if transposed else arrays["a"].astype(float))
    assert note is None
    np.testing.assert_allclose(find_op("gemm").reference(case, arrays)["c"], product)


@pytest.mark.parametrize(("second", "transposed"), [("G N K", True), ("G K N", False)])
def test_products_of_equal_size_are_a_batch(tmp_path, second, transposed):
    axes = {"G": None, "M": None, "N": 24, "K": 16}
    table = definition(
        "grouped_gemm_n24_k16", "grouped_gemm", axes, {"A": ("G M K", F32), "B": (second, F32)}, {"C": ("G M N", F32)}
    )
    case, _ = the_case(tmp_path, table, {"G": 3, "M": 5})
    arrays = find_op("batched_gemm").operands(case)

    second_there = arrays["a"].astype(float)
    assert ((3, 5, 16), (3, 24, 16) if transposed else (3, 16, 24)) == (arrays["b"].shape, second_there.shape)
    product = arrays["b"].astype(float) @ (second_there.swapaxes(1, 2) if transposed else second_there)
    np.testing.assert_allclose(find_op("batched_gemm").reference(case, arrays)["c"], product)


@pytest.mark.parametrize(
    ("kinds", "precision", "result"),
    [
        ((F16, F16), "f16", "narrow"),
        ((BF16, F32), "bf16", "wide"),
        ((F32, F32), "f32", None),
        (("int8", S32), "i8", None),
    ],
)
def test_types_are_those_of_the_definition(tmp_path, kinds, precision, result):
    case, _ = the_case(tmp_path, gemm(kinds[0], result=kinds[1]), {"M": 5})

    assert (precision, result) == (case.precision.name, dict(case.overrides).get("result"))


def test_a_precision_that_is_chosen_goes_before_the_definition_and_the_note_says_so(tmp_path):
    folder = write(tmp_path, norm(), workload({"batch_size": 6}))
    planned = {}
    for chosen in ((), ("f32",), ("bf16",)):
        entries, choices = read_chosen([folder], Choices(precisions=chosen, backends=("reference",)))
        (planned[chosen],) = expand(entries, choices, 1)

    assert ["bf16", "f32", "bf16"] == [p.case.precision.name for p in planned.values()]
    assert planned["f32",].sources[0]["note"].endswith("; f32 (bf16 there)")
    assert planned[()].sources[0]["note"].endswith("epsilon 1e-05 (there code has it, which is not read)")
    assert planned[()].sources == planned["bf16",].sources


def test_a_smaller_twin_keeps_the_precision_of_the_definition(tmp_path):
    entries = read_suite(f"{write(tmp_path, gemm(BF16), workload({'M': 2**20}))}:fit=4MiB")

    assert ["bf16"] == [e.precision for e in entries]
    assert entries[0].pattern.problem.n < 2**20


def test_normalizations_softmax_and_functions_have_the_sizes_of_the_definition(tmp_path):
    rms, rms_note = the_case(tmp_path / "a", norm(), {"batch_size": 6})
    layer, _ = the_case(
        tmp_path / "b", norm(("weight", "bias"), F32, "layer_norm", "layer_norm_h256"), {"batch_size": 6}
    )
    axes, shape = {"batch": None, "heads": 4, "keys": 32}, "batch heads keys"
    soft, soft_note = the_case(
        tmp_path / "c",
        definition("softmax_k32", "softmax", axes, {"x": (shape, F32)}, {"y": (shape, F32)}),
        {"batch": 3},
    )
    gate = definition(
        "silu_and_mul", "silu_and_mul", axes, {"a": (shape, BF16), "b": (shape, BF16)}, {"y": (shape, BF16)}
    )
    function, _ = the_case(tmp_path / "d", gate, {"batch": 3})

    assert ["rms_norm rows=6 columns=256", "layer_norm rows=6 columns=256", "softmax rows=12 columns=32"] == [
        f"{case.op} {case.problem.text}" for case in (rms, layer, soft)
    ]
    assert "elementwise kind=swiglu n=384" == f"{function.op} {function.problem.text}"
    assert "scale in f32 (bfloat16 there); epsilon 1e-05 (there code has it, which is not read)" == rms_note
    assert soft_note is None  # its reference says which axis


def test_an_epsilon_and_a_scale_of_scores_that_differ_are_in_the_note(tmp_path):
    table = norm()
    table["inputs"]["eps"] = {"shape": None, "dtype": F32}
    one, two = (
        the_case(tmp_path / f"{eps}", table, {"batch_size": 6}, scalars={"eps": eps})[1] for eps in (1e-5, 1e-6)
    )
    axes = {"batch_size": 1, "num_pages": 9, "len_indptr": 2, "num_kv_indices": 9}
    usual, other = (
        the_case(tmp_path / f"{scale}", paged(), axes, scalars={"sm_scale": scale})[1]
        for scale in (0.0883883461356163, 0.135)  # the first as it was recorded, which is 1/√128
    )

    assert one.endswith("epsilon 1e-05")
    assert two.endswith("epsilon 1e-05 (1e-06 there)")
    assert "scores" not in usual
    assert "scores times 0.08839 (0.135 there)" in other


def test_attention_of_one_sequence_has_the_arrays_of_the_definition(tmp_path):
    prefill, note = the_case(tmp_path / "a", ragged(192, 128), {"total_q": 9, "total_kv": 33, "len_indptr": 2})
    tensors = find_op("attention").tensors(prefill)

    assert [(1, 4, 9, 192), (1, 2, 33, 192), (1, 2, 33, 128), (1, 4, 9, 128)] == [tensors[n].shape for n in "qkvy"]
    assert "causal" == prefill.problem.mask
    assert note.startswith("arrays by head, position (there by position, head); without the logarithm of the sum")
    table = paged(decode=False, page=16)
    table["inputs"]["kv_last_page_len"] = {"shape": ["len_indptr"], "dtype": S32}
    axes = {"total_q": 40, "len_indptr": 2, "num_kv_indices": 5, "num_pages": 70}
    cached, note = the_case(tmp_path / "b", table, axes)

    assert (5, 8, 16, 128) == find_op("attention").tensors(cached)["k"].shape  # the pages in use
    assert (40, 80) == (cached.problem.queries, cached.problem.keys)
    assert "the last page of each sequence is full; there a file says how full" in note


# Sequences and keys as FlashInfer-Trace recorded them.
@pytest.mark.parametrize(("sequences", "keys"), [(16, 1020), (16, 20911), (64, 58582)])
def test_lengths_that_are_not_known_are_drawn_with_the_known_sum(tmp_path, sequences, keys):
    axes = {"batch_size": sequences, "num_pages": 10**6, "len_indptr": sequences + 1, "num_kv_indices": keys}

    case, note = the_case(tmp_path, paged(), axes)

    counts = case.problem.key_counts
    assert (sequences, "spread", 1) == (len(counts), case.problem.lengths, case.problem.queries)
    assert sum(counts) == pytest.approx(keys, rel=0.01)
    drawn = f"{sequences} lengths drawn from {min(counts)} to {max(counts)}, {sum(counts)} keys in all ({keys} there; "
    assert drawn in note


def test_lengths_of_prompts_and_of_pages_are_drawn_too(tmp_path):
    axes = {"total_q": 12845, "total_kv": 12845, "len_indptr": 37}
    prompts, note = the_case(tmp_path / "a", ragged(), axes)
    table = paged(page=64)
    table["inputs"]["kv_last_page_len"] = {"shape": ["batch_size"], "dtype": S32}
    axes = {"batch_size": 8, "num_pages": 900, "len_indptr": 9, "num_kv_indices": 500}
    pages, _ = the_case(tmp_path / "b", table, axes)

    assert prompts.problem.queries == prompts.problem.keys
    assert sum(prompts.problem.key_counts) == pytest.approx(12845, rel=0.01)
    assert note.endswith("FLOP depend on the lengths")
    assert find_op("attention").tensors(pages)["k"].shape[0] == pytest.approx(500, rel=0.01)


def test_axes_may_be_expressions_of_others(tmp_path):
    table = gemm(F32)
    table["axes"]["M"] = {"type": "expr", "expression": "tokens // (2 * heads)"}
    table["axes"] |= {"tokens": {"type": "var"}, "heads": {"type": "const", "value": 2}}

    case, _ = the_case(tmp_path, table, {"tokens": 21})

    assert 5 == case.problem.n


def test_inputs_that_code_makes_are_random_here_and_the_note_says_so(tmp_path):
    _, note = the_case(tmp_path, gemm(), {"M": 5}, kind="custom")

    assert "random inputs (there code makes them, which is not run)" == note


def test_a_definition_without_op_type_begins_with_it(tmp_path):
    table = {key: value for key, value in paged().items() if key != "op_type"}
    axes = {"batch_size": 1, "num_pages": 9, "len_indptr": 2, "num_kv_indices": 9}

    assert "attention" == the_case(tmp_path / "a", table, axes)[0].op
    assert "it has no op_type, and its name does not begin with a known one" == why(
        tmp_path / "b", {**table, "name": "softmax_of_scores"}, axes
    )


def test_a_line_with_a_solution_is_a_result_and_no_workload(tmp_path):
    result = {**workload({"M": 3}, "gemm_n96_k64"), "solution": "fast", "evaluation": {"status": "PASSED"}}

    assert 1 == the_kernel(tmp_path, gemm(), workload({"M": 7}, "gemm_n96_k64"), result).workloads


def test_nothing_in_a_definition_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "open('ran', 'w').close()"
    table = gemm(reference=f"{code}\ndef run(A, B):\n    {code}", custom_inputs_entrypoint="run")
    coverage(write(tmp_path / "b", table, workload({"M": 5})))
    table["constraints"] = ["__import__('os').mkdir('ran')"]
    table["axes"]["K"] = {"type": "expr", "expression": "__import__('os').mkdir('ran')"}

    assert "wanted an expression of whole numbers" in why(tmp_path / "a", table, {"M": 5})
    assert not (tmp_path / "ran").exists()


# ---- refusals


def with_input(table, name, shape, dtype=F32):
    table["inputs"][name] = {"shape": shape.split(), "dtype": dtype}
    return table


def square():
    table = gemm()
    table["axes"] = {"M": {"type": "var"}, "H": {"type": "const", "value": 64}}
    for group, name, shape in (("inputs", "A", ["M", "H"]), ("inputs", "B", ["H", "H"]), ("outputs", "C", ["M", "H"])):
        table[group][name]["shape"] = shape
    return table


DECODE = {"batch_size": 2, "num_pages": 9, "len_indptr": 3, "num_kv_indices": 9}


@pytest.mark.parametrize(
    ("table", "axes", "reason"),
    [
        (
            norm(("residual", "weight")),
            {"batch_size": 6},
            "these inputs and outputs: hidden_states, residual, weight → output",
        ),
        (norm(tags=["fused"]), {"batch_size": 6}, "more than rmsnorm: its name or a tag says fused"),
        (norm(dtype="float8_e4m3fn"), {"batch_size": 6}, "no precision has inputs of float8_e4m3fn"),
        (norm(name="rmsnorm_silu_h256"), {"batch_size": 6}, "more than rmsnorm: its name or a tag says silu"),
        (with_input(gemm(), "A_scale", "M"), {"M": 5}, "not matched with these inputs and outputs: A, B, A_scale → C"),
        (with_input(gemm(), "bias", "N", F16), {"M": 5}, "not matched with these inputs and outputs: A, B, bias → C"),
        (gemm(name="gemm_relu_n96"), {"M": 5}, "more than gemm: its name or a tag says relu"),
        (gemm(tags=["quantization:float4"]), {"M": 5}, "a tag says that it is quantized (float4)"),
        (gemm(result="float8_e4m3fn"), {"M": 5}, "no precision has inputs of float16 and results of float8_e4m3fn"),
        (gemm(op_type="rope"), {"M": 5}, "op_type rope is not matched with any operation"),
        (square(), {"M": 5}, "it may be transposed or not"),
        (gemm(), {}, "its axis M has no value"),
        (gemm(), {"M": 5, "N": 95}, "its axis N is 95, and 96 in the definition"),
        (gemm(), {"M": 0}, "n must be a whole number from 1"),
        (paged(op_type="mla_paged"), DECODE, "its values are a part of its keys"),
        (paged(op_type="moe"), DECODE, "no operation has routing, experts and their sum in one"),
        (with_input(paged(), "sinks", "heads"), DECODE, "sinks → output, lse"),
        (paged(name="gqa_paged_decode_sliding_d128"), DECODE, "its name or a tag says sliding"),
        (paged(), {**DECODE, "num_kv_indices": 1}, "it has a sequence without keys"),
        (paged(False, name="gqa_paged_prefill_d128"), DECODE, "does not say whether its mask is causal"),
        (paged(), {**DECODE, "len_indptr": 5}, "its queries and keys have different numbers of sequences"),
        (paged(False), {**DECODE, "total_q": 10}, "it has more queries than keys"),
        (paged(False), {**DECODE, "total_q": 5}, "the queries and keys of each sequence are in a file"),
        (paged(kv_heads=5), DECODE, "heads must be a multiple of kv_heads"),
        (
            paged(),
            {**DECODE, "batch_size": 10**6, "len_indptr": 10**6 + 1, "num_kv_indices": 10**7},
            "it has 1000000 sequences, and at most 2048",
        ),
        (ragged(), {"total_q": 2**31 - 1, "total_kv": 2**31 - 1, "len_indptr": 1}, "it has a sequence without keys"),
    ],
)
def test_what_is_not_the_same_mathematics_is_refused_with_the_reason(tmp_path, table, axes, reason):
    assert reason in why(tmp_path, table, axes)


# ---- references


def function(kind, *names):
    """A definition of a function of arrays of the same shape."""
    axes, shape = {"rows": None, "hidden": 64}, "rows hidden"
    return definition(f"{kind}_h64", kind, axes, dict.fromkeys(names, (shape, F32)), {"y": (shape, F32)})


def with_reference(table, text, description=""):
    """The body of `run`, or other text."""
    text = (
        text if "\n" in text or not text.startswith("return") else f"def run({', '.join(table['inputs'])}):\n    {text}"
    )
    return {**table, "reference": text, "description": description}


X = function("softmax", "x")
TWO = function("add", "a", "b")
LAYER = norm(("weight", "bias"), F32, "layer_norm", "layer_norm_h256")
MEAN = "x.float().pow(2).mean(-1, keepdim=True)"
HELPER = f"def norm(x, eps=1e-6):\n    return x * torch.rsqrt({MEAN} + eps)\n\n"


@pytest.mark.parametrize(
    ("table", "reference"),
    [
        (gemm(), "return A.float() @ B.t()"),
        (gemm(), "def run(A, B):\n    # the caller applies silu() later\n    return torch.matmul(A, B.T)"),
        (gemm(), "return torch.einsum('mk,nk->mn', A, B).to(A.dtype)"),
        (gemm(), "return F.linear(A, B)"),
        (norm(), HELPER + "def run(hidden_states, weight):\n    return norm(hidden_states) * weight"),
        (norm(), "def run(x, weight):\n    assert weight.shape[0] + 1 == 257\n    return F.rms_norm(x, 256, weight)"),
        (LAYER, "return weight * (hidden_states - hidden_states.mean(-1)) / torch.sqrt("
         "hidden_states.var(1, unbiased=False) + 1e-5) + bias"),
        (X, "return x.softmax(1)"),
        (X, "def run(x):\n    e = torch.exp(x - x.max(dim=-1, keepdim=True)[0])\n    return e / e.sum(-1)"),
        (function("silu", "x"), "return x * torch.sigmoid(x)"),
        (function("silu", "x"), "return x / (1 + torch.exp(-x))"),
        (function("relu", "x"), "return x.clamp(min=0)"),
        (function("relu6", "x"), "return torch.clamp(x, 0, 6)"),
        (function("gelu_tanh", "x"), "return 0.5 * x * (1 + torch.tanh(0.79788 * (x + 0.044715 * x**3)))"),
        (function("swiglu", "gate", "up"), "return torch.nn.functional.silu(gate) * up"),
        (TWO, "return torch.add(a, b)"),
    ],
)  # fmt: skip
def test_a_reference_that_computes_its_op_type_leaves_no_note(tmp_path, table, reference):
    if table["op_type"] == "rmsnorm" and "def run(x," in reference:
        reference = reference.replace("(x,", "(hidden_states,")
    table = with_reference(table, reference, "Plain, without the relu() of the fused variant.")
    axes = {axis: 5 for axis, value in table["axes"].items() if value["type"] == "var"}

    assert "judged" not in str(the_case(tmp_path, table, axes)[1])


@pytest.mark.parametrize(
    ("table", "reference", "words"),
    [
        (gemm(), "return torch.relu(A @ B.T)", "computes maximum(matmul(A, B), 0)"),
        (gemm(), "return 2.0 * (A @ B.T)", "computes 2 * matmul(A, B)"),
        (gemm(), "return (A @ B.T) / math.sqrt(A.shape[1])", "computes matmul(A, B) * size ** -0.5"),
        (gemm(), "return A @ B.T + 1.0", "computes matmul(A, B) + 1"),
        (gemm(), "return F.leaky_relu(A @ B.T, 0.01)", "computes leaky_relu(matmul(A, B), 0.01)"),
        (gemm(), "return (A @ B.T).clamp_min(0)", "computes maximum(matmul(A, B), 0)"),
        (gemm(), "return torch.tril(A) @ B.T", "computes matmul(tril(A), B)"),
        (gemm(), "return (A @ B.T) @ torch.eye(96)", "computes matmul(matmul(A, B), eye(96))"),
        (gemm(), "return (A @ B.T).square()", "computes matmul(A, B) ** 2"),
        (gemm(), "def run(A, B):\n    C = A @ B.T\n    C.relu_()\n    return C", "computes maximum(matmul(A, B), 0)"),
        (gemm(), "def run(A, B):\n    for i in A:\n        C = torch.relu(A @ B.T)\n    return C", "calls relu"),
        (gemm(), "return A.to(torch.float8_e4m3fn) @ B.T", "computes matmul(to_float8_e4m3fn(A), B)"),
        (
            norm(),
            "class M:\n  def forward(self, x):\n    return self.norm(x) * (1.0 + self.weight.float())",
            "weight + 1",
        ),
        (norm(), "return norm(hidden_states) * weight.add(1)", "computes weight + 1"),
        (norm(), "return norm(hidden_states) * torch.add(weight, 1.0)", "computes weight + 1"),
        (norm(), "def run(x, weight):\n  y = norm(x)\n  return y + y * weight", "norm("),
        (LAYER, "return F.layer_norm(hidden_states, (256,), weight + 1, bias)", "weight + 1"),
        (X, "return torch.softmax(x, dim=0)", "computes softmax(x, axis 0)"),
        (X, "return torch.softmax(x / 0.7, dim=-1)", "computes softmax(1.429 * x)"),
        (X, "return torch.log_softmax(x, dim=-1)", "computes log_softmax(x"),
        (function("silu", "x"), "return x * torch.sigmoid(1.702 * x)", "exp(-1.702 * x)"),
        (function("relu", "x"), "return x.clamp(0, 6)", "computes minimum(maximum(x, 0), 6)"),
        (TWO, "return a - b", "computes a - b"),
        (TWO, "return torch.add(a, b, alpha=2)", "2 * b"),
        (ragged(), "def run(q, k, v):\n  WINDOW = 128\n  mask = i - j < WINDOW", "has window (its name WINDOW)"),
        (ragged(), "def run(q, k, v):\n  mask = (i - j < 128) & (j <= i)", "joins two masks"),
        (ragged(), "def run(q, k, v):\n  return torch.softmax(torch.tanh(q @ k), -1) @ v", "calls tanh"),
    ],
)
def test_a_reference_that_computes_something_else_is_refused_by_name(tmp_path, table, reference, words):
    table = with_reference(table, reference)
    axes = {"total_q": 9, "total_kv": 9, "len_indptr": 2, "M": 5, "batch_size": 5, "rows": 5}
    reason = why(tmp_path, table, {n: v for n, v in axes.items() if table["axes"].get(n, {}).get("type") == "var"})

    assert f"it is not {table['op_type']} alone: its reference " in reason
    assert words in reason


DEEP_CODE = "(" * 5000 + "A" + ")" * 5000


@pytest.mark.parametrize(
    ("reference", "doubt"),
    [
        ("...", "there is none"),
        ("C = A @@ B", "it is no Python that can be read"),
        (f"return {DEEP_CODE}", "it is no Python that can be read"),
        (f"return A{'.T' * 9000}", "it is no Python that can be read"),
        (f"return A * {'9' * 5000}", "it is no Python that can be read"),
        ("return A * 9 ** 9 ** 9 ** 9", "it is no Python that can be read"),
        ("#" * 50_000, "it has 50000 characters, and at most 40000 are read"),
        ("def run(A, B):\n" + "    A = A + A\n" * 100 + "    return A", "it is too long"),
        ("def f(x):\n    return f(x)\n\ndef run(A, B):\n    return f(A)", "its functions call each other many times"),
        ("return product(A, B)", "product is not defined in it"),
        ("return A[:5] @ B.T", "it takes parts of arrays"),
        ("x = 1\ny = 2", "it has no function run"),
    ],
)
def test_a_reference_that_cannot_be_judged_is_in_the_note(tmp_path, reference, doubt):
    note = the_case(tmp_path, with_reference(gemm(), reference), {"M": 5})[1]

    assert f"its reference was not judged ({doubt}); its op_type says what it computes" == note


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("    return torch.softmax(q @ k_cache.T, -1) @ v_cache", "only the functions that it calls were compared"),
        ("    return q @ k_cache", "its reference was not judged (it has no softmax)"),
        ("    return torch.softmax(q, -1)", "its reference was not judged (it has no product)"),
        ("    return (lambda z: z)(q)", "its reference was not judged (it has no product)"),
        ("    f = getattr(q, 'sin')\n    return f()", "its reference was not judged (it calls getattr)"),
    ],
)
def test_the_note_of_attention_says_what_of_its_reference_was_compared(tmp_path, body, words):
    table = paged()
    table = with_reference(table, f"def run({', '.join(table['inputs'])}):\n{body}")

    assert words in the_case(tmp_path, table, DECODE)[1]


def test_without_a_reference_the_description_may_refuse(tmp_path):
    table = with_reference(gemm(), "...", "C = relu(A @ B^T)")

    assert "more than gemm: its description says relu" in why(tmp_path, table, {"M": 5})


def test_a_folder_without_a_case_says_why_and_what_to_do(tmp_path):
    with pytest.raises(BadInput) as raised:
        read_suite(write(tmp_path, norm(("residual", "weight")), workload({"batch_size": 6})))

    assert "has no workload that an operation computes; the first: rmsnorm is not matched" in str(raised.value)
    assert "add --coverage to deepbench list" in str(raised.value)


def test_the_reasons_are_counted(tmp_path):
    lines = [workload({"M": m}) for m in (5, 0, 7, 0)]

    kernel = the_kernel(tmp_path, gemm(), *lines)

    assert (4, 2, [2]) == (kernel.workloads, len(kernel.problems), list(kernel.reasons.values()))


# ---- files that nobody should trust


def changed(**parts):
    return {**gemm(), **parts}


DEEP = "[" * 5000 + "]" * 5000


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ('{"axes"', "definition.json is not valid JSON"),
        (json.dumps(changed()).replace('"A"', DEEP, 1), "definition.json is not valid JSON"),
        (json.dumps(changed(extra=1)).replace('"extra": 1', f'"extra": {DEEP}'), "definition.json is not valid JSON"),
        (changed(name="\x1b[2Jgemm"), "name: wanted a word of at most 200 printable characters, found"),
        (changed(name="g" * 201), "name: wanted a word of at most 200"),
        (changed(name=None), "name: wanted a word"),
        (changed(op_type=3), "op_type: wanted a word"),
        (changed(tags="model:x"), "tags must be a list"),
        (changed(tags=["model:\x1b[31m"]), "tags: wanted a word"),
        (changed(axes=[1]), "axes must be an object"),
        (changed(axes={"M": 3}), "axis M: the axis must be an object"),
        (changed(axes={"M": {"type": "eval"}}), "axis M: wanted the type const, var or expr, found 'eval'"),
        (changed(axes={"M": {"type": ["var"]}}), "axis M: wanted the type const, var or expr"),
        (changed(axes={"M": {"type": "const", "value": -1}}), "axis M: wanted a whole number from 0 to 2147483647"),
        (
            changed(axes={"M": {"type": "const", "value": True}}),
            "wanted a whole number from 0 to 2147483647, found True",
        ),
        (changed(axes={"M": {"type": "const", "value": 1.5}}), "wanted a whole number from 0 to 2147483647, found 1.5"),
        (changed(axes={"M": {"type": "const", "value": 10**300}}), "wanted a whole number from 0 to 2147483647"),
        (changed(axes={f"a{i}": {"type": "var"} for i in range(501)}), "axes must be an object with at most 500"),
        (changed(inputs={"A": {"shape": ["M", "Z"], "dtype": F16}}), "the shape has 'Z', which is no axis"),
        (changed(inputs={"A": {"shape": "MK", "dtype": F16}}), "inputs A: the shape must be a list"),
        (changed(inputs={"A": {"shape": [["M"]], "dtype": F16}}), "inputs A: wanted a word"),
        (changed(inputs={"A": {"shape": ["M"]}}), "inputs A: wanted a word"),
        (changed(inputs={"\x1b[2J": {"shape": ["M"], "dtype": F16}}), "wanted a word of at most 200 printable"),
        (json.dumps(changed()) + "\0", "has a NUL byte"),
    ],
)
def test_a_damaged_definition_is_refused_in_a_sentence(tmp_path, table, sentence):
    folder = write(tmp_path, table, workload({"M": 5}))

    with pytest.raises(BadInput) as raised:
        read_suite(folder)

    assert sentence in str(raised.value)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"axes": ', "line 1 is not valid JSON"),
        ('["axes"]', "line 1: the line must be an object"),
        ('{"case": "axes", "\\u001b[2J": 1}', "line 1: wanted a workload with axes and inputs, found case"),
        ('{"case": "axes"}', "line 1: wanted a workload with axes and inputs, found case"),
        ('{"definition": "x", "workload": 3, "axes": 1}', "workload must be an object"),
        (workload({"M": 10**30}), "axis M: wanted a whole number from 0 to 2147483647"),
        (workload({"M": "5"}), "axis M: wanted a whole number"),
        (workload({"M": None}), "axis M: wanted a whole number"),
        (workload({"\x1b[2J": 1}), "wanted a word of at most 200 printable"),
        ({"axes": {"M": 1}, "inputs": [1]}, "inputs must be an object"),
        ({"axes": {"M": 1}, "inputs": {"A": {"type": {}}}}, "wanted a word"),
        (workload({"M": 1}, name="\x1b[2J"), "wanted a word of at most 200 printable"),
    ],
)
def test_damaged_workloads_are_refused_in_a_sentence(tmp_path, line, sentence):
    folder = write(tmp_path, gemm(), line)

    with pytest.raises(BadInput) as raised:
        read_suite(folder)

    assert sentence in str(raised.value)
    assert str(raised.value).isprintable()


def test_expressions_that_need_each_other_or_grow_are_refused_at_once(tmp_path):
    table = gemm(F32)
    table["axes"] |= {"M": {"type": "expr", "expression": "m"}, "m": {"type": "expr", "expression": "2*m"}}
    assert "the axis m depends on itself, or on too many others" == why(tmp_path / "a", table, {})

    names = [f"a{i}" for i in range(100)]
    table["axes"] = {n: {"type": "expr", "expression": "+".join([f"a{i + 1}"] * 40)} for i, n in enumerate(names)}
    table["axes"] |= {"a100": {"type": "const", "value": 1}, "M": {"type": "expr", "expression": "a0"}}
    table["axes"] |= {"N": {"type": "const", "value": 96}, "K": {"type": "const", "value": 64}}
    assert "depends on itself, or on too many others" in why(tmp_path / "b", table, {})
    table["axes"]["M"]["expression"] = "a85"  # 40^15, which would take years without remembering
    assert "is larger than" in why(tmp_path / "c", table, {})


def test_a_folder_with_too_much_in_it_is_refused(tmp_path, monkeypatch):
    folder = write(tmp_path, gemm(), *[workload({"M": m}) for m in range(1, 6)])
    monkeypatch.setattr(flashinfer_trace, "MOST_WORKLOADS", 4)
    with pytest.raises(BadInput, match="more than 4 workloads"):
        read_suite(folder)
    monkeypatch.setattr(flashinfer_trace, "MOST_FILES", 1)
    with pytest.raises(BadInput, match="more than 1 files"):
        read_suite(folder)


def test_other_files_of_a_folder_are_left_alone(tmp_path):
    folder = write(tmp_path, gemm(), workload({"M": 5}))
    (tmp_path / "tsconfig.json").write_text("{ // no JSON\n}")
    (tmp_path / "solution.json").write_text(json.dumps({"sources": [{"content": '"axes"'}]}))
    (tmp_path / "results.jsonl").write_text('{"schema": "deepbench/9"}\n')
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "definition.json").write_text('{"axes"')
    (tmp_path / "again").symlink_to(tmp_path)

    assert 1 == len(read_suite(folder))


def test_a_pipe_in_a_folder_is_not_waited_for(tmp_path):
    folder = write(tmp_path, gemm(), workload({"M": 5}))
    os.mkfifo(tmp_path / "pipe.json")

    with pytest.raises(BadInput, match="is not a regular file"):
        read_suite(folder)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("empty", None, "has no definition of a kernel; wanted JSON with axes, inputs and outputs"),
        ("missing.json", None, "missing.json does not exist; expected definitions or workloads in JSON"),
        ("results.jsonl", '{"schema": "deepbench/9"}\n', "has no definition of a kernel"),
        ("alone.jsonl", json.dumps(workload({"M": 1})), "has workloads, but not their definition"),
        ("alone.json", json.dumps(gemm()), "has definitions without workloads"),
    ],
)
def test_names_that_lead_to_nothing_say_what_was_wanted(tmp_path, name, content, sentence):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    elif not path.suffix:
        path.mkdir()

    with pytest.raises(BadInput) as raised:
        read_suite(str(path))

    assert sentence in str(raised.value)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["M", "var", "gemm"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
places = st.sampled_from(["name", "op_type", "tags", "axes", "inputs", "outputs"])


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(places, values, max_size=3), values, values)
def test_any_json_ends_in_kernels_or_one_sentence(tmp_path, parts, axes, inputs):
    line = {"axes": axes, "inputs": inputs}
    folder = write(tmp_path, json.dumps({**gemm(), **parts}), json.dumps(line))
    try:
        kernels = coverage(folder)
    except BadInput as error:
        assert str(error).isprintable()
    else:
        assert all(kernel.definition.isprintable() for kernel in kernels)


TABLES = (gemm(), norm(), norm(("weight", "bias"), op_type="layernorm"), paged(), paged(False), ragged())


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(TABLES), st.data())
def test_any_shapes_end_in_kernels_with_a_case_or_a_reason_for_each_workload(tmp_path, table, data):
    table = json.loads(json.dumps(table))
    axes = st.sampled_from([*table["axes"], "3", "9999999999"])
    for group in ("inputs", "outputs"):
        for name in data.draw(st.lists(st.sampled_from(sorted(table[group])), max_size=2)):
            table[group][name]["shape"] = data.draw(st.none() | st.lists(axes, max_size=4))
    sizes = st.sampled_from([0, 1, 2, 3, 17, 5000, 2**31 - 1])
    line = workload({axis: data.draw(sizes) for axis, value in table["axes"].items() if value["type"] == "var"})

    kernel = the_kernel(tmp_path, table, line)

    assert 1 == len(kernel.problems) + sum(kernel.reasons.values())


def test_the_text_of_a_definition_is_read_with_the_limits_of_suites(tmp_path):
    folder = tmp_path / "large"
    folder.mkdir()
    with open(folder / "definition.json", "wb") as file:
        file.truncate(2**26)

    with pytest.raises(BadInput, match="has 67108864 bytes"):
        coverage(str(folder))


def test_a_folder_with_too_much_json_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(flashinfer_trace, "MOST_BYTES", 2000)
    for name in ("a", "b"):
        write(tmp_path / name, gemm())
    assert 2 == len(coverage(str(tmp_path)))
    (tmp_path / "c.json").write_text(json.dumps({"source": "x" * 2000}))

    with pytest.raises(BadInput, match="has more than 2000 bytes in JSON; choose some of its files"):
        coverage(str(tmp_path))


def test_workloads_are_counted_while_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(flashinfer_trace, "MOST_WORKLOADS", 3)
    folder = write(tmp_path, gemm(), *[workload({"M": 1})] * 4, "not JSON")

    with pytest.raises(BadInput, match="has more than 3 workloads or definitions"):
        coverage(folder)


def test_axes_may_have_capitals_in_expressions(tmp_path):
    table = gemm()
    table["axes"] |= {"MK": {"type": "expr", "expression": "M*K_1"}, "K_1": {"type": "const", "value": 5}}
    table["inputs"]["A"]["shape"] = ["MK", "K"]
    table["outputs"]["C"]["shape"] = ["MK", "N"]
    case, _ = the_case(tmp_path, table, {"M": 3})

    assert 15 == case.problem.n


def test_references_that_take_long_to_parse_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(flashinfer_trace, "MOST_REFERENCES", 100)
    for name in ("a", "b"):
        write(tmp_path / name, {**gemm(), "reference": "x" * 50})
    assert 2 == len(coverage(str(tmp_path)))
    write(tmp_path / "c", {**gemm(), "reference": "x"})

    with pytest.raises(
        BadInput, match="has 101 characters of references; at most 100 are read; choose some of its files"
    ):
        coverage(str(tmp_path))
