"""Aligned arrays with random contents: never zero, never denormal, and the same bits in every process."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepbench.core.precision import dtype

Array = np.ndarray[Any, Any]

# Every process draws the same numbers, so that all libraries compute with identical operands.
SEED = 20160926

# One cache line. Libraries choose kernels by alignment, so all arrays have the same.
ALIGNMENT_BYTES = 64

# Number of values that are drawn; larger arrays repeat them, which fills gigabytes in a moment instead of minutes. A
# prime, so that no leading dimension divides it and no two rows or columns of a matrix are equal.
TILE = 1_048_573

# Floats have a random significand and a magnitude from this to 1: zeros make some hardware too fast, and denormals (in
# f16, too) make it very slow.
LEAST_FLOAT = 2.0**-10
# 8-bit floats have larger smallest normal numbers.
LEAST_OF = {"f8e4m3": 2.0**-6, "f8e5m2": 2.0**-6}

# Integers stay small: CPUs without dot-product instructions add pairs of 8-bit products in 16 bits, and these sums
# saturate if the operands are large. Libraries document this, and it is not what we measure.
INTEGER_RANGE = {"s8": (-15, 15), "u8": (1, 30), "s32": (-15, 15)}


_plain = False


def use_plain_numbers() -> None:
    """From now on, numbers follow from their places, without a generator of random numbers.

    For one call under a simulator, where drawing numbers would take longer than the call.
    """
    global _plain
    _plain = True


def empty(shape: tuple[int, ...], type_name: str) -> Array:
    """An uninitialized row-major array that starts on a cache line."""
    element = dtype(type_name)
    count = int(np.prod(shape, dtype=np.int64))
    raw = np.empty(count * element.itemsize + ALIGNMENT_BYTES, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT_BYTES
    return raw[start : start + count * element.itemsize].view(element).reshape(shape)


def generator(stream: int) -> np.random.Generator:
    """A random generator that is the same in every process, and different for each `stream`."""
    return np.random.default_rng([SEED, stream])


def random(shape: tuple[int, ...], type_name: str, stream: int) -> Array:
    """A new array of random values: floats in [-1, 1] or small integers; never zero, never denormal.

    The arrays of one case use different streams.
    """
    array = empty(shape, type_name)
    repeat(draw(min(array.size, TILE), type_name, stream), array)
    return array


def repeat(values: Array, array: Array) -> None:
    """Fill an array with these values, over and over."""
    flat = array.reshape(-1)
    full_tiles = flat.size // values.size * values.size
    flat[:full_tiles].reshape(-1, values.size)[:] = values
    flat[full_tiles:] = values[: flat.size - full_tiles]


def draw(count: int, type_name: str, stream: int) -> Array:
    """`count` random values of one type."""
    if _plain:
        return _plain_numbers(count, type_name, stream)
    choices = generator(stream)
    if type_name in INTEGER_RANGE:
        low, high = INTEGER_RANGE[type_name]
        values = choices.integers(low, high, count, dtype=np.int32, endpoint=True)
        values[values == 0] = high
        return values.astype(dtype(type_name))
    least = LEAST_OF.get(type_name, LEAST_FLOAT)
    magnitudes = least + (1 - least) * choices.random(count, dtype=np.float32)
    signs = choices.integers(0, 1, count, dtype=np.int32, endpoint=True) * 2 - 1
    return (magnitudes * signs).astype(dtype(type_name))


def _plain_numbers(count: int, type_name: str, stream: int) -> Array:
    """Numbers of the same range as `draw` gives, from their places alone (multiplicative hashing)."""
    places = np.arange(count, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(stream * 40503 % 2**32)
    places ^= places >> np.uint32(15)
    if type_name in INTEGER_RANGE:
        low, high = INTEGER_RANGE[type_name]
        values = (places >> np.uint32(8)).astype(np.int32) % (high - low + 1) + low
        values[values == 0] = high
        return values.astype(dtype(type_name))
    least = LEAST_OF.get(type_name, LEAST_FLOAT)
    magnitudes = least + (1 - least) * (places >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)
    signs = (places & np.uint32(1)).astype(np.float32) * 2 - 1
    return (magnitudes * signs).astype(dtype(type_name))


def copy(array: Array) -> Array:
    """An aligned copy."""
    copied = empty((array.nbytes,), "u8").view(array.dtype).reshape(array.shape)
    copied[...] = array
    return copied


def rotate(array: Array) -> None:
    """Move every element to the place before it, in memory order, and the first one to the end."""
    flat = array.reshape(-1)
    first = flat[:1].copy()
    for start in range(0, flat.size - 1, TILE):  # a copy of a tile, not of the array
        end = min(start + TILE, flat.size - 1)
        flat[start:end] = flat[start + 1 : end + 1]
    flat[-1:] = first


def poison(array: Array) -> None:
    """Fill with a value that no kernel leaves by accident: NaN, a large odd integer, or for 8-bit integers 0x5B."""
    if array.dtype.kind in "iu":
        array.fill(0x5B if array.dtype.itemsize == 1 else 0x5A5A5A5B)
    else:
        array.fill(np.nan)


def full(shape: tuple[int, ...], type_name: str, value: float) -> Array:
    """A new array of one value."""
    array = empty(shape, type_name)
    array.fill(value)
    return array
