"""Attention in PyTorch: `scaled_dot_product_attention`, with the kernel that PyTorch chooses or composed of products.

On CPUs PyTorch has one fused kernel. It needs keys and values of one size; otherwise PyTorch composes the products in
f32 by itself. A mask that is not simply causal is an array of 0 and -inf, as models make it. PyTorch has no operator
for a paged cache on CPUs: the pages are collected first, in every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays

Function = Callable[[], Any]


def prepare(
    torch: Any,
    tensor: Callable[[Any], Any],
    case: Case,
    arrays: Arrays,
    change: Callable[[Function], Function] = lambda function: function,
) -> Kernel:
    """A call, or the gradients that autograd computes from one. `tensor` makes a tensor on the memory of an array.

    `change` may return another function, such as a compiled one, for the one that computes the result.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    p, algorithm = case.problem, case.settings["algorithm"]
    if algorithm == "graph":
        raise Unsupported("PyTorch has no graphs of attention; choose algorithm=default or composed")
    views = {name: tensor(array) for name, array in arrays.items()}
    fused = [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
    choices = [SDPBackend.MATH] if algorithm == "composed" else [*fused, SDPBackend.MATH]
    is_causal = p.mask == "causal" and p.queries == p.keys and not p.window and p.lengths == "equal"
    mask = None if is_causal else _mask(torch, case, views["q"].dtype)
    options = {"attn_mask": mask, "is_causal": is_causal, "enable_gqa": p.group > 1}
    attend = torch.nn.functional.scaled_dot_product_attention
    notes = {"implementation": "scaled_dot_product_attention"}
    if algorithm == "composed":
        notes["implementation"] += " (math)"
    result: list[Any] = []
    if case.direction == "forward":
        keys_and_values = _keys_and_values(torch, case, views)
        function = change(lambda: attend(views["q"], *keys_and_values(), **options))

        def run() -> None:
            with torch.no_grad(), sdpa_kernel(choices):
                result[:] = [function()]

        def store() -> None:
            if result:
                views["y"].copy_(result[0])

        return Kernel(run=run, load=result.clear, store=store, notes=notes)
    if p.page:
        raise Unsupported("a paged cache is for inference; leave out page")
    inputs = [views[name].detach().requires_grad_() for name in "qkv"]
    function = change(lambda: attend(*inputs, **options))
    output: list[Any] = []

    def load() -> None:
        result.clear()
        with torch.enable_grad(), sdpa_kernel(choices):
            output[:] = [function()]

    def run_backward() -> None:
        result[:] = torch.autograd.grad(output[0], inputs, views["dy"], retain_graph=True)

    def store_gradients() -> None:
        for name, gradient in zip(("dq", "dk", "dv"), result, strict=False):
            views[name].copy_(gradient)

    notes["implementation"] = "autograd of " + notes["implementation"]
    private = ("result", "lse")
    return Kernel(run=run_backward, load=load, store=store_gradients, private_buffers=private, notes=notes)


def _keys_and_values(torch: Any, case: Case, views: dict[str, Any]) -> Callable[[], tuple[Any, Any]]:
    """What returns k and v as (batch, kv_heads, keys, size)."""
    p = case.problem
    if not p.page:
        return lambda: (views["k"], views["v"])
    table = views["page_table"].reshape(-1)

    def collected(cache: Any) -> Any:
        together = cache.index_select(0, table).unflatten(0, (p.batch, -1))
        return together.transpose(1, 2).flatten(2, 3)[:, :, : p.keys]

    return lambda: (collected(views["k"]), collected(views["v"]))


def _mask(torch: Any, case: Case, kind: Any) -> Any:
    """An array (batch or 1, 1, queries, keys) of 0 where a query sees a key, else -inf; None if all see all."""
    p = case.problem
    lengths = p.key_counts if p.lengths == "spread" else (p.keys,)
    if lengths == (p.keys,) and (p.mask == "none" or (p.queries == 1 and not p.window)):
        return None
    seen = torch.zeros(len(lengths), 1, p.queries, p.keys, dtype=torch.bool)
    for rows, keys in zip(seen[:, 0], lengths, strict=True):
        for query, row in enumerate(rows):
            # Rows of padding see what the last query sees.
            first, end = p.visible(min(query, p.query_count(keys) - 1), keys)
            row[first:end] = True
    return torch.zeros(seen.shape, dtype=kind).masked_fill_(~seen, float("-inf"))
