"""Operations in PyTorch that the memory limits: elementwise functions, sums, tables, losses, copies and others.

Each function returns what to call, and where its results belong. Backward passes are the operators that autograd calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.ops.loss import ALPHA

# Numbers that a norm adds in one go.
ROW = 4096

Tensors = dict[str, Any]
Prepared = tuple[Callable[[], Any], list[Any], str]
"""The function, the tensors that its results are copied to, in their order, and the operator's name."""


def elementwise(torch: Any, case: Case, t: Tensors) -> Prepared:
    """One operator; chains of functions that PyTorch does not fuse are several."""
    f, aten, kind = torch.nn.functional, torch.ops.aten, case.problem.kind
    a, b, dy, kept = t.get("a"), t.get("b"), t.get("dy"), t.get("result")
    if case.direction == "forward":
        function, name = {
            "relu": (lambda: torch.relu(a), "relu"),
            "relu6": (lambda: f.relu6(a), "relu6"),
            "gelu": (lambda: f.gelu(a), "gelu"),
            "gelu_tanh": (lambda: f.gelu(a, approximate="tanh"), "gelu"),
            "silu": (lambda: f.silu(a), "silu"),
            "elu": (lambda: f.elu(a), "elu"),
            "sigmoid": (lambda: torch.sigmoid(a), "sigmoid"),
            "tanh": (lambda: torch.tanh(a), "tanh"),
            "add": (lambda: torch.add(a, b), "add"),
            "multiply": (lambda: torch.mul(a, b), "mul"),
            "multiply_add": (lambda: torch.addcmul(t["c"], a, b), "addcmul"),
            "add_relu": (lambda: torch.relu(torch.add(a, b)), "add and relu"),
            "swiglu": (lambda: torch.mul(f.silu(a), b), "silu and mul"),
            "hardtanh": (lambda: f.hardtanh(a), "hardtanh"),
            "geglu": (lambda: torch.mul(f.gelu(a), b), "gelu and mul"),
            "geglu_tanh": (lambda: torch.mul(f.gelu(a, approximate="tanh"), b), "gelu and mul"),
        }[kind]
        return function, [t["y"]], name
    if kind in ("multiply", "multiply_add"):
        return lambda: (torch.mul(dy, b), torch.mul(dy, a)), [t["da"], t["db"]], "mul and mul"
    if kind == "swiglu":

        def swiglu() -> Any:
            return aten.silu_backward(torch.mul(dy, b), a), torch.mul(dy, f.silu(a))

        return swiglu, [t["da"], t["db"]], "mul, silu_backward, silu and mul"
    if kind in ("geglu", "geglu_tanh"):
        how = "tanh" if kind == "geglu_tanh" else "none"

        def geglu() -> Any:
            da = aten.gelu_backward(torch.mul(dy, b), a, approximate=how)
            return da, torch.mul(dy, f.gelu(a, approximate=how))

        return geglu, [t["da"], t["db"]], "mul, gelu_backward, gelu and mul"
    function, name = {
        "relu": (lambda: aten.threshold_backward(dy, kept, 0), "threshold_backward"),
        "add_relu": (lambda: aten.threshold_backward(dy, kept, 0), "threshold_backward"),
        "relu6": (lambda: aten.hardtanh_backward(dy, a, 0.0, 6.0), "hardtanh_backward"),
        "hardtanh": (lambda: aten.hardtanh_backward(dy, a, -1.0, 1.0), "hardtanh_backward"),
        "gelu": (lambda: aten.gelu_backward(dy, a), "gelu_backward"),
        "gelu_tanh": (lambda: aten.gelu_backward(dy, a, approximate="tanh"), "gelu_backward"),
        "silu": (lambda: aten.silu_backward(dy, a), "silu_backward"),
        "elu": (lambda: aten.elu_backward(dy, 1.0, 1.0, 1.0, False, a), "elu_backward"),
        "sigmoid": (lambda: aten.sigmoid_backward(dy, kept), "sigmoid_backward"),
        "tanh": (lambda: aten.tanh_backward(dy, kept), "tanh_backward"),
    }[kind]
    return function, [t["da"]], name


def dropout(torch: Any, case: Case, t: Tensors) -> Prepared:
    """`dropout` as in training."""
    function, a, probability = torch.nn.functional.dropout, t["a"], case.problem.probability
    return lambda: function(a, probability, True), [t["y"]], "dropout"


def reduction(torch: Any, case: Case, t: Tensors) -> Prepared:
    """`sum`, `mean` or `amax`."""
    axis = 1 if case.problem.axis == "columns" else 0
    name = {"sum": "sum", "mean": "mean", "max": "amax"}[case.problem.kind]
    function, x = getattr(torch, name), t["x"]
    return lambda: function(x, axis), [t["y"]], name


