"""Traces of PyTorch networks: their FLOP, parameters and counts are those of the suites of MLPerf and of PyTorch."""

import tomllib
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from deepbench.core.case import parse_pattern  # noqa: E402
from deepbench.core.errors import BadInput  # noqa: E402
from deepbench.networks.traces import program  # noqa: E402
from deepbench.networks.traces.from_torch import trace_torch  # noqa: E402
from deepbench.networks.traces.kernels import flop_of  # noqa: E402
from deepbench.networks.traces.trace import parse_trace, suite_text  # noqa: E402
from deepbench.plan.suites import SUITES, read_suite  # noqa: E402

pytestmark = [pytest.mark.programs, pytest.mark.torch]

NETWORKS = Path(__file__).parents[2] / "benchmarks" / "networks.py"

# Operations whose FLOP PyTorch counts, too. It has no formula for attention on CPUs.
PRODUCTS = ("gemm", "linear", "batched_gemm", "conv")


def load(name, is_training=False, device="cpu", optimizer="sgd", **settings):
    settings = {n: str(v) for n, v in settings.items()}
    return program.load(f"{NETWORKS}:{name}", settings, is_training, optimizer, device)


def traced(loaded):
    return trace_torch(loaded.run, loaded.modules, loaded.title, "test", loaded.is_training)


def flop(trace, ops=PRODUCTS):
    return sum(flop_of(kernel) * count for kernel, count in trace.counts.items() if kernel.split()[0] in ops)


# ---- networks of MLPerf, which need no memory on the device `meta`

MLPERF = {
    "resnet50_v15": ("resnet", {"batch": 64}),
    "bert_large": ("bert", {"batch": 24}),
    "gnmt": ("gnmt", {"batch": 128}),
    "deepspeech2": ("deepspeech2", {"batch": 8}),
    "dlrm_dcnv2": ("dlrm", {"batch": 8192}),
    "unet3d": ("unet3d", {"batch": 2}),
}

# Operations that the suites list as networks call them. Frameworks write losses and normalizations in their own way.
LISTED = ("gemm", "batched_gemm", "conv", "recurrent", "attention", "embedding_bag", "ctc")


@pytest.mark.parametrize("name", ["mlp", "words"])
def test_kept_are_parameters_their_momentum_and_inputs_wherever_pytorch_puts_results(name):
    """Of `words`, gradients that are made inside of one kernel are not kept, although no kernel of the list wrote them.

    Tensors between the steps change the addresses of the second trace.
    """
    settings = {"width": 64, "batch": 16} | ({"vocabulary": 200, "steps": 5} if name == "words" else {})
    loaded = load(name, is_training=True, **settings)
    first = traced(loaded)
    between = [torch.empty(n) for n in range(1000, 60_000, 1000)]
    del between[::2]
    second = traced(loaded)
    inputs = 2 * 16 * 5 * 8 if name == "words" else 16 * 64 * 4 + 16 * 8

    assert first.memory == second.memory
    assert first.memory.kept == 2 * 4 * first.parameters + inputs


@pytest.fixture(scope="module", params=MLPERF)
def mlperf(request):
    """The name of a suite, and the trace of a training step of the same network."""
    name, settings = MLPERF[request.param]
    return request.param, traced(load(name, True, "meta", **settings))


def test_parameters_are_those_of_mlperf(mlperf):
    name, trace = mlperf

    table = tomllib.loads((SUITES / "mlperf" / f"{name}.toml").read_text())

    assert trace.parameters == table["sizes"]["parameters"]


def test_flop_are_those_of_mlperf(mlperf):
    name, trace = mlperf
    ours, theirs = Counter(), Counter()
    for kernel, count in trace.counts.items():
        ours[kernel.split()[0].replace("linear", "gemm")] += flop_of(kernel) * count
    for e in read_suite(f"mlperf/{name}:phase=train"):
        p = e.pattern
        if p.op in LISTED:
            theirs[p.op] += flop_of(f"{p.op} {p.problem.text} {p.direction or 'forward'}") * e.source["count"]

    assert theirs
    assert {op: ours[op] for op in theirs} == theirs


def test_counts_are_those_of_mlperf(mlperf):
    """Of kernels whose sizes have one way to be written."""
    name, trace = mlperf
    ops = ("conv", "recurrent", "attention", "embedding_bag", "ctc")
    ours, theirs = Counter(), Counter()
    for kernel, count in trace.counts.items():
        p = parse_pattern(kernel)
        if p.op in ops:
            ours[p.op, p.problem, p.direction] += count
    for e in read_suite(f"mlperf/{name}:phase=train"):
        p = e.pattern
        if p.op in ops:
            theirs[p.op, p.problem, p.direction or "forward"] += e.source["count"]

    assert ours == theirs


