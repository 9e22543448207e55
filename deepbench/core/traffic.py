"""Least bytes that products move between two levels of memory."""

from __future__ import annotations

import math


def product_bytes(multiply_adds: int, capacity: int, element_bytes: float, reuse: float = 1.0) -> int:
    """Least bytes that cross the border of a level of `capacity` bytes in a product of so many multiply-adds.

    With S elements in the level, at least 2·multiply_adds/√S − 2·S elements cross, whatever the order of the
    multiply-adds: Smith, Lowery, Langou, van de Geijn, "A tight I/O lower bound for matrix multiplication", 2017, after
    Hong and Kung, 1981. `reuse` is how many elements of one matrix each stored element stands for: in a convolution the
    windows of the image overlap. Then √S becomes √(reuse·S): Demmel and Dinh, "Communication-optimal convolutional
    neural nets", 2018. The elements are taken to be of the narrowest type, which makes the bound smaller, not larger.
    """
    elements = capacity / element_bytes
    return max(
        0, math.floor((2 * multiply_adds / math.sqrt(max(1.0, reuse) * elements) - 2 * elements) * element_bytes)
    )
