"""Connectionist temporal classification, computed rightly and with mistakes."""

import numpy as np

from deepbench.core.op import find_op
from tests.ops.wrong_kernels import Kernel, of_problem

NO = np.float32(-1e30)

SIZES = ("batch=3 time=21 labels=7 classes=5", "batch=5 time=37 labels=9 classes=11 lengths=spread")

REALISTIC = "batch=3 time=300 labels=60 classes=29 lengths=spread"


def alphas(log_y, states, repeats=False, skips=True):
    """The logarithms of α, step by step in float32."""
    alpha = np.full((len(log_y), states.size), NO)
    alpha[0, :2] = log_y[0, states[:2]]
    may = np.zeros(states.size, bool)
    may[2:] = (states[2:] != 0) & (repeats | (states[2:] != states[:-2])) & skips
    for t in range(1, len(log_y)):
        new = alpha[t - 1].copy()
        new[1:] = np.logaddexp(new[1:], alpha[t - 1, :-1])
        new[may] = np.logaddexp(new[may], alpha[t - 1, np.flatnonzero(may) - 2])
        alpha[t] = new + log_y[t, states]
    return alpha


def sequences(arrays):
    for b, (time, length) in enumerate(zip(arrays["steps"], arrays["lengths"], strict=True)):
        states = np.zeros(2 * length + 1, int)
        states[1::2] = arrays["transcripts"][b, :length]
        yield b, arrays["log_probabilities"][:time, b], states


def loss(problem, arrays, blank_only=False, last=None, **how):
    found = np.zeros(problem.batch, np.float32)
    for b, log_y, states in sequences(arrays):
        end = alphas(log_y[:last], states, **how)[-1]
        found[b] = -end[-1] if blank_only else -np.logaddexp(end[-1], end[-2])
    return {"loss": found}


def gradient(problem, arrays, softmax=True, scaled=True, keep_end=False, **how):
    found = np.zeros_like(arrays["log_probabilities"])
    if keep_end:
        found[...] = np.exp(arrays["log_probabilities"])
    for b, log_y, states in sequences(arrays):
        alpha = alphas(log_y, states, **how)
        beta = alphas(log_y[::-1], states[::-1], **how)[::-1, ::-1] - log_y[:, states]
        total = np.logaddexp(alpha[-1, -1], alpha[-1, -2])
        share = np.zeros_like(log_y)
        np.add.at(share.T, states, np.exp(np.maximum(alpha + beta - total, -80)).T)
        scale = arrays["dloss"][b] if scaled else np.float32(1)
        found[: len(log_y), b] = scale * (softmax * np.exp(log_y) - share)
    return {"gradient": found}


KERNELS = [
    *(
        Kernel(f"ctc {sizes} {direction} f32", None, of_problem(function))
        for sizes in [*(p.text for p in find_op("ctc").smoke), REALISTIC]
        for direction, function in (("forward", loss), ("backward", gradient))
    ),
    *(
        Kernel(f"ctc {sizes} forward f32", next(iter(how)), of_problem(loss, **how))
        for sizes in [*SIZES, REALISTIC]
        for how in [{"repeats": True}, {"skips": False}, {"blank_only": True}, {"last": -1}]
    ),
    *(
        Kernel(f"ctc {sizes} backward f32", next(iter(how)), of_problem(gradient, **how))
        for sizes in [*SIZES, REALISTIC]
        for how in [{"repeats": True}, {"skips": False}, {"softmax": False}, {"scaled": False}]
    ),
    # Steps after the end of a sequence: only where sequences differ in their lengths.
    *(
        Kernel(f"ctc {sizes} backward f32", "keep_end", of_problem(gradient, keep_end=True))
        for sizes in [f"{SIZES[0]} lengths=spread", SIZES[1], REALISTIC]
    ),
]