RECURRENT = {
    "gnmt": {"width": 8, "words": 20, "steps": 3, "batch": 2},
    "deepspeech2": {"hidden": 8, "layers": 2, "batch": 2, "frames": 60, "labels": 3},
}


@pytest.mark.parametrize("name", RECURRENT)
def test_layers_without_memory_have_the_kernels_of_layers_with_memory(name):
    with_memory, without = (traced(load(name, True, device, **RECURRENT[name])) for device in ("cpu", "meta"))

    assert with_memory.counts == without.counts
    assert {"recurrent"} < {kernel.split()[0] for kernel in without.counts}


# ---- PyTorch's own counter

SMALL = {
    "mlp": {"width": 32, "batch": 4},
    "resnet": {"depth": 18, "image": 64, "batch": 2},
    "vgg": {"image": 32, "batch": 2},
    "mobilenet": {"image": 32, "batch": 2},
    "detector": {"image": 128, "batch": 1},
    "unet": {"image": 32, "batch": 1, "width": 4},
    "bert": {"width": 64, "layers": 2, "sequence": 16, "batch": 2, "words": 50, "masked": 3},
    "decoder": {"width": 64, "layers": 2, "heads": 4, "inner": 96, "words": 50, "sequence": 16, "batch": 2},
    "dlrm": {"batch": 8, "most_rows": 20, "dim": 8},
}


# PyTorch counts the weight gradient of a convolution in groups as if every group had all channels.
IN_GROUPS = "mobilenet"


@pytest.mark.parametrize(
    ("name", "is_training"), [(n, t) for n in SMALL for t in (False, True) if (n, t) != (IN_GROUPS, True)]
)
def test_flop_are_those_that_pytorch_counts(name, is_training):
    loaded = load(name, is_training, **SMALL[name])
    trace = traced(loaded)
    with FlopCounterMode(display=False) as counter:
        loaded.run()

    assert flop(trace) == counter.get_total_flops() > 0


def test_gradients_of_convolutions_in_groups_have_the_flop_of_the_forward_pass():
    loaded = load(IN_GROUPS, True, **SMALL[IN_GROUPS])
    flop_of_direction = Counter()
    for kernel, count in traced(loaded).counts.items():
        if kernel.startswith("conv"):
            flop_of_direction[parse_pattern(kernel).direction] += flop_of(kernel) * count

    first = 2 * 2 * 32 * 16 * 16 * 3 * 9  # images have no gradient
    assert flop_of_direction["backward_weights"] == flop_of_direction["forward"]
    assert flop_of_direction["backward_data"] == flop_of_direction["forward"] - first


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_is_two_products_of_visible_pairs(is_causal):
    name, batch, heads, size, length = "decoder" if is_causal else "bert", 2, 4 if is_causal else 1, 0, 16
    settings = SMALL[name]
    size = settings["width"] // heads
    pairs = length * (length + 1) // 2 if is_causal else length * length
    trace = traced(load(name, True, **settings))
    found = {k: n for k, n in trace.counts.items() if k.startswith("attention")}

    forward, backward = (flop_of(k) for k in found)
    assert list(found.values()) == [2, 2]
    assert forward == 4 * batch * heads * size * pairs
    assert backward > 2 * forward


# ---- what a trace has


def test_a_step_is_not_changed_by_being_traced():
    def losses(watch):
        torch.manual_seed(3)
        loaded = load("resnet", True, depth=18, image=32, batch=2)
        if watch:
            traced(loaded)
        else:
            for _ in range(2):
                loaded.run()
        return [p.detach().clone() for p in loaded.modules[0].parameters()]

    watched, alone = losses(True), losses(False)

    assert all(torch.equal(a, b) for a, b in zip(watched, alone, strict=True))


def test_gradients_are_at_the_place_of_their_operator():
    trace = traced(load("resnet", True, depth=18, image=64, batch=2))
    places = {}
    for call in trace.calls:
        if call.kernel and call.kernel.startswith("conv"):
            places.setdefault(call.where, []).append(parse_pattern(call.kernel).direction)

    assert places["conv1"] == ["forward", "backward_weights"]  # images have no gradient
    assert places["layer4.1.conv2"] == ["forward", "backward_data", "backward_weights"]
    assert len(places) == 20


