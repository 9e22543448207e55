"""Attention, computed rightly and with mistakes."""

import numpy as np

from deepbench.core.op import find_op
from tests.ops.wrong_kernels import Kernel

PREFILL = "attention batch=2 heads=4 kv_heads=2 queries=70 keys=70 head_size=40 mask=causal"

DECODE = "attention batch=2 heads=4 kv_heads=2 queries=3 keys=129 head_size=24 value_size=16 mask=causal"

WINDOW = "attention batch=1 heads=4 kv_heads=2 queries=61 keys=61 head_size=32 mask=causal window=9"

CROSS = "attention batch=2 heads=3 kv_heads=3 queries=17 keys=45 head_size=32"

SPREAD = "attention batch=3 heads=2 kv_heads=1 queries=33 keys=33 head_size=20 mask=causal lengths=spread"

PAGED = "attention batch=3 heads=4 kv_heads=2 queries=1 keys=70 head_size=16 mask=causal page=16 lengths=spread"

# As large as in a model: only a sample is checked.
LARGE = "attention batch=4 heads=32 kv_heads=8 queries=1 keys=2048 head_size=128 mask=causal"

LARGE_PREFILL = "attention batch=1 heads=4 kv_heads=2 queries=640 keys=640 head_size=64 mask=causal"

MISTAKES = {
    "no scale": (PREFILL, DECODE, CROSS, LARGE),
    "scale without root": (PREFILL, DECODE, CROSS, LARGE),
    "sees one key too many": (PREFILL, DECODE, WINDOW),
    "sees one key too few": (PREFILL, DECODE, WINDOW, SPREAD, LARGE_PREFILL),
    "mask aligned to the start": (DECODE,),
    "no mask": (PREFILL, WINDOW, SPREAD, LARGE_PREFILL),
    "window of one more": (WINDOW,),
    "no window": (WINDOW,),
    "heads of a group far apart": (PREFILL, DECODE, LARGE, LARGE_PREFILL),
    "last query left out": (PREFILL, CROSS, LARGE_PREFILL),
    "last key left out": (CROSS, LARGE),
    "length ignored": (PAGED,),
    "pages in order": (PAGED,),
    "no normalization": (PREFILL, DECODE, CROSS, LARGE, LARGE_PREFILL),
}

GRADIENT_MISTAKES = {
    "no scale of dq": (PREFILL, WINDOW, CROSS, LARGE_PREFILL),
    "no scale of dk": (PREFILL, WINDOW, CROSS, LARGE_PREFILL),
    "one head of the group": (PREFILL, WINDOW, SPREAD, LARGE_PREFILL),
    "no sum of dy times y": (PREFILL, WINDOW, CROSS, LARGE_PREFILL),
    "no mask": (PREFILL, WINDOW, LARGE_PREFILL),
    "last query left out": (PREFILL, CROSS, SPREAD),
    "padding counts": (SPREAD,),
}


def keys_of(p, arrays, name, sequence, head, mistake):
    """Keys or values of a head in f32, all of them."""
    if "page_table" not in arrays:
        return arrays[name][sequence, head].astype(np.float32)
    table = arrays["page_table"][sequence]
    if mistake == "pages in order":
        table = np.arange(table.size) + sequence * table.size
    pages = arrays[name][np.minimum(table, len(arrays[name]) - 1), head].astype(np.float32)
    return pages.reshape(-1, pages.shape[-1])[: p.keys]


def weights_of(p, keys, q, k, mistake):
    """Weights of all queries and keys of one head, as a plain f32 program computes them."""
    scale = {"no scale": 1.0, "scale without root": 1 / p.head_size}.get(mistake, p.scale)
    s = (q @ k.T * np.float32(scale)).astype(np.float32)
    query, column = np.arange(p.queries)[:, None], np.arange(len(k))
    if mistake == "length ignored":
        keys = p.keys
    seen = column < (p.keys if mistake == "padding counts" else keys)
    if p.mask == "causal" and mistake != "no mask":
        last = query + (0 if mistake == "mask aligned to the start" else keys - p.query_count(keys))
        last = last + {"sees one key too many": 1, "sees one key too few": -1}.get(mistake, 0)
        seen = seen & (column <= last)
        if p.window and mistake != "no window":
            seen = seen & (column > last - p.window - (mistake == "window of one more"))
    if mistake == "last key left out":
        seen = seen & (column < keys - 1)
    s = np.where(seen, s, np.float32(-1e30))
    e = np.where(seen, np.exp(s - s.max(axis=1, keepdims=True)), np.float32(0))
    return e / (1 if mistake == "no normalization" else np.maximum(e.sum(axis=1, keepdims=True), 1e-30))


def evaluate(case, arrays, mistake=None):
    """The outputs in f32, by the definition or with a mistake."""
    p, results = case.problem, {}
    for name in ("y", "dq", "dk", "dv"):
        if name in arrays:
            results[name] = np.zeros(arrays[name].shape, np.float32)
    for sequence in range(p.batch):
        keys = p.key_counts[sequence]
        for head in range(p.heads):
            kv = head % p.kv_heads if mistake == "heads of a group far apart" else head // p.group
            q = arrays["q"][sequence, head].astype(np.float32)
            k, v = (keys_of(p, arrays, name, sequence, kv, mistake) for name in "kv")
            weights = weights_of(p, keys, q, k, mistake)
            if "y" in arrays:
                results["y"][sequence, head] = weights @ v
                if mistake == "last query left out":
                    results["y"][sequence, head, -1] = results["y"][sequence, head, -2]
                continue
            dy = arrays["dy"][sequence, head].astype(np.float32)
            if mistake == "padding counts":
                dy[p.query_count(keys) :] = 1
            if mistake == "last query left out":
                dy[p.query_count(keys) - 1] = 0
            y = weights @ v
            sums = 0 if mistake == "no sum of dy times y" else (dy * y).sum(axis=1, keepdims=True)
            ds = weights * (dy @ v.T - sums)
            results["dq"][sequence, head] = ds @ k * np.float32(1 if mistake == "no scale of dq" else p.scale)
            if mistake == "one head of the group" and head % p.group:
                continue
            results["dk"][sequence, kv] += ds.T @ q * np.float32(1 if mistake == "no scale of dk" else p.scale)
            results["dv"][sequence, kv] += weights.T @ dy
    return results


KERNELS = [
    *(
        Kernel(f"{text} {direction} {kind}", None, evaluate, exact=True)
        for text in [*(f"attention {p.text}" for p in find_op("attention").smoke), LARGE_PREFILL]
        for direction in ("forward", "backward")
        for kind in ("f32", "bf16", "f16")
        if "page" not in text or direction == "forward"
    ),
    *(
        Kernel(f"{text} {direction} {kind}", mistake, evaluate)
        for direction, mistakes in (("forward", MISTAKES), ("backward", GRADIENT_MISTAKES))
        for mistake, texts in mistakes.items()
        for text in texts
        for kind in ("f32", "bf16")
    ),
]
