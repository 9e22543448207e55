"""Traces of JAX functions: their FLOP are those of formulas by hand, and their kernels those that autograd means."""

import itertools
import sys
from collections import Counter

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

from deepbench.core.case import parse_pattern  # noqa: E402
from deepbench.core.errors import BadInput, Unavailable  # noqa: E402
from deepbench.networks.traces.from_jax import trace_jax  # noqa: E402
from deepbench.networks.traces.kernels import flop_of  # noqa: E402
from deepbench.networks.traces.trace import MOST_CALLS, parse_trace, suite_text  # noqa: E402

pytestmark = pytest.mark.torch

PRODUCTS = ("gemm", "batched_gemm", "conv")
F32, BF16, I32 = jnp.float32, jnp.bfloat16, jnp.int32


def shape(*sizes, kind=F32):
    return jax.ShapeDtypeStruct(sizes, kind)


def traced(function, *inputs, **more):
    return trace_jax(function, *inputs, title="a net", source="net.py", **more)


def flop(trace, ops=PRODUCTS):
    return sum(flop_of(kernel) * count for kernel, count in trace.counts.items() if kernel.split()[0] in ops)


def kernels(trace, op):
    return [kernel for kernel in trace.counts.elements() if kernel.split()[0] == op]


# ---- dense layers


def mlp(parameters, x):
    for number, (w, b) in enumerate(parameters):
        with jax.named_scope(f"layer_{number}"):
            x = jax.nn.relu(x @ w + b)
    return (x**2).sum()


WIDTHS, BATCH = (24, 64, 48, 10), 8
LAYERS = [(shape(a, b), shape(b)) for a, b in itertools.pairwise(WIDTHS)]
FORWARD = sum(2 * BATCH * a * b for a, b in itertools.pairwise(WIDTHS))


def test_dense_layers():
    trace = traced(mlp, LAYERS, shape(BATCH, WIDTHS[0]))

    assert FORWARD == flop(trace)
    assert "gemm m=64 n=8 k=24 a_t=0 b_t=0 forward f32 beta=0" in trace.counts
    assert ["elementwise kind=relu n=512 forward f32"] == kernels(trace, "elementwise")[:1]
    assert ["layer_0"] == [c.where for c in trace.calls if c.kernel][:1]
    assert not trace.is_training
    assert trace.parameters is None


def test_gradients_of_dense_layers():
    trace = traced(jax.grad(mlp), LAYERS, shape(BATCH, WIDTHS[0]), is_training=True, parameters=7)

    first = 2 * BATCH * WIDTHS[0] * WIDTHS[1]  # there is no gradient for the input
    assert 3 * FORWARD - first == flop(trace)
    # Weights are (inputs, outputs) by rows. JAX computes their gradient as dyᵀ · x, and that of the data as dy · wᵀ.
    assert "gemm m=64 n=48 k=8 a_t=0 b_t=1 forward f32 beta=0" in trace.counts
    assert "gemm m=64 n=8 k=48 a_t=1 b_t=0 forward f32 beta=0" in trace.counts
    assert {"layer_0", "layer_1", "layer_2"} <= {c.where for c in trace.calls}
    assert (trace.is_training, trace.parameters) == (True, 7)


def test_operators_without_effect_on_the_result_are_left_out():
    def wasteful(parameters, x):
        y = mlp(parameters, x)
        unused = jnp.tanh(x @ x.T)
        return y, unused[0, 0]

    full = traced(wasteful, LAYERS, shape(BATCH, WIDTHS[0]))
    part = traced(lambda p, x: wasteful(p, x)[0], LAYERS, shape(BATCH, WIDTHS[0]))

    assert FORWARD + 2 * BATCH * BATCH * WIDTHS[0] == flop(full)
    assert FORWARD == flop(part)


def test_the_flop_are_those_that_pytorch_has():
    torch = pytest.importorskip("torch")
    from deepbench.networks.traces.from_torch import trace_torch

    parts = [p for a, b in itertools.pairwise(WIDTHS) for p in (torch.nn.Linear(a, b), torch.nn.ReLU())]
    module = torch.nn.Sequential(*parts)
    x = torch.randn(BATCH, WIDTHS[0])
    theirs = trace_torch(lambda: module(x).square().sum().backward(), [module], "", "", True)
    ours = traced(jax.grad(mlp), LAYERS, shape(BATCH, WIDTHS[0]))

    assert flop(theirs, ("gemm", "linear")) == flop(ours)


