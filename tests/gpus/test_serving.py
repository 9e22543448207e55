"""Servers of language models: their kernels, their memory, the regression of their times, and measured ones."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from deepbench.core.errors import BadInput
from deepbench.gpus.families import experts, families, products
from deepbench.gpus.serving import server
from deepbench.gpus.serving.deployments import deployments
from deepbench.gpus.serving.server import FIRST_TERMS, TOKEN_TERMS, ServerSetup, ServerTerm, Steps
from deepbench.gpus.serving.steps import FORMATS, OTHER, StepTime, format_named, held, parts_of, step_times
from deepbench.plan.suites import model_of
from tests.gpus.small_tables import forget, write_deployments, write_sheet

DENSE, EXPERTS, LATENT, DELTA = "llm/llama31_70b", "llm/qwen3_30b_a3b", "llm/deepseek_v2_lite", "llm/qwen35_397b_a17b"
FP8 = products.TYPES.index("fp8")


def divided(tensor=1, data=1, expert=None):
    sizes = {"tensor": tensor, "data": data}
    if expert is not None:
        sizes |= {"expert": expert, "expert_tensor": tensor * data // expert}
    return tuple(sizes.items())


def parts(suite, phase="decode", division=(), kind="fp8", **sizes):
    sizes = {"batch": 4, "context": 2000, **sizes}
    return parts_of(suite, phase, (*division, *sizes.items()), FORMATS[kind])


def kernels(found, family):
    return [({**part.kernel}, part.count) for part in found if part.family == family]


# ---- the kernels of a step


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_a_dense_model(tensor):
    found = parts(DENSE, division=divided(tensor))
    # Llama 3.1 70B: 80 layers of 8192 numbers, 64 heads and 8 of keys with 128 numbers, 28672 inner numbers.
    layers = [((64 + 16) * 128 // tensor, 8192), (8192, 8192 // tensor), (2 * 28672 // tensor, 8192)]
    layers += [(8192, 28672 // tensor)]
    wanted = [({"m": 4, "n": n, "k": k, "type": FP8}, 80) for n, k in layers]
    logits = ({"m": 4, "n": 128256 // tensor, "k": 8192, "type": 0}, 1)
    assert [*wanted, logits] == kernels(found, "linear")

    attention = {"batch": 4, "heads": 64 // tensor, "kv_heads": 8 // tensor, "head_size": 128, "queries": 1}
    attention |= {"keys": 2000, "window": 0, "type": 0, "cache": 0}
    assert [(attention, 80)] == kernels(found, "attention_decode")

    reduces = Counter()
    for kernel, count in kernels(found, "collectives"):
        reduces[kernel["op"], kernel["ranks"], kernel["bytes"]] += count
    # After attention and the layers behind it, and once for the embedding; the logits are gathered.
    wanted = {(0, tensor, 2 * 4 * 8192): 161, (1, tensor, 2 * 4 * 128256): 1}
    assert (wanted if tensor > 1 else {}) == reduces
    assert all(part.bytes > 0 for part in found if part.family == OTHER)


def test_a_prompt_has_a_query_per_token_and_logits_of_the_last():
    found = parts(DENSE, "prefill", divided(8), batch=2, context=1000)
    assert {2000} == {kernel["m"] for kernel, count in kernels(found, "linear") if count == 80}
    assert [2] == [kernel["m"] for kernel, count in kernels(found, "linear") if count == 1]
    ((kernel, count),) = kernels(found, "attention")
    assert (2, 1000, 1000, 80) == (kernel["batch"], kernel["queries"], kernel["keys"], count)


@pytest.mark.parametrize(
    ("tensor", "data", "expert"), [(1, 1, 1), (4, 1, 1), (4, 1, 4), (2, 2, 4), (1, 8, 8), (2, 4, 2)]
)
def test_a_mixture_of_experts_has_one_kernel_of_experts_per_layer(tensor, data, expert):
    found = parts(EXPERTS, division=divided(tensor, data, expert))
    ((kernel, count),) = kernels(found, "experts")

    # Qwen 3 30B-A3B: 48 layers of 128 experts with 768 inner numbers; 8 compute each token. All groups share them.
    assert 48 == count
    assert {
        "tokens": 4 * data,
        "hidden": 2048,
        "inner": 768,
        "active": 8,
        "experts": 128,
        "tensor": tensor * data // expert,
        "expert_parallel": expert,
        "type": FP8,
        "routing": experts.ROUTINGS.index("power_law_1.01"),
    } == kernel
    assert set(families()["experts"].keys) == set(kernel)
    router = {"m": 4 * data, "n": 128, "k": 2048, "type": 0}
    assert (router, 48) in kernels(found, "linear")
    exchanged = [kernel for kernel, _ in kernels(found, "collectives") if kernel["ranks"] == data and kernel["op"] != 0]
    assert (data > 1) == (2 * 4 * data * 2048 in [kernel["bytes"] for kernel in exchanged if kernel["op"] == 2])


@pytest.mark.parametrize("kind", FORMATS)
def test_the_router_and_the_logits_have_16_bits_in_every_format(kind):
    found = parts(EXPERTS, division=divided(2, 1, 2), kind=kind)
    layers = [part for part in found if part.family == "linear"]
    in_16 = {part.label for part in layers if part.kernel["type"] == 0}

    assert {"router", "logits"} <= in_16
    assert {FORMATS[kind].layers} == {
        products.TYPES[part.kernel["type"]] for part in layers if part.label not in ("router", "logits")
    }
    ((kernel, _),) = kernels(found, "experts")
    assert FORMATS[kind].experts == experts.TYPES[kernel["type"]]


@pytest.mark.parametrize("tensor", [1, 4])
def test_latent_attention(tensor):
    found = parts(LATENT, division=divided(tensor, 1, 1))
    decode = {"batch": 4, "heads": 16 // tensor, "queries": 1, "keys": 2000, "type": 0, "cache": 0}
    assert [(decode, 27)] == kernels(found, "latent_attention_decode")
    wanted = [({"tokens": 4, "heads": 16 // tensor, "after": after, "type": 0}, 27) for after in (0, 1)]
    assert wanted == kernels(found, "latent_products")
    assert not kernels(found, "attention_decode")

    prompt = parts(LATENT, "prefill", divided(tensor, 1, 1), batch=1)
    whole = {"batch": 1, "heads": 16 // tensor, "queries": 2000, "keys": 2000, "type": 0, "cache": 0}
    assert [(whole, 27)] == kernels(prompt, "latent_attention")


def test_gated_delta_nets_have_two_kernels_per_layer():
    found = kernels(parts(DELTA, "prefill", divided(4, 1, 4), batch=1, context=512), "delta")
    assert {0, 1} == {kernel["part"] for kernel, _ in found}
    assert {(1, 512, 0)} == {(kernel["batch"], kernel["length"], kernel["decoding"]) for kernel, _ in found}
    # Qwen 3.5 397B: 64 heads of values and 16 of keys, on 4 GPUs.
    assert {(4, 16)} == {(kernel["key_heads"], kernel["value_heads"]) for kernel, _ in found}
    assert {45} == {count for _, count in found}
    decoding = kernels(parts(DELTA, division=divided(4, 1, 4)), "delta")
    assert {(4, 1, 1)} == {(kernel["batch"], kernel["length"], kernel["decoding"]) for kernel, _ in decoding}


@pytest.mark.parametrize(
    ("suite", "division"),
    [(DENSE, divided(3)), (EXPERTS, divided(2, 1, 3)), (EXPERTS, divided(2, 1)), (DENSE, (("no_such", 1),))],
)
def test_a_division_that_is_none_is_refused(suite, division):
    with pytest.raises(BadInput):
        parts(suite, division=division)


def test_formats_are_listed():
    with pytest.raises(BadInput, match=r"unknown format 'fp9'.*bf16, fp8, fp8_block.*did you mean"):
        format_named("fp9")


# ---- memory


@pytest.mark.parametrize(
    ("suite", "division"),
    [
        (DENSE, divided(1)),
        (EXPERTS, divided(1, 1, 1)),
        (LATENT, divided(1, 1, 1)),
        ("llm/llama32_1b", divided(1)),
        ("mlperf/gpt_oss_120b", divided(1, 1, 1)),
    ],
)
def test_a_model_on_one_gpu_holds_its_parameters(suite, division):
    """Tied weights once."""
    parameters = model_of(suite).sizes["parameters"]
    assert math.isclose(2 * parameters, held(suite, division, FORMATS["bf16"]).weights, rel_tol=0.01)


def test_what_several_gpus_hold():
    one = held(EXPERTS, divided(1, 1, 1), FORMATS["bf16"])
    for tensor, data, expert in ((4, 1, 1), (4, 1, 4), (4, 1, 2)):
        own = held(EXPERTS, divided(tensor, data, expert), FORMATS["bf16"])
        assert math.isclose(one.weights / 4, own.weights, rel_tol=0.01)
        assert one.cached / 4 == own.cached
    # Groups share the experts, and each has all layers of attention.
    grouped = held(EXPERTS, divided(1, 4, 4), FORMATS["bf16"])
    assert one.cached == grouped.cached
    assert one.weights / 4 < grouped.weights < one.weights / 2


def test_keys_and_values_of_a_token():
    assert 80 * 2 * 2 * 8 * 128 == held(DENSE, divided(1), FORMATS["bf16"]).cached
    small = replace(FORMATS["fp8"], cache="fp8")
    assert 80 * 2 * 1 * 8 * 128 == held(DENSE, divided(1), small).cached
    assert 27 * 2 * 576 == held(LATENT, divided(4, 1, 4), FORMATS["bf16"]).cached  # each GPU has all


def test_weights_of_8_and_4_bits():
    of = {name: held(DENSE, divided(1), FORMATS[name]).weights for name in ("bf16", "fp8", "nvfp4")}
    in_16 = 2 * 2 * 128256 * 8192  # embedding and logits
    assert math.isclose((of["bf16"] - in_16) / 2, of["fp8"] - in_16)
    assert math.isclose((of["bf16"] - in_16) * 0.5625 / 2, of["nvfp4"] - in_16)


# ---- times of steps


def test_a_step_is_the_sum_of_its_kernels(gpus):
    from deepbench.gpus import times

    plan = parts(EXPERTS, division=divided(2, 1, 2), context=2048)
    (step,) = step_times([plan], "h100_sxm", "vllm")
    for family in ("linear", "attention_decode", "experts"):
        own = [part for part in plan if part.family == family]
        columns = times.as_arrays([part.kernel for part in own], families()[family].keys)
        seconds = times.times("h100_sxm", family, columns, "vllm").seconds
        assert math.isclose(sum(p.count * s for p, s in zip(own, seconds, strict=True)), step.seconds[family])
    assert math.isclose(step.total_s, sum(step.seconds.values()))
    assert step.low_s < step.total_s < step.high_s
    assert math.isclose(1, sum(step.shares.values()))
    assert sum(part.count for part in plan if part.family == "linear") == step.calls["linear"]


def test_many_steps_have_the_same_times_as_each_alone(gpus):
    plans = [parts(EXPERTS, division=divided(2, 1, 2), batch=batch) for batch in range(1, 61)]
    together = step_times(plans, "h100_sxm", "trtllm")
    for i in (0, 31, 59):
        (alone,) = step_times([plans[i]], "h100_sxm", "trtllm")
        assert {k: pytest.approx(v) for k, v in alone.seconds.items()} == together[i].seconds
        assert alone.calls == together[i].calls


def test_where_a_framework_lacks_a_table_the_others_stand_for_it(gpus):
    plan = [part for part in parts(EXPERTS, division=divided(8, 1, 8), context=2048) if part.family != OTHER]
    trtllm, vllm, other = (step_times([plan], "l40s", name)[0] for name in ("trtllm", "vllm", "sglang"))
    assert math.isclose((trtllm.seconds["linear"] + vllm.seconds["linear"]) / 2, other.seconds["linear"])
    assert {"modelled"} == set(other.shares)


# ---- a server


def test_as_many_requests_run_as_the_memory_holds(gpus):
    setup = ServerSetup(DENSE, "h100_sxm", "vllm", FORMATS["fp8"], 256, 8192, 1024, tensor=2, is_varied=False)
    memory = 0.9 * 85899345920 - 2e9 - held(DENSE, divided(2), FORMATS["fp8"]).weights
    wanted = int(memory / (327680 / 2 * (8192 + 512)))
    assert 10 < wanted < 256
    assert (wanted, (8192, 1024)) == (setup.running, setup.lengths)
    assert 100 == replace(setup, tensor=8, batch=100).running
    assert (7372, 921) == replace(setup, is_varied=True).lengths
    none = replace(setup, format=FORMATS["bf16"], tensor=1)
    assert 1 == none.running
    assert none.room_bytes < 0  # it does not fit at all


def test_a_predicted_server(gpus):
    setup = ServerSetup(DENSE, "h100_sxm", "vllm", FORMATS["fp8"], 16, 1024, 512, tensor=8, is_varied=False)
    (found,) = server.predict([setup])
    wanted = 16 * 512 / (found.first_s + 511 * found.token_s)

    assert found.fits
    assert math.isclose(wanted, found.tokens_per_s)
    assert math.isclose(wanted / 8, found.tokens_per_s_and_device)
    assert math.isclose(10 / 3600 * 1e6 / (wanted / 8), found.cost(10))
    assert found.tokens_interval[0] < wanted < found.tokens_interval[1]
    assert found.token_interval[0] < found.token_s < found.token_interval[1]
    # Decoding reads all weights at 80 % of the bandwidth at most.
    assert found.token_s > held(DENSE, setup.division, setup.format).weights / 3.35e12


# ---- the regression

TRUE_TOKEN = [1.1, 0.9, 1.3, 1.0, 1.2, 1.2, 0.8, 1.0, 1.1, 0.9, 0.3, 2.0, 0.5, 3.0, 4.0, 2.0, 10.0]
TRUE_FIRST = [1.2, 2.0, 0.4, 15.0, 0.5, 0.3]


def synthetic(count, seed=0, frameworks=("vllm", "trtllm")):
    """Servers whose steps have random times."""
    random = np.random.default_rng(seed)
    names = ("linear", "attention_decode", "experts", "collectives", OTHER)
    found = []
    for i in range(count):
        batch, output = int(random.integers(1, 200)), int(random.integers(20, 1000))
        kind = FORMATS["fp8" if i % 3 else "bf16"]
        setup = ServerSetup(
            "llm/llama32_1b",
            "h100_sxm",
            frameworks[i % len(frameworks)],
            kind,
            batch,
            64,
            output,
            is_varied=bool(i % 2),
        )
        decode, prompt = (
            StepTime(
                {name: float(s) for name, s in zip(names, random.lognormal(math.log(scale), 1, 5), strict=True)},
                0,
                0,
                {name: int(random.integers(10, 500)) for name in names},
            )
            for scale in (2e-3, 2e-2)
        )
        found.append(Steps(setup, decode, prompt))
    return found


def true_times(steps):
    return server.token_columns(steps) @ np.array(TRUE_TOKEN), server.first_columns(steps) @ np.array(TRUE_FIRST)


def test_columns_are_seconds_of_each_term(gpus):
    (s,) = synthetic(1)
    (row,) = server.token_columns([s]).tolist()
    running, output = s.setup.running, s.setup.output
    prompts = running / output
    decode, prompt = list(s.decode.seconds.values()), list(s.prompt.seconds.values())

    assert len(row) == len(TOKEN_TERMS) == len(TRUE_TOKEN)
    wanted = [*decode, *(prompts * t for t in prompt), prompts * sum(prompt), 1e-3, 1e-6 * sum(s.decode.calls.values())]
    wanted += [0.0, 1e-6 * running, 1e-3 * prompts, 1e-6 * s.decode.calls["experts"]]  # bf16: no conversion
    assert pytest.approx(wanted) == row
    (row,) = server.first_columns([s]).tolist()
    whole = sum(prompt)
    assert pytest.approx([whole, sum(decode), running * whole, 1e-3, 1e-3 * running, running**0.5 * whole]) == row
    assert len(row) == len(FIRST_TERMS) == len(TRUE_FIRST)


@pytest.mark.parametrize("what", ["token", "first"])
def test_the_regression_finds_the_true_constants(gpus, what):
    steps = synthetic(400)
    columns, terms, truth = {
        "token": (server.token_columns(steps), TOKEN_TERMS, TRUE_TOKEN),
        "first": (server.first_columns(steps), FIRST_TERMS, TRUE_FIRST),
    }[what]
    seconds = columns @ np.array(truth)
    prior = np.array([term.prior for term in terms])
    assert pytest.approx(truth, rel=1e-3) == server.regression(columns, seconds, terms, prior, 1e-9).tolist()

    # A tenth of the rows is three times too slow: the least absolute errors are hardly moved.
    bad = seconds.copy()
    bad[::10] *= 3
    found = server.regression(columns, bad, terms, prior, 1e-9)
    assert np.median(np.abs(columns @ found / seconds - 1)) < 0.03


def test_a_strong_ridge_keeps_the_prior_and_no_constant_is_below_its_least():
    random = np.random.default_rng(0)
    columns = random.uniform(0.5, 1.5, (100, 2))
    terms = (ServerTerm("a", "times", 1.0, 1.0, 0.2), ServerTerm("b", "ms", 0.5, 1.0, 0.1))
    prior = np.array([1.0, 0.5])

    kept = server.regression(columns, columns @ np.array([3.0, 3.0]), terms, prior, 1e9)
    assert pytest.approx(prior, abs=1e-4) == kept
    found = server.regression(columns, columns @ np.array([2.0, -0.3]), terms, prior, 1e-6)
    assert 0.1 == found[1]
    assert 1.3 < found[0] < 2.0


def test_a_fit_has_constants_by_framework_and_type(gpus):
    steps = [*synthetic(120), *synthetic(5, 1, ("sglang",))]
    token_s, first_s = true_times(steps)
    found = server.fit(steps, token_s, first_s, "here")

    assert {"", "vllm", "trtllm", "vllm fp8", "vllm bfloat16", "trtllm fp8", "trtllm bfloat16"} == set(found.token)
    assert {"", "vllm", "trtllm"} == set(found.first)  # too few rows of sglang
    assert np.median(np.abs(found.token_s(steps) / token_s - 1)) < 0.05
    assert np.median(np.abs(found.first_s(steps) / first_s - 1)) < 0.05
    (last,) = found.token_s(steps[-1:])
    assert math.isclose(last, float(server.token_columns(steps[-1:])[0] @ np.array(found.token[""])))


def test_the_prediction_of_a_group_does_not_depend_on_its_own_times(gpus):
    steps = synthetic(90)
    token_s, first_s = true_times(steps)
    groups = ["abc"[i * 3 // 90] for i in range(90)]
    before = server.held_out(steps, token_s, first_s, groups)
    own = np.array(groups) == "b"
    after = server.held_out(steps, np.where(own, 7 * token_s, token_s), np.where(own, 9 * first_s, first_s), groups)

    for name in ("token_s", "first_s"):
        assert getattr(before, name)[own].tolist() == getattr(after, name)[own].tolist()
        assert (getattr(before, name)[~own] != getattr(after, name)[~own]).all()
    assert np.isfinite(before.token_s).all()
    assert np.median(np.abs(before.token_s / token_s - 1)) < 0.1


def test_quantiles_count_a_group_by_the_root_of_its_rows():
    names = np.array(["a"] * 100 + ["b"] * 100)
    ratio = np.concatenate([np.linspace(0.5, 0.6, 100), np.linspace(1.9, 2.0, 100)])
    low, high = server.quantiles(names, ratio)
    assert math.isclose(0.505, low, abs_tol=2e-3)
    assert math.isclose(1.995, high, abs_tol=2e-3)

    # 900 rows of one group and one of another: weights 30 to 1, so the lone row has 3.2 % of the whole.
    names = np.array(["a"] * 900 + ["b"])
    ratio = np.array([1.0] * 900 + [5.0])
    assert (1.0, 5.0) == server.quantiles(names, ratio)
    assert (1.0, 1.0) == server.quantiles(np.array(["a"] * 900), ratio[:900])


def test_the_shipped_constants_have_a_value_for_each_term():
    found = server.shipped()
    assert "" in found.token
    assert "" in found.first
    for what, terms in ((found.token, TOKEN_TERMS), (found.first, FIRST_TERMS)):
        for name, values in what.items():
            assert len(terms) == len(values), name
            assert all(value >= term.least - 1e-6 for value, term in zip(values, terms, strict=True)), name
    import json
    from importlib import resources

    kept = json.loads(resources.files("deepbench").joinpath("gpus", "serving", "constants.json").read_text())
    assert [f"{term.name} ({term.unit})" for term in TOKEN_TERMS] == kept["token_terms"]
    assert [f"{term.name} ({term.unit})" for term in FIRST_TERMS] == kept["first_terms"]
    for low, high in (found.token_interval, found.first_interval):
        assert 0 < low < 1 < high


# ---- measured deployments


@pytest.fixture
def listed(gpus, tmp_path, monkeypatch):
    """Deployments of a list with these rows; the GPUs are those of the small package."""
    root = tmp_path / "systems"
    for path in gpus.iterdir():
        if path.suffix != ".csv":
            (root / path.name).parent.mkdir(exist_ok=True)
            (root / path.name).symlink_to(path)
    monkeypatch.setenv("DEEPBENCH_GPU_TABLES", str(root))

    def found(*rows, **options):
        write_deployments(root, *rows, **options)
        forget()
        return deployments()

    found.path = root / "silicon_sample.csv"
    return found


def test_a_deployment_is_read(listed):
    (found,) = listed({})
    assert ("llm/llama31_70b", "h100_sxm", "vllm", "fp8", 16, 1024, 512) == (
        found.suite,
        found.machine,
        found.framework,
        found.precision,
        found.batch,
        found.prompt,
        found.output,
    )
    assert (8, 1, 1, 1, 8) == (found.tensor, found.data, found.expert, found.expert_tensor, found.devices)
    assert (0.25, 0.02, True, False) == (found.first_token_s, found.token_s, found.is_varied, found.is_corrected)
    assert "h100_sxm" == ServerSetup.of(found).machine
    assert not listed({"silicon_data_source": "paper"})[0].is_varied


def test_other_modes_models_gpus_and_missing_sizes_are_skipped(listed):
    others = [{"mode": "disagg"}, {"model_path": "x/y"}, {"system": "h999"}, {"system": "../../etc/h100_sxm"}]
    bad = [
        {name: value}
        for name in ("isl", "osl", "batch_size", "tp_size", "silicon_ttft_ms", "silicon_tpot_ms")
        for value in ("", "0", "-1", "nan", "inf", "x", "1e300")
    ]
    assert ["one"] == [row.name for row in listed(*others, *bad, {"batch_size": "8.0"}) if row.batch == 8]
    assert 1 == len(listed(*others, *bad, {}))
    assert not listed({"batch_size": "1.5"})


def test_a_node_listed_with_the_square_of_its_size_is_corrected(listed):
    fault = {"model_path": "Qwen/Qwen3-235B-A22B-FP8", "tp_size": "1", "attention_dp_size": "64", "batch_size": "8"}
    fault |= {"moe_ep_size": "64", "moe_tp_size": "1", "silicon_data_source": "db-dump/1; silicon_concurrency=512"}
    # Both sizes of the experts are 8: one node of 8 GPUs.
    (found,) = listed({**fault, "moe_ep_size": "8", "moe_tp_size": "8"})
    assert (1, 8, 8, 1, 64, True) == (
        found.tensor,
        found.data,
        found.expert,
        found.expert_tensor,
        found.batch,
        found.is_corrected,
    )
    # Without such a square nothing says which sizes are right.
    assert not listed({**fault, "tp_size": "2", "attention_dp_size": "8", "moe_ep_size": "16"})
    (right,) = listed({**fault, "tp_size": "1", "attention_dp_size": "8", "moe_ep_size": "8"})
    assert (8, 8, False) == (right.data, right.expert, right.is_corrected)


def test_experts_are_divided_over_all_gpus(listed):
    row = {"model_path": "Qwen/Qwen3-235B-A22B-FP8", "tp_size": "4", "moe_ep_size": "2", "moe_tp_size": "1"}
    (found,) = listed(row)
    assert (2, 2) == (found.expert, found.expert_tensor)
    (odd,) = listed({**row, "moe_ep_size": "3"})
    assert (1, 4) == (odd.expert, odd.expert_tensor)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ({}, ("fp8", "fp8", "bfloat16")),
        ({"backend": "trtllm"}, ("fp8", "fp8", "fp8")),
        ({"precision": "fp4"}, ("nvfp4", "nvfp4", "bfloat16")),
        ({"precision": ""}, ("bfloat16", "bfloat16", "bfloat16")),
        ({"model_path": "Qwen/Qwen3-235B-A22B-FP8"}, ("fp8_block", "fp8_block", "bfloat16")),
        ({"model_path": "openai/gpt-oss-120b"}, ("bfloat16", "w4a16_mxfp4", "bfloat16")),
        ({"model_path": "openai/gpt-oss-120b", "backend": "trtllm"}, ("bfloat16", "w4a16_mxfp4", "bfloat16")),
    ],
)
def test_the_types_of_a_deployment(listed, words, wanted):
    (found,) = listed(words)
    assert wanted == (found.format.layers, found.format.experts, found.format.cache)


def test_an_unknown_precision_ends_in_a_sentence(listed):
    (found,) = listed({"precision": "int3\x1b[31m"})
    with pytest.raises(BadInput, match="wanted the precision fp8, fp4, int4 or bf16") as error:
        _ = found.format
    assert "\x1b" not in str(error.value)


def test_a_missing_column_or_file_ends_in_a_sentence(listed):
    with pytest.raises(BadInput, match=r"silicon_sample\.csv has no column isl; a list of deployments has"):
        listed({}, without=("isl",))
    listed.path.unlink()
    forget()
    with pytest.raises(BadInput, match=r"silicon_sample\.csv does not exist"):
        deployments()


def test_optional_columns_may_be_missing(listed):
    (found,) = listed({}, without=("attention_dp_size", "moe_tp_size", "moe_ep_size", "silicon_data_source"))
    assert (8, 1, False) == (found.tensor, found.data, found.is_varied)


def test_a_machine_without_a_sheet_has_no_deployment(folder):
    write_sheet(folder, "h100_sxm")  # and no tables
    write_deployments(folder, {})
    assert () == deployments()
