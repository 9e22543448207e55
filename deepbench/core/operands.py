"""Aligned arrays and honest contents: random, never zero, never denormal, the same bits in every process."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepbench.core.precision import dtype

Array = np.ndarray[Any, Any]

# Every process draws the same numbers, so that every library multiplies the very same matrices.
SEED = 20160926

# One cache line of every CPU in use; libraries switch kernels on alignment, so all get the same.
ALIGNMENT_BYTES = 64

# Values are drawn once for a tile and repeated: filling gigabytes takes a moment instead of minutes. A prime, so
# that no leading dimension divides it and no two rows or columns of a matrix are alike.
TILE = 1_048_573

# Floats are drawn from [-1, 1] with every bit of the significand random, but not closer to zero than this: zeros
# make some hardware too fast and denormals make it very slow, in f16 too.
LEAST_FLOAT = 2.0**-10
# The smallest normal number of e4m3 is larger.
LEAST_OF = {"f8e4m3": 2.0**-6, "f8e5m2": 2.0**-6}

# Integers stay small. Products of 8-bit numbers are added in pairs into 16 bits on CPUs without dot-product
# instructions, and saturate there when they are large; libraries document that, and it is not what we measure.
INTEGER_RANGE = {"s8": (-15, 15), "u8": (1, 30), "s32": (-15, 15)}


def empty(shape: tuple[int, ...], type_name: str) -> Array:
    """An uninitialised array in row-major order whose first element lies on a cache line."""
    element = dtype(type_name)
    count = int(np.prod(shape, dtype=np.int64))
    raw = np.empty(count * element.itemsize + ALIGNMENT_BYTES, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT_BYTES
    return raw[start : start + count * element.itemsize].view(element).reshape(shape)


def generator(stream: int) -> np.random.Generator:
    """Random numbers that are the same in every process; each `stream` has its own."""
    return np.random.default_rng([SEED, stream])


def random(shape: tuple[int, ...], type_name: str, stream: int) -> Array:
    """A new array of random values: floats in [-1, 1], small integers; never zero, never denormal.

    Arrays of one case take different streams.
    """
    array = empty(shape, type_name)
    values = draw(min(array.size, TILE), type_name, stream)
    flat = array.reshape(-1)
    whole = flat.size // values.size * values.size
    flat[:whole].reshape(-1, values.size)[:] = values
    flat[whole:] = values[: flat.size - whole]
    return array


def draw(count: int, type_name: str, stream: int) -> Array:
    """`count` random values of that type."""
    choices = generator(stream)
    if type_name in INTEGER_RANGE:
        low, high = INTEGER_RANGE[type_name]
        values = choices.integers(low, high, count, dtype=np.int32, endpoint=True)
        values[values == 0] = high
        return values.astype(dtype(type_name))
    least = LEAST_OF.get(type_name, LEAST_FLOAT)
    sizes = least + (1 - least) * choices.random(count, dtype=np.float32)
    signs = choices.integers(0, 1, count, dtype=np.int32, endpoint=True) * 2 - 1
    return (sizes * signs).astype(dtype(type_name))


def copy(array: Array) -> Array:
    """A copy in memory of its own, aligned alike."""
    made = empty((array.nbytes,), "u8").view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def poison(array: Array) -> None:
    """Fill with what no kernel leaves by accident: NaN, a large odd integer, or in 8 bits one of 256 values."""
    if array.dtype.kind in "iu":
        array.fill(0x5B if array.dtype.itemsize == 1 else 0x5A5A5A5B)
    else:
        array.fill(np.nan)


def filled(shape: tuple[int, ...], type_name: str, value: float) -> Array:
    """A new array of one value."""
    array = empty(shape, type_name)
    array.fill(value)
    return array