@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [
        ("mk", "kn", "a_t=0 b_t=0"),
        ("km", "kn", "a_t=0 b_t=1"),
        ("mk", "nk", "a_t=1 b_t=0"),
        ("km", "nk", "a_t=1 b_t=1"),
    ],
)
def test_operands_are_read_as_they_are_stored(left, right, wanted):
    sizes = {"m": 3, "n": 5, "k": 7}
    operands = [shape(*(sizes[i] for i in name)) for name in (left, right)]
    trace = traced(lambda a, b: jnp.einsum(f"{left},{right}->mn", a, b), *operands)

    assert {f"gemm m=5 n=3 k=7 {wanted} forward f32 beta=0": 1} == trace.counts
    assert not trace.others


def test_a_product_of_strided_operands_copies_them_first():
    trace = traced(lambda a, b: lax.slice(a, (0, 0), (6, 8), (1, 2)) @ b, shape(6, 8), shape(4, 5))

    assert ["copy", "dot_general"] == [c.operator for c in trace.calls]
    copy, product = trace.calls
    assert 2 * 6 * 4 * 4 == copy.bytes
    assert copy.writes[0] in product.reads


def test_types_of_products():
    def product(a, b, kind):
        return lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=kind)

    def of(a, b, result):
        own = [shape(4, 4, kind=kind) for kind in (a, b)]
        return [" ".join(k.split()[6:]) for k in traced(lambda x, y: product(x, y, result), *own).counts]

    assert ["forward bf16 beta=0"] == of(BF16, BF16, F32)
    assert ["forward bf16 beta=0 result=narrow"] == of(BF16, BF16, BF16)
    assert ["forward i8 beta=0"] == of(jnp.int8, jnp.int8, I32)
    assert ["forward i8u8 beta=0"] == of(jnp.uint8, jnp.int8, I32)
    assert [] == of(jnp.int8, jnp.uint8, I32)  # weights without a sign
    assert [] == of(jnp.int32, jnp.int32, I32)


# ---- convolutions

LAYOUTS = {"NHWC": ("NHWC", "HWIO", "NHWC"), "NCHW": ("NCHW", "OIHW", "NCHW")}


def image(layout, n, c, side):
    return shape(*(n, side, side, c) if layout == "NHWC" else (n, c, side, side))