def test_a_recurrent_layer_is_one_kernel_in_each_direction():
    for cell in ("LSTM", "GRU"):
        trace = traced(load("words", True, cell=cell, width=8, batch=2, steps=5, vocabulary=11))
        kernels = [k for k in trace.counts if k.startswith("recurrent")]
        inside = {c.operator for c in trace.calls if c.where == "layers"}

        sizes = f"cell={cell.lower()} hidden=8 batch=2 timesteps=5 input_size=8 layers=2"
        assert kernels == [f"recurrent {sizes} forward f32 mode=training", f"recurrent {sizes} backward f32"]
        assert inside <= {"torch.recurrent", "gradient of torch.recurrent", "aten.zeros"}  # the first states


def test_a_recurrent_layer_of_a_packed_sequence_is_one_kernel_with_the_mean_batch():
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    class Packed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.GRU(6, 8, num_layers=2, batch_first=True, bidirectional=True)

        def forward(self, x):
            packed = pack_padded_sequence(x, torch.tensor([5, 4, 2]), batch_first=True)
            return pad_packed_sequence(self.layers(packed)[0], batch_first=True)[0]

    trace = traced(program.program_of((Packed(), torch.ones(3, 5, 6), lambda y: y.sum()), "net", True, "none"))
    kernels = [k for k in trace.counts if k.startswith("recurrent")]

    sizes = "cell=gru hidden=8 batch=2 timesteps=5 input_size=6 layers=2 bidirectional=1"
    assert kernels == [f"recurrent {sizes} forward f32 mode=training", f"recurrent {sizes} backward f32"]
    assert not [c for c in trace.calls if "mm" in c.operator]


def test_dropout_is_a_kernel_where_numbers_are_dropped():
    module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(0.2), torch.nn.Linear(4, 1))
    loaded = program.program_of((module, torch.ones(6, 8), lambda y: y.sum()), "net", True, "none")
    kernels = traced(loaded).counts

    assert 1 == kernels["dropout n=24 percent=20 forward f32"] == kernels["elementwise kind=multiply n=24 forward f32"]
    assert not [
        k for k in traced(program.program_of((module, torch.ones(6, 8)), "net", False)).counts if "dropout" in k
    ]


def test_attention_with_dropout_runs_piece_by_piece_on_cpus():
    class Attention(torch.nn.Module):
        def __init__(self, share):
            super().__init__()
            self.share, self.scale = share, torch.nn.Parameter(torch.ones(1))

        def forward(self, q):
            return torch.nn.functional.scaled_dot_product_attention(q * self.scale, q, q, dropout_p=self.share)

    counts = []
    for share in (0.0, 0.1):
        loaded = program.program_of((Attention(share), torch.ones(2, 3, 5, 8), lambda y: y.sum()), "net", True, "none")
        counts.append({kernel.split()[0] for kernel in traced(loaded).counts})

    assert "attention" in counts[0]
    assert not {"dropout", "softmax"} & counts[0]
    assert "attention" not in counts[1]
    assert {"dropout", "softmax", "batched_gemm"} <= counts[1]


@pytest.mark.parametrize(
    ("optimizer", "kernel"),
    [("sgd", "optimizer kind=sgd n=76"), ("adam", "optimizer kind=adam n=76"), ("none", None)],
)
def test_an_update_is_one_kernel_that_ran_as_a_chain(optimizer, kernel):
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1, bias=False), torch.nn.Flatten(0))
    loaded = program.program_of((module, torch.ones(2, 8), lambda y: y.sum()), "net", True, optimizer)
    updates = [c for c in traced(loaded).calls if c.where == "optimizer"]

    if kernel is None:
        assert not updates
    else:
        (update,) = updates
        assert update.kernel.startswith(kernel.replace("76", "80"))
        assert update.operators >= 6
        assert update.bytes >= 80 * 4 * 5


def test_fused_updates_are_what_ran():
    module = torch.nn.Linear(8, 8)
    adam = torch.optim.AdamW(module.parameters(), fused=True)
    loaded = program.program_of((module, torch.ones(2, 8), lambda y: y.sum(), adam), "net", True)

    (update,) = [c for c in traced(loaded).calls if c.kernel and c.kernel.startswith("optimizer")]

    assert (update.operator, update.operators) == ("aten._fused_adamw_", 1)


