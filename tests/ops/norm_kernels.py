"""Normalizations and softmax as a kernel in float32 computes them, with a deliberate mistake if one is named."""

import numpy as np

from deepbench.core.rows import EPSILON


def f32(value):
    return np.asarray(value, np.float32)


def normalized(x, mistake, centered=True):
    """z and the reciprocal of the deviation."""
    count = x.shape[1] - (mistake == "biased variance")
    mean = x.mean(axis=1, keepdims=True) if centered and mistake != "mean not subtracted" else f32(0)
    square = ((x - mean) ** 2).sum(axis=1, keepdims=True) / f32(count)
    reciprocal = 1 / np.sqrt(square + f32(0 if mistake == "no epsilon" else EPSILON))
    return (x - mean) * reciprocal, reciprocal


def gradient(g, z, reciprocal, mistake, centered=True):
    """dx from the gradient of z."""
    mean = g.mean(axis=1, keepdims=True) if centered and mistake != "mean of the gradient forgotten" else f32(0)
    product = (g * z).mean(axis=1, keepdims=True)
    if mistake == "product of the gradient forgotten":
        product = f32(0)
    return (g - mean - z * product) * (f32(1) if mistake == "gradient not divided" else reciprocal)


def without_last(array, mistake, name, axis=0):
    """The array without its last row, if that is the mistake."""
    return np.delete(array, -1, axis) if mistake == name else array


def spoiled(outputs, mistake):
    """What kernels forget whatever they compute."""
    for name, array in outputs.items():
        if mistake == "last row not written" and array.ndim > 1:
            array[-1] = np.nan
        if mistake == "last row copied" and array.ndim > 1:
            array[-1] = array[0]
        if mistake == f"{name} zero":
            array[...] = 0
    return outputs