def filters(layout, k, c, side):
    return shape(*(side, side, c, k) if layout == "NHWC" else (k, c, side, side))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("stride", "dilation", "groups", "pad"), [(1, 1, 1, 1), (2, 1, 1, 0), (1, 2, 1, 2), (2, 1, 4, 1), (1, 1, 8, 1)]
)
def test_convolutions_and_their_gradients(layout, stride, dilation, groups, pad):
    def net(w, x):
        pads = [(pad, pad)] * 2
        y = lax.conv_general_dilated(
            x,
            w,
            (stride, stride),
            pads,
            rhs_dilation=(dilation, dilation),
            dimension_numbers=LAYOUTS[layout],
            feature_group_count=groups,
        )
        return (y**2).sum()

    c, k, side = 8, 16, 12
    trace = traced(jax.grad(net, (0, 1)), filters(layout, k, c // groups, 3), image(layout, 4, c, side))

    q = (side + 2 * pad - 2 * dilation - 1) // stride + 1
    one = 2 * 4 * k * q * q * (c // groups) * 9
    assert 3 * one == flop(trace)
    found = Counter(parse_pattern(kernel).direction for kernel in kernels(trace, "conv"))
    assert {"forward": 1, "backward_data": 1, "backward_weights": 1} == found
    problems = {parse_pattern(kernel).problem for kernel in kernels(trace, "conv")}
    (p,) = problems  # all three are of one convolution
    assert (4, c, side, side, k, 3, 3, pad, stride, dilation, groups) == (
        *(p.n, p.c, p.h, p.w, p.k, p.r, p.s),
        *(p.pad_h, p.stride_h, p.dilation_h, p.groups),
    )
    assert all(("layout=nhwc" in kernel) == (layout == "NHWC") for kernel in kernels(trace, "conv"))


@pytest.mark.parametrize(("side", "window", "stride"), [(224, 7, 2), (56, 3, 2), (56, 3, 1), (10, 4, 1), (9, 2, 2)])
def test_padding_at_one_end_keeps_the_flop(side, window, stride):
    def net(w, x):
        return lax.conv_general_dilated(x, w, (stride,) * 2, "SAME", dimension_numbers=LAYOUTS["NHWC"]).sum()

    trace = traced(net, shape(window, window, 3, 5), shape(2, side, side, 3))

    q = -(-side // stride)
    assert 2 * 2 * 5 * q * q * 3 * window**2 == flop(trace)


def test_a_transposed_convolution_is_a_data_gradient():
    trace = traced(lambda w, x: lax.conv_transpose(x, w, (2, 2), "SAME"), shape(3, 3, 8, 16), shape(2, 10, 10, 8))

    (kernel,) = kernels(trace, "conv")
    p = parse_pattern(kernel)
    assert "backward_data" == p.direction
    assert (20, 20, 16, 8) == (p.problem.h, p.problem.w, p.problem.c, p.problem.k)
    assert 2 * 2 * 8 * 10 * 10 * 16 * 9 == flop(trace)


def test_a_convolution_in_one_and_three_dimensions():
    one = traced(
        lambda w, x: lax.conv_general_dilated(x, w, (1,), [(2, 0)], dimension_numbers=("NWC", "WIO", "NWC")),
        shape(3, 8, 16),
        shape(2, 50, 8),
    )
    three = traced(
        lambda w, x: lax.conv_general_dilated(x, w, (1,) * 3, "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC")),
        shape(3, 3, 3, 8, 16),
        shape(2, 5, 6, 7, 8),
    )

    assert 2 * 2 * 16 * 50 * 8 * 3 == flop(one)
    assert 2 * 2 * 16 * 5 * 6 * 7 * 8 * 27 == flop(three)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pooling(layout):
    window = (1, 3, 3, 1) if layout == "NHWC" else (1, 1, 3, 3)
    stride = (1, 2, 2, 1) if layout == "NHWC" else (1, 1, 2, 2)

    def net(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, window, stride, "SAME").sum()

    trace = traced(jax.grad(net), image(layout, 2, 8, 16))

    own = "pooling kind=max n=2 c=8 h=16 w=16 r=3 s=3 pad_h=1 pad_w=1 stride_h=2 stride_w=2 {} f32{}"
    assert [own.format("backward", " layout=nhwc" if layout == "NHWC" else "")] == kernels(trace, "pooling")
    assert flop_of(kernels(trace, "pooling")[0])


# ---- attention


def attention(parameters, x):
    batch, length, width = x.shape
    q, k, v = ((x @ w).reshape(batch, length, 4, width // 4) for w in parameters[:3])
    scores = jnp.einsum("bthd,bshd->bhts", q, k)
    y = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v)
    return y.reshape(batch, length, width) @ parameters[3]


def test_attention():
    b, t, d = 2, 16, 64
    trace = traced(attention, [shape(d, d, kind=BF16)] * 4, shape(b, t, d, kind=BF16))

    assert 4 * 2 * b * t * d * d + 2 * 2 * b * t * t * d == flop(trace)
    scores = "batched_gemm batch=8 m=16 n=16 k=16 forward bf16"
    assert 1 == trace.counts[scores]
    # The heads lie next to each other, so q and k are copied before their product.
    place = next(i for i, c in enumerate(trace.calls) if c.kernel == scores)
    assert ["copy", "copy"] == [c.operator for c in trace.calls[place - 2 : place]]


def test_gradients_of_attention():
    b, t, d = 2, 16, 64

    def loss(parameters, x):
        return attention(parameters, x).astype(F32).sum()

    trace = traced(jax.grad(loss, (0, 1)), [shape(d, d)] * 4, shape(b, t, d))

    forward = 4 * 2 * b * t * d * d + 2 * 2 * b * t * t * d
    last = 2 * b * t * d * d  # nothing depends on the last product alone
    assert 3 * forward - last == flop(trace)


# ---- loops


def lstm(parameters, x, h, c):
    w, r, b = parameters

    def step(state, x):
        h, c = state
        i, f, g, o = jnp.split(x @ w + h @ r + b, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (h, c), x)[1]


T, N, WIDTH, H = 5, 4, 8, 16
LSTM = ((shape(WIDTH, 4 * H), shape(H, 4 * H), shape(4 * H)), shape(T, N, WIDTH), shape(N, H), shape(N, H))


def test_a_recurrent_layer_counts_every_step():
    trace = traced(lstm, *LSTM)

    assert 2 * T * N * (WIDTH + H) * 4 * H == flop(trace)
    assert {T} == {trace.counts[kernel] for kernel in kernels(trace, "gemm")}


def test_gradients_of_a_recurrent_layer():
    trace = traced(jax.grad(lambda p, *rest: (lstm(p, *rest) ** 2).sum()), *LSTM)

    assert 2 * T * N * (3 * H + 2 * WIDTH) * 4 * H == flop(trace)  # no gradient for the input


def test_steps_of_a_loop_share_weights_and_have_their_own_parts_of_arrays():
    trace = traced(lstm, *LSTM)
    of_input = [c for c in trace.calls if c.kernel and f"k={WIDTH}" in c.kernel.split()]
    of_state = [c for c in trace.calls if c.kernel and f"k={H}" in c.kernel.split()]
    results = [c.writes for c in trace.calls if c.operator == "mul"][2::3]

    assert T == len({c.reads[0] for c in of_input})  # a part of x
    assert {4 * N * WIDTH} == {trace.buffers[c.reads[0]] for c in of_input}
    assert 1 == len({c.reads[1] for c in of_input}) == len({c.reads[1] for c in of_state})  # the weights
    assert T == len(set(results))  # a part of all states
    # What a step returns is what the next one reads.
    assert [r[0] for r in results[:-1]] == [c.reads[0] for c in of_state[1:]]

    def last_distance(trace):
        """Between the last two uses of the recurrent weights."""
        uses = [i for i, c in enumerate(trace.calls) if c.kernel and f"k={H}" in c.kernel.split()]
        return trace.reuse_distances[uses[-1]][trace.calls[uses[-1]].reads[1]]

    longer = traced(lstm, LSTM[0], shape(4 * T, N, WIDTH), *LSTM[2:])
    assert last_distance(trace) == last_distance(longer)  # of one step, not of all


def test_parts_are_the_array_after_the_loop():
    def net(x, w):
        return lax.scan(lambda c, v: (c, jnp.tanh(v @ w)), 0.0, x)[1].sum()

    trace = traced(net, shape(3, 4, 8), shape(8, 8))
    written = [c.writes for c in trace.calls if c.operator == "tanh"]

    (total,) = [c for c in trace.calls if c.operator == "reduce_sum"]
    assert total.reads == tuple(w[0] for w in written)
    assert 3 * [4 * 4 * 8] == [trace.buffers[n] for n in total.reads]


def test_loops_in_loops_multiply():
    def net(x):
        def outer(c, _):
            return lax.fori_loop(0, 4, lambda _, y: y @ y, c), None

        return lax.scan(outer, x, None, length=3)[0]

    assert 3 * 4 * 2 * 8**3 == flop(traced(net, shape(8, 8)))


def test_too_many_operators_are_refused_with_their_number():
    def net(x):
        return lax.scan(lambda c, _: (jnp.tanh(c), None), x, None, length=MOST_CALLS + 1)[0]

    with pytest.raises(BadInput, match=str(MOST_CALLS + 1)):
        traced(net, shape(8))


def test_the_steps_of_a_while_loop_have_to_be_stated():
    def net(x):
        return lax.while_loop(lambda s: s[0] < s[1], lambda s: (s[0] + 1, s[1], s[2] @ x), (0, I32(x.sum()), x))[2]

    with pytest.raises(BadInput, match="while_steps"):
        traced(net, shape(8, 8))
    trace = traced(net, shape(8, 8), while_steps=3)

    assert 3 * 2 * 8**3 == flop(trace)
    assert "3 steps of each while loop" in " ".join(trace.notes)


def test_of_branches_the_one_with_the_most_flop_counts():
    def net(x):
        return lax.cond(x.sum() > 0, lambda x: jnp.tanh(x) + jnp.exp(x) * 2, lambda x: x @ x, x)

    trace = traced(net, shape(8, 8))

    assert 2 * 8**3 == flop(trace)
    assert "branches" in " ".join(trace.notes)
    assert "tanh" not in [c.operator for c in trace.calls]


def test_what_is_computed_again_counts_again():
    def loss(f):
        return lambda w, x: f(lambda x: jnp.tanh(x @ w) @ w)(x).sum()

    plain = traced(jax.grad(loss(lambda f: f)), shape(8, 8), shape(8, 8))
    again = traced(jax.grad(loss(lambda f: lambda x: jnp.tanh(jax.checkpoint(f)(x)))), shape(8, 8), shape(8, 8))

    assert flop(plain) < flop(again)


def test_functions_with_gradients_of_their_own_are_followed():
    @jax.custom_vjp
    def twice(x, w):
        return x @ w

    twice.defvjp(lambda x, w: (x @ w, (x, w)), lambda kept, dy: (dy @ kept[1].T, kept[0].T @ dy @ jnp.eye(8)))
    forward = traced(twice, shape(4, 8), shape(8, 8))
    both = traced(jax.grad(lambda x, w: (twice(x, w) ** 2).sum(), (0, 1)), shape(4, 8), shape(8, 8))

    assert 2 * 4 * 8 * 8 == flop(forward)
    assert 3 * 2 * 4 * 8 * 8 + 2 * 8**3 == flop(both)


def test_constants_of_a_function_are_read():
    table = jnp.ones((8, 8))
    trace = traced(lambda x: jax.jit(lambda y: y @ table)(jnp.tanh(x)) @ table, shape(4, 8))

    first, second = (c for c in trace.calls if c.operator == "dot_general")
    assert first.reads[1] == second.reads[1]
    assert 8 * 8 * 4 == trace.buffers[first.reads[1]]


def test_what_is_not_seen_is_said():
    trace = traced(lambda x: jax.pure_callback(lambda y: y, shape(4), x) + x, shape(4))

    assert "what runs inside of pure_callback is not seen" in " ".join(trace.notes)


# ---- other operators


def test_embeddings_are_looked_up_and_their_gradient_is_that_of_the_table():
    def loss(table, rows):
        return (table[rows] ** 2).sum()

    trace = traced(jax.grad(loss), shape(1000, 32), shape(4, 6, kind=I32))

    assert 1 == trace.counts["embedding_bag rows=1000 dim=32 bags=24 bag=1 forward f32"]
    assert 1 == trace.counts["embedding_bag rows=1000 dim=32 bags=24 bag=1 backward f32"]
    lookup = next(c for c in trace.calls if c.operator == "gather")
    assert 2 * 24 * 32 * 4 + 24 * 4 == lookup.bytes  # not the whole table


def test_reductions_functions_and_top_k():
    def net(x, y):
        values, places = lax.top_k(x, 3)
        return values, places, x.sum(1), x.max(0), jnp.tanh(x), jax.nn.sigmoid(x), x + y, x * y, jnp.clip(x, 0, 6)

    trace = traced(net, shape(16, 32), shape(16, 32))

    own = [f"elementwise kind={kind} n=512 forward f32" for kind in ("tanh", "sigmoid", "add", "multiply", "relu")]
    rows = ["reduction kind=sum rows=16 columns=32 forward f32"]
    columns = ["reduction kind=max rows=16 columns=32 axis=rows forward f32"]
    assert ["top_k rows=16 columns=32 k=3 forward f32", *rows, *columns, *own] == list(trace.counts)
    assert ["min"] == [c.operator for c in trace.others]


def test_views_move_nothing_but_are_counted():
    trace = traced(lambda x: jnp.tanh(x.reshape(2, 8, 4).transpose(1, 0, 2)[:, :1]), shape(16, 4))

    assert ["tanh"] == [c.operator for c in trace.calls]
    assert 3 == trace.views
    assert 2 * 4 * 8 * 4 == trace.calls[0].bytes  # half of the array, and the result


def test_an_array_in_the_opposite_order_is_a_copy():
    trace = traced(lambda x: jnp.flip(x, 0) * x, shape(8, 4))

    assert ["copy", "mul"] == [c.operator for c in trace.calls]


def test_a_cache_is_updated_in_place_but_an_input_is_copied():
    def update(cache, new, place):
        return lax.dynamic_update_slice(cache, new, (0, place, 0))

    copied = traced(update, shape(2, 100, 64), shape(2, 1, 64), shape(kind=I32))
    kept = traced(lambda c, *rest: update(jnp.tanh(c), *rest), shape(2, 100, 64), shape(2, 1, 64), shape(kind=I32))

    assert max(c.bytes for c in copied.calls) > 2 * 2 * 100 * 64 * 4
    last = kept.calls[-1]
    assert last.bytes < 2 * 2 * 64 * 4 + 100
    assert last.writes == kept.calls[0].writes


@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="needs a JAX with jax.shard_map")
def test_work_on_several_devices_is_refused():
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("x")
    divided = jax.shard_map(lambda x: x @ x.T, mesh=mesh, in_specs=spec, out_specs=spec)

    with pytest.raises(BadInput, match="one device"):
        traced(divided, shape(8, 8))


def test_nothing_is_allocated_or_executed():
    side = 2**20  # a matrix of 4 TiB
    trace = traced(lambda a, b: a @ b, shape(side, side), shape(side, side))

    assert 2 * side**3 == flop(trace)


def test_a_trace_is_a_suite_like_any_other():
    import tomllib

    trace = traced(jax.grad(lambda p, *rest: (lstm(p, *rest) ** 2).sum()), *LSTM, is_training=True)

    assert parse_trace(tomllib.loads(suite_text(trace)), "a.suite") == trace


def test_a_missing_jax_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)

    with pytest.raises(Unavailable, match="pip install jax"):
        traced(mlp, LAYERS, None)