def pooling(torch: Any, case: Case, t: Tensors) -> Prepared:
    """`max_pool` and `avg_pool`; for the gradient of `max`, the positions are those of a forward pass before."""
    if case.settings["layout"] == "any":
        raise Unsupported("PyTorch has no layout of its own; choose layout=nchw or nhwc")
    p, aten = case.problem, torch.ops.aten
    if p.dimensions == 3 and p.kind == "average" and case.precision.name != "f32":
        raise Unsupported("PyTorch has no average in three dimensions in 16 bits on CPUs; choose f32")
    deep = slice(3 - p.dimensions, None)
    window, stride, pad = list(p.window[deep]), list(p.stride[deep]), list(p.pad[deep])
    kind = "max" if p.kind == "max" else "avg"
    name = f"{kind}_pool{p.dimensions}d"
    if case.direction == "forward":
        function, x = getattr(torch.nn.functional, name), t["x"]
        return lambda: function(x, window, stride, pad), [t["y"]], name
    dy = t["dy"]
    if kind == "avg":
        average, like = getattr(aten, f"{name}_backward"), torch.empty_like(t["dx"])
        return lambda: average(dy, like, window, stride, pad, False, True, None), [t["dx"]], f"{name}_backward"
    x, ones = t["x"], [1] * p.dimensions
    _, positions = getattr(aten, f"{name}_with_indices")(x, window, stride, pad)
    largest = getattr(aten, f"{name}_with_indices_backward")
    shape = (window, stride, pad, ones, False)
    return lambda: largest(dy, x, *shape, positions), [t["dx"]], f"{name}_with_indices_backward"


def embedding_bag(torch: Any, case: Case, t: Tensors) -> Prepared:
    """`embedding_bag`, or `embedding` for single rows. Gradients are those of the whole table, PyTorch's default."""
    f, aten, p, indices, offsets = torch.nn.functional, torch.ops.aten, case.problem, t["indices"], t["offsets"]
    if case.direction == "forward":
        table = t["table"]
        if p.bag == 1:
            return lambda: f.embedding(indices, table), [t["y"]], "embedding"
        return lambda: f.embedding_bag(indices, table, offsets, mode="sum"), [t["y"]], "embedding_bag"
    dy = t["dy"]
    if p.bag == 1:

        def backward_of_rows() -> Any:
            return aten.embedding_dense_backward(dy, indices, p.rows, -1, False)

        return backward_of_rows, [t["dtable"]], "embedding_dense_backward"
    # What a forward pass keeps: the bag of each index, and the sizes of the bags.
    narrow = torch.zeros(p.rows, 1)
    _, bag_of, sizes, most = aten._embedding_bag(narrow, indices, offsets)

    def backward() -> Any:
        return aten._embedding_bag_backward(
            dy, indices, offsets, bag_of, sizes, most, p.rows, False, 0, False, None, -1
        )

    return backward, [t["dtable"]], "_embedding_bag_backward"


def optimizer(torch: Any, case: Case, t: Tensors) -> Prepared:
    """PyTorch's fused steps, which update parameters and state in place. It has no LAMB, which is a chain of operators.

    In 16 bits the fused step of SGD stores a wrong v (PyTorch 2.13), so there it is the two steps of `torch.optim.SGD`.
    """
    p, g, v, of = [t["p"]], [t["g"]], [t["v"]], case.operation.facts(case)
    if case.problem.kind == "sgd":
        rate, momentum = of["rate"], of["momentum"]
        if case.precision.name != "f32":

            def plain() -> None:
                v[0].mul_(momentum).add_(g[0])
                p[0].add_(v[0], alpha=-rate)

            return plain, [], "mul_, add_ and add_"
        sgd, how = torch._fused_sgd_, {"dampening": 0.0, "nesterov": False, "is_first_step": False}
        return (
            lambda: sgd(p, g, v, weight_decay=0.0, momentum=momentum, lr=rate, maximize=False, **how),
            [],
            "_fused_sgd_",
        )
    if case.problem.kind == "adagrad":
        adagrad, steps = torch._fused_adagrad_, [torch.tensor(1.0)]
        rates = {"lr": of["rate"], "lr_decay": 0.0, "weight_decay": 0.0, "eps": of["epsilon"]}
        return lambda: adagrad(p, g, v, steps, maximize=False, **rates), [], "_fused_adagrad_"
    if case.problem.kind == "lamb":
        return _lamb(torch, case, t), [], "a chain of 20 operators"
    name = f"_fused_{case.problem.kind}_"
    adam, m, steps = getattr(torch, name), [t["m"]], [torch.tensor(float(of["step"]))]
    rates = {"lr": of["rate"], "beta1": of["beta1"], "beta2": of["beta2"], "eps": of["epsilon"]}
    rates["weight_decay"] = of["decay"]
    return lambda: adam(p, g, m, v, [], steps, amsgrad=False, maximize=False, **rates), [], name


