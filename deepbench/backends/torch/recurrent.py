"""Recurrent layers in PyTorch: `rnn_relu`, `lstm` and `gru` as the modules of torch.nn call them, and autograd."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.ops.recurrent.problem import layer_arrays, skips_input

# Our GRU gates are update, reset, new; PyTorch's are reset, update, new.
GRU_ORDER = (1, 0, 2)


def prepare(torch: Any, case: Case, tensors: dict[str, Any]) -> Kernel:
    """The kernel of one pass; weights are put into PyTorch's order of gates before timing starts."""
    p = case.problem
    if p.cell == "gru" and case.settings["gru_reset"] == "before":
        raise Unsupported("PyTorch's GRU applies the reset gate after its product; choose gru_reset=after")
    if case.settings["weights"] == "packed":
        raise Unsupported("PyTorch has no interface to pack weights ahead")
    if skips_input(case):
        raise Unsupported("PyTorch's layers multiply their input; choose input=narrow")
    training = case.direction == "backward" or case.settings["mode"] == "training"
    kind = tensors["x"].dtype
    name = {"vanilla": "rnn_relu"}.get(p.cell, p.cell)
    function = getattr(torch._VF, name)

    def leaf(values: Any) -> Any:
        """A copy with its own gradient."""
        return values.to(kind).contiguous().clone().requires_grad_(training)

    x = leaf(tensors["x"])
    states = [leaf(tensors[n].reshape(-1, p.batch, p.hidden)) for n in ("h0", "c0") if n in tensors]
    begin = perf_counter()  # as for other libraries, the time of reordering the weights is stored
    weights = [leaf(values) for own in _single_layers(case, tensors) for values in _weights(torch, case, own)]
    notes: dict[str, Any] = {"implementation": name, "convert_s": perf_counter() - begin}
    start = states if p.cell == "lstm" else states[0]
    result: list[Any] = []

    # has biases, layers, dropout, is training, is bidirectional, batch comes first
    how = (True, p.layers, 0.0, training, bool(p.bidirectional), False)

    def forward() -> Any:
        return function(x, start, weights, *how)

    def run() -> None:
        with torch.set_grad_enabled(training):
            result[:] = forward()

    y = tensors["y"]
    if case.direction == "forward":
        return Kernel(
            run=run,
            load=result.clear,
            store=lambda: y.copy_(result[0].detach()) if result else None,
            private_buffers=tuple(tensors),
            notes=notes,
        )
    dy = tensors["dy"].to(kind)
    inputs = [x, *states, *weights]
    output: list[Any] = []

    def load() -> None:
        result.clear()
        with torch.enable_grad():
            output[:] = [forward()[0]]
        y.copy_(output[0].detach())

    def run_backward() -> None:
        result[:] = torch.autograd.grad(output[0], inputs, dy, retain_graph=True)

    def store() -> None:
        if not result:
            return
        dx, *rest = result
        tensors["dx"].copy_(dx)
        for name, gradient in zip(("dh0", "dc0"), rest[: len(states)], strict=False):
            tensors[name].copy_(gradient.reshape(tensors[name].shape))
        for i, own in enumerate(_single_layers(case, tensors)):
            first = len(states) + 4 * i
            _store_gradients(case, own, rest[first : first + 4])

    notes["implementation"] = "autograd"
    if kind != torch.float32:
        # Where one operator of oneDNN does all steps, it adds in 32 bits; autograd adds what each step returns.
        with torch.enable_grad():
            start_of_one = [s[:, :1] for s in states]
            one = function(x[:1, :1], start_of_one if p.cell == "lstm" else start_of_one[0], weights, *how)[0]
        if not any("mkldnn" in node for node in _graph(one.grad_fn)):
            notes["sums"] = "16 bits over steps"
    return Kernel(run=run_backward, load=load, store=store, private_buffers=tuple(tensors), notes=notes)


def _single_layers(case: Case, tensors: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The tensors of each layer in each direction of time, in PyTorch's order."""
    for layer in range(case.problem.layers):
        for way in range(case.problem.time_directions):
            yield layer_arrays(case, tensors, layer, way)


def _order(case: Case) -> list[int]:
    """PyTorch's order of our gates. It swaps gates in pairs, so it is its own inverse."""
    return list(GRU_ORDER if case.problem.cell == "gru" else range(case.problem.gates))


def _weights(torch: Any, case: Case, own: dict[str, Any]) -> Iterator[Any]:
    """Weights for x and h, (G·H, width) and (G·H, H), and their biases, (G·H)."""
    p, order = case.problem, _order(case)
    flat = p.gates * p.hidden
    for name in ("w", "r"):
        yield own[name][:, order].permute(1, 2, 0).reshape(flat, -1)
    recurrent_bias = torch.zeros(p.gates, p.hidden)
    if p.cell == "gru":
        recurrent_bias[2] = own["b"][3]
    yield own["b"][order].reshape(flat)
    yield recurrent_bias.reshape(flat)


def _store_gradients(case: Case, own: dict[str, Any], gradients: list[Any]) -> None:
    """Copy what autograd returned for one layer in one direction of time into our arrays."""
    p, order = case.problem, _order(case)
    for name, gradient in zip(("dw", "dr"), gradients, strict=False):
        own[name].copy_(gradient.reshape(p.gates, p.hidden, -1)[order].permute(2, 0, 1))
    own["db"][: p.gates].copy_(gradients[2].reshape(p.gates, p.hidden)[order])
    if p.cell == "gru":
        own["db"][3].copy_(gradients[3].reshape(p.gates, p.hidden)[2])


def _graph(node: Any) -> set[str]:
    """The names, in lower case, of all operators that led to a result."""
    names, waiting, seen = set(), [node], {node}
    while waiting:
        node = waiting.pop()
        names.add(node.name().lower())
        new = {before for before, _ in node.next_functions if before is not None} - seen
        seen |= new
        waiting += new
    return names