def test_bytes_of_operators_and_views():
    x, y = torch.ones(10, 20), torch.ones(20)
    trace = trace_torch(lambda: (x.t(), x + y, x.clone(), x.zero_()), [], "", "", False)

    named = {c.operator: c.bytes for c in trace.calls}
    assert trace.views == 1
    assert named == {"aten.add": 4 * (200 + 20 + 200), "aten.clone": 4 * 400, "aten.zero_": 4 * 200}
    assert [c.kernel for c in trace.calls] == [None, None, None]  # y is added to every row


def test_operators_of_a_number_without_axes_are_no_kernel():
    x = torch.tensor(1.0)
    trace = trace_torch(lambda: (torch.softmax(x, 0), x.topk(1, 0), x.sum()), [], "", "", False)

    assert {None} == {c.kernel for c in trace.calls}


def test_memory_that_is_used_again_is_one_buffer():
    x = torch.ones(1000, 1000)

    def step():
        for _ in range(5):
            torch.relu(x)  # freed at once

    trace = trace_torch(step, [], "", "", False)

    assert len({c.writes for c in trace.calls}) < len(trace.calls)
    assert all(c.reads == trace.calls[0].reads for c in trace.calls)


def test_a_suite_of_a_real_network_says_everything_again():
    trace = traced(load("bert", True, **SMALL["bert"]))

    assert parse_trace(tomllib.loads(suite_text(trace)), "my.suite") == trace


# ---- programs


def write(tmp_path, text):
    path = tmp_path / "net.py"
    path.write_text("import torch\n" + text)
    return f"{path}:build"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("build = 3\n", "has no function build"),
        ("def build(): return 3\n", "wanted a network and its inputs"),
        ("def build(): return torch.nn.Linear(2, 2)\n", "wanted a network and its inputs"),
        ("def build(): return torch.nn.Linear(2, 2), torch.ones(2)\n", "training needs a loss"),
    ],
)
def test_a_program_that_is_not_as_wanted(tmp_path, text, words):
    with pytest.raises(BadInput, match=words):
        program.load(write(tmp_path, text), {}, True)


def test_arguments_and_functions_of_a_program(tmp_path):
    name = write(
        tmp_path, "def build(n=2, kind='a'):\n    return lambda: torch.ones(n).relu() if kind == 'b' else 1 / 0\n"
    )

    loaded = program.load(name, {"n": "5", "kind": "b"}, False)

    assert list(traced(loaded).counts) == ["elementwise kind=relu n=5 forward f32"]
    with pytest.raises(BadInput, match="no argument 'm'"):
        program.load(name, {"m": "5"}, False)
    with pytest.raises(BadInput, match="does not exist"):
        program.load(str(tmp_path / "other.py") + ":build", {}, False)
    with pytest.raises(BadInput, match=r"FILE\.py:FUNCTION"):
        program.load("net", {}, False)


class _Attention(torch.nn.Module):
    def forward(self, query):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.nn.functional.scaled_dot_product_attention(query, query, value=query)


@pytest.mark.parametrize("is_training", [False, True])
def test_attention_under_autocast_has_the_type_in_which_it_runs(is_training):
    query = torch.ones(1, 4, 16, 32, requires_grad=is_training)
    network = _Attention()

    def step():
        result = network(query)
        if is_training:
            result.float().sum().backward()

    trace = trace_torch(step, [network], "attention", "test", is_training)

    kernels = [kernel for kernel in trace.counts if kernel.startswith("attention ")]
    assert 1 + is_training == len(kernels)
    assert all(" bf16" in kernel for kernel in kernels)


def test_autocast_of_shapes_is_said_for_attention_and_for_other_devices():
    class Linear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.part = torch.nn.Linear(8, 8)

        def forward(self, x):
            with torch.autocast("xpu", dtype=torch.bfloat16):
                return self.part(x)

    for network, shape in ((_Attention(), (1, 4, 16, 32)), (Linear().to("meta"), (2, 8))):
        x = torch.ones(shape, device="meta")
        trace = trace_torch(lambda network=network, x=x: network(x), [network], "shapes", "test", False)
        assert "autocast was not applied" in " ".join(trace.notes)


def test_a_layer_that_autocast_runs_in_part_is_said():
    layer = torch.nn.GRU(16, 32)
    x = torch.ones(5, 2, 16)

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(x)

    trace = trace_torch(step, [layer], "gru", "test", False)

    assert [" f32" in kernel for kernel in trace.counts] == [True]
    assert "autocast runs a part of it in fewer bits" in " ".join(trace.notes)