def _lamb(torch: Any, case: Case, t: Tensors) -> Callable[[], Any]:
    """The steps that programs write down. In 16 bits each would round its result, so this is for f32 only.

    A norm is that of the norms of rows: in one go, that of PyTorch 2.13 is off by 0.6 % for 10⁸ numbers.
    """
    if case.precision.name != "f32":
        raise Unsupported(
            "PyTorch has no LAMB, and a chain of its operators would round each step to 16 bits; choose f32"
        )
    p, g, m, v, of = t["p"], t["g"], t["m"], t["v"], case.operation.facts(case)
    whole = case.problem.n // ROW * ROW
    beta1, beta2, step = of["beta1"], of["beta2"], of["step"]

    def norm(x: Any) -> Any:
        rows = torch.linalg.vector_norm(x[:whole].view(-1, ROW), dim=1)
        return torch.linalg.vector_norm(torch.cat([rows, x[whole:]]))

    def run() -> None:
        m.mul_(beta1).add_(g, alpha=1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        r = m / v.div(1 - beta2**step).sqrt_().add_(of["epsilon"]).mul_(1 - beta1**step)
        r.add_(p, alpha=of["decay"])
        p.sub_(r.mul_(of["rate"] * norm(p) / norm(r)))

    return run


def permute_tokens(torch: Any, case: Case, t: Tensors) -> Prepared:
    """`index_select`, and `bmm` for sums with weights, as models write it; sums of rows are those of a view."""
    p = case.problem
    if case.direction == "forward" and p.kind == "dispatch":
        x, sources = t["x"], t["sources"]
        return lambda: torch.index_select(x, 0, sources), [t["y"]], "index_select"
    places, shape = t["places"].reshape(-1), (p.tokens, p.active, p.hidden)

    def rows(x: Any) -> Any:
        """The rows of each token."""
        return torch.index_select(x, 0, places).view(shape)

    if case.direction == "forward":
        x, w = t["x"], t["w"][:, None]
        return lambda: torch.bmm(w, rows(x)).view(p.tokens, p.hidden), [t["y"]], "index_select and bmm"
    dy = t["dy"]
    if p.kind == "dispatch":
        return lambda: rows(dy).sum(1), [t["dx"]], "index_select and sum"
    x, w, dy, where = t["x"], t["w"][:, :, None], dy[:, None], places.long()

    def combine() -> Any:
        dx = torch.empty_like(x).index_copy_(0, where, torch.bmm(w, dy).view(-1, p.hidden))
        return dx, torch.bmm(rows(x), dy.mT).view(p.tokens, p.active)

    return combine, [t["dx"], t["dw"]], "bmm, index_copy_, index_select and bmm"


def upsample(torch: Any, case: Case, t: Tensors) -> Prepared:
    """`interpolate`, and an addition as an operator of its own."""
    if case.settings["layout"] == "any":
        raise Unsupported("PyTorch has no layout of its own; choose layout=nchw or nhwc")
    p, interpolate = case.problem, torch.nn.functional.interpolate
    size = [p.h * p.scale, p.w * p.scale]
    if case.direction == "backward":
        dy, like, backward = t["dy"], [p.n, p.c, p.h, p.w], torch.ops.aten.upsample_nearest2d_backward
        return lambda: backward(dy, size, like), [t["dx"]], "upsample_nearest2d_backward"
    x, z = t["x"], t.get("z")
    if z is None:
        return lambda: interpolate(x, size), [t["y"]], "interpolate"
    return lambda: torch.add(interpolate(x, size), z), [t["y"]], "interpolate and add"


def ctc(torch: Any, case: Case, t: Tensors) -> Prepared:
    """`ctc_loss`; the backward pass has what a forward pass before has kept."""
    aten, labels = torch.ops.aten, t["transcripts"]
    log_y, steps, lengths = t["log_probabilities"], t["steps"].tolist(), t["lengths"].tolist()
    if case.direction == "forward":
        return lambda: torch.ctc_loss(log_y, labels, steps, lengths, 0, 0, False), [t["loss"]], "ctc_loss"
    loss, alpha = aten._ctc_loss(log_y, labels, steps, lengths, 0, False)
    backward, dloss = aten._ctc_loss_backward, t["dloss"]

    def run() -> Any:
        return backward(dloss, log_y, labels, steps, lengths, loss, alpha, 0, False)

    return run, [t["gradient"]], "_ctc_loss_backward"


def rope(torch: Any, case: Case, t: Tensors) -> Prepared:
    """The operators of models in Python, because PyTorch has none for all of it; backward autograd.

    Halves are multiplied, exchanged and added, as in Hugging Face's Llama; interleaved pairs are complex numbers in
    f32, as in Meta's. Both repeat the cosines and sines before, which is not timed.
    """
    source, result = ("x", "y") if case.direction == "forward" else ("dy", "dx")
    half = case.problem.dim // 2
    if case.settings["pairs"] == "interleaved":
        turns = torch.complex(t["cos"].float(), t["sin"].float())[:, None]

        def turned(x: Any) -> Any:
            pairs = torch.view_as_complex(x.float().reshape(*x.shape[:2], half, 2))
            return torch.view_as_real(pairs * turns).flatten(2).type_as(x)

        name = "view_as_complex and mul"
    else:
        cos, sin = (torch.cat([t[name], t[name]], dim=1)[:, None] for name in ("cos", "sin"))

        def turned(x: Any) -> Any:
            return x * cos + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * sin

        name = "mul, neg, cat, mul and add"
    if case.direction == "forward":
        return lambda: turned(t[source]), [t[result]], name
    x = torch.zeros_like(t["dy"]).requires_grad_()
    return _gradient(torch, lambda: turned(x), x, t["dy"]), [t["dx"]], f"autograd of {name}"


def top_k(torch: Any, case: Case, t: Tensors) -> Prepared:
    """`topk`, and `softmax` of its values; backward the operators that autograd calls. PyTorch's positions are s64."""
    p, weighted = case.problem, case.settings["softmax"] == "yes"
    if case.direction == "forward":
        x, in_order = t["x"], case.settings["sorted"] == "yes"

        def choose() -> Any:
            values, indices = torch.topk(x, p.k, dim=1, sorted=in_order)
            return torch.softmax(values, 1) if weighted else values, indices

        return choose, [t["values"], t["indices"]], "topk and softmax" if weighted else "topk"
    aten, dy, chosen, shape = torch.ops.aten, t["dy"], t["chosen"].long(), [p.rows, p.columns]
    back, softmax_back = aten.value_selecting_reduction_backward, aten._softmax_backward_data
    if not weighted:
        return lambda: back(dy, 1, chosen, shape, True), [t["dx"]], "value_selecting_reduction_backward"
    results = t["p"]

    def run() -> Any:
        return back(softmax_back(dy, results, 1, results.dtype), 1, chosen, shape, True)

    return run, [t["dx"]], "_softmax_backward_data and value_selecting_reduction_backward"


def loss(torch: Any, case: Case, t: Tensors) -> Prepared:
    """One function, or for `focal` the chain of them in torchvision; backward autograd.

    Data of 16 bits become f32 first, as language models do, because PyTorch's losses have the type of the data. The
    numbers of columns become s64 before, which is not timed.
    """
    f, kind = torch.nn.functional, case.problem.kind
    target = t["target"].long() if kind == "cross_entropy" else t["target"]

    def focal(x: Any, target: Any) -> Any:
        p = torch.sigmoid(x)
        entropy = f.binary_cross_entropy_with_logits(x, target, reduction="none")
        hit = p * target + (1 - p) * (1 - target)
        return ((ALPHA * target + (1 - ALPHA) * (1 - target)) * (entropy * (1 - hit) ** 2)).mean()

    function, name = {
        "cross_entropy": (f.cross_entropy, "cross_entropy"),
        "binary_cross_entropy": (f.binary_cross_entropy_with_logits, "binary_cross_entropy_with_logits"),
        "mean_squared_error": (f.mse_loss, "mse_loss"),
        "smooth_l1": (f.smooth_l1_loss, "smooth_l1_loss"),
        "focal": (focal, "sigmoid, binary_cross_entropy_with_logits and a chain"),
    }[kind]

    def computed(x: Any) -> Any:
        return function(x.float(), target if kind == "cross_entropy" else target.float())

    if case.direction == "forward":
        x = t["x"]
        return lambda: computed(x), [t["loss"]], name
    x = t["x"].detach().requires_grad_()
    return _gradient(torch, lambda: computed(x), x, t["dloss"][0]), [t["dx"]], f"autograd of {name}"


def _gradient(torch: Any, forward: Callable[[], Any], x: Any, dy: Any) -> Callable[[], Any]:
    """What computes the gradient of x; the forward pass is not timed."""
    with torch.enable_grad():
        y = forward()
    return lambda: torch.autograd.grad(y, x, dy, retain_graph=True)[0]
